from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from reference.activation import bounded_product, check_betas
from reference.checks import require, require_shape
from reference.microscaling import check_codes, decode, microscaled
from reference.moe_sorting import SLOT_SHIFT
from reference.numerics import ROUNDED, Numerics

ACTIVATION_FORMATS = ("bf16", "mxfp8", "mxfp4")
W13_LAYOUTS = ("separated", "interleaved")
COMBINES = ("ordered", "atomic")


ROWS_AT_ONCE = 256


class Routes(NamedTuple):
    """Pairs (token, slot) that go to a local expert, by ascending expert, then token, then slot: [P] each."""

    token: Tensor
    slot: Tensor
    expert: Tensor
    weight: Tensor
    top_k: int


def moe_experts(
    x: Tensor,
    w13: Tensor,
    w13_scale: Tensor,
    w2: Tensor,
    w2_scale: Tensor,
    expert_ids: Tensor | None = None,
    expert_weights: Tensor | None = None,
    *,
    beta: float,
    linear_beta: float | None = None,
    sorted_ids: Tensor | None = None,
    sorted_weights: Tensor | None = None,
    sorted_expert_ids: Tensor | None = None,
    num_valid_ids: Tensor | None = None,
    block_size: int | None = None,
    top_k: int | None = None,
    expert_offset: int = 0,
    num_local_experts: int | None = None,
    w13_layout: str = "separated",
    activation_format: str = "bf16",
    combine: str = "ordered",
    numerics: Numerics = ROUNDED,
) -> Tensor:
    """Run each token through its local MXFP4 experts and add up what they give.

    out_t = Σ_s w_ts · W2_e · q(situ(W13_e · q(x_t))), e = expert_ids_ts − expert_offset, over the
    slots s whose expert is local; a token without one gives zeros. q stores in activation_format.

    Rounding points: `gate_up` (bf16; only for bf16 activations) before SiTU, `activated` (bf16) after it,
    `route` (bf16) of an expert's output. combine = ordered adds w · route in fp32 in slot order;
    atomic has instead `weighted` (bf16) of w · output, `running` (bf16) of each sum, in any order.
    NaN spoils its row; an infinite x is specified for bf16 activations only, since its code exceeds fp32.

    Routing is either expert_ids and expert_weights, or `moe_sorting`'s metadata with its block_size and
    top_k, whose expert ids are local already. w13 holds F gate rows, then F up rows (separated), or a
    gate and an up row in turn (interleaved).

    Shapes: x [T, L] bf16; w13 [E, 2F, L/2], w2 [E, L, F/2] uint8 MXFP4 codes, low nibble first; their
    scales [E, 2F, L/32], [E, L, F/32] uint8; expert_ids [T, k] int, expert_weights [T, k] fp32;
    sorted_ids, sorted_weights [slots], sorted_expert_ids [blocks], num_valid_ids [2] → out [T, L].
    Raises ValueError for banks, ranges and routings that do not fit. Source: Kimi-K3's routed experts.
    """
    require(activation_format in ACTIVATION_FORMATS, "moe_experts",
            f"activation_format is {activation_format!r}; expected one of {', '.join(ACTIVATION_FORMATS)}")  # fmt: skip
    require(w13_layout in W13_LAYOUTS, "moe_experts",
            f"w13_layout is {w13_layout!r}; expected one of {', '.join(W13_LAYOUTS)}")  # fmt: skip
    require(combine in COMBINES, "moe_experts", f"combine is {combine!r}; expected one of {', '.join(COMBINES)}")
    check_betas("moe_experts", beta, linear_beta)
    check_banks(x, w13, w13_scale, w2, w2_scale, num_local_experts)
    metadata = {
        "sorted_ids": sorted_ids, "sorted_weights": sorted_weights, "sorted_expert_ids": sorted_expert_ids,
        "num_valid_ids": num_valid_ids, "block_size": block_size, "top_k": top_k,
    }  # fmt: skip
    if expert_ids is not None or expert_weights is not None:
        require(all(value is None for value in metadata.values()), "moe_experts",
                "both expert_ids and sort metadata are given; expected one of them")  # fmt: skip
        routes = routes_by_ids(x, expert_ids, expert_weights, expert_offset, w13.shape[0])
    else:
        require(expert_offset == 0, "moe_experts", f"expert_offset is {expert_offset} with sort metadata, "
                "whose expert ids are local already; expected 0")  # fmt: skip
        routes = routes_by_metadata(x, metadata, w13.shape[0])

    loaded = numerics.load(x)
    stored = loaded if activation_format == "bf16" else microscaled(loaded, activation_format, numerics, "x")
    gate_up = through_experts("gate_up_product", stored[routes.token], w13, w13_scale, routes.expert, numerics)
    if activation_format == "bf16":
        gate_up = numerics.round("gate_up", gate_up, torch.bfloat16)
    interleaved = w13_layout == "interleaved"
    gate, up = (gate_up[:, 0::2], gate_up[:, 1::2]) if interleaved else gate_up.chunk(2, dim=1)
    activated = bounded_product(gate, up, beta, linear_beta, numerics)
    activated = store_activated(activated, activation_format, numerics)
    outputs = through_experts("down_product", activated, w2, w2_scale, routes.expert, numerics)
    out = combined(outputs, routes, x.shape[0], combine, numerics)
    return numerics.output("out", out, x.dtype)


