from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from reference.moe_front import latent_moe_tail
from reference.numerics import OFFICIAL, Variant
from verification.contracts.rms_norm import DISTRIBUTIONS
from verification.inputs import LAYOUTS, Inputs, laid_out
from verification.laws import batch_invariance, parameter_sensitivity, reassembly, row_isolation, storage_order
from verification.operator import Arguments, Case, CaseGroup, LawContext, Operator, Output, Outputs, make_case, pick

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
)


def columns_apart(context: LawContext) -> Iterator[tuple[str, Outputs]]:
    """Each shard of the hidden columns by itself: what ranks hold of a column-sharded projection."""
    arguments = context.arguments()
    for shards in (2, 8):
        parts = zip(*(arguments[name].chunk(shards, axis) for name, axis in SHARDED.items()), strict=True)
        calls = [context.call(arguments | dict(zip(SHARDED, map(torch.clone, part), strict=True))) for part in parts]
        yield f"In {shards} shards of columns", {"hidden": torch.cat([call["hidden"] for call in calls], 1)}


SHARDED = {"shared": 1, "prefix": 1, "up_weight": 0}
ROWS = ("routed", "shared", "prefix")

OPERATOR = Operator(
    name="latent_moe_tail",
    reference=latent_moe_tail,
    outputs=(Output("hidden", "number", "=shared"),),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(case(rows=9, **SMALL), case(rows=16, hidden=512, latent=128)),
    weights=("norm_weight", "up_weight"),
    variants=(
        OFFICIAL,
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
        storage_order(ROWS, {name: partial(laid_out, layout=name) for name in LAYOUTS if name != "contiguous"}),
        reassembly("column_shards", "Shards of the columns side by side are the whole.", columns_apart),
    ),
    special_values=(
        "A NaN or an Inf in a row of routed, whose norm it spoils, makes the row NaN and no other row. A token without "
        "experts has a routed row of zeros: hidden is then prefix + shared. No rows launch nothing."
    ),
)  # fmt: skip
