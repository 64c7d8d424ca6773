from __future__ import annotations

from typing import Any

import torch

from reference.moe_front import latent_moe_tail
from reference.numerics import OFFICIAL, Variant
from verification.contracts.rms_norm import DISTRIBUTIONS
from verification.inputs import LAYOUTS, RELAID, Inputs, laid_out
from verification.laws import batch_invariance, equivalence, parameter_sensitivity, row_isolation, storage_order
from verification.operator import Arguments, Case, CaseGroup, Operator, Output, Outputs, make_case, pick
from verification.shards import along, shards

DEFAULTS: dict[str, Any] = {
    "rows": 4, "hidden": 7168, "latent": 3584, "prefix": True, "eps": 1e-5, "layout": "contiguous",
}  # fmt: skip

SMALL: dict[str, Any] = {"hidden": 264, "latent": 96}
BF16 = torch.bfloat16


def case(distribution: str = "normal", seed: int = 0, **parameters: Any) -> Case:
    """A case of latent_moe_tail."""
    return make_case("latent_moe_tail", DEFAULTS, "bf16", distribution, seed, **parameters)


def make(case: Case) -> Arguments:
    """Latents of the magnitude that the distribution names; shared and prefix near the size of what is added."""
    p = DEFAULTS | dict(case.parameters)
    inputs, rows, hidden, latent = Inputs(case.id), p["rows"], p["hidden"], p["latent"]
    routed = pick(case.distribution, DISTRIBUTIONS, "distribution")(inputs.normal("routed", (rows, latent)))
    terms = {name: laid_out(inputs.normal(name, (rows, hidden)).to(BF16), p["layout"]) for name in ("shared", "prefix")}
    return {
        "routed": laid_out(routed.to(BF16), p["layout"]),
        "shared": terms["shared"],
        "prefix": terms["prefix"] if p["prefix"] else None,
        "norm_weight": (1 + inputs.normal("norm_weight", (latent,), 0.25)).to(BF16),
        "up_weight": inputs.normal("up_weight", (hidden, latent), latent**-0.5).to(BF16),
        "eps": p["eps"],
    }


GROUPS = (
    CaseGroup("production sizes", "smoke", (case(rows=0, **SMALL), case(rows=1, hidden=512, latent=1024))),
    CaseGroup("production sizes", "full", (case(rows=2), case(rows=17, hidden=2048, latent=1024))),
    CaseGroup("row counts", "smoke", tuple(case(rows=r, **SMALL) for r in (1, 2, 4, 8, 16, 17))),
    CaseGroup("row counts", "full", tuple(case(rows=r, **SMALL) for r in (64, 65, 257))),
    CaseGroup(
        "no prefix", "smoke", (case(rows=5, **SMALL, prefix=False), case("zeros", rows=2, **SMALL, prefix=False))
    ),
    CaseGroup(
        "odd sizes",
        "smoke",
        tuple(case(rows=3, hidden=h, latent=n) for h, n in ((1, 1), (7, 3), (129, 65), (33, 257), (1025, 31))),
    ),
    CaseGroup(
        "magnitudes",
        "smoke",
        tuple(
            case(d, rows=5, **SMALL) for d in ("tiny", "near_eps", "large", "spiky", "spiky_end", "constant", "zeros")
        ),
    ),
    CaseGroup("eps", "smoke", (case("tiny", rows=5, **SMALL, eps=1e-6), case("near_eps", rows=5, **SMALL, eps=1e-3))),
    CaseGroup("NaN", "smoke", (case("nonfinite", rows=5, **SMALL),)),
    CaseGroup("layouts", "smoke", tuple(case(rows=5, **SMALL, layout=layout) for layout in LAYOUTS)),
    CaseGroup("seeds", "nightly", tuple(case(seed=s, rows=17, **SMALL) for s in range(1, 17))),
    # Offsets beyond 2³¹ elements: more than an index of 32 bits reaches.
    CaseGroup("far rows", "nightly", (case(rows=3, layout="far", **SMALL),), targets=("cuda", "hip")),
)


def nothing_routed(arguments: Arguments, usual: Outputs) -> Outputs:
    """The shared expert and the residual alone."""
    shared, prefix = arguments["shared"], arguments["prefix"]
    return {"hidden": shared if prefix is None else prefix + shared}


def scaled(arguments: Arguments) -> Arguments:
    """All that is added, times four; a norm's result has no scale."""
    names = [name for name in ("up_weight", "shared", "prefix") if arguments[name] is not None]
    return arguments | {name: arguments[name] * 4 for name in names}


ROWS = ("routed", "shared", "prefix")
WEIGHTS = ("norm_weight", "up_weight")

OPERATOR = Operator(
    name="latent_moe_tail",
    reference=latent_moe_tail,
    outputs=(Output("hidden", "number", "=shared"),),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(
        case(rows=9, **SMALL), case(rows=16, hidden=512, latent=128), case(rows=3, **SMALL, prefix=False),
    ),
    weights=WEIGHTS,
    variants=(
        OFFICIAL,
        Variant(
            "one_rounding", "norm weight multiplied in fp32, one rounding (production norms, fork)",
            drops=frozenset({"norm_normalized"}),
        ),
        Variant(
            "fp32_sum",
            "norm weight multiplied in fp32; the three bf16 terms added in fp32 and rounded once (fused kernels)",
            drops=frozenset({"norm_normalized", "sum"}),
        ),
    ),
    laws=(
        batch_invariance(ROWS),
        row_isolation(ROWS),
        parameter_sensitivity({
            "routed": lambda a: a["routed"].roll(1, 1), "shared": lambda a: a["shared"].roll(1, 1),
            "prefix": lambda a: None, "norm_weight": lambda a: a["norm_weight"] * 2,
            "up_weight": lambda a: a["up_weight"].roll(1, 0), "eps": lambda a: 0.5,
        }),
        storage_order((*ROWS, *WEIGHTS), RELAID),
        shards(
            "column_shards", "Shards of the hidden columns side by side are the whole.",
            along({"shared": 1, "prefix": 1, "up_weight": 0}), {"hidden": 1}, counts=(2, 8),
        ),
        equivalence(
            "nothing_routed", "A token that no expert has gives prefix + shared.",
            lambda a: a | {"routed": torch.zeros_like(a["routed"])}, nothing_routed,
        ),
        equivalence(
            "scale_equivariance", "Powers of two in what is added pass through.", scaled,
            lambda arguments, usual: {"hidden": usual["hidden"] * 4},
        ),
    ),
    special_values=(
        "A NaN or an Inf in a row of routed, whose norm it spoils, makes the row NaN and no other row. A token without "
        "experts has a routed row of zeros: hidden is then prefix + shared. No rows launch nothing."
    ),
)  # fmt: skip
