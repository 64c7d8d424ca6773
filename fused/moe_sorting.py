from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fused.boundary import implements

SLOT_SHIFT = 24
"""A sorted id is (slot << 24) | token; the kernels spell the shift out."""
TILE = 32
"""Pairs that one program places."""
ZEROED = 8192
"""Buffer elements that one store clears."""


@triton.jit
def live_experts(ids_ptr, mask_ptr, tile, pairs, live_pairs, experts, MASKED: tl.constexpr, TILE: tl.constexpr):
    """Expert of each pair of a tile; `experts` for pairs that are skipped."""
    pair = tile * TILE + tl.arange(0, TILE)
    expert = tl.load(ids_ptr + pair, mask=pair < pairs, other=-1)
    live = (pair < live_pairs) & (expert >= 0) & (expert < experts)
    if MASKED:
        live = live & (tl.load(mask_ptr + expert, mask=live, other=0) != 0)
    return tl.where(live, expert, experts)


@triton.jit
def run_starts(counts, block_size):
    """Where each expert's run starts and ends in padded slots, from its count of pairs."""
    padded = (counts + block_size - 1) // block_size * block_size
    ends = tl.cumsum(padded, axis=0)
    return ends - padded, ends


@triton.jit
def place_tile(
    expert, before, weights_ptr, sorted_ids_ptr, sorted_weights_ptr, tile, experts,
    TOP_K: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Scatter one tile's pairs: after `before` [bins], in order of pair among those of one expert."""
    lane = tl.arange(0, TILE)
    earlier = (lane[None, :] < lane[:, None]) & (expert[None, :] == expert[:, None])
    rank = tl.sum(earlier.to(tl.int32), axis=1)
    place = tl.gather(before, expert, 0) + rank
    pair = tile * TILE + lane
    live = expert < experts
    weight = tl.load(weights_ptr + pair, mask=live, other=0.0)
    tl.store(sorted_ids_ptr + place, (pair % TOP_K) << 24 | (pair // TOP_K), mask=live)
    tl.store(sorted_weights_ptr + place, weight, mask=live)


@triton.jit
def write_runs(
    starts, ends, counts, mask_ptr, sorted_ids_ptr, sorted_expert_ids_ptr, experts, padding, block_size,
    part, parts, MASKED: tl.constexpr, BINS: tl.constexpr,
):  # fmt: skip
    """Padding and block owners of every `parts`-th expert from `part` on."""
    expert = tl.arange(0, BINS)
    local = expert
    if MASKED:
        unmasked = tl.load(mask_ptr + expert, mask=expert < experts, other=0) != 0
        local = tl.cumsum(unmasked.to(tl.int32), axis=0) - 1
    mine = (expert < experts) & (expert % parts == part)
    blocks = tl.where(mine, (ends - starts) // block_size, 0)
    for block in range(tl.max(blocks, axis=0)):
        tl.store(sorted_expert_ids_ptr + starts // block_size + block, local, mask=mine & (block < blocks))
    for place in range(block_size):
        slot = starts + counts + place
        tl.store(sorted_ids_ptr + slot, tl.zeros([BINS], tl.int32) + padding, mask=mine & (slot < ends))


@triton.jit
def clear_buffer(buffer_ptr, elements, part, parts, ZEROED: tl.constexpr):
    """Zero every `parts`-th piece of the buffer from `part` on."""
    for piece in range(part, tl.cdiv(elements, ZEROED), parts):
        offset = (tl.zeros([ZEROED], tl.int64) + piece) * ZEROED + tl.arange(0, ZEROED)
        tl.store(buffer_ptr + offset, tl.zeros([ZEROED], buffer_ptr.dtype.element_ty), mask=offset < elements)


@triton.jit
def moe_sorting_kernel(
    ids_ptr, weights_ptr, mask_ptr, local_tokens_ptr, buffer_ptr,
    sorted_ids_ptr, sorted_weights_ptr, sorted_expert_ids_ptr, num_valid_ids_ptr,
    rows, experts, block_size, padding, buffer_elements,
    TOP_K: tl.constexpr, MASKED: tl.constexpr, COUNTED: tl.constexpr, CLEARED: tl.constexpr,
    BINS: tl.constexpr, TILE: tl.constexpr, ZEROED: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    pairs = rows * TOP_K
    tiles = tl.cdiv(pairs, TILE)
    live_rows = rows
    if COUNTED:
        live_rows = tl.load(local_tokens_ptr).to(tl.int32)
    if CLEARED:
        clear_buffer(buffer_ptr, buffer_elements, program, programs, ZEROED)
    if program < tiles:
        # Each program counts all pairs itself: no one waits for another, and the order is fixed.
        counts = tl.zeros([BINS], tl.int32)
        earlier = tl.zeros([BINS], tl.int32)
        for tile in range(tiles):
            expert = live_experts(ids_ptr, mask_ptr, tile, pairs, live_rows * TOP_K, experts, MASKED, TILE)
            found = tl.histogram(expert, BINS)
            counts += found
            earlier += tl.where(tile < program, found, 0)
        counts = tl.where(tl.arange(0, BINS) < experts, counts, 0)
        starts, ends = run_starts(counts, block_size)
        expert = live_experts(ids_ptr, mask_ptr, program, pairs, live_rows * TOP_K, experts, MASKED, TILE)
        place_tile(
            expert, starts + earlier, weights_ptr, sorted_ids_ptr, sorted_weights_ptr, program, experts, TOP_K, TILE
        )
        write_runs(
            starts, ends, counts, mask_ptr, sorted_ids_ptr, sorted_expert_ids_ptr, experts,
            padding, block_size, program, tiles, MASKED, BINS,
        )  # fmt: skip
        if program == 0:
            tl.store(num_valid_ids_ptr, tl.max(ends, axis=0))
            tl.store(num_valid_ids_ptr + 1, live_rows)


def supports(
    expert_ids: Tensor, expert_weights: Tensor, num_experts: int, output_buffer: Tensor | None, **_: object
) -> str | None:
    """Why these arguments are refused, or None."""
    if not (expert_ids.is_contiguous() and expert_weights.is_contiguous()):
        return "expert_ids and expert_weights must be contiguous"
    return buffer_supported(output_buffer) or experts_supported(num_experts)


def buffer_supported(output_buffer: Tensor | None) -> str | None:
    """Why the buffer is refused, or None."""
    if output_buffer is not None and not output_buffer.is_contiguous():
        return "output_buffer must be contiguous"
    return None


def experts_supported(num_experts: int) -> str | None:
    """Why the count of experts is refused, or None."""
    return f"E is {num_experts}; the histogram has 4096 bins" if num_experts > 4095 else None


def allocate(rows: int, top_k: int, num_experts: int, block_size: int, device: torch.device) -> tuple[Tensor, ...]:
    """Unwritten metadata of AITER's capacity."""
    slots = max(rows * top_k + num_experts * block_size - top_k, 0)
    blocks = -(-slots // block_size)
    return (
        torch.empty(slots, dtype=torch.int32, device=device),
        torch.empty(slots, dtype=torch.float32, device=device),
        torch.empty(blocks, dtype=torch.int32, device=device),
        torch.empty(2, dtype=torch.int32, device=device),
    )


def bins(num_experts: int) -> int:
    """Histogram bins: one an expert, and one for what is skipped."""
    return max(int(triton.next_power_of_2(num_experts + 1)), 128)


@implements("moe_sorting", name="triton", supports=supports, batch_invariant=False, kernels=(moe_sorting_kernel,))
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
    """Sort metadata in one launch; programs share nothing, so any number of rows is deterministic.

    Shapes: expert_ids int32 and expert_weights fp32 [T, k], contiguous → sorted_ids,
    sorted_weights [slots], sorted_expert_ids [blocks], num_valid_ids [2].
    """
    rows, top_k = expert_ids.shape
    outputs = allocate(rows, top_k, num_experts, block_size, expert_ids.device)
    if rows == 0:
        outputs[3].zero_()
        return outputs  # type: ignore[return-value]
    elements = 0 if output_buffer is None else output_buffer.numel()
    programs = max(triton.cdiv(rows * top_k, TILE), min(triton.cdiv(elements, ZEROED), 256))
    moe_sorting_kernel[(programs,)](
        expert_ids, expert_weights, expert_mask, num_local_tokens, output_buffer, *outputs,
        rows, num_experts, block_size, top_k << SLOT_SHIFT | rows, elements,
        TOP_K=top_k, MASKED=expert_mask is not None, COUNTED=num_local_tokens is not None,
        CLEARED=elements > 0, BINS=bins(num_experts), TILE=TILE, ZEROED=ZEROED, num_warps=8,
    )  # fmt: skip
    return outputs  # type: ignore[return-value]
