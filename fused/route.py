from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fused.boundary import implements

MOST_EXPERTS = 4096


@triton.jit
def order_key(x):
    """fp32 as int32 in the same order: −0 equals +0, NaN comes below −Inf."""
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)
    key = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return tl.where(x == x, key, -0x7FFFFFFF)


@triton.jit
def key_value(key):
    """The fp32 value behind an order key."""
    bits = tl.where(key < 0, key ^ 0x7FFFFFFF, key)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def packed(key, index):
    """Key and index in one int64 whose maximum is the largest key, of equal ones the lowest index."""
    return (key.to(tl.int64) << 32) + (0x7FFFFFFF - index).to(tl.int64)


@triton.jit
def packed_index(pack):
    """The index that `packed` put in."""
    return (0x7FFFFFFF - (pack & 0xFFFFFFFF)).to(tl.int32)


@triton.jit
def unbiased_scores(logit, valid, SOFTMAX: tl.constexpr):
    """Sigmoid, or softmax over the present logits, of a [G, S] tile; NaN stays NaN."""
    if SOFTMAX:
        present = tl.where(valid & (logit == logit), logit, float("-inf"))
        largest = tl.max(tl.max(present, axis=1), axis=0)
        mass = tl.where(present == largest, 1.0, tl.exp(present - largest))
        mass = tl.where(present == float("-inf"), 0.0, mass)
        total = tl.sum(tl.sum(mass, axis=1), axis=0)
        score = mass / tl.maximum(total, 1.0)
        score = tl.where(logit == logit, score, float("nan"))
    else:
        score = 1.0 / (1.0 + tl.exp(-logit))
    return score


