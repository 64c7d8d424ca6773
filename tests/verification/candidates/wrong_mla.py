"""Latent attention with one thing wrong: what has been wrong in kernels of its kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from verification import candidate
from verification.eager.attention_states import mean_of_states, merge_attention_states, mla_reduce_project_gate
from verification.eager.mla import mla_decode, mla_prefill, mla_qkv_norm_cache, split_attention

Result = Tensor | tuple[Tensor, ...]


def right_decode(**a: Any) -> Result:
    return mla_decode(**a)


def right_merge(**a: Any) -> Result:
    return merge_attention_states(**a)


def right_cache(**a: Any) -> Result:
    return mla_qkv_norm_cache(**a)


def right_prefill(**a: Any) -> Result:
    return mla_prefill(**a)


def right_reduce(**a: Any) -> Result:
    return mla_reduce_project_gate(**a)


def base_two_lse(**a: Any) -> Result:
    latent, lse = mla_decode(**a)
    return latent, lse / math.log(2)


def nan_at_length_zero(**a: Any) -> Result:
    latent, lse = mla_decode(**a)
    return torch.where((lse == -torch.inf)[..., None], torch.nan, latent), lse


def last_key_dropped(**a: Any) -> Result:
    return mla_decode(**(a | {"seq_lens": (a["seq_lens"] - 1).clamp(min=1).minimum(a["seq_lens"])}))


def whole_last_page(**a: Any) -> Result:
    size = a["kv_pages"].shape[1]
    return mla_decode(**(a | {"seq_lens": -(-a["seq_lens"] // size) * size}))


def mean_over_splits(**a: Any) -> Result:
    names = ("q_latent", "q_pe", "kv_pages", "page_table", "seq_lens", "num_splits", "softmax_scale")
    latents, lses = split_attention(*(a[name] for name in names))
    rows = len(a["q_latent"])
    _, lse = mean_of_states(latents, lses)
    live = (lses > -torch.inf).sum(1).clamp(min=1)[..., None]
    return (latents.sum(1) / live)[:rows].to(torch.bfloat16), lse[:rows]


def position_left_out(**a: Any) -> Result:
    return mla_decode(**(a | {"q_pe": a["q_pe"] * 0}))


def scale_of_nope(**a: Any) -> Result:
    return mla_decode(**(a | {"softmax_scale": a["softmax_scale"] * 1.2}))


def query_in_eight_bits(**a: Any) -> Result:
    return mla_decode(**(a | {"q_latent": a["q_latent"].to(torch.float8_e4m3fn).to(torch.bfloat16)}))


def pages_in_order(**a: Any) -> Result:
    table = a["page_table"]
    return mla_decode(**(a | {"page_table": table.sort(-1).values}))


def base_two_weights(**a: Any) -> Result:
    scaled = a | {n: a[n] * math.log(2) for n in ("lse_a", "lse_b")}
    out, lse = merge_attention_states(**scaled)
    return out, lse / math.log(2)


def zero_over_zero(**a: Any) -> Result:
    out, lse = merge_attention_states(**a)
    return torch.where((lse == -torch.inf)[..., None], torch.nan, out), lse


def reads_the_dead_side(**a: Any) -> Result:
    out, lse = merge_attention_states(**a)
    return (out.float() + 0 * a["out_a"].float()).to(out.dtype), lse


def lse_is_the_larger(**a: Any) -> Result:
    out, _ = merge_attention_states(**a)
    return out, torch.maximum(a["lse_a"], a["lse_b"])


def norm_over_the_position(**a: Any) -> Result:
    width = a["kv_a"].shape[1]
    weight = torch.ones(width, dtype=a["kv_norm_weight"].dtype)
    weight[: len(a["kv_norm_weight"])] = a["kv_norm_weight"]
    return mla_qkv_norm_cache(**(a | {"kv_norm_weight": weight}))


def minus_one_is_the_last_slot(**a: Any) -> Result:
    pool = a["kv_pages"].shape[0] * a["kv_pages"].shape[1]
    slots = a["slot_mapping"]
    return mla_qkv_norm_cache(**(a | {"slot_mapping": torch.where(slots == -1, pool - 1, slots)}))


def cache_not_normed(**a: Any) -> Result:
    q = mla_qkv_norm_cache(**a)
    slots, size = a["slot_mapping"], a["kv_pages"].shape[1]
    kept = (slots >= 0) & (slots < a["kv_pages"].shape[0] * size)
    a["kv_pages"][slots[kept] // size, slots[kept] % size] = a["kv_a"][kept]
    return q


def next_slot_cleared(**a: Any) -> Result:
    q = mla_qkv_norm_cache(**a)
    a["kv_pages"][-1, -1] = 0
    return q


def eps_left_out(**a: Any) -> Result:
    return mla_qkv_norm_cache(**(a | {"eps": 0.0}))


def not_causal(**a: Any) -> Result:
    return mla_prefill(**(a | {"causal": False}))


def top_left_causal(**a: Any) -> Result:
    """The mask counts keys from the first and not from the last row."""
    cu, keys = a["cu_seqlens"], a["cu_seqlens"] if a["kv_cu_seqlens"] is None else a["kv_cu_seqlens"]
    assert len(cu) == 2
    seen = torch.arange(len(a["query"]) + 1, dtype=cu.dtype)
    parts = [
        mla_prefill(**(a | {
            "query": a["query"][i : i + 1], "kv": a["kv"][: min(i + 1, int(keys[-1]))],
            "cu_seqlens": seen[:2], "kv_cu_seqlens": torch.tensor([0, min(i + 1, int(keys[-1]))], dtype=cu.dtype),
        }))
        for i in range(len(a["query"]))
    ]  # fmt: skip
    return tuple(torch.cat(x) for x in zip(*parts, strict=True))


def keys_cleared_of_nan(**a: Any) -> Result:
    """A key that is no number taken for zero, which hides it."""
    return mla_prefill(**(a | {"kv": a["kv"].nan_to_num()}))


def one_sequence(**a: Any) -> Result:
    ends = torch.stack([a["cu_seqlens"][0], a["cu_seqlens"][-1]])
    return mla_prefill(**(a | {"cu_seqlens": ends}))


def gate_without_sigmoid(**a: Any) -> Result:
    y = mla_reduce_project_gate(**(a | {"gate_logits": None}))
    return y if a["gate_logits"] is None else (y.float() * a["gate_logits"].float()).to(torch.bfloat16)


def gate_on_the_wrong_heads(**a: Any) -> Result:
    return mla_reduce_project_gate(**(a | {"gate_logits": a["gate_logits"].roll(a["value_weight"].shape[1], 1)}))


def first_split_alone(**a: Any) -> Result:
    return mla_reduce_project_gate(
        **(a | {"split_latents": a["split_latents"][:, :1], "split_lses": a["split_lses"][:, :1]})
    )


def weight_transposed(**a: Any) -> Result:
    weight = a["value_weight"]
    return mla_reduce_project_gate(
        **(a | {"value_weight": weight.flatten(1).view(len(weight), weight.shape[2], -1).mT})
    )


def eight_bit_latent(**a: Any) -> Result:
    latents = a["split_latents"]
    return mla_reduce_project_gate(**(a | {"split_latents": latents.to(torch.float8_e4m3fn).to(latents.dtype)}))


OPERATORS: dict[str, tuple[Callable[..., Result], ...]] = {
    "mla_decode": (
        right_decode, base_two_lse, nan_at_length_zero, last_key_dropped, whole_last_page, mean_over_splits,
        position_left_out, scale_of_nope, query_in_eight_bits, pages_in_order,
    ),
    "merge_attention_states": (
        right_merge, base_two_weights, zero_over_zero, reads_the_dead_side, lse_is_the_larger,
    ),
    "mla_qkv_norm_cache": (
        right_cache, norm_over_the_position, minus_one_is_the_last_slot, cache_not_normed, next_slot_cleared,
        eps_left_out,
    ),
    "mla_prefill": (right_prefill, not_causal, top_left_causal, one_sequence, keys_cleared_of_nan),
    "mla_reduce_project_gate": (
        right_reduce, gate_without_sigmoid, gate_on_the_wrong_heads, first_split_alone, weight_transposed,
        eight_bit_latent,
    ),
}  # fmt: skip

for _operator, _functions in OPERATORS.items():
    for _function in _functions:
        candidate(_operator, name=_function.__name__)(_function)