def store_activated(activated: Tensor, format: str, numerics: Numerics) -> Tensor:
    """SiTU's output as the second product finds it.

    Public kernels store it in bf16 before they quantise, or quantise it in fp32: near a tie of the
    codes, or a change of scale, the two choose neighbours, and either is right.
    """
    if format == "bf16":
        return numerics.round("activated", activated, torch.bfloat16)
    stored, slack = numerics.before_choice("activated", activated, torch.bfloat16)
    return microscaled(stored, format, numerics, "activated_codes", slack)


def through_experts(name: str, x: Tensor, codes: Tensor, scales: Tensor, expert: Tensor, numerics: Numerics) -> Tensor:
    """Each row of x [P, K] times its expert's weights, transposed: [P, O]; experts ascend."""
    products = [x.new_zeros(0, codes.shape[1])]
    for one in expert.unique().tolist():
        chosen = x[expert == one]
        # A part of the weights at a time: what float64 makes of a whole expert does not fit into caches.
        parts = [
            numerics.matmul(f"{name}.{one}.{part}", chosen, decode(some, some_scales, "mxfp4").t())
            for part, (some, some_scales) in enumerate(
                zip(codes[one].split(ROWS_AT_ONCE), scales[one].split(ROWS_AT_ONCE), strict=True)
            )
        ]
        products.append(torch.cat(parts, dim=1))
    return numerics.note(name, torch.cat(products))


def combined(outputs: Tensor, routes: Routes, rows: int, combine: str, numerics: Numerics) -> Tensor:
    """Weighted sum over the slots: [T, L] of [P, L]."""
    shape = (rows, routes.top_k, outputs.shape[1])
    atomic = combine == "atomic"
    outputs = numerics.round("route", outputs, torch.bfloat16, default=not atomic)
    weighted = numerics.computed("weighted_route", numerics.load(routes.weight)[:, None] * outputs)
    weighted = numerics.round("weighted", weighted, torch.bfloat16, default=atomic)
    place = routes.token * routes.top_k + routes.slot
    terms = outputs.new_zeros(shape).flatten(0, 1).index_copy(0, place, weighted).view(shape)
    if not numerics.has("running", default=atomic):
        return numerics.sum("combined", terms, 1)
    # An absent slot is no term: it neither rounds the sum again nor comes in between.
    keys = torch.full((rows * routes.top_k,), torch.inf, dtype=torch.float64)
    if numerics.has("order_free", default=atomic):
        keys[place] = routes.expert.to(torch.float64)
        order = numerics.arrival("arrival", keys.view(shape[:2]))
    else:
        keys[place] = 0.0
        order = torch.arange(routes.top_k).expand(shape[:2])
    return added_one_by_one(terms, (keys.view(shape[:2]) < torch.inf), order, numerics)


def added_one_by_one(terms: Tensor, present: Tensor, order: Tensor, numerics: Numerics) -> Tensor:
    """Σ over axis 1 of terms [T, k, L] in the order [T, k], the sum stored in bf16 after each."""
    total, started = torch.zeros_like(terms[:, 0]), torch.zeros_like(present[:, :1])
    everyone = torch.arange(terms.shape[0])
    for step in range(terms.shape[1]):
        term, here = terms[everyone, order[:, step]], present.gather(1, order[:, step : step + 1])
        more = numerics.computed(f"sum.{step}", total + term)
        more = numerics.round(f"running.{step}", more, torch.bfloat16)
        total = torch.where(here, torch.where(started, more, term), total)
        started = started | here
    return numerics.note("combined", total)


