from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from reference.checks import require, require_shape
from reference.numerics import ROUNDED, Numerics
from reference.sequences import Sequence, read_sequences

TAPS = 4
HISTORY = TAPS - 1


class Convolution(NamedTuple):
    """The convolved rows, and the new value of the pool."""

    y: Tensor
    conv_state: Tensor


def causal_conv1d(
    x: Tensor,
    weight: Tensor,
    conv_state: Tensor,
    read_slots: Tensor,
    write_slots: Tensor,
    cu_seqlens: Tensor,
    has_initial_state: Tensor | None = None,
    *,
    padding_slot: int = -1,
    numerics: Numerics = ROUNDED,
) -> Convolution:
    """Depthwise causal convolution over four taps, then SiLU, continuing each sequence from its slot.

    y_t = silu(w₀·x_{t−3} + w₁·x_{t−2} + w₂·x_{t−1} + w₃·x_t); a slot holds the last three raw rows,
    oldest first. Padding (a read slot outside the pool or equal to padding_slot, or no rows) gives
    rows of zeros and touches nothing; a write slot outside the pool is written nothing.

    Shapes: x [T, C] bf16, weight [C, 4] bf16 or fp32, conv_state [slots, C, 3] of x's dtype and any
    strides, read_slots, write_slots [B], cu_seqlens [B + 1] int32 or int64, has_initial_state [B] bool
    → y [T, C]. Raises ValueError for shapes, boundaries and slots that do not fit.
    Source: Kimi Delta Attention's short convolution.
    """
    name = "causal_conv1d"
    require(x.ndim == 2, name, f"x is {list(x.shape)}; expected [T, C]")
    check_convolution(name, x, weight, conv_state, "weight")
    sequences = read_sequences(
        name, len(x), len(conv_state), cu_seqlens, read_slots, write_slots, padding_slot, has_initial_state
    )
    y = convolve(x, weight, conv_state, sequences, numerics)
    return Convolution(numerics.output("y", y, x.dtype), shifted_in(x, conv_state, sequences))


def convolve(x: Tensor, weight: Tensor, conv_state: Tensor, sequences: list[Sequence], numerics: Numerics) -> Tensor:
    """The convolved rows [T, C] in float64, zeros where no sequence is."""
    windows = numerics.load(x).new_zeros(*x.shape, TAPS)
    for sequence in sequences:
        samples = numerics.load(_with_history(x, conv_state, sequence))
        windows[sequence.rows] = samples.unfold(0, TAPS, 1)
    total = numerics.sum("convolution", windows * numerics.load(weight), -1)
    return numerics.computed("convolved", total * numerics.apply("conv_sigmoid", torch.sigmoid, total))


def shifted_in(x: Tensor, conv_state: Tensor, sequences: list[Sequence]) -> Tensor:
    """The pool after each sequence has left its last three raw rows in the slot that it writes."""
    pool = conv_state.clone()
    for sequence in sequences:
        if sequence.write is not None:
            pool[sequence.write] = _with_history(x, conv_state, sequence)[-HISTORY:].t()
    return pool


def _with_history(x: Tensor, conv_state: Tensor, sequence: Sequence) -> Tensor:
    """Its rows after the three before them: [3 + length, C]."""
    history = conv_state[sequence.read].t()
    return torch.cat([history if sequence.continues else torch.zeros_like(history), x[sequence.rows]])


def check_convolution(operator: str, x: Tensor, weight: Tensor, conv_state: Tensor, label: str = "conv_weight") -> None:
    """Raise ValueError, naming the argument, for shapes that do not fit the rows."""
    channels = x.shape[1]
    transposed = weight.ndim == 2 and tuple(weight.shape) == (TAPS, channels) != (channels, TAPS)
    require(not transposed, operator, f"{label} is tap-first {list(weight.shape)}; expected [C, 4]")
    require_shape(operator, label, weight, (channels, TAPS), "[C, 4]")
    last = conv_state.ndim == 3 and tuple(conv_state.shape[1:]) == (HISTORY, channels) != (channels, HISTORY)
    require(
        not last, operator,
        f"conv_state is {list(conv_state.shape)}, channels last; expected [slots, C, 3]: pass a transposed view",
    )  # fmt: skip
    require_shape(operator, "conv_state", conv_state, (None, channels, HISTORY), "[slots, C, 3]")
    require(
        conv_state.dtype == x.dtype, operator,
        f"conv_state is {conv_state.dtype}; expected the rows' {x.dtype}: it holds raw rows",
    )  # fmt: skip
