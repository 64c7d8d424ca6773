from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from reference.checks import require
from reference.moe import moe_experts
from reference.moe_sorting import moe_sorting
from reference.numerics import OFFICIAL, Variant
from verification.contracts.moe_experts_laws import (
    expert_permutation,
    experts_apart,
    interleaved,
    intermediates_apart,
    nothing_local,
    padding_rows,
    scales_move,
    slots_exchanged,
    sorted_routing,
)
from verification.inputs import RELAID, Inputs, far_apart, laid_out
from verification.laws import batch_invariance, parameter_sensitivity, row_isolation, storage_order
from verification.operator import Arguments, Case, CaseGroup, Law, Operator, Output, make_case, pick
from verification.shards import shards

DEFAULTS: dict[str, Any] = {
    "rows": 4, "latent": 256, "inter": 96, "experts": 24, "local": 24, "offset": 0, "top_k": 4, "hits": 0,
    "activation": "bf16", "combine": "ordered", "routing": "ids", "block_size": 32, "w13": "separated",
    "beta": 4.0, "linear_beta": 25.0, "values": "normal", "layout": "contiguous",
}  # fmt: skip
"""`local` experts from `offset` on are in the bank; `hits` slots a row go there, 0 for as it falls out."""

K3_EP8: dict[str, Any] = {
    "latent": 3584, "inter": 3072, "experts": 896, "offset": 336, "local": 2, "top_k": 16, "hits": 1,
}  # fmt: skip
"""A rank's shapes, of whose 112 experts the bank holds two."""

K3_EP1: dict[str, Any] = {
    "latent": 3584,
    "inter": 384,
    "experts": 896,
    "offset": 500,
    "local": 4,
    "top_k": 16,
    "hits": 3,
}
KIMI_LINEAR: dict[str, Any] = {
    "latent": 2304, "inter": 1024, "experts": 256, "offset": 250, "local": 3, "top_k": 8, "hits": 1,
}  # fmt: skip

FORMATS = ("bf16", "mxfp8", "mxfp4")


def case(distribution: str = "distinct", seed: int = 0, **parameters: Any) -> Case:
    """A case of moe_experts."""
    return make_case("moe_experts", DEFAULTS, "bf16", distribution, seed, **parameters)


def make(case: Case) -> Arguments:
    """Routing of the named distribution, weights and rows of the named values."""
    p = DEFAULTS | dict(case.parameters)
    inputs = Inputs(case.id)
    require(p["offset"] + p["local"] <= p["experts"], case.operator, "the local range ends past the last expert")
    ids = pick(case.distribution, ROUTINGS, "distribution")(inputs, p).to(torch.int32)
    expert_weights = inputs.uniform("expert_weights", tuple(ids.shape), 0.01, 0.5).to(torch.float32)
    if case.distribution == "remote_rows":
        expert_weights[1::3, 0] = 0.0
    if p["values"] == "nonfinite":
        expert_weights[2:3, 0] = torch.nan
    return {
        **pick(p["values"], VALUES, "values")(inputs, p),
        **routing(p, ids, expert_weights),
        "expert_offset": 0 if p["routing"] == "sorted" else p["offset"],
        "num_local_experts": p["local"],
        "beta": p["beta"],
        "linear_beta": p["linear_beta"] or None,
        "w13_layout": p["w13"],
        "activation_format": p["activation"],
        "combine": p["combine"],
    }


def routing(p: dict[str, Any], ids: Tensor, weights: Tensor) -> Arguments:
    """Ids and weights, or sort metadata of the local range; the other form is None."""
    by_ids: Arguments = {"expert_ids": ids, "expert_weights": weights}
    if p["routing"] == "sorted":
        return dict.fromkeys(by_ids) | sort_metadata(
            ids, weights, p["experts"], p["offset"], p["local"], p["block_size"]
        )
    names = ("sorted_ids", "sorted_weights", "sorted_expert_ids", "num_valid_ids", "block_size", "top_k")
    return by_ids | dict.fromkeys(names)


