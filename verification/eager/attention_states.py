from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fused.boundary import implements
from verification.eager.tiles import SMALL, TILE, tiled


@implements("merge_attention_states", name="eager", batch_invariant=True)
def merge_attention_states(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> tuple[Tensor, Tensor]:
    """Weigh both sides by exp(lse − largest) in fp32; a side without keys is masked out.

    Shapes: out_a, out_b [T, N, V], lse_a, lse_b [T, N] → out [T, N, V], lse [T, N].
    """
    largest = torch.maximum(lse_a, lse_b)
    base = largest.masked_fill(largest == -torch.inf, 0.0)
    mass_a, mass_b = torch.exp(lse_a - base), torch.exp(lse_b - base)
    total = mass_a + mass_b
    a = out_a.float().masked_fill((lse_a == -torch.inf)[..., None], 0.0)
    b = out_b.float().masked_fill((lse_b == -torch.inf)[..., None], 0.0)
    weighted = mass_a[..., None] * a + mass_b[..., None] * b
    out = weighted / total.masked_fill(total == 0, 1.0)[..., None]
    return out.to(out_a.dtype), base + torch.log(total)


def mean_of_states(outs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
    """The same over an axis of splits, fp32: outs [T, S, N, V], lses [T, S, N] → [T, N, V], [T, N]."""
    largest = lses.amax(1, keepdim=True)
    base = largest.masked_fill(largest == -torch.inf, 0.0)
    mass = torch.exp(lses - base)
    total = mass.sum(1)
    outs = outs.masked_fill((lses == -torch.inf)[..., None], 0.0)
    weighted = (mass[..., None] * outs).sum(1)
    return weighted / total.masked_fill(total == 0, 1.0)[..., None], base.squeeze(1) + torch.log(total)


@implements("mla_reduce_project_gate", name="eager", batch_invariant=True)
def mla_reduce_project_gate(
    split_latents: Tensor, split_lses: Tensor, value_weight: Tensor, gate_logits: Tensor | None = None
) -> Tensor:
    """One merge, one batched product over heads, the gate in fp32.

    Shapes: split_latents [T, S, N, L], split_lses [T, S, N], value_weight [N, V, L],
    gate_logits [T, N·V] → attention [T, N·V].
    """
    y = projected(split_latents, split_lses, value_weight)
    return y if gate_logits is None else (y.float() * torch.sigmoid(gate_logits.float())).to(torch.bfloat16)


def gated_in_bf16(
    split_latents: Tensor, split_lses: Tensor, value_weight: Tensor, gate_logits: Tensor | None = None
) -> Tensor:
    """The official modelling code: sigmoid and product are operations on bf16 tensors."""
    y = projected(split_latents, split_lses, value_weight)
    return y if gate_logits is None else y * torch.sigmoid(gate_logits)


implements("mla_reduce_project_gate", name="eager_gate_bf16", variant="gate_bf16", batch_invariant=True)(gated_in_bf16)


def projected(split_latents: Tensor, split_lses: Tensor, value_weight: Tensor) -> Tensor:
    """The merged latents' values [T, N·V], bf16."""
    latent, _ = mean_of_states(tiled(split_latents).float(), tiled(split_lses))
    rows = len(split_latents)
    return heads_product(latent[:rows].to(torch.bfloat16), value_weight).flatten(1).to(torch.bfloat16)


def heads_product(x: Tensor, weight: Tensor) -> Tensor:
    """X · weightᵀ head by head in fp32, with the same bits for a row in any batch of up to 64 rows.

    Shapes: x [T, N, L], weight [N, V, L] → [T, N, V] fp32.
    """
    by_head, transposed = x.float().transpose(0, 1), weight.float().mT
    if len(x) > SMALL:
        return (by_head @ transposed).transpose(0, 1)
    padded = functional.pad(by_head, (0, 0, 0, -len(x) % TILE))
    tiles = [tile @ transposed for tile in padded.split(TILE, 1)]
    return torch.cat(tiles, 1)[:, : len(x)].transpose(0, 1)
