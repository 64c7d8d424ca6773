from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from reference.checks import require
from reference.microscaling import FORMATS, GROUP, NAN_SCALE, decode, quantize_mx
from reference.numerics import OFFICIAL, Variant
from verification.budget import Golden
from verification.inputs import LAYOUTS, TORCH_DTYPES, Inputs, laid_out
from verification.laws import batch_invariance, equivalence, parameter_sensitivity, row_isolation, storage_order
from verification.localization import describe_failures
from verification.operator import (
    Arguments,
    Case,
    CaseGroup,
    Finding,
    Law,
    LawContext,
    Operator,
    Output,
    Outputs,
    make_case,
    pick,
)

DEFAULTS: dict[str, Any] = {"rows": 4, "columns": 3584, "format": "mxfp8", "layout": "contiguous"}

ROWS = (0, 1, 2, 4, 8, 16, 17, 64, 257)


def case(distribution: str = "normal", dtype: str = "bf16", seed: int = 0, **parameters: Any) -> Case:
    """A case of quantize_mx."""
    return make_case("quantize_mx", DEFAULTS, dtype, distribution, seed, **parameters)


def make(case: Case) -> Arguments:
    """Rows of the named distribution, whatever bits it asks for in the dtype of the case."""
    p = DEFAULTS | dict(case.parameters)
    inputs, dtype = Inputs(case.id), TORCH_DTYPES[case.dtype]
    require(p["columns"] % GROUP == 0, case.operator, f"columns is {p['columns']}; expected a multiple of {GROUP}")
    shape = (p["rows"], p["columns"])
    x = pick(case.distribution, DISTRIBUTIONS, "distribution")(inputs, inputs.normal("x", shape)).to(dtype)
    return {"x": laid_out(x, p["layout"]), "format": p["format"]}


def flat(groups: Tensor) -> Tensor:
    """Groups [..., n, 32] as rows [..., 32·n]."""
    rows: Tensor = groups.flatten(-2)
    return rows


def by_group(inputs: Inputs, x: Tensor) -> Tensor:
    """Every group with a magnitude of its own, over sixty binades."""
    groups = x.unflatten(-1, (-1, GROUP))
    shift = inputs.integers("shift", (*groups.shape[:2], 1), -30, 31)
    return flat(torch.ldexp(groups, shift))


def every_bf16(inputs: Inputs, x: Tensor) -> Tensor:
    """The bit patterns of bf16 in order, as far as the case has room: 64 × 1024 holds all."""
    bits = torch.arange(x.numel(), dtype=torch.int32).to(torch.int16)
    values: Tensor = bits.view(torch.bfloat16).reshape(x.shape).double()
    return values


LARGEST_OF_GROUP = (
    1.49, 1.5, 1.51, 1.74, 1.75, 1.76, 1.93, 1.9375, 1.94, 1.99, 2.0, 3.0, 3.98, 4.0, 5.98, 6.0, 6.03, 7.0, 7.97,
    8.0, 224.0, 226.0, 446.0, 448.0, 450.0, 464.0, 480.0, 510.0,
)  # fmt: skip
"""Where one rule of the scale and another part: both sides of the largest code, of a carry, of a power of two."""


def largest_of_group(inputs: Inputs, x: Tensor) -> Tensor:
    """Groups whose largest magnitude goes through the list, the rest below it."""
    groups = x.clamp(-1, 1).unflatten(-1, (-1, GROUP))
    count = groups.shape[0] * groups.shape[1]
    largest = torch.tensor(LARGEST_OF_GROUP, dtype=torch.float64)[torch.arange(count) % len(LARGEST_OF_GROUP)]
    groups = groups * largest.view(*groups.shape[:2], 1)
    groups[..., 7] = -largest.view(groups.shape[:2])
    return flat(groups)


def ties(inputs: Inputs, x: Tensor) -> Tensor:
    """Halves, quarters and eighths of small integers beside a 6 or a 448: every second value is a tie."""
    choice = inputs.integers("choice", tuple(x.shape), -480, 481).double()
    groups = (choice / 2.0 ** (inputs.integers("by", tuple(x.shape), 0, 13))).unflatten(-1, (-1, GROUP))
    groups[..., 0::2, :] = groups[..., 0::2, :].remainder(6.0)
    groups[..., 0::2, 5], groups[..., 1::2, 5] = 6.0, 448.0
    return flat(groups)


def zero_groups(inputs: Inputs, x: Tensor) -> Tensor:
    """Every other group zero, one of each sign, and a lone subnormal."""
    groups = x.unflatten(-1, (-1, GROUP)).clone()
    groups[:, 0::2] = 0.0
    groups[:, 2::4] = -0.0
    groups[:, 4::8, 3] = 2.0**-133
    return flat(groups)


def nonfinite(inputs: Inputs, x: Tensor) -> Tensor:
    """NaN, +Inf, −Inf, both, and a group of NaN, in the first groups of the rows in turn."""
    groups = x.unflatten(-1, (-1, GROUP)).clone()
    groups[0::5, 0, 3] = torch.nan
    groups[1::5, 0, 31] = torch.inf
    groups[2::5, 0, 0], groups[2::5, 0, 4] = -torch.inf, torch.nan
    groups[3::5, 0] = torch.nan
    groups[4::5, 0], groups[4::5, 0, 2] = 0.0, torch.nan
    return flat(groups)


