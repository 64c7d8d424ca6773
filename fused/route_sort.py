from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fused.boundary import implements
from fused.moe_sorting import (
    SLOT_SHIFT,
    TILE,
    ZEROED,
    allocate,
    bins,
    buffer_supported,
    clear_buffer,
    experts_supported,
    live_experts,
    place_tile,
    run_starts,
    write_runs,
)
from fused.route import choose_experts, router_constants
from fused.route import supports as route_supports


@triton.jit
def route_sort_kernel(
    logits_ptr, bias_ptr, map_ptr, mask_ptr, local_tokens_ptr, buffer_ptr, arrived_ptr,
    ids_ptr, weights_ptr, sorted_ids_ptr, sorted_weights_ptr, sorted_expert_ids_ptr, num_valid_ids_ptr,
    row_stride, logit_stride, scaling_factor, rows, experts, block_size, padding, buffer_elements,
    GROUPS: tl.constexpr, SIZE: tl.constexpr, GROUPS_PADDED: tl.constexpr, SIZE_PADDED: tl.constexpr,
    TOP_GROUPS: tl.constexpr, TOP_K: tl.constexpr, TOP_K_PADDED: tl.constexpr,
    BIASED: tl.constexpr, MAPPED: tl.constexpr, SOFTMAX: tl.constexpr, RENORMALIZE: tl.constexpr,
    MASKED: tl.constexpr, COUNTED: tl.constexpr, CLEARED: tl.constexpr,
    BINS: tl.constexpr, TILE: tl.constexpr, ZEROED: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    ids, weights = choose_experts(
        logits_ptr + row.to(tl.int64) * row_stride, logit_stride, bias_ptr, map_ptr, scaling_factor, GROUPS, SIZE,
        GROUPS_PADDED, SIZE_PADDED, TOP_GROUPS, TOP_K, TOP_K_PADDED, BIASED, MAPPED, SOFTMAX, RENORMALIZE,
    )  # fmt: skip
    lane = tl.arange(0, TOP_K_PADDED)
    tl.store(ids_ptr + row * TOP_K + lane, ids, mask=lane < TOP_K)
    tl.store(weights_ptr + row * TOP_K + lane, weights, mask=lane < TOP_K)
    if CLEARED:
        clear_buffer(buffer_ptr, buffer_elements, row, rows, ZEROED)

    # The program that arrives last sees every row's choice and sorts: no one waits, so none can hang.
    tl.debug_barrier()
    arrived = tl.atomic_add(arrived_ptr, 1, sem="acq_rel", scope="gpu")
    if arrived == rows - 1:
        tl.debug_barrier()
        pairs = rows * TOP_K
        tiles = tl.cdiv(pairs, TILE)
        live_rows = rows
        if COUNTED:
            live_rows = tl.load(local_tokens_ptr).to(tl.int32)
        counts = tl.zeros([BINS], tl.int32)
        for tile in range(tiles):
            counts += tl.histogram(
                live_experts(ids_ptr, mask_ptr, tile, pairs, live_rows * TOP_K, experts, MASKED, TILE), BINS
            )
        counts = tl.where(tl.arange(0, BINS) < experts, counts, 0)
        starts, ends = run_starts(counts, block_size)
        before = starts
        for tile in range(tiles):
            expert = live_experts(ids_ptr, mask_ptr, tile, pairs, live_rows * TOP_K, experts, MASKED, TILE)
            place_tile(expert, before, weights_ptr, sorted_ids_ptr, sorted_weights_ptr, tile, experts, TOP_K, TILE)
            before += tl.histogram(expert, BINS)
        write_runs(
            starts, ends, counts, mask_ptr, sorted_ids_ptr, sorted_expert_ids_ptr, experts,
            padding, block_size, 0, 1, MASKED, BINS,
        )  # fmt: skip
        tl.store(num_valid_ids_ptr, tl.max(ends, axis=0))
        tl.store(num_valid_ids_ptr + 1, live_rows)
        tl.store(arrived_ptr, 0)


def supports(
    logits: Tensor, top_k: int, num_groups: int, score_function: str, output_buffer: Tensor | None, **_: object
) -> str | None:
    """Why these arguments are refused, or None."""
    return (
        route_supports(logits, top_k, num_groups, score_function)
        or buffer_supported(output_buffer)
        or experts_supported(logits.shape[1])
    )


class State:
    """Weights, and the arrival counter that each launch leaves at zero; one state serves one stream."""

    def __init__(self, correction_bias: Tensor | None, logical_to_physical: Tensor | None) -> None:
        self.correction_bias = correction_bias
        self.logical_to_physical = logical_to_physical
        self._arrived: Tensor | None = None

    def arrived(self, device: torch.device) -> Tensor:
        """The counter, on the logits' device."""
        if self._arrived is None:
            self._arrived = torch.zeros(1, dtype=torch.int32, device=device)
        return self._arrived


def prepare(correction_bias: Tensor | None = None, logical_to_physical: Tensor | None = None) -> State:
    """State of a router: its weights and its workspace."""
    return State(correction_bias, logical_to_physical)


@implements("route_sort", name="triton", prepare=prepare, supports=supports, kernels=(route_sort_kernel,))
def route_sort(
    state: State,
    logits: Tensor,
    *,
    top_k: int,
    block_size: int,
    num_groups: int = 1,
    top_groups: int = 1,
    score_function: str = "sigmoid",
    renormalize: bool = True,
    scaling_factor: float = 1.0,
    expert_mask: Tensor | None = None,
    num_local_tokens: Tensor | None = None,
    output_buffer: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """From router logits to sort metadata in one launch, any number of rows.

    Shapes: logits [T, E] fp32 → expert_ids, expert_weights [T, k], sorted_ids, sorted_weights
    [slots], sorted_expert_ids [blocks], num_valid_ids [2].
    """
    rows, experts = logits.shape
    device = logits.device
    ids = torch.empty((rows, top_k), dtype=torch.int32, device=device)
    weights = torch.empty((rows, top_k), dtype=torch.float32, device=device)
    metadata = allocate(rows, top_k, experts, block_size, device)
    if rows == 0:
        metadata[3].zero_()
        return ids, weights, *metadata
    constants = router_constants(
        experts, state.correction_bias, top_k=top_k, num_groups=num_groups, top_groups=top_groups,
        score_function=score_function, renormalize=renormalize, logical_to_physical=state.logical_to_physical,
    )  # fmt: skip
    elements = 0 if output_buffer is None else output_buffer.numel()
    route_sort_kernel[(rows,)](
        logits, state.correction_bias, state.logical_to_physical, expert_mask, num_local_tokens, output_buffer,
        state.arrived(device), ids, weights, *metadata,
        logits.stride(0), logits.stride(1), scaling_factor, rows, experts, block_size,
        top_k << SLOT_SHIFT | rows, elements,
        **constants, MASKED=expert_mask is not None, COUNTED=num_local_tokens is not None, CLEARED=elements > 0,
        BINS=bins(experts), TILE=TILE, ZEROED=ZEROED, num_warps=8,
    )  # fmt: skip
    return ids, weights, *metadata
