from __future__ import annotations

import torch
from torch import Tensor

from fused.boundary import implements
from verification.eager.route import route

SLOT_SHIFT = 24


@implements("moe_sorting", name="eager")
def moe_sorting(
    expert_ids: Tensor,
    expert_weights: Tensor,
    *,
    num_experts: int,
    block_size: int,
    expert_mask: Tensor | None = None,
    num_local_tokens: Tensor | None = None,
    output_buffer: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One stable sort of the pairs by expert, then a scatter to padded places; no host sync.

    Shapes: expert_ids, expert_weights [T, k] → sorted_ids, sorted_weights [slots],
    sorted_expert_ids [blocks], num_valid_ids [2].
    """
    rows, top_k = expert_ids.shape
    device = expert_ids.device
    slots = max(rows * top_k + num_experts * block_size - top_k, 0)
    blocks = -(-slots // block_size)
    live = torch.ones(num_experts, dtype=torch.bool, device=device) if expert_mask is None else expert_mask.bool()

    token = torch.arange(rows, device=device).repeat_interleave(top_k)
    slot = torch.arange(top_k, device=device).repeat(rows)
    expert = expert_ids.flatten().long()
    valid = (expert >= 0) & (expert < num_experts)
    expert = torch.where(valid, expert, num_experts)
    valid = valid & live[expert.clamp(max=num_experts - 1)]
    if num_local_tokens is not None:
        valid = valid & (token < num_local_tokens)
    expert = torch.where(valid, expert, num_experts)

    counts = torch.zeros(num_experts + 1, dtype=torch.long, device=device).scatter_add_(
        0, expert, torch.ones_like(expert)
    )
    padded = (counts[:num_experts] + block_size - 1) // block_size * block_size
    ends = padded.cumsum(0)
    starts = torch.cat([ends - padded, ends.new_full((1,), slots)])
    order = expert.sort(stable=True).indices
    first = counts.cumsum(0) - counts
    place = starts[expert[order]] + torch.arange(rows * top_k, device=device) - first[expert[order]]
    place = torch.where(valid[order], place, slots)

    packed = (slot << SLOT_SHIFT | token).to(torch.int32)
    sorted_ids = torch.full((slots + 1,), top_k << SLOT_SHIFT | rows, dtype=torch.int32, device=device)
    sorted_weights = torch.zeros(slots + 1, dtype=torch.float32, device=device)
    sorted_ids[place] = packed[order]
    sorted_weights[place] = expert_weights.flatten()[order]

    local = live.long().cumsum(0) - 1
    owner = torch.searchsorted(ends, torch.arange(blocks, device=device) * block_size, right=True)
    inside = owner < num_experts
    sorted_expert_ids = torch.where(inside, local[owner.clamp(max=num_experts - 1)], -1).to(torch.int32)
    count = ends[-1:]
    local_rows = (
        torch.full((1,), rows, dtype=torch.long, device=device) if num_local_tokens is None else num_local_tokens.long()
    )
    if output_buffer is not None:
        output_buffer.zero_()
    return sorted_ids[:slots], sorted_weights[:slots], sorted_expert_ids, torch.cat([count, local_rows]).to(torch.int32)


@implements("route_sort", name="eager")
def route_sort(
    logits: Tensor,
    correction_bias: Tensor | None = None,
    *,
    top_k: int,
    block_size: int,
    num_groups: int = 1,
    top_groups: int = 1,
    score_function: str = "sigmoid",
    renormalize: bool = True,
    scaling_factor: float = 1.0,
    logical_to_physical: Tensor | None = None,
    expert_mask: Tensor | None = None,
    num_local_tokens: Tensor | None = None,
    output_buffer: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """`route`, then `moe_sorting` of its choice. Shapes: as theirs."""
    ids, weights = route(
        logits, correction_bias, top_k=top_k, num_groups=num_groups, top_groups=top_groups,
        score_function=score_function, renormalize=renormalize, scaling_factor=scaling_factor,
        logical_to_physical=logical_to_physical,
    )  # fmt: skip
    return ids, weights, *moe_sorting(
        ids, weights, num_experts=logits.shape[1], block_size=block_size, expert_mask=expert_mask,
        num_local_tokens=num_local_tokens, output_buffer=output_buffer,
    )  # fmt: skip
