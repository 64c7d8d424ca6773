from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from reference.activation import situ
from verification.budget import Golden
from verification.inputs import LAYOUTS, RELAID, TORCH_DTYPES, Inputs, laid_out
from verification.laws import batch_invariance, differences, parameter_sensitivity, row_isolation, storage_order
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
from verification.shards import halves, shards

DEFAULTS: dict[str, Any] = {"rows": 4, "width": 3072, "beta": 4.0, "linear_beta": 25.0, "layout": "contiguous"}
"""A linear_beta of 0 stands for None: no bound on the linear side."""

ROWS = (0, 1, 2, 4, 8, 16, 17, 64, 257)


def case(distribution: str = "normal", dtype: str = "bf16", seed: int = 0, **parameters: Any) -> Case:
    """A case of situ."""
    return make_case("situ", DEFAULTS, dtype, distribution, seed, **parameters)


def make(case: Case) -> Arguments:
    """Gates and ups of the named distribution."""
    p = DEFAULTS | dict(case.parameters)
    gate_up = Inputs(case.id).normal("gate_up", (p["rows"], 2 * p["width"]))
    gate_up = pick(case.distribution, DISTRIBUTIONS, "distribution")(gate_up).to(TORCH_DTYPES[case.dtype])
    return {
        "gate_up": laid_out(gate_up, p["layout"]),
        "beta": p["beta"],
        "linear_beta": p["linear_beta"] or None,
    }


STEPS = (-100.0, -30.0, -4.0, -1.0, -0.01, 0.0, 0.01, 1.0, 4.0, 30.0, 100.0, 1e4)