DISTRIBUTIONS: dict[str, Callable[[Inputs, Tensor], Tensor]] = {
    "normal": lambda i, x: x,
    "tiny": lambda i, x: x * 2.0**-20,
    "near_floor": lambda i, x: by_group(i, x) * 2.0**-34,
    "subnormal": lambda i, x: x * 2.0**-131,
    "huge": lambda i, x: x * 2.0**126,
    "zeros": lambda i, x: x * 0,
    "by_group": by_group,
    "every_bf16": every_bf16,
    "largest_of_group": largest_of_group,
    "ties": ties,
    "zero_groups": zero_groups,
    "nonfinite": nonfinite,
}


def blank(x: Tensor, format: str) -> Tensor:
    """Groups [..., K/32] of which nothing but zeros (and, where NaN has a code, NaN) is left."""
    groups = x.unflatten(-1, (-1, GROUP))
    nothing = (groups == 0) | (
        groups.isnan() if FORMATS[format].has_nan else torch.zeros_like(groups, dtype=torch.bool)
    )
    return torch.all(nothing, -1)


def missing(x: Tensor, format: str) -> Tensor:
    """Elements [..., K] whose code stands for NaN: the sign, or in mxfp4 the code, is never compared."""
    nan = x.isnan()
    if FORMATS[format].has_nan:
        return nan
    return flat(nan.unflatten(-1, (-1, GROUP)).any(-1, keepdim=True).expand(*x.shape[:-1], -1, GROUP))


def elementwise(codes: Tensor, format: str) -> Tensor:
    """One code an element."""
    return torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2) if format == "mxfp4" else codes


def compared(name: str, arguments: Arguments, outputs: Outputs) -> Tensor:
    """All but the scale byte of a blank group, the sign of its zeros, and the codes of what is NaN."""
    x, format = arguments["x"], arguments["format"]
    empty = blank(x, format)
    if name == "scales":
        return ~empty
    fixed = ~(missing(x, format) | empty.repeat_interleave(GROUP, dim=-1))
    return fixed[..., 0::2] & fixed[..., 1::2] if format == "mxfp4" else fixed


def structure(arguments: Arguments, outputs: Outputs, golden: Golden) -> Iterator[Finding]:
    """What is not compared still means what it must: zeros in blank groups, NaN where NaN was."""
    x, format = arguments["x"], arguments["format"]
    form = FORMATS[format]
    magnitude = elementwise(outputs["codes"], format) & ((1 << (form.bits - 1)) - 1)
    absent, empty = missing(x, format), blank(x, format)
    wrong = (magnitude != 0) & empty.repeat_interleave(GROUP, dim=-1) & ~absent
    if wrong.any():
        yield Finding(
            "structure",
            f"codes: {int(wrong.sum())} of {wrong.numel()} elements of groups of zeros are not zero; "
            f"{describe_failures(wrong)}",
        )
    undefined = empty & (outputs["scales"] == NAN_SCALE)
    if undefined.any():
        yield Finding(
            "structure",
            f"scales: {int(undefined.sum())} groups of zeros have the scale {NAN_SCALE}, which is NaN; "
            f"{describe_failures(undefined)}",
        )
    if form.has_nan and (lost := absent & (magnitude != (1 << (form.bits - 1)) - 1)).any():
        yield Finding(
            "structure",
            f"codes: {int(lost.sum())} NaN elements have the code of a number; {describe_failures(lost)}",
        )


def values(outputs: Outputs, format: str) -> Tensor:
    """What codes and scales stand for, float64; zeros without a sign."""
    return decode(outputs["codes"], outputs["scales"], format) + 0.0


def idempotent(context: LawContext) -> Iterator[str]:
    """Values that have been through the format come back as they are."""
    arguments = context.arguments()
    once = values(context.call(context.arguments()), arguments["format"])
    again = values(context.call(arguments | {"x": once.to(arguments["x"].dtype)}), arguments["format"])
    if (different := ~torch.isclose(once, again, rtol=0.0, atol=0.0, equal_nan=True)).any():
        yield (
            f"{int(different.sum())} of {once.numel()} values change when they are quantised again; "
            f"{describe_failures(different)}."
        )


def negated(context: LawContext) -> Iterator[str]:
    """The values of −x are those of x, negated."""
    arguments = context.arguments()
    usual = values(context.call(context.arguments()), arguments["format"])
    after = values(context.call(arguments | {"x": -arguments["x"]}), arguments["format"])
    if (different := ~torch.isclose(-usual, after, rtol=0.0, atol=0.0, equal_nan=True)).any():
        yield f"{int(different.sum())} of {usual.numel()} values of −x are not those of x negated."


SHIFT = 9


def scaled(arguments: Arguments) -> Arguments:
    """X times a power of two."""
    return arguments | {"x": arguments["x"] * 2.0**SHIFT}


