from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from reference.checks import require
from reference.normalization import rms_norm
from reference.numerics import OFFICIAL, Variant
from verification.inputs import LAYOUTS, TORCH_DTYPES, Inputs, laid_out
from verification.laws import batch_invariance, full_precision, parameter_sensitivity, row_isolation, storage_order
from verification.operator import Arguments, Case, CaseGroup, Operator, Output, make_case, pick

DEFAULTS: dict[str, Any] = {"rows": 4, "hidden": 7168, "weight": "bf16", "eps": 1e-5, "layout": "contiguous"}

ROWS = (0, 1, 2, 4, 7, 8, 16, 17, 33, 256)


def case(distribution: str = "normal", **parameters: Any) -> Case:
    """A case of rms_norm."""
    return make_case("rms_norm", DEFAULTS, distribution=distribution, **parameters)


def make(case: Case) -> Arguments:
    """Rows whose magnitudes the distribution names; weights around 1."""
    p = DEFAULTS | dict(case.parameters)
    inputs = Inputs(case.id)
    rows, hidden = p["rows"], p["hidden"]
    require(hidden >= 1, case.operator, f"hidden is {hidden}; expected 1 or more")
    x = pick(case.distribution, DISTRIBUTIONS, "distribution")(inputs.normal("x", (rows, hidden)))
    weight = 1 + inputs.normal("weight", (hidden,), 0.25)
    x = laid_out(x.to(TORCH_DTYPES[case.dtype]), p["layout"])
    return {"x": x, "weight": weight.to(TORCH_DTYPES[p["weight"]]), "eps": p["eps"]}


def spiky(x: Tensor) -> Tensor:
    """One element of 100 a row among values of 0.01."""
    x = x * 0.01
    x[:, :1] = 100.0
    return x


def spiky_end(x: Tensor) -> Tensor:
    """As spiky, with the large element in the last column, where a dropped tail would lose it."""
    return spiky(x).flip(1)


def nonfinite(x: Tensor) -> Tensor:
    """A NaN in row 0, +Inf in row 1, −Inf in row 2, the rest as they are."""
    for row, value in enumerate((torch.nan, torch.inf, -torch.inf)):
        x[row : row + 1, -1:] = value
    return x


DISTRIBUTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "normal": lambda x: x,
    "tiny": lambda x: x * 2.0**-20,
    "near_eps": lambda x: x * 2.0**-8,
    "large": lambda x: x * 2.0**14,
    "constant": lambda x: torch.full_like(x, 16.0),
    "zeros": lambda x: x * 0,
    "spiky": spiky,
    "spiky_end": spiky_end,
    "nonfinite": nonfinite,
}

GROUPS = (
    CaseGroup(
        "production sizes",
        "smoke",
        tuple(case(rows=r) for r in (0, 1, 4, 17))
        + (case(hidden=1536), case(hidden=512, rows=33), case(hidden=512, rows=8), case(hidden=128, rows=65)),
    ),
    CaseGroup(
        "production sizes",
        "full",
        tuple(case(rows=r) for r in ROWS)
        + tuple(case(rows=r, hidden=h) for r in (1, 16, 257) for h in (512, 1536, 3584)),
    ),
    CaseGroup("odd widths", "smoke", tuple(case(rows=3, hidden=h) for h in (1, 17, 127, 1000, 1025))),
    CaseGroup(
        "magnitudes",
        "smoke",
        tuple(case(d, hidden=1024) for d in ("tiny", "near_eps", "large", "spiky", "constant", "zeros")),
    ),
    CaseGroup(
        "magnitudes",
        "full",
        tuple(case(d, rows=33) for d in ("tiny", "near_eps", "large", "spiky", "constant", "zeros")),
    ),
    CaseGroup("tails", "smoke", tuple(case("spiky_end", rows=3, hidden=h) for h in (1025, 1536, 7168))),
    CaseGroup("eps", "smoke", (case("tiny", hidden=256, eps=1e-6), case("near_eps", hidden=256, eps=1e-3))),
    CaseGroup("NaN and Inf", "smoke", (case("nonfinite", hidden=256),)),
    CaseGroup("layouts", "smoke", tuple(case(rows=5, hidden=130, layout=layout) for layout in LAYOUTS)),
    CaseGroup("fp32 weight", "smoke", (case(hidden=1000, weight="fp32"), case(rows=33, hidden=1000, weight="fp32"))),
    CaseGroup("seeds", "nightly", tuple(make_case("rms_norm", DEFAULTS, seed=s, rows=17) for s in range(1, 33))),
    # Offsets beyond 2³¹ elements: more than an index of 32 bits reaches.
    CaseGroup("far rows", "nightly", (case(rows=3, layout="far"),), targets=("cuda", "hip")),
)

OPERATOR = Operator(
    name="rms_norm",
    reference=rms_norm,
    outputs=(Output("y", "number", "=x"),),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(case(rows=9, hidden=1000), case(rows=16), case(rows=9, hidden=1000, weight="fp32")),
    weights=("weight",),
    variants=(
        OFFICIAL,
        Variant(
            "one_rounding",
            "weight multiplied in fp32, one rounding (production kernels)",
            drops=frozenset({"normalized"}),
        ),
    ),
    laws=(
        batch_invariance(("x",)),
        row_isolation(("x",)),
        parameter_sensitivity(
            {"x": lambda a: a["x"].roll(1), "weight": lambda a: a["weight"] * 2, "eps": lambda a: 0.5}
        ),
        full_precision("weight", applies=lambda case: dict(case.parameters).get("weight") == "fp32"),
        storage_order("x", {name: partial(laid_out, layout=name) for name in LAYOUTS if name != "contiguous"}),
    ),
    special_values=(
        "NaN and Inf spread over their row and over no other: a NaN makes the row NaN; an Inf makes its own element "
        "NaN (Inf · 0) and the others 0. A row of zeros gives zeros. No rows launch nothing."
    ),
)
