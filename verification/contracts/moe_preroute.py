from __future__ import annotations

from typing import Any

import torch

from reference.moe_front import moe_preroute
from reference.numerics import OFFICIAL, Variant
from verification.contracts.router_logits import DISTRIBUTIONS
from verification.inputs import LAYOUTS, RELAID, Inputs, laid_out
from verification.laws import batch_invariance, equivalence, parameter_sensitivity, row_isolation, storage_order
from verification.operator import Arguments, Case, CaseGroup, Operator, Output, make_case, pick
from verification.shards import along, halves, shards

DEFAULTS: dict[str, Any] = {
    "rows": 4, "hidden": 7168, "latent": 3584, "width": 768, "scale": 1.0, "beta": 4.0, "linear_beta": 25.0,
    "layout": "contiguous",
}  # fmt: skip
"""`width` is the shared expert's share of one rank; `scale` the size of gates and ups; a linear_beta of 0 is None."""

SMALL: dict[str, Any] = {"hidden": 264, "latent": 96, "width": 40}
BF16 = torch.bfloat16


def case(distribution: str = "normal", seed: int = 0, **parameters: Any) -> Case:
    """A case of moe_preroute."""
    return make_case("moe_preroute", DEFAULTS, "bf16", distribution, seed, **parameters)


def make(case: Case) -> Arguments:
    """Rows that the distribution names, and weights that keep latents near one and gates near `scale`."""
    p = DEFAULTS | dict(case.parameters)
    inputs, hidden, width = Inputs(case.id), p["hidden"], p["width"]
    x = pick(case.distribution, DISTRIBUTIONS, "distribution")(inputs.normal("x", (p["rows"], hidden)))
    return {
        "x": laid_out(x.to(BF16), p["layout"]),
        "latent_weight": inputs.normal("latent_weight", (p["latent"], hidden), hidden**-0.5).to(BF16),
        "gate_up_weight": inputs.normal("gate_up_weight", (2 * width, hidden), p["scale"] * hidden**-0.5).to(BF16),
        "down_weight": inputs.normal("down_weight", (hidden, width), width**-0.5).to(BF16),
        "beta": p["beta"],
        "linear_beta": p["linear_beta"] or None,
    }


GROUPS = (
    CaseGroup("production sizes", "smoke", (case(rows=0, **SMALL), case(rows=1, hidden=1024, latent=512, width=128))),
    CaseGroup("production sizes", "full", (case(rows=2), case(rows=17, hidden=2048, latent=1024, width=192))),
    CaseGroup("row counts", "smoke", tuple(case(rows=r, **SMALL) for r in (1, 2, 4, 8, 16, 17))),
    CaseGroup("row counts", "full", tuple(case(rows=r, **SMALL) for r in (64, 65, 257))),
    CaseGroup(
        "odd sizes",
        "smoke",
        tuple(
            case(rows=3, hidden=h, latent=n, width=f) for h, n, f in ((1, 1, 1), (7, 3, 5), (129, 65, 33), (65, 130, 7))
        ),
    ),
    CaseGroup(
        "activation",
        "smoke",
        (
            case(rows=5, **SMALL, scale=30.0), case(rows=5, **SMALL, scale=0.01),
            case(rows=5, **SMALL, linear_beta=0.0),
            case(rows=5, **SMALL, beta=1.0, linear_beta=1.0),
        ),
    ),
    CaseGroup(
        "magnitudes", "smoke", tuple(case(d, rows=5, **SMALL) for d in ("spiky_end", "one_sign", "tiny", "zeros"))
    ),
    CaseGroup(
        "NaN", "smoke", (case("nonfinite", rows=1, **SMALL), case("nonfinite", rows=1, **SMALL, linear_beta=0.0))
    ),
    CaseGroup("layouts", "smoke", tuple(case(rows=5, **SMALL, layout=layout) for layout in LAYOUTS)),
    CaseGroup("seeds", "nightly", tuple(case(seed=s, rows=17, **SMALL) for s in range(1, 17))),
    # Offsets beyond 2³¹ elements: more than an index of 32 bits reaches.
    CaseGroup("far rows", "nightly", (case(rows=3, layout="far", **SMALL),), targets=("cuda", "hip")),
)  # fmt: skip


def shared_expert_apart(arguments: Arguments, count: int) -> list[Arguments]:
    """Shards of the shared expert's width: what tensor-parallel ranks hold of it."""
    gate_ups = halves(arguments["gate_up_weight"], count, 0)
    downs = arguments["down_weight"].tensor_split(count, 1)
    return [
        arguments | {"gate_up_weight": gate_up, "down_weight": down.clone()}
        for gate_up, down in zip(gate_ups, downs, strict=True)
    ]


WEIGHTS = ("latent_weight", "gate_up_weight", "down_weight")

OPERATOR = Operator(
    name="moe_preroute",
    reference=moe_preroute,
    outputs=(Output("latent", "number", "=x"), Output("shared", "number", "=x")),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(case(rows=9, **SMALL), case(rows=16, hidden=512, latent=128, width=64)),
    weights=WEIGHTS,
    variants=(
        OFFICIAL,
        Variant("gate_up_fp32", "SiTU on the fp32 sums, without rounding them first", drops=frozenset({"gate_up"})),
    ),
    laws=(
        batch_invariance(("x",)),
        row_isolation(("x",)),
        parameter_sensitivity({
            "x": lambda a: a["x"].roll(1), "latent_weight": lambda a: a["latent_weight"].roll(1, 0),
            "gate_up_weight": lambda a: a["gate_up_weight"].roll(1, 0),
            "down_weight": lambda a: a["down_weight"].roll(1, 0), "beta": lambda a: 0.5, "linear_beta": lambda a: 0.5,
        }),
        storage_order(("x", *WEIGHTS), RELAID),
        shards(
            "latent_shards", "Shards of the latent side by side are the whole.", along({"latent_weight": 0}),
            {"latent": 1, "shared": "same"}, counts=(2, 8),
        ),
        shards(
            "shared_expert_shards", "The sum over shards of the shared expert is the whole.", shared_expert_apart,
            {"latent": "same", "shared": "sum"},
        ),
        equivalence(
            "scale_equivariance", "Powers of two in the last weights pass through.",
            lambda a: a | {name: a[name] * 4 for name in ("latent_weight", "down_weight")},
            lambda arguments, usual: {name: value * 4 for name, value in usual.items()},
        ),
        equivalence(
            "latent_apart", "The shared expert's weights change no bit of the latent.",
            lambda a: a | {name: a[name].flip(0) for name in ("gate_up_weight", "down_weight")},
            lambda arguments, usual: {"latent": usual["latent"]},
        ),
    ),
    special_values=(
        "A NaN in a row makes both of its results NaN and no other row's. A row of zeros gives zeros. Gates and ups of "
        "any size saturate as situ's do. No rows launch nothing."
    ),
)  # fmt: skip
