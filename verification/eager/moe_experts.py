from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fused.boundary import implements
from verification.eager.microscaling import expanded, round_trip
from verification.eager.situ import bounded_product
from verification.eager.tiles import SMALL, rows_product

SLOT_SHIFT = 24
BF16 = torch.bfloat16


class Bank(NamedTuple):
    """MXFP4 codes and scales, gate rows before up rows; expanded an expert at a time."""

    w13: Tensor
    w13_scale: Tensor
    w2: Tensor
    w2_scale: Tensor


def prepare(w13: Tensor, w13_scale: Tensor, w2: Tensor, w2_scale: Tensor, w13_layout: str = "separated") -> Bank:
    """The bank with its gates and ups separated."""
    if w13_layout == "interleaved":
        w13, w13_scale = (torch.cat([w[:, 0::2], w[:, 1::2]], dim=1) for w in (w13, w13_scale))
    return Bank(w13, w13_scale, w2, w2_scale)


def local_routes(
    rows: int,
    experts: int,
    expert_ids: Tensor | None = None,
    expert_weights: Tensor | None = None,
    *,
    sorted_ids: Tensor | None = None,
    sorted_weights: Tensor | None = None,
    sorted_expert_ids: Tensor | None = None,
    num_valid_ids: Tensor | None = None,
    block_size: int | None = None,
    top_k: int | None = None,
    expert_offset: int = 0,
) -> tuple[Tensor, Tensor]:
    """Local ids [T, k], E where there is none, and fp32 weights, 0 there; of either form of routing."""
    if expert_ids is not None:
        assert expert_weights is not None
        local = expert_ids.long() - expert_offset
        live = (local >= 0) & (local < experts)
        return torch.where(live, local, experts), torch.where(live, expert_weights, 0.0)
    assert sorted_ids is not None
    assert sorted_weights is not None
    assert sorted_expert_ids is not None
    assert num_valid_ids is not None
    assert block_size is not None
    assert top_k is not None
    place = torch.arange(len(sorted_ids), device=sorted_ids.device)
    token, slot = sorted_ids.long() & ((1 << SLOT_SHIFT) - 1), sorted_ids.long() >> SLOT_SHIFT
    expert = sorted_expert_ids.long()[place // block_size]
    live = (place < num_valid_ids[0]) & (token < rows) & (slot >= 0) & (slot < top_k)
    live = live & (expert >= 0) & (expert < experts)
    pair = torch.where(live, token * top_k + slot, rows * top_k)  # the last place takes what is no pair
    local = torch.full((rows * top_k + 1,), experts, device=place.device).scatter_(0, pair, expert)
    weights = torch.zeros(rows * top_k + 1, device=place.device).scatter_(0, pair, sorted_weights.float())
    return local[:-1].view(rows, top_k), weights[:-1].view(rows, top_k)


Handler = Callable[[Tensor, Tensor], None]


def each_expert(
    bank: Bank, x: Tensor, local: Tensor, beta: float, linear_beta: float | None, format: str, bf16_gate_up: bool,
    handle: Handler,
) -> None:  # fmt: skip
    """Give `handle` the pairs (token · k + slot) of each expert that has any, and its fp32 outputs for them."""
    experts, top_k = len(bank.w13), local.shape[1]
    stored = x if format == "bf16" else round_trip(x, format)
    flat = local.flatten()
    order = flat.sort(stable=True).indices
    counts = torch.bincount(flat, minlength=experts + 1)[:experts].tolist()
    product = in_tiles if len(x) <= SMALL else whole_product
    start = 0
    for expert, count in enumerate(counts):
        if not count:
            continue
        pairs = order[start : start + count]
        start += count
        gate_up = product(stored[pairs // top_k], expanded(bank.w13[expert], bank.w13_scale[expert], "mxfp4"))
        if bf16_gate_up and format == "bf16":
            gate_up = gate_up.to(BF16).float()
        gate, up = gate_up.chunk(2, dim=1)
        activated = bounded_product(gate, up, beta, linear_beta).to(BF16)
        if format != "bf16":
            activated = round_trip(activated, format)
        handle(pairs, product(activated, expanded(bank.w2[expert], bank.w2_scale[expert], "mxfp4")))


def in_tiles(x: Tensor, weight: Tensor) -> Tensor:
    """X · weightᵀ with the same bits for a row among any others, however many slots chose the expert."""
    return torch.cat([rows_product(part, weight) for part in x.split(SMALL)])


def whole_product(x: Tensor, weight: Tensor) -> Tensor:
    """X · weightᵀ in fp32."""
    return x.float() @ weight.t()


def in_slot_order(each: Callable[[Handler], None], weights: Tensor, x: Tensor) -> Tensor:
    """Outputs rounded to bf16 a route, weighted and added in fp32 in slot order."""
    routes = torch.zeros(weights.numel(), x.shape[1], dtype=BF16, device=x.device)

    def keep(pairs: Tensor, outputs: Tensor) -> None:
        routes[pairs] = outputs.to(BF16)

    each(keep)
    out = torch.zeros(x.shape, device=x.device)
    for slot, route in enumerate(routes.view(*weights.shape, x.shape[1]).unbind(1)):
        out = torch.addcmul(out, weights[:, slot, None], route.float())
    return out.to(x.dtype)


def in_bf16_adds(each: Callable[[Handler], None], weights: Tensor, x: Tensor) -> Tensor:
    """Weighted outputs rounded to bf16, and each sum too, in slot order."""
    routes = torch.zeros(weights.numel(), x.shape[1], dtype=BF16, device=x.device)

    def keep(pairs: Tensor, outputs: Tensor) -> None:
        routes[pairs] = (weights.flatten()[pairs, None] * outputs).to(BF16)

    each(keep)
    out = torch.zeros_like(x)
    for route in routes.view(*weights.shape, x.shape[1]).unbind(1):
        out = out + route
    return out


def as_experts_finish(each: Callable[[Handler], None], weights: Tensor, x: Tensor) -> Tensor:
    """The same in the order of experts: on a GPU by atomic additions, in any."""
    out = torch.zeros_like(x)

    def add(pairs: Tensor, outputs: Tensor) -> None:
        out.index_add_(0, pairs // weights.shape[1], (weights.flatten()[pairs, None] * outputs).to(BF16))

    each(add)
    return out


class Form(NamedTuple):
    """How a variant adds up the routes, and whether it rounds gates and ups to bf16 before SiTU."""

    combined: Callable[[Callable[[Handler], None], Tensor, Tensor], Tensor] = in_slot_order
    bf16_gate_up: bool = True


OFFICIAL = Form()


def moe_experts(
    bank: Bank,
    x: Tensor,
    *,
    beta: float,
    linear_beta: float | None = None,
    activation_format: str = "bf16",
    num_local_experts: int | None = None,
    combine: str = "ordered",
    form: Form = OFFICIAL,
    **routing: Any,
) -> Tensor:
    """A loop over the experts that have tokens (one look at their counts), and a sum over the slots.

    The atomic combine may round more, and need not. Shapes: x [T, L], routing as the contract has it → out [T, L].
    """
    local, weights = local_routes(len(x), len(bank.w13), **routing)
    each = partial(each_expert, bank, x, local, beta, linear_beta, activation_format, form.bf16_gate_up)
    return form.combined(each, weights, x)


def following(form: Form) -> Callable[..., Tensor]:
    """`moe_experts` in one form, under the operator's signature."""

    @wraps(moe_experts)
    def call(bank: Bank, x: Tensor, **arguments: Any) -> Tensor:
        return moe_experts(bank, x, form=form, **arguments)

    return call


declared = partial(implements, "moe_experts", prepare=prepare, capturable=False)
eager = declared(name="eager", batch_invariant=True)(following(OFFICIAL))
gate_up_fp32 = declared(name="eager_gate_up_fp32", variant="gate_up_fp32", batch_invariant=True)(
    following(Form(bf16_gate_up=False))
)
bf16_adds = declared(name="eager_bf16_adds", variant="bf16_adds", batch_invariant=True)(following(Form(in_bf16_adds)))
atomic = declared(name="eager_atomic", variant="atomic", deterministic=False)(following(Form(as_experts_finish)))