def sort_metadata(ids: Tensor, weights: Tensor, experts: int, offset: int, local: int, block_size: int) -> Arguments:
    """What `moe_sorting` prepares for a range of experts."""
    mask = torch.zeros(experts, dtype=torch.int32)
    mask[offset : offset + local] = 1
    prepared = moe_sorting(ids, weights, num_experts=experts, block_size=block_size, expert_mask=mask)
    return {
        "sorted_ids": prepared.sorted_ids,
        "sorted_weights": prepared.sorted_weights,
        "sorted_expert_ids": prepared.sorted_expert_ids,
        "num_valid_ids": prepared.num_valid_ids,
        "block_size": block_size,
        "top_k": ids.shape[1],
    }


def distinct(inputs: Inputs, p: dict[str, Any]) -> Tensor:
    """K different experts a row, `hits` of them local where it is given."""
    rows, top_k, hits = p["rows"], p["top_k"], p["hits"]
    if not hits:
        return inputs.permutations("ids", rows, p["experts"])[:, :top_k]
    remote = inputs.permutations("remote", rows, p["experts"] - p["local"])[:, :top_k]
    remote = remote + p["local"] * (remote >= p["offset"])
    local = inputs.permutations("local", rows, p["local"])[:, :hits] + p["offset"]
    return torch.scatter(remote, 1, inputs.permutations("slots", rows, top_k)[:, :hits], local)


def local_ids(inputs: Inputs, p: dict[str, Any]) -> Tensor:
    """Local ids, with repeats in a row."""
    ids = inputs.integers("ids", (p["rows"], p["top_k"]), 0, min(p["local"], 3))
    return torch.add(ids, p["offset"])


