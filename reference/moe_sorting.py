from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from reference.checks import require, require_shape
from reference.numerics import ROUNDED, Numerics
from reference.routing import route

SLOT_SHIFT = 24
"""A sorted id is (slot << 24) | token."""


class MoeSorting(NamedTuple):
    """AITER's sort metadata: which (token, slot) sits where, and which expert each block serves."""

    sorted_ids: Tensor
    sorted_weights: Tensor
    sorted_expert_ids: Tensor
    num_valid_ids: Tensor
    output_buffer: Tensor | None


class RouteSort(NamedTuple):
    """What `route` and `moe_sorting` give together."""

    expert_ids: Tensor
    expert_weights: Tensor
    sorted_ids: Tensor
    sorted_weights: Tensor
    sorted_expert_ids: Tensor
    num_valid_ids: Tensor
    output_buffer: Tensor | None


def sorted_capacity(rows: int, top_k: int, num_experts: int, block_size: int) -> tuple[int, int]:
    """Slots T·k + E·B − k (never negative) and blocks ⌈slots ÷ B⌉ that the metadata has room for."""
    slots = max(rows * top_k + num_experts * block_size - top_k, 0)
    return slots, -(-slots // block_size)


def moe_sorting(
    expert_ids: Tensor,
    expert_weights: Tensor,
    *,
    num_experts: int,
    block_size: int,
    expert_mask: Tensor | None = None,
    num_local_tokens: Tensor | None = None,
    output_buffer: Tensor | None = None,
    numerics: Numerics = ROUNDED,
) -> MoeSorting:
    """Group (token, slot) pairs by expert, each expert's run padded to whole blocks.

    Runs ascend by expert, inside a run by token and slot; padding is (k << 24) | T. Ids outside
    [0, E), masked experts and rows from num_local_tokens on are skipped; expert ids are counted
    among the unmasked. The buffer is returned zeroed.

    Shapes: expert_ids [T, k] int32, expert_weights [T, k] fp32, expert_mask [E] of 0/1,
    num_local_tokens [1] int32, output_buffer [T, L] → sorted_ids int32 and sorted_weights fp32
    [T·k + E·B − k], sorted_expert_ids int32 [blocks], num_valid_ids [2] int32 (padded slots,
    rows). Past num_valid_ids[0] nothing is specified (here: padding, 0, −1).
    Raises ValueError where an id cannot be packed. Source: AITER's moe_sorting.
    """
    check_sorting(expert_ids, expert_weights, num_experts, block_size, expert_mask, num_local_tokens)
    rows, top_k = expert_ids.shape
    slots, blocks = sorted_capacity(rows, top_k, num_experts, block_size)
    sorted_ids = torch.full((slots,), top_k << SLOT_SHIFT | rows, dtype=torch.int32)
    sorted_weights = torch.zeros(slots, dtype=torch.float64)
    sorted_expert_ids = torch.full((blocks,), -1, dtype=torch.int32)

    local_rows = rows if num_local_tokens is None else int(num_local_tokens)
    local_experts = range(num_experts) if expert_mask is None else expert_mask.nonzero().flatten().tolist()
    weights = numerics.load(expert_weights)
    end = 0
    for local_id, expert in enumerate(local_experts):
        tokens, places = (expert_ids[:local_rows] == expert).nonzero(as_tuple=True)
        if not len(tokens):
            continue
        run = slice(end, end + len(tokens))
        sorted_ids[run] = (places << SLOT_SHIFT | tokens).to(torch.int32)
        sorted_weights[run] = weights[tokens, places]
        padded = -(-len(tokens) // block_size) * block_size
        sorted_expert_ids[end // block_size : (end + padded) // block_size] = local_id
        end += padded
    buffer = None if output_buffer is None else torch.zeros_like(output_buffer)
    return MoeSorting(
        sorted_ids,
        numerics.output("sorted_weights", sorted_weights, torch.float32),
        sorted_expert_ids,
        torch.tensor([end, local_rows], dtype=torch.int32),
        buffer,
    )


def check_sorting(
    expert_ids: Tensor,
    expert_weights: Tensor,
    num_experts: int,
    block_size: int,
    expert_mask: Tensor | None,
    num_local_tokens: Tensor | None,
) -> None:
    """Raise ValueError, naming the argument, for what has no sort metadata."""
    name = "moe_sorting"
    require(expert_ids.ndim == 2, name, f"expert_ids is {list(expert_ids.shape)}; expected [T, k]")
    rows, top_k = expert_ids.shape
    require_shape(name, "expert_weights", expert_weights, (rows, top_k), "[T, k]")
    fits = rows < 1 << SLOT_SHIFT and top_k < 128
    require(fits, name, f"{rows} rows × {top_k} slots do not pack into 24 + 7 bits")
    require(block_size >= 1, name, f"block_size is {block_size}; expected 1 or more")
    # With more slots than experts the capacity T·k + E·B − k would not hold every padded run.
    require(top_k <= num_experts, name, f"{top_k} slots of {num_experts} experts; expected k ≤ E")
    if expert_mask is not None:
        require_shape(name, "expert_mask", expert_mask, (num_experts,), "[E]")
    if num_local_tokens is not None:
        given = num_local_tokens.flatten().tolist()
        right = len(given) == 1 and 0 <= given[0] <= rows
        require(right, name, f"num_local_tokens is {given}; expected one count in 0…{rows}")


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
    numerics: Numerics = ROUNDED,
    chosen: Tensor | None = None,
) -> RouteSort:
    """From router logits to sort metadata: `moe_sorting` of what `route` chose.

    Shapes: logits [T, E] fp32, the rest and the results as in `route` and `moe_sorting`, with
    num_experts = E. Raises ValueError as they do. Source: spec of the fused router and sorter.
    """
    routing = route(
        logits, correction_bias, top_k=top_k, num_groups=num_groups, top_groups=top_groups,
        score_function=score_function, renormalize=renormalize, scaling_factor=scaling_factor,
        logical_to_physical=logical_to_physical, numerics=numerics, chosen=chosen,
    )  # fmt: skip
    sorting = moe_sorting(
        routing.expert_ids, routing.expert_weights, num_experts=logits.shape[1],
        block_size=block_size, expert_mask=expert_mask, num_local_tokens=num_local_tokens,
        output_buffer=output_buffer, numerics=numerics,
    )  # fmt: skip
    return RouteSort(**routing._asdict(), **sorting._asdict())
