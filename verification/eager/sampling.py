from __future__ import annotations

import torch
from torch import Tensor

from fused.boundary import implements
from verification.eager.route import ordered


@implements("greedy_sample", name="eager", batch_invariant=True)
def greedy_sample(logits: Tensor) -> Tensor:
    """The first largest key: integer keys put NaN last and make the two zeros equal.

    Shapes: logits [T, vocab] → ids [T] int32.
    """
    return ordered(logits.float()).argmax(-1).to(torch.int32)


@implements("greedy_verify", name="eager", batch_invariant=True)
def greedy_verify(draft_ids: Tensor, target_ids: Tensor) -> tuple[Tensor, Tensor]:
    """The first disagreement is the count of accepted drafts; one that is put behind them all ends every row.

    Shapes: draft_ids [B, n], target_ids [B, n + 1] → accepted_drafts [B], committed_ids [B, n + 1] int32.
    """
    window = target_ids.shape[1]
    disagreed = target_ids.new_ones(target_ids.shape, dtype=torch.int8)
    disagreed[:, : window - 1] = draft_ids != target_ids[:, : window - 1]
    accepted = disagreed.argmax(-1)
    places = torch.arange(window, device=target_ids.device)
    committed = target_ids.masked_fill(places > accepted[:, None], -1)
    return accepted.to(torch.int32), committed.to(torch.int32)