def remote_rows(inputs: Inputs, p: dict[str, Any]) -> Tensor:
    """Row 0 all −1, row 2 all remote, elsewhere every second slot −1, past the end or far out."""
    ids = inputs.integers("ids", (p["rows"], p["top_k"]), p["offset"], p["offset"] + p["local"])
    bad = torch.tensor([-1, p["experts"], p["offset"] - 1, p["offset"] + p["local"], 2**31 - 1, -(2**31)])
    ids[:, 1::2] = bad[inputs.integers("bad", (p["rows"], p["top_k"] // 2), 0, len(bad))]
    ids[0:1] = -1
    ids[2:3] = p["offset"] + p["local"]
    return ids


ROUTINGS: dict[str, Callable[[Inputs, dict[str, Any]], Tensor]] = {
    "distinct": distinct,
    "repeated": local_ids,
    "one_expert": lambda i, p: torch.full((p["rows"], p["top_k"]), p["offset"] + p["local"] - 1),
    "remote_rows": remote_rows,
    "all_remote": lambda i, p: torch.full((p["rows"], p["top_k"]), p["offset"] + p["local"]),
}


def drawn(inputs: Inputs, p: dict[str, Any], size: float = 1.0, shift: int = 0) -> Arguments:
    """Rows of unit variance times `size`; scales of four binades, such that gates are of a few units."""
    experts, latent, inter = p["local"], p["latent"], p["inter"]
    x = laid_out(inputs.normal("x", (p["rows"], latent), size).to(torch.bfloat16), p["layout"])
    banks = far_apart if p["layout"] == "far" else torch.Tensor.contiguous
    w13_base, w2_base = 126 - latent.bit_length() // 2 + shift, 125 - inter.bit_length() // 2 - shift
    return {
        "x": x,
        "w13": banks(inputs.integers("w13", (experts, 2 * inter, latent // 2), 0, 256).to(torch.uint8)),
        "w13_scale": inputs.integers("w13_scale", (experts, 2 * inter, latent // 32), w13_base - 2, w13_base + 2).to(
            torch.uint8
        ),
        "w2": banks(inputs.integers("w2", (experts, latent, inter // 2), 0, 256).to(torch.uint8)),
        "w2_scale": inputs.integers("w2_scale", (experts, latent, inter // 32), w2_base - 2, w2_base + 2).to(
            torch.uint8
        ),
    }


def coordinates(inputs: Inputs, p: dict[str, Any]) -> Arguments:
    """Scales that no neighbour shares, by expert, row and group: one read from elsewhere shows."""
    arguments = drawn(inputs, p)
    for name in ("w13_scale", "w2_scale"):
        experts, rows, groups = (torch.arange(size) for size in arguments[name].shape)
        place = 5 * experts[:, None, None] + 3 * rows[:, None] + 7 * groups
        arguments[name] = (arguments[name].to(torch.int32).amin() - 3 + place % 11).to(torch.uint8)
    return arguments


def rolled(inputs: Inputs, p: dict[str, Any]) -> Arguments:
    """One drawn expert for all, its rows rolled by the number of the expert: large banks are made quickly."""
    arguments = drawn(inputs, p | {"local": 1})
    for name in ("w13", "w13_scale", "w2", "w2_scale"):
        only = arguments[name]
        bank = torch.empty(p["local"], *only.shape[1:], dtype=torch.uint8)
        for expert in range(p["local"]):
            bank[expert] = only[0].roll(expert, 0)
        arguments[name] = bank
    return arguments


def constant(inputs: Inputs, p: dict[str, Any]) -> Arguments:
    """All gates one number and all ups another: rows of the wrong half show."""
    arguments = drawn(inputs, p)
    gate, up = 0x22, 0xCC  # 1 and −2
    halves = torch.tensor([gate, up], dtype=torch.uint8)
    rows = halves.repeat(p["inter"]) if p["w13"] == "interleaved" else halves.repeat_interleave(p["inter"])
    arguments["w13"] = rows[None, :, None].expand(arguments["w13"].shape).contiguous()
    arguments["w13_scale"].fill_(127 - p["latent"].bit_length())
    arguments["x"] = arguments["x"].abs()
    return arguments


def nonfinite(inputs: Inputs, p: dict[str, Any]) -> Arguments:
    """A NaN in row 0 and, where x is not quantised, an infinity in row 1; row 2 has a weight of NaN."""
    arguments = drawn(inputs, p)
    arguments["x"][0:1, 5] = torch.nan
    if p["activation"] == "bf16":
        arguments["x"][1:2, 40] = torch.inf
    return arguments


VALUES: dict[str, Callable[[Inputs, dict[str, Any]], Arguments]] = {
    "normal": drawn,
    "saturated": lambda i, p: drawn(i, p, 16.0),
    "small": lambda i, p: drawn(i, p, 2.0**-9),
    "zeros": lambda i, p: drawn(i, p, 0.0),
    "tiny_scales": lambda i, p: drawn(i, p, 2.0**20, -20),
    "large_scales": lambda i, p: drawn(i, p, 2.0**-20, 20),
    "coordinates": coordinates,
    "rolled": rolled,
    "constant": constant,
    "nonfinite": nonfinite,
}

SMALL: dict[str, Any] = {"latent": 96, "inter": 64, "experts": 8, "local": 8, "top_k": 2}

GROUPS = (
    CaseGroup(
        "row counts",
        "smoke",
        tuple(case(rows=r, **SMALL) for r in (0, 1, 2, 8)) + (case(rows=17, activation="mxfp8", **SMALL),),
    ),
    CaseGroup(
        "row counts",
        "full",
        tuple(case(rows=r, activation=f, **SMALL) for r in (4, 16, 64) for f in FORMATS) + (case(rows=257, **SMALL),),
    ),
    CaseGroup(
        "formats",
        "smoke",
        tuple(
            case(activation=f, w13=w, routing=r, **SMALL | {"inter": 96})
            for f, w, r in (
                ("bf16", "interleaved", "sorted"),
                ("mxfp8", "separated", "ids"),
                ("mxfp8", "interleaved", "sorted"),
                ("mxfp4", "interleaved", "ids"),
                ("mxfp4", "separated", "sorted"),
            )
        ),
    ),
    CaseGroup(
        "formats",
        "full",
        tuple(
            case(activation=f, w13=w, routing=r, rows=5, experts=12, local=12)
            for f in FORMATS
            for w in ("separated", "interleaved")
            for r in ("ids", "sorted")
        ),
    ),
    CaseGroup(
        "combine",
        "smoke",
        (
            case(combine="atomic", **SMALL),
            case("repeated", combine="atomic", activation="mxfp8", routing="sorted", rows=5, **SMALL | {"top_k": 8}),
        ),
    ),
    CaseGroup("combine", "full", tuple(case(combine="atomic", rows=9, activation=f, top_k=16) for f in FORMATS)),
    CaseGroup(
        "routing",
        "smoke",
        tuple(
            case(d, rows=5, offset=3, routing=r, **SMALL | {"local": 4, "top_k": 4})
            for d in ("repeated", "one_expert", "remote_rows", "all_remote")
            for r in ("ids", "sorted")
        )
        + (
            case(rows=3, experts=16, local=1, offset=15, top_k=16, latent=64, inter=32),
            case("one_expert", rows=40, **SMALL | {"latent": 64, "inter": 32}),
            *(case("repeated", rows=3, routing="sorted", block_size=b, **SMALL) for b in (4, 64, 128)),
        ),
    ),
    CaseGroup(
        "sizes",
        "smoke",
        tuple(case(rows=3, latent=64, inter=i, experts=2, local=2, top_k=2) for i in (32, 128, 384, 640))
        + (case(rows=3, latent=544, inter=32, experts=2, local=2, top_k=1, activation="mxfp4"),),
    ),
    CaseGroup(
        "sizes",
        "full",
        tuple(
            case(rows=3, latent=la, inter=i, experts=3, local=3, top_k=2, activation=f)
            for la, i in ((64, 256), (64, 512), (64, 768), (1024, 64), (2880, 32))
            for f in FORMATS
        ),
    ),
    CaseGroup(
        "values",
        "smoke",
        tuple(case(values=v, **SMALL) for v in ("saturated", "small", "tiny_scales", "large_scales", "coordinates"))
        + tuple(case(values="constant", w13=w, **SMALL) for w in ("separated", "interleaved"))
        + (case(values="zeros", **SMALL), case(values="saturated", activation="mxfp8", **SMALL)),
    ),
    CaseGroup(
        "values",
        "full",
        tuple(
            case(values=v, activation=f, rows=5, **SMALL)
            for v in VALUES
            if v != "nonfinite"
            for f in ("mxfp8", "mxfp4")
        ),
    ),
    CaseGroup("NaN and Inf", "smoke", tuple(case(values="nonfinite", activation=f, **SMALL) for f in FORMATS)),
    CaseGroup(
        "betas",
        "smoke",
        tuple(case(beta=b, linear_beta=lb, **SMALL) for b, lb in ((1.0, 1.0), (2.0, 1.5), (25.0, 4.0), (4.0, 0.0))),
    ),
    CaseGroup(
        "layouts", "smoke", tuple(case(layout=la, rows=3, **SMALL) for la in ("row_padded", "transposed", "offset"))
    ),
    CaseGroup(
        "production sizes",
        "full",
        (
            case(rows=1, **K3_EP8),
            *(
                case(rows=1, activation=f, w13=w, routing=r, **K3_EP1)
                for f, w, r in (
                    ("bf16", "separated", "ids"),
                    ("mxfp8", "interleaved", "sorted"),
                    ("mxfp4", "separated", "ids"),
                )
            ),
            case(rows=2, **KIMI_LINEAR),
        ),
    ),
    CaseGroup(
        "production sizes",
        "nightly",
        tuple(case(rows=r, activation=f, **K3_EP1) for r in (2, 4, 16, 257) for f in FORMATS)
        + tuple(case(rows=r, activation=f, **K3_EP8) for r in (4, 16) for f in FORMATS),
    ),
    CaseGroup(
        "row counts",
        "nightly",
        tuple(case(rows=r, activation=f, **SMALL) for r in (*range(1, 34), 63, 65, 128, 255, 256) for f in FORMATS),
    ),
    CaseGroup("seeds", "nightly", tuple(case(seed=s, rows=s, activation=f) for s in range(1, 17) for f in FORMATS)),
    # Offsets beyond 2³¹ elements: more than an index of 32 bits reaches.
    CaseGroup(
        "far rows and experts",
        "nightly",
        tuple(case(rows=3, layout="far", w13=w, **SMALL) for w in ("separated", "interleaved")),
        targets=("cuda", "hip"),
    ),
)

BF16_ADDS = frozenset({"weighted", "running"})
VARIANTS = (
    OFFICIAL,
    Variant(
        "gate_up_fp32",
        "gates and ups kept in fp32 before SiTU, for bf16 activations too (AITER, vLLM mono)",
        drops=frozenset({"gate_up"}),
    ),
    Variant(
        "bf16_adds",
        "weight · output rounded to bf16, and each sum in slot order (vLLM mono)",
        adds=BF16_ADDS,
        drops=frozenset({"route"}),
    ),
    Variant(
        "atomic",
        "as bf16_adds, in any order (packed bf16 atomics), whatever `combine` says",
        adds=BF16_ADDS | {"order_free"},
        drops=frozenset({"route"}),
    ),
)

ROW_ARGUMENTS = ("x", "expert_ids", "expert_weights")


def by_ids(law: Law) -> Law:
    """The law where rows are those of ids and weights."""
    return replace(law, applies=lambda case: law.applies(case) and dict(case.parameters).get("routing", "ids") == "ids")


OPERATOR = Operator(
    name="moe_experts",
    reference=moe_experts,
    outputs=(Output("out", "number", "=x"),),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(
        case(rows=9, **SMALL | {"experts": 10, "offset": 1, "top_k": 3}),
        case(rows=5, activation="mxfp8", **SMALL),
        case(rows=4, activation="mxfp4", routing="sorted", **SMALL),
    ),
    weights=("w13", "w13_scale", "w2", "w2_scale", "w13_layout"),
    variants=VARIANTS,
    laws=(
        by_ids(batch_invariance(ROW_ARGUMENTS)),
        by_ids(row_isolation(ROW_ARGUMENTS)),
        by_ids(
            parameter_sensitivity(
                {
                    "x": lambda a: a["x"].roll(1, 1),
                    "w13": lambda a: a["w13"].roll(1, 1),
                    "w13_scale": lambda a: a["w13_scale"].roll(1, 0),
                    "w2": lambda a: a["w2"].roll(1, 1),
                    "w2_scale": lambda a: a["w2_scale"].roll(1, 0),
                    "expert_ids": lambda a: a["expert_ids"].roll(1, 0),
                    "expert_weights": lambda a: a["expert_weights"].roll(1, 0),
                    "expert_offset": lambda a: a["expert_offset"] + 1,
                    "beta": lambda a: a["beta"] / 2,
                    "linear_beta": lambda a: 1.0,
                    "w13_layout": lambda a: "interleaved",
                    "activation_format": lambda a: "mxfp4" if a["activation_format"] != "mxfp4" else "bf16",
                }
            )
        ),
        by_ids(storage_order(ROW_ARGUMENTS, RELAID)),
        by_ids(Law("expert_permutation", "Experts stored in another order give the same.", expert_permutation)),
        by_ids(
            shards("expert_shards", "The sum over shards of the experts is the whole.", experts_apart, {"out": "sum"})
        ),
        shards(
            "intermediate_shards",
            "The sum over shards of the intermediate is the whole.",
            intermediates_apart,
            {"out": "sum"},
            counts=(2,),
        ),
        by_ids(Law("nothing_local", "A token without a local expert gives zeros.", nothing_local)),
        by_ids(Law("padding_invariance", "Rows of padding change nothing and give zeros.", padding_rows)),
        by_ids(Law("slot_permutation", "Slots in another order give the same sum.", slots_exchanged)),
        by_ids(Law("ids_or_metadata", "Prepared sort metadata give what ids and weights give.", sorted_routing)),
        Law("scale_equivariance", "Powers of two in weights and scales pass through.", scales_move),
        Law("w13_layout", "Interleaved gates and ups give what separated ones give.", interleaved),
    ),
    special_values=(
        "A token without a local expert gives exact zeros. Ids outside the local range are skipped and never "
        "dereferenced; duplicates in a row each count. NaN in x or in a weight spoils its own row alone. An infinite "
        "x is specified for bf16 activations only."
    ),
)
