from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fused.boundary import implements

WIDEST = 16384


@triton.jit
def normalized_row(x, weight, width, eps, TWO_ROUNDINGS: tl.constexpr):
    """One row in fp32, scaled to unit root mean square and by the weight; zeros beyond `width`."""
    inverse = tl.rsqrt(tl.sum(x * x, axis=0) / width + eps)
    y = x * inverse
    if TWO_ROUNDINGS:
        y = y.to(tl.bfloat16).to(tl.float32)
    return y * weight


@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr,
    x_row_stride, x_column_stride, weight_stride, y_row_stride,
    width, eps,
    WIDTH: tl.constexpr, TWO_ROUNDINGS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    inside = column < width
    offset = column.to(tl.int64)
    x = tl.load(x_ptr + row * x_row_stride + offset * x_column_stride, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + offset * weight_stride, mask=inside, other=0.0).to(tl.float32)
    y = normalized_row(x, weight, width, eps, TWO_ROUNDINGS)
    tl.store(y_ptr + row * y_row_stride + offset, y.to(y_ptr.dtype.element_ty), mask=inside)


def supports(x: Tensor, weight: Tensor, eps: float) -> str | None:
    """Why these arguments are refused, or None."""
    if x.dtype != torch.bfloat16:
        return f"x is {x.dtype}; the kernel rounds to bfloat16"
    if x.shape[-1] > WIDEST:
        return f"H is {x.shape[-1]}; one tile holds {WIDEST}"
    return None


def warps(width: int) -> int:
    """Waves a row: 16 elements a lane at most."""
    return max(1, min(8, width // 1024))


def launch(x: Tensor, weight: Tensor, eps: float, two_roundings: bool) -> Tensor:
    """One program a row."""
    rows, width = x.shape
    y = torch.empty((rows, width), dtype=x.dtype, device=x.device)
    if y.numel():
        padded = triton.next_power_of_2(width)
        rms_norm_kernel[(rows,)](
            x, weight, y, x.stride(0), x.stride(1), weight.stride(0), y.stride(0), width, eps,
            WIDTH=padded, TWO_ROUNDINGS=two_roundings, num_warps=warps(padded),
        )  # fmt: skip
    return y


@implements("rms_norm", name="triton", supports=supports, batch_invariant=True, kernels=(rms_norm_kernel,))
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Official RMSNorm, one launch.

    Shapes: x [T, H] bf16, any strides, weight [H] → y [T, H] bf16.
    """
    return launch(x, weight, eps, two_roundings=True)


@implements(
    "rms_norm",
    name="triton_one_rounding",
    variant="one_rounding",
    supports=supports,
    batch_invariant=True,
    kernels=(rms_norm_kernel,),
)
def rms_norm_one_rounding(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The form of production kernels: the weight is multiplied in fp32.

    Shapes: x [T, H] bf16, any strides, weight [H] → y [T, H] bf16.
    """
    return launch(x, weight, eps, two_roundings=False)
