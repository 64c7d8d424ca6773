from __future__ import annotations

from typing import Any

import torch

from reference.checks import require
from reference.normalization import gated_rms_norm
from verification.contracts.rms_norm import DISTRIBUTIONS
from verification.inputs import LAYOUTS, TORCH_DTYPES, Inputs, laid_out
from verification.laws import batch_invariance, parameter_sensitivity, row_isolation
from verification.operator import Arguments, Case, CaseGroup, Operator, Output, make_case, pick

DEFAULTS: dict[str, Any] = {
    "rows": 4, "heads": 12, "width": 128, "weight": "bf16", "gate": 2.0, "eps": 1e-5, "layout": "contiguous",
}  # fmt: skip
"""`gate` is the standard deviation of the gate."""


def case(distribution: str = "normal", seed: int = 0, **parameters: Any) -> Case:
    """A case of gated_rms_norm."""
    return make_case("gated_rms_norm", DEFAULTS, "bf16", distribution, seed, **parameters)


def make(case: Case) -> Arguments:
    """Heads whose magnitudes the distribution names, as those of rms_norm; gates on both sides of 0."""
    p = DEFAULTS | dict(case.parameters)
    inputs, width = Inputs(case.id), p["width"]
    require(width >= 1, case.operator, f"width is {width}; expected 1 or more")
    shape = (p["rows"], p["heads"], width)
    x = pick(case.distribution, DISTRIBUTIONS, "distribution")(inputs.normal("x", shape).flatten(0, 1)).view(shape)
    gate = inputs.normal("gate", shape, p["gate"])
    weight = 1 + inputs.normal("weight", (width,), 0.25)
    heads = {
        name: laid_out(value.to(torch.bfloat16).flatten(1), p["layout"]).unflatten(1, shape[1:])
        for name, value in {"x": x, "gate": gate}.items()
    }
    return {**heads, "weight": weight.to(TORCH_DTYPES[p["weight"]]), "eps": p["eps"]}


GROUPS = (
    CaseGroup("production sizes", "smoke", tuple(case(rows=r) for r in (0, 1, 4, 17))),
    CaseGroup("production sizes", "full", tuple(case(rows=r) for r in (2, 8, 16, 64, 257)) + (case(heads=96),)),
    CaseGroup(
        "odd sizes", "smoke", tuple(case(rows=3, heads=n, width=v) for n, v in ((1, 1), (3, 17), (5, 127), (2, 257)))
    ),
    CaseGroup(
        "magnitudes",
        "smoke",
        tuple(case(d, rows=5, heads=3) for d in ("tiny", "near_eps", "large", "spiky", "constant", "zeros"))
        + (case(rows=5, heads=3, gate=40.0), case("near_eps", rows=5, heads=3, eps=1e-3)),
    ),
    CaseGroup("NaN", "smoke", (case("nonfinite", rows=2, heads=3),)),
    CaseGroup("layouts", "smoke", tuple(case(rows=5, heads=2, width=30, layout=layout) for layout in LAYOUTS)),
    CaseGroup("fp32 weight", "smoke", (case(heads=3, weight="fp32"),)),
    CaseGroup("seeds", "nightly", tuple(case(seed=s, rows=17) for s in range(1, 17))),
)

ROWS = ("x", "gate")

OPERATOR = Operator(
    name="gated_rms_norm",
    reference=gated_rms_norm,
    outputs=(Output("y", "number", "=x"),),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(case(rows=9, heads=3, width=96), case(rows=16)),
    weights=("weight",),
    laws=(
        batch_invariance(ROWS),
        row_isolation(ROWS),
        parameter_sensitivity(
            {
                "x": lambda a: a["x"].roll(1, 0),
                "gate": lambda a: a["gate"].roll(1, 0),
                "weight": lambda a: a["weight"].roll(1),
                "eps": lambda a: 0.5,
            }
        ),
    ),
    special_values=(
        "NaN spoils its head of its row alone. A gate of −Inf gives 0, of +Inf leaves the normed value. A head of "
        "zeros gives zeros."
    ),
)
