"""greedy_sample with one thing wrong."""

import torch

from verification import fault_patterns as patterns
from verification.fault_forms import Corpus

CORPUS = Corpus("greedy_sample")
EAGER = "verification.eager.sampling"


def edit(name: str, kind: str, says: str, *edits: tuple[str, str], records: str = "") -> None:
    CORPUS.edit(name, kind, says, EAGER, *edits, records=records)


IDS = "return ordered(logits.float()).argmax(-1).to(torch.int32)"

edit(
    "last_of_equals",
    "order",
    "the last of equal logits",
    (IDS, "keys = ordered(logits.float())\n    return (keys.shape[-1] - 1 - keys.flip(-1).argmax(-1)).to(torch.int32)"),
)
edit("nan_wins", "special", "NaN above everything", (IDS, "return logits.float().argmax(-1).to(torch.int32)"))
edit(
    "bf16_logits",
    "rounding",
    "logits rounded to bf16",
    (IDS, IDS.replace("logits.float()", "logits.bfloat16().float()")),
)
edit("smallest", "order", "the smallest logit", (IDS, IDS.replace("argmax", "argmin")))
edit(
    "largest_magnitude",
    "constant",
    "the largest magnitude",
    (IDS, IDS.replace("logits.float()", "logits.float().abs()")),
)
edit(
    "tail_of_the_vocabulary",
    "index",
    "the vocabulary ends at the last whole 1024",
    (IDS, IDS.replace("logits.float()", "logits[:, : max(logits.shape[1] // 1024 * 1024, 1)].float()")),
)
edit(
    "last_token_never",
    "index",
    "the last token left out",
    (IDS, IDS.replace("logits.float()", "logits[:, : max(logits.shape[1] - 1, 1)].float()")),
)
edit("ids_from_one", "index", "ids counted from 1", (IDS, IDS.replace(".argmax(-1)", ".argmax(-1).add(1)")))
edit(
    "minus_infinity_ignored",
    "special",
    "−Inf taken for 0",
    (
        IDS,
        IDS.replace("logits.float()", "logits.float().nan_to_num(nan=float('nan'), neginf=0.0, posinf=float('inf'))"),
    ),
)
edit(
    "first_for_a_row_of_nan_is_last",
    "special",
    "the last token for a row of NaN",
    (
        IDS,
        "ids = ordered(logits.float()).argmax(-1)\n    return torch.where(logits.isnan().all(-1), logits.shape[1] - 1, ids).to(torch.int32)",
    ),
)
CORPUS.results("rows_off_by_one", "index", "each row with its neighbour's token", patterns.rolled("ids"))
CORPUS.results("last_row_unwritten", "memory", "no last row", patterns.unwritten_last_row("ids"))
CORPUS.results("scratch_in_logits", "memory", "the logits used as scratch", patterns.changed_input("logits"))
CORPUS.results("stale", "stale", "those of an earlier call", patterns.stale("ids"))
CORPUS.results("wide_ids", "interface", "int64 ids", patterns.in_dtype("ids", torch.int64))
CORPUS.results("column_of_ids", "interface", "ids [T, 1]", patterns.with_shape("ids", lambda x: x[:, None]))
