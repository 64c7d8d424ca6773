"""A kernel of your own in one file: attention residual in two passes over the candidates.

    parity verify --candidate examples/attention_residual_two_pass.py
    pytest --parity-candidate examples/attention_residual_two_pass.py

The decorator names the operator; the arguments' names are the contract. It meets every case, law,
guard and report that this project's kernels do. It keeps the mix in fp32 up to one rounding at the
end, and says so by its variant: it is judged against that.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from verification import candidate


@triton.jit
def kernel(
    prefix, delta, blocks, score_weight, norm_weight, hidden,
    prefix_stride, delta_stride, row_stride, block_stride, width, write_index, eps, output_eps,
    WIDTH: tl.constexpr, BLOCKS: tl.constexpr, SOURCES: tl.constexpr,
    DELTA: tl.constexpr, WRITE: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    inside = column < width
    own = tl.load(prefix + row * prefix_stride + column, mask=inside, other=0.0).to(tl.float32)
    if DELTA:
        own += tl.load(delta + row * delta_stride + column, mask=inside, other=0.0).to(tl.float32)
        # Several waves hold the whole row: none may store before all have read it.
        tl.debug_barrier()
        tl.store(prefix + row * prefix_stride + column, own.to(tl.bfloat16), mask=inside)
    own = own.to(tl.bfloat16).to(tl.float32)
    if WRITE:
        tl.store(
            blocks + row * row_stride + (row * 0 + write_index) * block_stride + column,
            own.to(tl.bfloat16),
            mask=inside,
        )

    # First pass: all scores at once, the prefix as the last source; second pass: the mix.
    source = tl.arange(0, SOURCES)[:, None]
    snapshots = tl.load(
        blocks + row * row_stride + (row * 0 + source) * block_stride + column[None, :],
        mask=(source < BLOCKS) & inside[None, :], other=0.0,
    ).to(tl.float32)  # fmt: skip
    snapshots = tl.where(source == BLOCKS, own[None, :], snapshots)
    weight = tl.load(score_weight + column, mask=inside, other=0.0)
    score = tl.rsqrt(tl.sum(snapshots * snapshots, 1) / width + eps) * tl.sum(snapshots * weight[None, :], 1)
    score = tl.where(tl.arange(0, SOURCES) <= BLOCKS, score, float("-inf"))
    # The sum, not the maximum, carries a NaN score into every probability.
    mass = tl.exp(score - tl.max(score, 0))
    probability = mass / tl.sum(mass, 0)
    mix = tl.sum(tl.where(source <= BLOCKS, snapshots * probability[:, None], 0.0), 0)
    if NORM:
        gain = tl.load(norm_weight + column, mask=inside, other=0.0).to(tl.float32)
        mix = mix * tl.rsqrt(tl.sum(mix * mix, 0) / width + output_eps) * gain
    tl.store(hidden + row * width + column, mix.to(tl.bfloat16), mask=inside)


def supports(blocks: Tensor, **_: object) -> str | None:
    """Why these arguments are refused, or None."""
    return "blocks needs unit stride along H" if blocks.numel() and blocks.stride(-1) != 1 else None


@candidate("attention_residual", name="two_pass", variant="mix_unrounded", supports=supports, batch_invariant=True)
def attention_residual(
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
) -> Tensor:
    """Shapes: prefix, delta [T, H]; blocks [T, capacity, H]; score_weight [H] → hidden [T, H]."""
    rows, width = prefix.shape
    hidden = torch.empty((rows, width), dtype=prefix.dtype, device=prefix.device)
    if rows:
        kernel[(rows,)](
            prefix, delta, blocks, score_weight, output_norm_weight, hidden,
            prefix.stride(0), 0 if delta is None else delta.stride(0), blocks.stride(0), blocks.stride(1),
            width, max(block_write_index, 0), eps, output_eps,
            WIDTH=triton.next_power_of_2(width), BLOCKS=num_blocks, SOURCES=triton.next_power_of_2(num_blocks + 1),
            DELTA=delta is not None, WRITE=block_write_index >= 0, NORM=output_norm_weight is not None, num_warps=8,
        )  # fmt: skip
    return hidden
