from __future__ import annotations

from typing import Any

import torch

from reference.attention_residual_split import projection_attention_residual
from verification.contracts.partials import LAWS, OUTPUTS, ROW_AXES, SENSITIVITY, VARIANTS, snapshots, structure
from verification.inputs import Inputs, laid_out
from verification.laws import batch_invariance, equivalence, parameter_sensitivity, row_isolation
from verification.operator import Arguments, Case, CaseGroup, Operator, Output, make_case

DEFAULTS: dict[str, Any] = {
    "rows": 4, "hidden": 7168, "projected": 3648, "blocks": 8, "capacity": 8, "scorers": 2, "order": "block_major",
    "layout": "contiguous", "score_scale": 2.0, "eps": 1e-6,
}  # fmt: skip
"""Projected: K3's merged MLA input at TP8 (q_a, kv_a, gate); the merged KDA input has 6288."""

BF16 = torch.bfloat16


def case(distribution: str = "normal", seed: int = 0, **parameters: Any) -> Case:
    """A case of projection_attention_residual."""
    return make_case("projection_attention_residual", DEFAULTS, "bf16", distribution, seed, **parameters)


def make(case: Case) -> Arguments:
    """Rows and a weight whose products are of the rows' magnitude, and snapshots with their scorers."""
    p = DEFAULTS | dict(case.parameters)
    inputs = Inputs(case.id)
    rows, hidden = p["rows"], p["hidden"]
    swept = snapshots(inputs, p, case.distribution)
    x = inputs.normal("x", (rows, hidden)).to(BF16)
    if case.distribution == "nonfinite":
        x[1:2, -1:], x[2:3, :1] = torch.nan, torch.inf
    weight = inputs.normal("weight", (p["projected"], hidden), hidden**-0.5).to(BF16)
    return {"x": laid_out(x, p["layout"]), "weight": weight, **swept}


SMALL: dict[str, Any] = {"hidden": 256, "projected": 48}

GROUPS = (
    CaseGroup("production sizes", "smoke", (case(rows=0, projected=64), case(rows=1, projected=320))),
    CaseGroup("production sizes", "full", (case(projected=6288),)),
    CaseGroup(
        "rows",
        "smoke",
        tuple(case(rows=r, blocks=4, **SMALL) for r in (2, 4, 7, 8, 16, 17, 33, 64, 257)),
    ),
    CaseGroup(
        "block counts",
        "smoke",
        tuple(case(rows=3, hidden=128, projected=16, blocks=b) for b in (0, 1, 2, 7))
        + (case(rows=2, hidden=128, projected=16, blocks=11, capacity=12),),
    ),
    CaseGroup("scorers", "smoke", tuple(case(rows=3, scorers=s, order="token_major", **SMALL) for s in (1, 3))),
    CaseGroup(
        "odd widths",
        "smoke",
        tuple(case(rows=3, hidden=h, projected=o) for h, o in ((1, 1), (130, 17), (1000, 65), (1025, 33))),
    ),
    CaseGroup(
        "layouts",
        "smoke",
        tuple(case(rows=5, layout=x, order="row_padded", **SMALL) for x in ("row_padded", "offset")),
    ),
    CaseGroup(
        "magnitudes",
        "smoke",
        (
            *(case(d, **SMALL) for d in ("near_eps", "large", "zeros")),
            *(case(rows=5, score_scale=300.0, blocks=b, **SMALL) for b in (1, 8)),
        ),
    ),
    CaseGroup("NaN and Inf", "smoke", (case("nonfinite", blocks=3, **SMALL),)),
    CaseGroup(
        "seeds",
        "nightly",
        tuple(case(seed=s, rows=s % 5, projected=o, blocks=s) for s in range(1, 8) for o in (3648, 6288)),
    ),
)

OPERATOR = Operator(
    name="projection_attention_residual",
    reference=projection_attention_residual,
    outputs=(Output("projection", "number", "=x"), *OUTPUTS),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(case(rows=9, hidden=1024, projected=96, blocks=4), case(rows=16, hidden=512, projected=33)),
    weights=("weight", "score_weights"),
    variants=VARIANTS,
    structure=structure,
    laws=(
        batch_invariance(("x", "blocks"), ROW_AXES),
        row_isolation(("x", "blocks"), ROW_AXES),
        parameter_sensitivity(
            SENSITIVITY | {"x": lambda a: a["x"].roll(1, 0), "weight": lambda a: a["weight"].roll(1, 0)}
        ),
        *LAWS,
        equivalence(
            "projection_apart",
            "The blocks and scorers change no bit of the projection.",
            lambda a: a | {"blocks": a["blocks"].flip(0), "score_weights": a["score_weights"].roll(3, 1)},
            lambda arguments, usual: {"projection": usual["projection"]},
        ),
        equivalence(
            "sweep_apart",
            "The projected rows and their weight change no bit of the partials.",
            lambda a: a | {"x": a["x"].flip(0), "weight": a["weight"].flip(0)},
            lambda arguments, usual: {name: usual[name] for name in ROW_AXES},
        ),
    ),
    special_values=(
        "As attention_residual_partial; the projection is NaN where its own row of x is, and nothing of the blocks "
        "reaches it."
    ),
)
