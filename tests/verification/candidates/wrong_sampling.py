"""Greedy sampling and verification with one thing wrong."""

from __future__ import annotations

import torch
from torch import Tensor

from verification import candidate
from verification.eager.sampling import greedy_sample as right_sample
from verification.eager.sampling import greedy_verify as right_verify


@candidate("greedy_sample", name="nan_is_largest")
def nan_is_largest(logits: Tensor) -> Tensor:
    return logits.float().argmax(-1).to(torch.int32)


@candidate("greedy_sample", name="nan_as_minus_infinity")
def nan_as_minus_infinity(logits: Tensor) -> Tensor:
    return logits.float().nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf).argmax(-1).to(torch.int32)


@candidate("greedy_sample", name="last_of_equals")
def last_of_equals(logits: Tensor) -> Tensor:
    return (logits.shape[1] - 1 - right_sample(logits.flip(1))).to(torch.int32)


@candidate("greedy_sample", name="in_bf16")
def in_bf16(logits: Tensor) -> Tensor:
    return right_sample(logits.bfloat16())


@candidate("greedy_sample", name="zeros_apart")
def zeros_apart(logits: Tensor) -> Tensor:
    x = logits.float()
    return right_sample(torch.where((x == 0) & ~torch.signbit(x), 2.0**-140, x))


@candidate("greedy_sample", name="no_tail")
def no_tail(logits: Tensor) -> Tensor:
    return right_sample(logits[:, : logits.shape[1] // 128 * 128])


@candidate("greedy_verify", name="counts_every_agreement")
def counts_every_agreement(draft_ids: Tensor, target_ids: Tensor) -> tuple[Tensor, Tensor]:
    accepted = (draft_ids == target_ids[:, :-1]).sum(1)
    places = torch.arange(target_ids.shape[1])
    return accepted.to(torch.int32), target_ids.masked_fill(places > accepted[:, None], -1).to(torch.int32)


@candidate("greedy_verify", name="no_bonus")
def no_bonus(draft_ids: Tensor, target_ids: Tensor) -> tuple[Tensor, Tensor]:
    accepted, committed = right_verify(draft_ids, target_ids)
    return accepted, committed.masked_fill(torch.arange(committed.shape[1]) >= accepted[:, None], -1)


@candidate("greedy_verify", name="commits_the_draft")
def commits_the_draft(draft_ids: Tensor, target_ids: Tensor) -> tuple[Tensor, Tensor]:
    accepted, committed = right_verify(draft_ids, target_ids)
    drafted = torch.cat([draft_ids, target_ids[:, -1:]], 1).to(torch.int32)
    return accepted, torch.where(committed == -1, committed, drafted)


@candidate("greedy_verify", name="aligned_one_late")
def aligned_one_late(draft_ids: Tensor, target_ids: Tensor) -> tuple[Tensor, Tensor]:
    accepted = (draft_ids == target_ids[:, 1:]).to(torch.int32).cumprod(1).sum(1)
    return accepted.to(torch.int32), right_verify(draft_ids, target_ids)[1]
