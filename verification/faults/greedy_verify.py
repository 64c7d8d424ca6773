"""greedy_verify with one thing wrong."""

import torch

from verification import fault_patterns as patterns
from verification.fault_forms import Corpus

CORPUS = Corpus("greedy_verify")
EAGER = "verification.eager.sampling"


def edit(name: str, kind: str, says: str, *edits: tuple[str, str], records: str = "") -> None:
    CORPUS.edit(name, kind, says, EAGER, *edits, records=records)


DISAGREED = "disagreed[:, : window - 1] = draft_ids != target_ids[:, : window - 1]"
COMMITTED = "committed = target_ids.masked_fill(places > accepted[:, None], -1)"
RESULT = "return accepted.to(torch.int32), committed.to(torch.int32)"

edit(
    "count_of_agreements",
    "term",
    "every agreement counted, not those up to the first disagreement",
    ("accepted = disagreed.argmax(-1)", "accepted = (disagreed == 0).sum(-1)"),
)
edit(
    "targets_shifted",
    "index",
    "drafts held against the next target",
    (DISAGREED, "disagreed[:, : window - 1] = draft_ids != target_ids[:, 1:]"),
)
edit(
    "one_too_many",
    "index",
    "one draft more accepted",
    (RESULT, RESULT.replace("accepted.to", "(accepted + 1).clamp(max=window - 1).to")),
)
edit(
    "bonus_left_out",
    "index",
    "the target's own token not committed",
    (COMMITTED, COMMITTED.replace("places >", "places >=")),
)
edit("rest_not_cleared", "stale", "tokens behind the last committed left", (COMMITTED, "committed = target_ids"))
edit("rest_is_zero", "constant", "0 behind the last committed", (COMMITTED, COMMITTED.replace("-1)", "0)")))
edit(
    "drafts_committed",
    "term",
    "the drafts committed after a disagreement",
    (
        COMMITTED,
        "committed = torch.cat([draft_ids, target_ids[:, -1:]], 1).masked_fill(places > accepted[:, None], -1)",
    ),
)
edit(
    "last_draft_always_accepted",
    "index",
    "the last draft not looked at",
    (
        DISAGREED,
        "disagreed[:, : max(window - 2, 0)] = (draft_ids != target_ids[:, : window - 1])[:, : max(window - 2, 0)]\n    disagreed[:, max(window - 2, 0) : window - 1] = 0",
    ),
)
edit(
    "first_row_for_all",
    "index",
    "the first row's count for all",
    (RESULT, RESULT.replace("accepted.to", "accepted[:1].expand_as(accepted).contiguous().to")),
)
CORPUS.results("rows_off_by_one", "index", "each row with its neighbour's count", patterns.rolled("accepted_drafts"))
CORPUS.results("last_row_unwritten", "memory", "no last row", patterns.unwritten_last_row("committed_ids"))
CORPUS.results("stale_count", "stale", "the count of an earlier call", patterns.stale("accepted_drafts"))
CORPUS.results("wide_ids", "interface", "int64 ids", patterns.in_dtype("committed_ids", torch.int64))