def scaled_outputs(arguments: Arguments, usual: Outputs) -> Outputs:
    """The same codes under scales that are larger by the same power of two."""
    return {"codes": usual["codes"], "scales": usual["scales"] + SHIFT}


def regrouped(arguments: Arguments) -> Arguments:
    """The groups of each row in reverse order."""
    x = arguments["x"]
    return arguments | {"x": x.unflatten(-1, (-1, GROUP)).flip(-2).flatten(-2)}


def regrouped_outputs(arguments: Arguments, usual: Outputs) -> Outputs:
    """The codes of the groups and their scales, in reverse order."""
    groups = usual["scales"].shape[-1]
    return {
        "codes": usual["codes"].unflatten(-1, (groups, -1)).flip(-2).flatten(-2),
        "scales": usual["scales"].flip(-1),
    }


def ordinary(case: Case) -> bool:
    """Whether no group of the case is blank, or near the ends of the range."""
    return case.distribution in ("normal", "by_group", "ties", "largest_of_group")


BOTH = tuple(FORMATS)
GROUPS = (
    CaseGroup(
        "production sizes",
        "smoke",
        tuple(case(rows=r, format=f) for r in (0, 1, 17) for f in BOTH)
        + tuple(case(rows=2, columns=c, format=f) for c in (384, 3072) for f in BOTH),
    ),
    CaseGroup(
        "production sizes",
        "full",
        tuple(case(rows=r, columns=c, format=f) for r in ROWS for c in (384, 3072, 3584) for f in BOTH),
    ),
    CaseGroup(
        "odd widths", "smoke", tuple(case(rows=3, columns=c, format=f) for c in (32, 96, 160, 2880) for f in BOTH)
    ),
    CaseGroup("every bf16", "smoke", tuple(case("every_bf16", rows=64, columns=1024, format=f) for f in BOTH)),
    CaseGroup(
        "the rule of the scale",
        "smoke",
        tuple(case(d, rows=5, columns=1792, format=f) for d in ("largest_of_group", "ties", "by_group") for f in BOTH),
    ),
    CaseGroup(
        "magnitudes",
        "smoke",
        tuple(
            case(d, rows=9, columns=256, format=f)
            for d in ("tiny", "near_floor", "subnormal", "huge", "zeros", "zero_groups")
            for f in BOTH
        ),
    ),
    CaseGroup("NaN and Inf", "smoke", tuple(case("nonfinite", rows=10, columns=96, format=f) for f in BOTH)),
    CaseGroup(
        "dtypes",
        "smoke",
        tuple(
            case(d, dtype=t, rows=5, columns=288, format=f)
            for d in ("normal", "largest_of_group", "nonfinite")
            for t in ("fp16", "fp32")
            for f in BOTH
        ),
    ),
    CaseGroup("layouts", "smoke", tuple(case(rows=5, columns=128, layout=layout) for layout in LAYOUTS)),
    CaseGroup("layouts", "full", tuple(case(rows=5, columns=128, layout=la, format="mxfp4") for la in LAYOUTS)),
    CaseGroup(
        "seeds",
        "nightly",
        tuple(case(d, seed=s, rows=65, format=f) for d in ("by_group", "ties") for s in range(1, 17) for f in BOTH),
    ),
)

OPERATOR = Operator(
    name="quantize_mx",
    reference=quantize_mx,
    outputs=(Output("codes", "exact", "uint8"), Output("scales", "exact", "uint8")),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=tuple(case(d, rows=9, columns=768, format=f) for d in ("normal", "by_group", "nonfinite") for f in BOTH),
    variants=(
        OFFICIAL,
        Variant(
            "scale_floor",
            "exponent ⌊log2 amax⌋ − ⌊log2 largest⌋, large values saturate (OCP MX 1.0)",
            adds=frozenset({"scale_floor"}),
        ),
        Variant(
            "scale_even",
            "as scale_floor, of amax rounded to the format's significand",
            adds=frozenset({"scale_even"}),
        ),
    ),
    structure=structure,
    compared=compared,
    laws=(
        batch_invariance(("x",)),
        row_isolation(("x",)),
        parameter_sensitivity(
            {"x": lambda a: a["x"].roll(1), "format": lambda a: next(f for f in FORMATS if f != a["format"])}
        ),
        storage_order("x", {name: partial(laid_out, layout=name) for name in LAYOUTS if name != "contiguous"}),
        Law("idempotent", "Quantising values that have been quantised keeps them.", idempotent),
        Law("negation", "The sign of a value is no part of how it is rounded.", negated),
        equivalence(
            "scale_equivariance",
            "A power of two moves from the values to the scales.",
            scaled,
            scaled_outputs,
            ordinary,
        ),
        equivalence(
            "group_permutation",
            "A group's codes and scale do not depend on where it stands.",
            regrouped,
            regrouped_outputs,
            ordinary,
        ),
    ),
    special_values=(
        "A NaN becomes mxfp8's NaN code, whose sign is not compared, and makes the scale of its mxfp4 group 255. "
        "Inf saturates. A group of zeros has zero codes, and its scale byte is not compared. A group smaller than "
        "1e-10 has the scale of 1e-10."
    ),
)
