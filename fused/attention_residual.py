from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fused.boundary import implements
from fused.rms_norm import WIDEST, normalized_row

MOST_BLOCKS = 11
WAVE = 64


@triton.jit
def scored(candidate, score_weight, width, eps):
    """Score of one candidate row: rsqrt(mean(v²) + eps) · ⟨v, w⟩."""
    inverse = tl.rsqrt(tl.sum(candidate * candidate, axis=0) / width + eps)
    return inverse * tl.sum(candidate * score_weight, axis=0)


@triton.jit
def attention_residual_kernel(
    prefix_ptr, delta_ptr, blocks_ptr, score_weight_ptr, norm_weight_ptr, hidden_ptr,
    prefix_stride, delta_stride, block_row_stride, block_stride, hidden_stride,
    width, write_index, eps, output_eps,
    WIDTH: tl.constexpr, BLOCKS: tl.constexpr, HAS_DELTA: tl.constexpr, WRITE: tl.constexpr,
    NORM: tl.constexpr, ROUND_PREFIX: tl.constexpr, ROUND_MIX: tl.constexpr, TWO_ROUNDINGS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    inside = column < width
    zero = row * 0  # 64 bits wide, so that no product with a block's stride wraps
    blocks_row = blocks_ptr + row * block_row_stride + column

    prefix = tl.load(prefix_ptr + row * prefix_stride + column, mask=inside, other=0.0).to(tl.float32)
    if HAS_DELTA:
        prefix += tl.load(delta_ptr + row * delta_stride + column, mask=inside, other=0.0).to(tl.float32)
    stored = prefix.to(tl.bfloat16)
    if HAS_DELTA:
        tl.store(prefix_ptr + row * prefix_stride + column, stored, mask=inside)
    if WRITE:
        tl.store(blocks_row + (zero + write_index) * block_stride, stored, mask=inside)
    if ROUND_PREFIX:
        prefix = stored.to(tl.float32)

    # Online softmax from the prefix on: each candidate is read once and held only while it is added.
    score_weight = tl.load(score_weight_ptr + column, mask=inside, other=0.0)
    largest = scored(prefix, score_weight, width, eps)
    total = 1.0
    mix = prefix
    for block in tl.static_range(BLOCKS):
        candidate = tl.load(blocks_row + (zero + block) * block_stride, mask=inside, other=0.0).to(tl.float32)
        score = scored(candidate, score_weight, width, eps)
        new_largest = tl.maximum(largest, score, propagate_nan=tl.PropagateNan.ALL)
        kept, added = tl.exp(largest - new_largest), tl.exp(score - new_largest)
        mix = mix * kept + candidate * added
        total = total * kept + added
        largest = new_largest
    mix = mix / total

    if NORM:
        if ROUND_MIX:
            mix = mix.to(tl.bfloat16).to(tl.float32)
        norm_weight = tl.load(norm_weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
        mix = normalized_row(mix, norm_weight, width, output_eps, TWO_ROUNDINGS)
    tl.store(hidden_ptr + row * hidden_stride + column, mix.to(tl.bfloat16), mask=inside)


def supports(
    prefix: Tensor,
    delta: Tensor | None,
    blocks: Tensor,
    score_weight: Tensor,
    output_norm_weight: Tensor | None,
    num_blocks: int,
    eps: float,
    output_eps: float,
    block_write_index: int,
) -> str | None:
    """Why these arguments are refused, or None."""
    for name, x in (("prefix", prefix), ("delta", delta), ("blocks", blocks)):
        if x is not None and x.dtype != torch.bfloat16:
            return f"{name} is {x.dtype}; the kernel takes bfloat16"
        if x is not None and x.numel() and x.stride(-1) != 1:
            return f"{name} has stride {x.stride(-1)} along H; the kernel reads rows whole"
    if prefix.shape[-1] > WIDEST:
        return f"H is {prefix.shape[-1]}; one tile holds {WIDEST}"
    if not -1 <= block_write_index < blocks.shape[1] or num_blocks > blocks.shape[1]:
        return (
            f"blocks has room for {blocks.shape[1]}; num_blocks is {num_blocks}, block_write_index {block_write_index}"
        )
    if num_blocks > MOST_BLOCKS:
        return f"num_blocks is {num_blocks}; the loop over candidates is unrolled up to {MOST_BLOCKS}"
    return None


CONFIGURATIONS = {"warps4": 4, "warps8": 8}


def launch(
    prefix: Tensor,
    delta: Tensor | None,
    blocks: Tensor,
    score_weight: Tensor,
    output_norm_weight: Tensor | None,
    *,
    num_blocks: int,
    eps: float,
    output_eps: float,
    block_write_index: int,
    num_warps: int,
    round_prefix: bool = True,
    round_mix: bool = True,
    two_roundings: bool = True,
) -> Tensor:
    """One program a row; the flags say which of the contract's rounding points there are."""
    rows, width = prefix.shape
    hidden = torch.empty_like(prefix, memory_format=torch.contiguous_format)
    tile = triton.next_power_of_2(width)
    # A tile narrower than the workgroup is held by several waves at once; one of them could then read
    # a prefix to which another has already added delta.
    num_warps = min(num_warps, max(1, tile // WAVE))
    if hidden.numel():
        attention_residual_kernel[(rows,)](
            prefix, delta, blocks, score_weight, output_norm_weight, hidden,
            prefix.stride(0), 0 if delta is None else delta.stride(0), blocks.stride(0), blocks.stride(1),
            hidden.stride(0),
            width, max(block_write_index, 0), eps, output_eps,
            WIDTH=tile, BLOCKS=num_blocks, HAS_DELTA=delta is not None,
            WRITE=block_write_index >= 0, NORM=output_norm_weight is not None,
            ROUND_PREFIX=round_prefix, ROUND_MIX=round_mix, TWO_ROUNDINGS=two_roundings, num_warps=num_warps,
        )  # fmt: skip
    return hidden


def chosen_warps(rows: int, num_blocks: int) -> int:
    """Four waves where rows fill the machine or little is read, else eight (tokenspeed's and vllm's rule)."""
    return 4 if rows >= 256 or num_blocks <= 1 else 8


@implements(
    "attention_residual", name="triton", supports=supports, batch_invariant=True,
    configurations=CONFIGURATIONS, kernels=(attention_residual_kernel,),
)  # fmt: skip
def attention_residual(
    prefix: Tensor,
    delta: Tensor | None,
    blocks: Tensor,
    score_weight: Tensor,
    output_norm_weight: Tensor | None = None,
    *,
    num_blocks: int,
    eps: float,
    output_eps: float,
    block_write_index: int = -1,
    configuration: str | None = None,
) -> Tensor:
    """Delta add, block write, softmax mix and output norm in one launch; official rounding points.

    Shapes: prefix, delta [T, H] bf16; blocks [T, capacity, H] bf16, unit stride along H;
    score_weight [H] fp32; output_norm_weight [H] → hidden [T, H] bf16.
    """
    num_warps = CONFIGURATIONS[configuration] if configuration else chosen_warps(prefix.shape[0], num_blocks)
    return launch(
        prefix, delta, blocks, score_weight, output_norm_weight, num_blocks=num_blocks, eps=eps,
        output_eps=output_eps, block_write_index=block_write_index, num_warps=num_warps,
    )  # fmt: skip


@implements(
    "attention_residual", name="triton_mix_unrounded", variant="mix_unrounded", supports=supports,
    batch_invariant=True, kernels=(attention_residual_kernel,),
)  # fmt: skip
def attention_residual_mix_unrounded(
    prefix: Tensor,
    delta: Tensor | None,
    blocks: Tensor,
    score_weight: Tensor,
    output_norm_weight: Tensor | None = None,
    *,
    num_blocks: int,
    eps: float,
    output_eps: float,
    block_write_index: int = -1,
) -> Tensor:
    """The same with the mix kept in fp32 up to the one rounding at the end.

    Shapes: as `attention_residual`.
    """
    return launch(
        prefix, delta, blocks, score_weight, output_norm_weight, num_blocks=num_blocks, eps=eps,
        output_eps=output_eps, block_write_index=block_write_index,
        num_warps=chosen_warps(prefix.shape[0], num_blocks), round_mix=False, two_roundings=False,
    )  # fmt: skip
