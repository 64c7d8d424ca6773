from __future__ import annotations

import torch
from torch import Tensor

from fused.boundary import implements
from verification.eager.paging import Packing, packing, store
from verification.eager.tiles import tiled

TAPS = 4


@implements("causal_conv1d", name="eager", batch_invariant=True)
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
) -> Tensor:
    """Four taps and SiLU over all packed rows at once, in fp32.

    Shapes: x [T, C], weight [C, 4], conv_state [slots, C, 3], cu_seqlens [B + 1] → y [T, C].
    """
    rows = len(x)
    if not rows or not len(read_slots) or not len(conv_state):
        return torch.zeros_like(x)
    x = tiled(x)
    packed = packing(len(x), cu_seqlens, read_slots, len(conv_state), padding_slot)
    history = histories(conv_state, packed, has_initial_state)
    y = torch.where(packed.live[:, None], convolved(x, weight, history, packed), 0.0)
    store(conv_state, write_slots, shifted(x, history, packed, packed.lengths), packed.lengths > 0, padding_slot)
    return y[:rows].to(x.dtype)


def histories(conv_state: Tensor, packed: Packing, has_initial_state: Tensor | None) -> Tensor:
    """The three raw rows before each sequence, oldest first: [B, 3, C]."""
    history = conv_state[packed.read].transpose(1, 2)
    return history if has_initial_state is None else torch.where(has_initial_state[:, None, None], history, 0.0)


def convolved(x: Tensor, weight: Tensor, history: Tensor, packed: Packing) -> Tensor:
    """SiLU of the four taps in fp32 [T, C]; anything where a row is not live."""
    total = x.float() * weight[:, TAPS - 1].float()
    row = torch.arange(len(x), device=x.device)
    for lag in range(1, TAPS):
        earlier = history[packed.owner, (TAPS - 1 - lag + packed.place).clamp(0, TAPS - 2)]
        sample = torch.where((packed.place >= lag)[:, None], x[(row - lag).clamp(min=0)], earlier)
        total = total + sample.float() * weight[:, TAPS - 1 - lag].float()
    return torch.nn.functional.silu(total)


def shifted(x: Tensor, history: Tensor, packed: Packing, lengths: Tensor) -> Tensor:
    """The last three raw rows after the first `lengths` of each sequence: [B, C, 3]."""
    column = torch.arange(TAPS - 1, device=x.device)
    place = lengths[:, None] + column - (TAPS - 1)
    samples = x[(packed.starts[:, None] + place).clamp(0, len(x) - 1)]
    earlier = history.gather(1, (place + TAPS - 1).clamp(0, TAPS - 2)[..., None].expand(-1, -1, history.shape[2]))
    return torch.where((place >= 0)[..., None], samples, earlier).transpose(1, 2)