@triton.jit
def kept_groups(
    choice, expert, valid, group,
    GROUPS: tl.constexpr, SIZE: tl.constexpr, TOP_GROUPS: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    """Mask [G, 1] of the groups with the best sum of two choices (with a bias), else best choice."""
    pack = packed(tl.where(valid, order_key(choice), -0x80000000), expert)
    best = tl.max(pack, axis=1, keep_dims=True)
    score = key_value((best >> 32).to(tl.int32))
    if BIASED and SIZE > 1:
        rest = tl.where(pack == best, packed(tl.full([1, 1], -0x80000000, tl.int32), expert), pack)
        score += key_value((tl.max(rest, axis=1, keep_dims=True) >> 32).to(tl.int32))
    waiting = packed(tl.where(group < GROUPS, order_key(score), -0x80000000), group)
    kept = group < 0
    for _ in range(TOP_GROUPS):
        first = tl.max(waiting, axis=0, keep_dims=True)
        kept = kept | (waiting == first)
        waiting = tl.where(waiting == first, -0x8000000000000000, waiting)
    return kept


@triton.jit
def choose_experts(
    logits_ptr, logit_stride, bias_ptr, map_ptr, scaling_factor,
    GROUPS: tl.constexpr, SIZE: tl.constexpr, GROUPS_PADDED: tl.constexpr, SIZE_PADDED: tl.constexpr,
    TOP_GROUPS: tl.constexpr, TOP_K: tl.constexpr, TOP_K_PADDED: tl.constexpr,
    BIASED: tl.constexpr, MAPPED: tl.constexpr, SOFTMAX: tl.constexpr, RENORMALIZE: tl.constexpr,
):  # fmt: skip
    """Ids and weights [K] of one row of logits: by descending choice, then ascending id."""
    group = tl.arange(0, GROUPS_PADDED)[:, None]
    member = tl.arange(0, SIZE_PADDED)[None, :]
    expert = group * SIZE + member
    valid = (group < GROUPS) & (member < SIZE)
    logit = tl.load(logits_ptr + expert.to(tl.int64) * logit_stride, mask=valid, other=0.0).to(tl.float32)
    score = unbiased_scores(logit, valid, SOFTMAX)
    choice = score
    if BIASED:
        choice = score + tl.load(bias_ptr + expert, mask=valid, other=0.0)
    eligible = valid
    if TOP_GROUPS < GROUPS:
        eligible = valid & kept_groups(choice, expert, valid, group, GROUPS, SIZE, TOP_GROUPS, BIASED)
    waiting = packed(tl.where(eligible, order_key(choice), -0x80000000), expert)
    score = tl.where(score == score, score, 0.0)

    lane = tl.arange(0, TOP_K_PADDED)
    ids = tl.zeros([TOP_K_PADDED], tl.int32)
    weights = tl.zeros([TOP_K_PADDED], tl.float32)
    for slot in range(TOP_K):
        first = tl.max(tl.max(waiting, axis=1), axis=0)
        taken = waiting == first
        ids = tl.where(lane == slot, packed_index(first), ids)
        weights = tl.where(lane == slot, tl.sum(tl.sum(tl.where(taken, score, 0.0), axis=1), axis=0), weights)
        waiting = tl.where(taken, -0x8000000000000000, waiting)
    if RENORMALIZE:
        weights = tl.div_rn(weights, tl.zeros_like(weights) + (tl.sum(weights, axis=0) + 1e-20))
    if MAPPED:
        ids = tl.load(map_ptr + ids, mask=lane < TOP_K, other=0).to(tl.int32)
    return ids, weights * scaling_factor


@triton.jit
def route_kernel(
    logits_ptr, bias_ptr, map_ptr, ids_ptr, weights_ptr, row_stride, logit_stride, scaling_factor,
    GROUPS: tl.constexpr, SIZE: tl.constexpr, GROUPS_PADDED: tl.constexpr, SIZE_PADDED: tl.constexpr,
    TOP_GROUPS: tl.constexpr, TOP_K: tl.constexpr, TOP_K_PADDED: tl.constexpr,
    BIASED: tl.constexpr, MAPPED: tl.constexpr, SOFTMAX: tl.constexpr, RENORMALIZE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    ids, weights = choose_experts(
        logits_ptr + row * row_stride, logit_stride, bias_ptr, map_ptr, scaling_factor, GROUPS, SIZE,
        GROUPS_PADDED, SIZE_PADDED, TOP_GROUPS, TOP_K, TOP_K_PADDED, BIASED, MAPPED, SOFTMAX, RENORMALIZE,
    )  # fmt: skip
    lane = tl.arange(0, TOP_K_PADDED)
    tl.store(ids_ptr + row * TOP_K + lane, ids, mask=lane < TOP_K)
    tl.store(weights_ptr + row * TOP_K + lane, weights, mask=lane < TOP_K)


def router_constants(
    experts: int, correction_bias: Tensor | None, *, top_k: int, num_groups: int, top_groups: int,
    score_function: str, renormalize: bool, logical_to_physical: Tensor | None,
) -> dict[str, int | bool]:  # fmt: skip
    """Compile-time arguments of `choose_experts`."""
    if num_groups == top_groups:
        num_groups = top_groups = 1  # every group is kept: one group
    size = experts // num_groups
    return {
        "GROUPS": num_groups, "SIZE": size, "GROUPS_PADDED": triton.next_power_of_2(num_groups),
        "SIZE_PADDED": triton.next_power_of_2(size), "TOP_GROUPS": top_groups, "TOP_K": top_k,
        "TOP_K_PADDED": triton.next_power_of_2(top_k), "BIASED": correction_bias is not None,
        "MAPPED": logical_to_physical is not None, "SOFTMAX": score_function == "softmax",
        "RENORMALIZE": renormalize,
    }  # fmt: skip


def supports(logits: Tensor, top_k: int, num_groups: int, score_function: str, **_: object) -> str | None:
    """Why these arguments are refused, or None."""
    experts = logits.shape[1]
    if experts > MOST_EXPERTS:
        return f"E is {experts}; one tile holds {MOST_EXPERTS}"
    if experts % num_groups:
        return f"{experts} experts do not divide into {num_groups} groups"
    if score_function not in ("sigmoid", "softmax"):
        return f"score_function is {score_function!r}; the kernel has sigmoid and softmax"
    return None


CONFIGURATIONS = {"warps1": 1, "warps4": 4}


@implements(
    "route",
    name="triton",
    supports=supports,
    batch_invariant=True,
    configurations=CONFIGURATIONS,
    kernels=(route_kernel,),
)
def route(
    logits: Tensor,
    correction_bias: Tensor | None = None,
    *,
    top_k: int,
    num_groups: int = 1,
    top_groups: int = 1,
    score_function: str = "sigmoid",
    renormalize: bool = True,
    scaling_factor: float = 1.0,
    logical_to_physical: Tensor | None = None,
    configuration: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Scores, groups, top-k and weights of a row in one program.

    Shapes: logits [T, E] fp32, bf16 or fp16; correction_bias [E] fp32; logical_to_physical [E] →
    expert_ids [T, k] int32, expert_weights [T, k] fp32.
    """
    rows, experts = logits.shape
    ids = torch.empty((rows, top_k), dtype=torch.int32, device=logits.device)
    weights = torch.empty((rows, top_k), dtype=torch.float32, device=logits.device)
    constants = router_constants(
        experts, correction_bias, top_k=top_k, num_groups=num_groups, top_groups=top_groups,
        score_function=score_function, renormalize=renormalize, logical_to_physical=logical_to_physical,
    )  # fmt: skip
    if rows:
        route_kernel[(rows,)](
            logits, correction_bias, logical_to_physical, ids, weights, logits.stride(0), logits.stride(1),
            scaling_factor, **constants, num_warps=CONFIGURATIONS[configuration or "warps4"],
        )  # fmt: skip
    return ids, weights
