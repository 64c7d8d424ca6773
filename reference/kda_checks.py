"""What KDA's operators refuse, and what they say of it."""

from __future__ import annotations

import torch
from torch import Tensor

from reference.checks import require, require_shape
from reference.convolution import check_convolution


def check_gate(operator: str, A_log: Tensor, dt_bias: Tensor, lower_bound: float | None) -> None:
    """Raise ValueError, naming the argument, for gate parameters that do not fit."""
    require(dt_bias.ndim == 2, operator, f"dt_bias is {list(dt_bias.shape)}; expected [N, K]")
    heads = dt_bias.shape[0]
    require(
        A_log.ndim == 1 and len(A_log) == heads, operator,
        f"A_log is {list(A_log.shape)}; expected [N] = [{heads}], one entry for each head of this rank",
    )  # fmt: skip
    require(
        lower_bound is None or lower_bound < 0, operator,
        f"lower_bound is {lower_bound}; expected a negative number, or None for the softplus gate",
    )  # fmt: skip


def check_raw_gate(
    operator: str, rows: int, raw_gate: Tensor | None, f_a: Tensor | None, f_b_weight: Tensor | None, dt_bias: Tensor
) -> None:
    """Raise ValueError unless there is a raw gate, or both factors of one, of a shape that fits."""
    heads, depth = dt_bias.shape
    given = [name for name, x in (("raw_gate", raw_gate), ("f_a", f_a), ("f_b_weight", f_b_weight)) if x is not None]
    require(
        given in (["raw_gate"], ["f_a", "f_b_weight"]), operator,
        f"{' and '.join(given) or 'no gate'} given; expected raw_gate alone, or f_a and f_b_weight",
    )  # fmt: skip
    if raw_gate is not None:
        require_shape(operator, "raw_gate", raw_gate, (rows, heads, depth), "[T, N, K]")
    elif f_a is not None and f_b_weight is not None:
        require_shape(operator, "f_a", f_a, (rows, None), "[T, R]")
        require_shape(operator, "f_b_weight", f_b_weight, (heads * depth, f_a.shape[1]), "[N·K, R]")


def check_rows(
    operator: str, qkv: Tensor, conv_weight: Tensor, conv_state: Tensor, dt_bias: Tensor, state: Tensor
) -> None:
    """Raise ValueError, naming the argument, for rows, pools and weights that do not fit each other."""
    require(qkv.ndim == 2, operator, f"qkv is {list(qkv.shape)}; expected [T, C]")
    width = check_state(operator, state, dt_bias)
    heads, depth = dt_bias.shape
    wanted = heads * (2 * depth + width)
    require(
        qkv.shape[1] == wanted, operator,
        f"qkv is {list(qkv.shape)}; expected [T, 2·N·K + N·V] = [any, {wanted}] for N {heads}, K {depth}, V {width}",
    )  # fmt: skip
    check_convolution(operator, qkv, conv_weight, conv_state)
    check_capacities(operator, conv_state, state)


def check_output(
    operator: str, beta_logits: Tensor, output_gate: Tensor | None, norm_weight: Tensor | None, shape: tuple[int, ...]
) -> None:
    """Raise ValueError, naming the argument, for what does not fit rows of o of this shape [T, N, V]."""
    require_shape(operator, "beta_logits", beta_logits, shape[:2], "[T, N]")
    require(
        output_gate is None or norm_weight is not None, operator,
        "output_gate is given without norm_weight; expected both, or norm_weight alone for a plain norm",
    )  # fmt: skip
    if output_gate is not None:
        require_shape(operator, "output_gate", output_gate, shape, "[T, N, V]")
    if norm_weight is not None:
        require_shape(operator, "norm_weight", norm_weight, shape[2:], "[V]")


def check_state(operator: str, state: Tensor, dt_bias: Tensor) -> int:
    """The value width V of a pool [slots, N, V, K] fp32; ValueError where the pool is another."""
    heads, depth = dt_bias.shape
    shape = list(state.shape)
    axes = "[slots, N, V, K]"
    k_first = state.ndim == 4 and shape[1] == heads and shape[2] == depth != shape[3]
    require(not k_first, operator, f"state is K-first {shape}; expected V-first {axes} with K = {depth}")
    require_shape(operator, "state", state, (None, heads, None, depth), axes)
    require(
        state.dtype in (torch.float32, torch.float64),
        operator,
        f"state is {state.dtype}; expected float32: it persists",
    )
    return int(state.shape[2])


def check_capacities(operator: str, conv_state: Tensor, state: Tensor) -> None:
    """Raise ValueError unless one slot number means the same page of both pools."""
    require(
        len(conv_state) == len(state), operator,
        f"conv_state has {len(conv_state)} slots and state {len(state)}; expected as many in both",
    )  # fmt: skip
