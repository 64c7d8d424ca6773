from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from reference.kda import kda_gate
from verification.inputs import LAYOUTS, Inputs, laid_out
from verification.laws import batch_invariance, parameter_sensitivity, row_isolation
from verification.operator import Arguments, Case, CaseGroup, Operator, Output, make_case, pick

DEFAULTS: dict[str, Any] = {"rows": 4, "heads": 12, "key": 128, "lower_bound": -5.0, "layout": "contiguous"}

SCALES = {"normal": 1.0, "wide": 30.0, "extreme": 3e38, "nonfinite": 1.0}
"""Distributions, by the magnitude of the gate: wide ones reach both ends of the sigmoid."""


def case(distribution: str = "normal", seed: int = 0, **parameters: Any) -> Case:
    """A case of kda_gate."""
    return make_case("kda_gate", DEFAULTS, "bf16", distribution, seed, **parameters)


def make(case: Case) -> Arguments:
    """Gates of the named magnitude; A_log and dt_bias as checkpoints have them."""
    p = DEFAULTS | dict(case.parameters)
    inputs, shape = Inputs(case.id), (p["rows"], p["heads"], p["key"])
    raw: Tensor = inputs.normal("raw_gate", shape)
    scale = pick(case.distribution, SCALES, "distribution")
    raw = torch.where(raw > 0, scale, -scale) if case.distribution == "extreme" else raw * scale
    if case.distribution == "nonfinite":
        raw[0, 0, 0], raw[-1, -1, 1], raw[-1, 0, 2] = torch.nan, torch.inf, -torch.inf
    return {
        "raw_gate": laid_out(raw.to(torch.bfloat16).flatten(1), p["layout"]).unflatten(1, shape[1:]),
        "A_log": inputs.normal("A_log", shape[1:2], 0.5).float(),
        "dt_bias": inputs.uniform("dt_bias", shape[1:], -7.8, 1.0).float(),
        "lower_bound": p["lower_bound"],
    }


BOUNDS = (-5.0, None)

GROUPS = (
    CaseGroup(
        "production sizes",
        "smoke",
        tuple(case(rows=r) for r in (0, 1, 4, 17)) + (case(heads=4, lower_bound=None), case(rows=9, lower_bound=None)),
    ),
    CaseGroup("production sizes", "full", tuple(case(rows=r, lower_bound=b) for r in (2, 8, 16, 257) for b in BOUNDS)),
    CaseGroup(
        "odd sizes", "smoke", tuple(case(rows=3, heads=n, key=k) for n, k in ((1, 1), (3, 17), (5, 127), (1, 257)))
    ),
    CaseGroup(
        "magnitudes", "smoke", tuple(case(d, heads=3, lower_bound=b) for d in ("wide", "extreme") for b in BOUNDS)
    ),
    CaseGroup("other bounds", "smoke", (case(heads=3, lower_bound=-0.5), case("wide", heads=3, lower_bound=-20.0))),
    CaseGroup("NaN and Inf", "smoke", tuple(case("nonfinite", heads=2, lower_bound=b) for b in BOUNDS)),
    CaseGroup("layouts", "smoke", tuple(case(rows=5, heads=2, key=30, layout=layout) for layout in LAYOUTS)),
    CaseGroup("seeds", "nightly", tuple(case(seed=s, rows=17, lower_bound=BOUNDS[s % 2]) for s in range(1, 17))),
)

ROWS = ("raw_gate",)

OPERATOR = Operator(
    name="kda_gate",
    reference=kda_gate,
    outputs=(Output("log_decay", "number", "fp32"),),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(case(rows=9, heads=2, key=96), case(rows=16), case(rows=16, heads=4, lower_bound=None)),
    weights=("A_log", "dt_bias"),
    laws=(
        batch_invariance(ROWS),
        row_isolation(ROWS),
        parameter_sensitivity(
            {
                "raw_gate": lambda a: a["raw_gate"].roll(1, 0),
                "A_log": lambda a: a["A_log"].flip(0),
                "dt_bias": lambda a: a["dt_bias"].roll(1, 1),
                "lower_bound": lambda a: -4.0 if a["lower_bound"] is None else None,
            }
        ),
    ),
    special_values=(
        "A raw gate of +Inf gives the lower bound (−Inf in the softplus form), of −Inf gives 0; NaN spoils its own "
        "channel alone."
    ),
)
