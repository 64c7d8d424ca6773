"""moe_sorting with one thing wrong."""

import torch

from verification import fault_patterns as patterns
from verification.fault_forms import Corpus

CORPUS = Corpus("moe_sorting")
EAGER = "verification.eager.moe_sorting"
SENTINEL = "sorted_ids = torch.full((slots + 1,), top_k << SLOT_SHIFT | rows,"
PADDED = "padded = (counts[:num_experts] + block_size - 1) // block_size * block_size"
ORDER = "order = expert.sort(stable=True).indices"
OWNER = "owner = torch.searchsorted(ends, torch.arange(blocks, device=device) * block_size, right=True)"


def edit(name: str, kind: str, says: str, *edits: tuple[str, str], records: str = "") -> None:
    CORPUS.edit(name, kind, says, EAGER, *edits, records=records)


edit(
    "sentinel_of_no_slot",
    "constant",
    "padding marked with slot 0",
    (SENTINEL, SENTINEL.replace("top_k << SLOT_SHIFT | rows", "rows")),
)
edit("sentinel_of_no_row", "constant", "padding marked with row 0", (SENTINEL, SENTINEL.replace(" | rows", "")))
edit(
    "sentinel_from_local_rows",
    "constant",
    "padding marked with the count of local rows",
    (
        SENTINEL,
        "sorted_ids = torch.full((slots + 1,), top_k << SLOT_SHIFT | (rows if num_local_tokens is None else int(num_local_tokens)),",
    ),
)
edit(
    "slots_from_one",
    "index",
    "slots counted from 1",
    ("packed = (slot << SLOT_SHIFT", "packed = (slot + 1 << SLOT_SHIFT"),
)
edit(
    "slot_and_row_swapped",
    "layout",
    "row and slot in each other's place",
    ("(slot << SLOT_SHIFT | token)", "(token << 8 | slot)"),
)
edit("not_padded", "index", "experts not padded to whole blocks", (PADDED, "padded = counts[:num_experts]"))
edit(
    "a_block_too_many",
    "index",
    "a further block where an expert ends on a block's edge",
    (
        PADDED,
        "padded = torch.where(counts[:num_experts] > 0, (counts[:num_experts] // block_size + 1) * block_size, 0)",
    ),
)
edit(
    "a_block_for_none",
    "index",
    "a block for an expert without tokens",
    (PADDED, PADDED.replace("(counts[:num_experts]", "(counts[:num_experts].clamp(min=1)")),
)
edit(
    "last_pair_lost",
    "index",
    "the last pair lost",
    (
        "place = torch.where(valid[order], place, slots)",
        "place = torch.where(valid[order] & (order < rows * top_k - 1), place, slots)",
    ),
)
edit(
    "rows_backwards",
    "order",
    "an expert's rows in descending order",
    (ORDER, "order = (rows * top_k - 1) - expert.flip(0).sort(stable=True).indices"),
    records="B198",
)
edit(
    "local_rows_ignored",
    "mask",
    "rows past the local count sorted too",
    ("valid = valid & (token < num_local_tokens)", "pass"),
)
edit(
    "one_local_row_more",
    "index",
    "one row more than the local count",
    ("token < num_local_tokens", "token <= num_local_tokens"),
)
edit(
    "ids_out_of_range_clamped",
    "special",
    "ids out of range given to the nearest expert",
    (
        "valid = (expert >= 0) & (expert < num_experts)",
        "expert = expert.clamp(0, num_experts - 1); valid = expert >= 0",
    ),
)
edit(
    "negative_ids_sorted",
    "special",
    "negative ids given to expert 0",
    ("valid = (expert >= 0) & (expert < num_experts)", "expert = expert.clamp(min=0); valid = expert < num_experts"),
)
edit(
    "global_expert_ids",
    "index",
    "blocks named by global experts",
    ("local = live.long().cumsum(0) - 1", "local = torch.arange(num_experts, device=device)"),
)
edit(
    "block_owner_off_by_one",
    "index",
    "a block at an expert's start given to the one before",
    (OWNER, OWNER.replace("right=True", "right=False")),
)
edit(
    "blocks_of_half_size",
    "constant",
    "blocks of half the size",
    (OWNER, OWNER.replace("* block_size", "* (block_size // 2)")),
)
edit(
    "unpadded_count",
    "term",
    "the count without padding",
    ("count = ends[-1:]", "count = counts[:num_experts].sum()[None]"),
)
edit("count_in_blocks", "term", "the count in blocks", ("count = ends[-1:]", "count = ends[-1:] // block_size"))
edit(
    "static_rows",
    "option",
    "the static count of rows where a local one is given",
    ("if num_local_tokens is None else num_local_tokens.long()", "if True else num_local_tokens.long()"),
)
edit("buffer_not_zeroed", "stale", "the output buffer left as it was", ("output_buffer.zero_()", "pass"))
edit(
    "buffer_partly_zeroed",
    "memory",
    "the output buffer's last row left as it was",
    ("output_buffer.zero_()", "output_buffer[:-1].zero_()"),
)
edit(
    "weights_unsorted",
    "order",
    "weights in the order of tokens",
    ("sorted_weights[place] = expert_weights.flatten()[order]", "sorted_weights[place] = expert_weights.flatten()"),
)
edit(
    "weights_in_bf16",
    "rounding",
    "weights rounded to bf16",
    (
        "sorted_weights[place] = expert_weights.flatten()[order]",
        "sorted_weights[place] = expert_weights.flatten()[order].bfloat16().float()",
    ),
)
edit(
    "slots_transposed",
    "layout",
    "expert ids read slot by slot",
    ("expert = expert_ids.flatten().long()", "expert = expert_ids.t().flatten().long()"),
)
CORPUS.results("stale_ids", "stale", "ids of an earlier call", patterns.stale("sorted_ids"))
CORPUS.results("scratch_in_weights", "memory", "the weights used as scratch", patterns.changed_input("expert_weights"))
CORPUS.results("wide_ids", "interface", "int64 ids", patterns.in_dtype("sorted_ids", torch.int64))
CORPUS.results("past_the_end", "memory", "one id past the end", patterns.written_past_the_end("sorted_ids"))
CORPUS.arguments("mask_ignored", "mask", "experts of other ranks sorted too", lambda a: {"expert_mask": None})
