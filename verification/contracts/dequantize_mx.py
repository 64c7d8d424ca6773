from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from reference.checks import require
from reference.microscaling import FORMATS, GROUP, PACKED, dequantize_mx
from verification.inputs import LAYOUTS, Inputs, laid_out
from verification.laws import batch_invariance, equivalence, parameter_sensitivity, row_isolation, storage_order
from verification.operator import Arguments, Case, CaseGroup, Operator, Output, Outputs, make_case, pick

DEFAULTS: dict[str, Any] = {"rows": 4, "columns": 3584, "format": "mxfp4", "layout": "contiguous"}

ROWS = (0, 1, 2, 4, 8, 16, 17, 64, 257)


def case(distribution: str = "normal", seed: int = 0, **parameters: Any) -> Case:
    """A case of dequantize_mx."""
    return make_case("dequantize_mx", DEFAULTS, "bf16", distribution, seed, **parameters)


def make(case: Case) -> Arguments:
    """Codes of every kind under the scales that the distribution names."""
    p = DEFAULTS | dict(case.parameters)
    require(p["columns"] % GROUP == 0, case.operator, f"columns is {p['columns']}; expected a multiple of {GROUP}")
    inputs, rows = Inputs(case.id), p["rows"]
    codes = inputs.integers("codes", (rows, p["columns"] // PACKED[p["format"]]), 0, 256)
    if case.distribution == "every_code":
        codes = torch.arange(codes.shape[1]).expand(codes.shape) % 256
    elif p["format"] == "mxfp8":
        codes = torch.where(codes & 127 == 127, codes ^ 1, codes)  # no NaN but where it is the point
    scales = pick(case.distribution, SCALES, "distribution")(inputs, rows, p["columns"] // GROUP)
    return {
        "codes": laid_out(codes.to(torch.uint8), p["layout"]),
        "scales": scales.to(torch.uint8),
        "format": p["format"],
    }


def coordinates(inputs: Inputs, rows: int, groups: int) -> Tensor:
    """A scale that no neighbour shares, along rows or groups: a byte read from elsewhere shows."""
    return 110 + (7 * torch.arange(rows)[:, None] + 5 * torch.arange(groups)) % 31


def with_nan(inputs: Inputs, rows: int, groups: int) -> Tensor:
    """Every third group NaN."""
    scales = inputs.integers("scales", (rows, groups), 120, 135)
    scales[:, ::3] = 255
    return scales


SCALES: dict[str, Callable[[Inputs, int, int], Tensor]] = {
    "normal": lambda i, r, g: i.integers("scales", (r, g), 112, 143),
    "coordinates": coordinates,
    "every_code": lambda i, r, g: (torch.arange(r) % 256)[:, None].expand(r, g),
    "small": lambda i, r, g: i.integers("scales", (r, g), 0, 20),
    "fp16_subnormal": lambda i, r, g: i.integers("scales", (r, g), 100, 121),
    "large": lambda i, r, g: i.integers("scales", (r, g), 235, 255),
    "nan": with_nan,
}


def raised(arguments: Arguments) -> Arguments:
    """All scales up by three."""
    return arguments | {"scales": arguments["scales"] + 3}


def eightfold(arguments: Arguments, usual: Outputs) -> Outputs:
    """What that must give."""
    return {"x": usual["x"] * 8}


def regrouped(arguments: Arguments) -> Arguments:
    """The groups of each row in reverse order."""
    groups = arguments["scales"].shape[1]
    return arguments | {
        "codes": arguments["codes"].unflatten(-1, (groups, -1)).flip(-2).flatten(-2),
        "scales": arguments["scales"].flip(-1),
    }


def regrouped_outputs(arguments: Arguments, usual: Outputs) -> Outputs:
    """What that must give."""
    return {"x": usual["x"].unflatten(-1, (-1, GROUP)).flip(-2).flatten(-2)}


def middling(case: Case) -> bool:
    """Whether the values of the case have room above and below."""
    return case.distribution in ("normal", "coordinates")


BOTH = tuple(FORMATS)
GROUPS = (
    CaseGroup(
        "every scale and code",
        "smoke",
        (case("every_code", rows=256, columns=512), case("every_code", rows=256, columns=256, format="mxfp8")),
    ),
    CaseGroup(
        "production sizes",
        "smoke",
        tuple(case(rows=r, format=f) for r in (0, 1, 17) for f in BOTH) + (case(rows=2, columns=384),),
    ),
    CaseGroup(
        "production sizes",
        "full",
        tuple(case(rows=r, columns=c, format=f) for r in ROWS for c in (384, 3072, 3584) for f in BOTH),
    ),
    CaseGroup(
        "odd widths", "smoke", tuple(case(rows=3, columns=c, format=f) for c in (32, 96, 160, 2880) for f in BOTH)
    ),
    CaseGroup(
        "scales",
        "smoke",
        tuple(case(d, rows=9, columns=1056, format=f) for d in SCALES if d != "every_code" for f in BOTH),
    ),
    CaseGroup("layouts", "smoke", tuple(case(rows=5, columns=128, layout=layout) for layout in LAYOUTS)),
    CaseGroup(
        "seeds", "nightly", tuple(case(seed=s, rows=65, columns=3072, format=f) for s in range(1, 17) for f in BOTH)
    ),
)

OPERATOR = Operator(
    name="dequantize_mx",
    reference=dequantize_mx,
    outputs=(Output("x", "number", "bf16"),),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=tuple(case(d, rows=9, columns=768, format=f) for d in ("normal", "coordinates", "nan") for f in BOTH),
    laws=(
        batch_invariance(("codes", "scales")),
        row_isolation(("codes", "scales")),
        parameter_sensitivity(
            {
                "codes": lambda a: a["codes"].roll(1, 1),
                "scales": lambda a: a["scales"].roll(1, 1),
            }
        ),
        storage_order("codes", {name: partial(laid_out, layout=name) for name in LAYOUTS if name != "contiguous"}),
        equivalence(
            "scale_equivariance", "A scale that is larger by n makes values 2ⁿ as large.", raised, eightfold, middling
        ),
        equivalence(
            "group_permutation",
            "A group's values do not depend on where it stands.",
            regrouped,
            regrouped_outputs,
            lambda case: case.distribution != "nan",
        ),
    ),
    special_values=(
        "A scale byte of 255 and mxfp8's NaN codes give NaN. Every other pair of code and scale has one exact value "
        "in fp32, rounded once where the dtype asked for is narrower."
    ),
)