def sweep(x: Tensor) -> Tensor:
    """Every pair of a few gates and ups, small and saturating."""
    width = x.shape[1] // 2
    index = torch.arange(x.shape[0] * width).view(x.shape[0], width)
    steps = torch.tensor(STEPS, dtype=torch.float64)
    return torch.cat([steps[index % len(STEPS)], steps[index // len(STEPS) % len(STEPS)]], dim=1)


def nonfinite(x: Tensor) -> Tensor:
    """NaN, +Inf and −Inf among the gates of the first rows and the ups of the others, and both at once."""
    x = x.clone()
    width = x.shape[1] // 2
    for row, value in enumerate((torch.nan, torch.inf, -torch.inf)):
        x[row : row + 1, 3] = value
        x[row + 3 : row + 4, width + 5] = value
    x[6:7, [0, width]] = torch.inf
    x[7:8, 1], x[7:8, width + 1] = -torch.inf, torch.inf
    return x


DISTRIBUTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "normal": lambda x: x,
    "saturated": lambda x: x * 30,
    "small": lambda x: x * 2.0**-9,
    "tiny": lambda x: x * 2.0**-24,
    "subnormal": lambda x: x * 2.0**-130,
    "huge": lambda x: x * 2.0**120,
    "zeros": lambda x: x * 0,
    "sweep": sweep,
    "nonfinite": nonfinite,
}


def structure(arguments: Arguments, outputs: Outputs, golden: Golden) -> Iterator[Finding]:
    """Nothing exceeds beta · linear_beta."""
    if arguments["linear_beta"] is None:
        return
    y = outputs["y"]
    bound = torch.tensor(arguments["beta"] * arguments["linear_beta"]).to(y.dtype)
    if (outside := y.abs() > bound).any():
        yield Finding(
            "structure",
            f"y: {int(outside.sum())} of {y.numel()} elements exceed {float(bound)} = beta · linear_beta; "
            f"{describe_failures(outside)}",
        )


def odd_in_up(context: LawContext) -> Iterator[str]:
    """Ups of the other sign give results of the other sign; the sign of a zero is free."""
    arguments = context.arguments()
    gate, up = arguments["gate_up"].chunk(2, dim=1)
    usual = context.call(context.arguments())
    after = context.call(arguments | {"gate_up": torch.cat([gate, -up], dim=1)})
    yield from differences({"y": 0.0 - usual["y"]}, {"y": after["y"] + 0.0}, "with the ups negated")


def as_exchanged(context: LawContext) -> Iterator[str]:
    """SiTU is not symmetrical: gates and ups exchanged give something else."""
    arguments = context.arguments()
    gate, up = arguments["gate_up"].chunk(2, dim=1)
    usual = context.call(context.arguments())
    after = context.call(arguments | {"gate_up": torch.cat([up, gate], dim=1)})
    if not any(differences(usual, after, "")):
        yield "Gates and ups exchanged change no bit."


def columns_apart(arguments: Arguments, count: int) -> list[Arguments]:
    """Shards of the width: what tensor-parallel ranks hold of an expert."""
    return [arguments | {"gate_up": part} for part in halves(arguments["gate_up"], count, 1)]


BETAS: tuple[dict[str, Any], ...] = (
    {"linear_beta": 0.0},
    {"beta": 1.0, "linear_beta": 1.0},
    {"beta": 2.0, "linear_beta": 1.5},
    {"beta": 25.0, "linear_beta": 4.0},
    {"beta": 3.7, "linear_beta": 0.0},
)

GROUPS = (
    CaseGroup(
        "production sizes",
        "smoke",
        (case(rows=0), case(rows=1), case(rows=17, width=768), case(width=384, rows=33), case(width=6144, rows=2)),
    ),
    CaseGroup(
        "production sizes",
        "full",
        tuple(case(rows=r, width=w) for r in ROWS for w in (384, 768)) + (case(rows=16), case(rows=4, width=6144)),
    ),
    CaseGroup("odd widths", "smoke", tuple(case(rows=3, width=w) for w in (1, 17, 127, 1000, 1025))),
    CaseGroup(
        "betas", "smoke", tuple(case(d, width=288, **b) for b in BETAS for d in ("normal", "saturated", "sweep"))
    ),
    CaseGroup(
        "magnitudes",
        "smoke",
        tuple(
            case(d, width=288, linear_beta=lb)
            for d in ("saturated", "small", "tiny", "subnormal", "huge", "zeros", "sweep")
            for lb in (25.0, 0.0)
        ),
    ),
    CaseGroup("NaN and Inf", "smoke", tuple(case("nonfinite", rows=9, width=64, linear_beta=lb) for lb in (25.0, 0.0))),
    CaseGroup("dtypes", "smoke", tuple(case(d, "fp16", width=288) for d in ("normal", "saturated"))),
    CaseGroup("layouts", "smoke", tuple(case(rows=5, width=65, layout=layout) for layout in LAYOUTS)),
    CaseGroup("seeds", "nightly", tuple(case(d, seed=s) for d in ("normal", "saturated") for s in range(1, 17))),
    # Offsets beyond 2³¹ elements: more than an index of 32 bits reaches.
    CaseGroup("far rows", "nightly", (case(rows=3, layout="far"),), targets=("cuda", "hip")),
)

OPERATOR = Operator(
    name="situ",
    reference=situ,
    outputs=(Output("y", "number", "=gate_up"),),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(case(rows=9, width=1000), case("saturated", rows=16, width=384)),
    structure=structure,
    laws=(
        batch_invariance(("gate_up",)),
        row_isolation(("gate_up",)),
        parameter_sensitivity(
            {
                "gate_up": lambda a: a["gate_up"].roll(1),
                "beta": lambda a: a["beta"] / 2,
                "linear_beta": lambda a: None,
            }
        ),
        storage_order("gate_up", RELAID),
        shards("column_shards", "Shards of the width side by side are the whole.", columns_apart, {"y": 1}),
        Law("odd_in_up", "The sign of the linear side is the sign of the result.", odd_in_up),
        Law("gate_is_not_up", "The two halves are told apart.", as_exchanged),
    ),
    special_values=(
        "tanh and sigmoid saturate: an infinite gate gives beta or 0 times the linear side, an infinite up side its "
        "bound (or Inf where there is none). NaN spoils its own element alone."
    ),
)
