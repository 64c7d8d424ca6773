from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from reference.moe_front import router_logits
from reference.numerics import OFFICIAL, Variant
from verification.inputs import LAYOUTS, RELAID, Inputs, laid_out
from verification.laws import batch_invariance, equivalence, parameter_sensitivity, row_isolation, storage_order
from verification.operator import Arguments, Case, CaseGroup, Operator, Output, make_case, pick
from verification.shards import along, shards

DEFAULTS: dict[str, Any] = {"rows": 4, "hidden": 7168, "experts": 896, "layout": "contiguous"}

KIMI_LINEAR: dict[str, Any] = {"hidden": 2304, "experts": 256}
SMALL: dict[str, Any] = {"hidden": 520, "experts": 40}


def case(distribution: str = "normal", seed: int = 0, **parameters: Any) -> Case:
    """A case of router_logits."""
    return make_case("router_logits", DEFAULTS, "bf16", distribution, seed, **parameters)


def make(case: Case) -> Arguments:
    """Rows that the distribution names, and weights that keep the logits near one."""
    p = DEFAULTS | dict(case.parameters)
    inputs = Inputs(case.id)
    x = pick(case.distribution, DISTRIBUTIONS, "distribution")(inputs.normal("x", (p["rows"], p["hidden"])))
    weight = inputs.normal("weight", (p["experts"], p["hidden"]), p["hidden"] ** -0.5)
    return {"x": laid_out(x.to(torch.bfloat16), p["layout"]), "weight": weight.to(torch.bfloat16)}


def spiky_end(x: Tensor) -> Tensor:
    """One large element in the last column, where a dropped tail would lose it."""
    x = x * 0.01
    x[:, -1:] = 64.0
    return x


def nonfinite(x: Tensor) -> Tensor:
    """NaN in row 0, +Inf in row 1, −Inf in row 2."""
    for row, value in enumerate((torch.nan, torch.inf, -torch.inf)):
        x[row : row + 1, -1:] = value
    return x


DISTRIBUTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "normal": lambda x: x,
    "spiky_end": spiky_end,
    "one_sign": torch.abs,
    "large": lambda x: x * 2.0**60,
    "tiny": lambda x: x * 2.0**-60,
    "zeros": lambda x: x * 0,
    "nonfinite": nonfinite,
}

GROUPS = (
    CaseGroup("production sizes", "smoke", (case(rows=0, **SMALL), case(rows=1, hidden=7168, experts=64))),
    CaseGroup("production sizes", "full", (case(), case(rows=17, **KIMI_LINEAR), case(rows=257, **KIMI_LINEAR))),
    CaseGroup("row counts", "smoke", tuple(case(rows=r, **SMALL) for r in (1, 2, 4, 8, 16, 17))),
    CaseGroup("row counts", "full", tuple(case(rows=r, **SMALL) for r in (64, 65, 257))),
    CaseGroup(
        "odd sizes",
        "smoke",
        tuple(case(rows=3, hidden=h, experts=e) for h, e in ((1, 1), (7, 3), (129, 65), (1025, 33), (64, 129))),
    ),
    CaseGroup(
        "magnitudes",
        "smoke",
        tuple(case(d, rows=5, **SMALL) for d in ("spiky_end", "one_sign", "large", "tiny", "zeros")),
    ),
    CaseGroup("NaN and Inf", "smoke", (case("nonfinite", **SMALL),)),
    CaseGroup("layouts", "smoke", tuple(case(rows=5, **SMALL, layout=layout) for layout in LAYOUTS)),
    CaseGroup("seeds", "nightly", tuple(case(seed=s, rows=17, **SMALL) for s in range(1, 17))),
    # Offsets beyond 2³¹ elements: more than an index of 32 bits reaches.
    CaseGroup("far rows", "nightly", (case(rows=3, layout="far", **SMALL),), targets=("cuda", "hip")),
)


OPERATOR = Operator(
    name="router_logits",
    reference=router_logits,
    outputs=(Output("logits", "number", "fp32"),),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(case(rows=9, **SMALL), case(rows=16, hidden=1024, experts=64)),
    weights=("weight",),
    variants=(
        OFFICIAL,
        Variant("bf16", "logits rounded to bf16 (a linear layer of the model's dtype)", adds=frozenset({"logits"})),
    ),
    laws=(
        batch_invariance(("x",)),
        row_isolation(("x",)),
        parameter_sensitivity({"x": lambda a: a["x"].roll(1), "weight": lambda a: a["weight"].roll(1, 0)}),
        storage_order(("x", "weight"), RELAID),
        shards(
            "expert_shards",
            "Shards of the experts side by side are the whole.",
            along({"weight": 0}),
            {"logits": 1},
            counts=(2, 3, 8),
        ),
        shards(
            "hidden_shards",
            "The sum over shards of the hidden axis is the whole.",
            along({"x": 1, "weight": 1}),
            {"logits": "sum"},
        ),
        equivalence(
            "scale_equivariance",
            "Powers of two in rows and weights pass through.",
            lambda a: a | {"x": a["x"] * 8, "weight": a["weight"] / 2},
            lambda arguments, usual: {"logits": usual["logits"] * 4},
        ),
    ),
    special_values=(
        "A NaN in a row makes its logits NaN; an Inf makes them ±Inf by the sign of the weight, or NaN where it is 0. "
        "A row of zeros gives zeros. No rows launch nothing."
    ),
)
