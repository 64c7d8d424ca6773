"""What the operators of Kimi Delta Attention share: one call's arguments, and what is computed of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from reference.convolution import convolve
from reference.delta_rule import DeltaRows, delta_rows, log_decay, low_rank_gate
from reference.kda_checks import check_gate, check_output, check_raw_gate, check_rows
from reference.normalization import normalize_gated
from reference.numerics import Numerics
from reference.sequences import Sequence, read_sequences


@dataclass(frozen=True)
class KdaCall:
    """The arguments that every fused operator takes; shapes as in `kda_prefill`."""

    operator: str
    qkv: Tensor
    conv_weight: Tensor
    conv_state: Tensor
    raw_gate: Tensor | None
    f_a: Tensor | None
    f_b_weight: Tensor | None
    A_log: Tensor
    dt_bias: Tensor
    lower_bound: float | None
    beta_logits: Tensor
    state: Tensor
    read_slots: Tensor
    padding_slot: int
    cu_seqlens: Tensor
    scale: float
    output_gate: Tensor | None
    norm_weight: Tensor | None
    eps: float
    numerics: Numerics

    def __post_init__(self) -> None:
        name = self.operator
        check_gate(name, self.A_log, self.dt_bias, self.lower_bound)
        check_rows(name, self.qkv, self.conv_weight, self.conv_state, self.dt_bias, self.state)
        rows = len(self.qkv)
        check_raw_gate(name, rows, self.raw_gate, self.f_a, self.f_b_weight, self.dt_bias)
        shape = (rows, *self.state.shape[1:3])
        check_output(name, self.beta_logits, self.output_gate, self.norm_weight, shape)

    def sequences(self, write_slots: Tensor | None, has_initial_state: Tensor | None) -> list[Sequence]:
        """The sequences that are no padding."""
        return read_sequences(
            self.operator, len(self.qkv), len(self.state), self.cu_seqlens, self.read_slots, write_slots,
            self.padding_slot, has_initial_state,
        )  # fmt: skip

    def rows(self, sequences: list[Sequence]) -> DeltaRows:
        """What the delta rule takes of every row."""
        numerics = self.numerics
        mixed = convolve(self.qkv, self.conv_weight, self.conv_state, sequences, numerics)
        mixed = numerics.round("conv_output", mixed, self.qkv.dtype, default=False, apart=True)
        if self.f_a is not None and self.f_b_weight is not None:
            gate = low_rank_gate(self.f_a, self.f_b_weight, numerics).view(-1, *self.dt_bias.shape)
        else:
            assert self.raw_gate is not None
            gate = numerics.load(self.raw_gate)
        decay = log_decay(gate, self.A_log, self.dt_bias, self.lower_bound, numerics)
        return delta_rows(mixed, decay, self.beta_logits, self.scale, self.state.shape[2], numerics)

    def out(self, o: Tensor, sequences: list[Sequence]) -> Tensor:
        """The normed, gated rows of the sequences; zeros in every other row."""
        numerics = self.numerics
        o = numerics.round("output", o, self.qkv.dtype, default=False, apart=True)
        if self.norm_weight is not None:
            o = normalize_gated(o, self.output_gate, self.norm_weight, self.eps, numerics, name="output_")
        live = torch.zeros(len(o), dtype=torch.bool, device=o.device)
        for sequence in sequences:
            live[sequence.rows] = True
        return numerics.output("out", torch.where(live[:, None, None], o, 0.0), self.qkv.dtype)


def starting_states(state: Tensor, sequences: list[Sequence], numerics: Numerics) -> Tensor:
    """The states [sequences, N, V, K] that the sequences go on from, zeros where they begin."""
    pages = [state[s.read] if s.continues else torch.zeros_like(state[s.read]) for s in sequences]
    return numerics.load(torch.stack(pages) if pages else state[:0])


def stored_states(state: Tensor, states: Tensor, sequences: list[Sequence], numerics: Numerics) -> Tensor:
    """The pool with each sequence's state in the slot that it writes."""
    pool = numerics.load(state)
    for sequence, value in zip(sequences, states, strict=True):
        if sequence.write is not None:
            pool[sequence.write] = value
    return numerics.output("state", pool, state.dtype)