def routes_by_ids(
    x: Tensor, expert_ids: Tensor | None, expert_weights: Tensor | None, expert_offset: int, experts: int
) -> Routes:
    """The local pairs of ids and weights [T, k]."""
    require(expert_ids is not None, "moe_experts", "expert_weights are given without expert_ids")
    require(expert_weights is not None, "moe_experts", "expert_ids are given without expert_weights")
    assert expert_ids is not None
    assert expert_weights is not None
    require(not expert_ids.is_floating_point(), "moe_experts",
            f"expert_ids is {expert_ids.dtype}; expected integers; are ids and weights exchanged?")  # fmt: skip
    require_shape("moe_experts", "expert_ids", expert_ids, (x.shape[0], None), "[T, k]")
    require_shape("moe_experts", "expert_weights", expert_weights, tuple(expert_ids.shape), "[T, k]")
    require(expert_offset >= 0, "moe_experts", f"expert_offset is {expert_offset}; expected 0 or more")
    local = expert_ids.long() - expert_offset
    token, slot = ((local >= 0) & (local < experts)).nonzero(as_tuple=True)
    expert = local[token, slot]
    order = expert.argsort(stable=True)
    token, slot = token[order], slot[order]
    return Routes(token, slot, expert[order], expert_weights[token, slot], expert_ids.shape[1])


def routes_by_metadata(x: Tensor, metadata: dict[str, Any], experts: int) -> Routes:
    """The same of `moe_sorting`'s metadata, without padding, blocks of no local expert and what is past the end."""
    absent = [name for name, value in metadata.items() if value is None]
    require(not absent, "moe_experts",
            f"{', '.join(absent)} missing; expected expert_ids and expert_weights, or whole sort metadata")  # fmt: skip
    sorted_ids, sorted_weights, sorted_expert_ids, num_valid_ids, block_size, top_k = metadata.values()
    require_shape("moe_experts", "sorted_weights", sorted_weights, tuple(sorted_ids.shape), "[slots]")
    require_shape("moe_experts", "num_valid_ids", num_valid_ids, (2,), "(padded slots, rows)")
    require(block_size >= 1, "moe_experts", f"block_size is {block_size}; expected 1 or more")
    require(top_k >= 1, "moe_experts", f"top_k is {top_k}; expected 1 or more")
    valid, blocks = int(num_valid_ids[0]), sorted_expert_ids.shape[0]
    require(0 <= valid <= min(sorted_ids.shape[0], blocks * block_size), "moe_experts",
            f"num_valid_ids[0] is {valid}; expected 0…{min(sorted_ids.shape[0], blocks * block_size)}, what "
            f"{sorted_ids.shape[0]} ids and {blocks} blocks of {block_size} hold")  # fmt: skip
    packed = sorted_ids[:valid].long()
    token, slot = packed & ((1 << SLOT_SHIFT) - 1), packed >> SLOT_SHIFT
    expert = sorted_expert_ids.long().repeat_interleave(block_size)[:valid]
    kept = (token < x.shape[0]) & (slot >= 0) & (slot < top_k) & (expert >= 0) & (expert < experts)
    order = kept.nonzero().flatten()
    order = order[(expert[order] * x.shape[0] + token[order]).mul(top_k).add(slot[order]).argsort(stable=True)]
    return Routes(token[order], slot[order], expert[order], sorted_weights[:valid][order], top_k)


def check_banks(
    x: Tensor, w13: Tensor, w13_scale: Tensor, w2: Tensor, w2_scale: Tensor, num_local_experts: int | None
) -> None:
    """Raise ValueError, naming the argument, for weights that do not fit x or each other."""
    name = "moe_experts"
    require(x.ndim == 2, name, f"x is {list(x.shape)}; expected [T, L]")
    latent = x.shape[1]
    check_codes(name, "w13", w13, "w13_scale", w13_scale, "mxfp4")
    check_codes(name, "w2", w2, "w2_scale", w2_scale, "mxfp4")
    require(w13.ndim == 3, name, f"w13 is {list(w13.shape)}; expected [E, 2F, L/2]")
    experts, rows, columns = w13.shape
    unpacked = "; two codes go in a byte" if columns == latent else ""
    require(columns * 2 == latent, name,
            f"w13 is {list(w13.shape)}; expected [E, 2F, L/2] with L/2 = {latent // 2}{unpacked}")  # fmt: skip
    require(rows % 2 == 0, name, f"w13 has {rows} rows an expert; expected F gates and F ups")
    expected = (experts, latent, rows // 4)
    transposed = "; is it transposed?" if w2.shape == (experts, rows // 2, latent // 2) != expected else ""
    require(tuple(w2.shape) == expected and rows % 4 == 0, name,
            f"w2 is {list(w2.shape)}; expected [E, L, F/2] = {list(expected)}{transposed}")  # fmt: skip
    require(num_local_experts in (None, experts), name,
            f"num_local_experts is {num_local_experts}; w13 holds {experts} experts")  # fmt: skip
