from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from reference.checks import require, require_shape
from reference.mla import require_integers, require_pages
from reference.normalization import normalize
from reference.numerics import ROUNDED, Numerics

FIXED_EPS = 1e-6
"""The eps of the variant that ignores the one it is given: the official class's default."""


class MlaNormCache(NamedTuple):
    """The normed query rows, and the new value of the in-place pages."""

    normed_q_a: Tensor
    kv_pages: Tensor


def mla_qkv_norm_cache(
    q_a: Tensor,
    kv_a: Tensor,
    q_norm_weight: Tensor,
    kv_norm_weight: Tensor,
    kv_pages: Tensor,
    slot_mapping: Tensor,
    *,
    eps: float,
    numerics: Numerics = ROUNDED,
) -> MlaNormCache:
    """Norm the compressed query and the latent of each row, and store latent and key position in the cache.

    normed_q_a = rms_norm(q_a, q_norm_weight); kv_pages[slot] = [rms_norm(kv_a[:L], kv_norm_weight),
    kv_a[L:]], the last part bit for bit (K3 does not rotate it). Rows whose slot lies outside the
    pool (−1) store nothing. The inner roundings are the points `q_normalized` and `kv_normalized`;
    under `fixed_eps` (off) both norms take 1e-6 whatever eps is.

    Shapes: q_a [T, Q], kv_a [T, L+R] bf16; q_norm_weight [Q], kv_norm_weight [L] bf16 or fp32;
    kv_pages [pages, page size, L+R] bf16, any strides; slot_mapping [T] int64 → normed_q_a [T, Q],
    kv_pages. Raises ValueError for shapes that do not fit and for a slot named twice. Source:
    Kimi-K3's q_a and kv_a layer norms.
    """
    check_cache_arguments(q_a, kv_a, q_norm_weight, kv_norm_weight, kv_pages, slot_mapping)
    latent_width = kv_norm_weight.shape[0]
    eps = FIXED_EPS if numerics.has("fixed_eps", default=False) else eps
    normed = normalize(numerics.load(q_a), q_norm_weight, eps, q_a.dtype, numerics, name="q_")
    latent, position = numerics.load(kv_a).split([latent_width, kv_a.shape[1] - latent_width], 1)
    latent = normalize(latent, kv_norm_weight, eps, kv_a.dtype, numerics, name="kv_")
    pages = numerics.load(kv_pages)
    slots = valid_slots(slot_mapping, pages.shape[0] * pages.shape[1])
    place = slot_mapping[slots].long()
    pages[place // pages.shape[1], place % pages.shape[1]] = torch.cat([latent, position], 1)[slots]
    return MlaNormCache(
        numerics.output("normed_q_a", normed, q_a.dtype), numerics.output("kv_pages", pages, kv_pages.dtype)
    )


def valid_slots(slot_mapping: Tensor, pool: int) -> Tensor:
    """Mask [T] of the rows whose slot lies inside the pool."""
    return (slot_mapping >= 0) & (slot_mapping < pool)


def check_cache_arguments(
    q_a: Tensor, kv_a: Tensor, q_norm_weight: Tensor, kv_norm_weight: Tensor, kv_pages: Tensor, slot_mapping: Tensor
) -> None:
    """Raise ValueError, naming the argument, for shapes and slots that do not fit."""
    name = "mla_qkv_norm_cache"
    require(q_a.ndim == 2, name, f"q_a is {list(q_a.shape)}; expected [T, Q]")
    rows = q_a.shape[0]
    require_shape(name, "kv_a", kv_a, (rows, None), "[T, L+R]")
    require_shape(name, "q_norm_weight", q_norm_weight, (q_a.shape[1],), "[Q]")
    width = kv_a.shape[1]
    require(
        kv_norm_weight.ndim == 1 and 1 <= kv_norm_weight.shape[0] <= width, name,
        f"kv_norm_weight is {list(kv_norm_weight.shape)}; expected [L] with L in 1…{width}, kv_a's width",
    )  # fmt: skip
    require_pages(name, kv_pages, width)
    require_shape(name, "slot_mapping", slot_mapping, (rows,), "[T]")
    require_integers(name, "slot_mapping", slot_mapping)
    slots = slot_mapping[valid_slots(slot_mapping, kv_pages.shape[0] * kv_pages.shape[1])]
    values, counts = slots.unique(return_counts=True)
    twice = values[counts > 1]
    require(not len(twice), name, f"slot_mapping names slot {twice[:1].tolist()} twice; expected each slot once")
