from __future__ import annotations

import torch
from torch import Tensor

from reference.checks import require, require_shape
from reference.numerics import ROUNDED, Numerics


def greedy_sample(logits: Tensor, *, numerics: Numerics = ROUNDED) -> Tensor:
    """Choose each row's largest logit, the first of equal ones.

    id_t = min { v : logit_tv = max_u logit_tu }, where −0 equals +0 and NaN is less than −Inf.

    Shapes: logits [T, vocab] bf16, fp16 or fp32 → ids [T] int32. Raises ValueError for an empty
    vocabulary or integer logits. Source: greedy decoding of Kimi-K3.
    """
    require(logits.ndim == 2, "greedy_sample", f"logits is {list(logits.shape)}; expected [T, vocab]")
    require(logits.shape[1] > 0, "greedy_sample", "the vocabulary is empty; expected one entry or more")
    require(logits.is_floating_point(), "greedy_sample", f"logits are {logits.dtype}; expected bf16, fp16 or fp32")
    values = numerics.load(logits)
    present = ~torch.isnan(values)
    best = torch.where(present, values, -torch.inf).amax(-1, keepdim=True)
    numerics.note("best", best)
    # A row without a number has no True, and argmax gives its first entry.
    return (present & (values == best)).to(torch.int8).argmax(-1).to(torch.int32)


def greedy_verify(draft_ids: Tensor, target_ids: Tensor, *, numerics: Numerics = ROUNDED) -> tuple[Tensor, Tensor]:
    """Keep the draft as far as the target would have chosen it, then the target's own next token.

    accepted_b = max { j : draft_bi = target_bi for all i < j }; committed_b = target_b[: accepted_b + 1],
    then −1.

    Shapes: draft_ids [B, n], target_ids [B, n + 1] integers, where target_ids[:, i] is the target's
    choice after i tokens of the draft → accepted_drafts [B] int32 in 0…n, committed_ids [B, n + 1]
    int32. Raises ValueError for windows that do not fit. Source: greedy speculative decoding.
    """
    require(draft_ids.ndim == 2, "greedy_verify", f"draft_ids is {list(draft_ids.shape)}; expected [B, n]")
    batch, count = draft_ids.shape
    axes = "[B, n + 1]: one choice after each token of the window, the bonus token last"
    require_shape("greedy_verify", "target_ids", target_ids, (batch, count + 1), axes)
    for name, ids in (("draft_ids", draft_ids), ("target_ids", target_ids)):
        require(ids.dtype in (torch.int32, torch.int64), "greedy_verify", f"{name} is {ids.dtype}; expected integers")
    agreed = numerics.note("agreed", (draft_ids == target_ids[:, :count]).to(torch.int32))
    accepted = agreed.cumprod(1).sum(1)
    kept = torch.arange(count + 1, device=target_ids.device) <= accepted[:, None]
    return accepted.to(torch.int32), torch.where(kept, target_ids, -1).to(torch.int32)
