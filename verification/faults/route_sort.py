"""route_sort with one thing wrong between its two parts."""

from verification import fault_patterns as patterns
from verification.fault_forms import Corpus

CORPUS = Corpus("route_sort")
EAGER = "verification.eager.moe_sorting"
HANDED = "return ids, weights, *moe_sorting(\n        ids, weights, num_experts=logits.shape[1],"


def edit(name: str, kind: str, says: str, *edits: tuple[str, str], records: str = "") -> None:
    CORPUS.edit(name, kind, says, EAGER, *edits, records=records)


edit(
    "sorted_by_logical_ids",
    "order",
    "sorted by logical ids",
    (
        HANDED,
        "logical, _ = route(logits, correction_bias, top_k=top_k, num_groups=num_groups, top_groups=top_groups, score_function=score_function, renormalize=renormalize, scaling_factor=scaling_factor)\n    "
        + HANDED.replace("moe_sorting(\n        ids,", "moe_sorting(\n        logical,"),
    ),
)
edit(
    "unscaled_weights_sorted",
    "term",
    "weights sorted before they are scaled",
    (
        HANDED,
        HANDED.replace("moe_sorting(\n        ids, weights,", "moe_sorting(\n        ids, weights / scaling_factor,"),
    ),
)
edit(
    "bf16_weights_sorted",
    "rounding",
    "weights handed over in bf16",
    (
        HANDED,
        HANDED.replace("moe_sorting(\n        ids, weights,", "moe_sorting(\n        ids, weights.bfloat16().float(),"),
    ),
)
edit(
    "sorted_slots_reversed",
    "order",
    "slots handed over in ascending choice",
    (
        HANDED,
        HANDED.replace("moe_sorting(\n        ids, weights,", "moe_sorting(\n        ids.flip(-1), weights.flip(-1),"),
    ),
)
edit(
    "one_expert_more",
    "constant",
    "one expert more than there are",
    (HANDED, HANDED.replace("logits.shape[1]", "logits.shape[1] + 1")),
)
CORPUS.arguments("mask_ignored", "mask", "experts of other ranks sorted too", lambda a: {"expert_mask": None})
CORPUS.arguments(
    "local_rows_ignored", "mask", "rows past the local count sorted too", lambda a: {"num_local_tokens": None}
)
CORPUS.arguments("bias_ignored", "option", "the bias ignored", lambda a: {"correction_bias": None})
CORPUS.arguments("blocks_of_32", "constant", "blocks of 32 whatever is asked", lambda a: {"block_size": 32})
CORPUS.results("stale_sort", "stale", "the sort of an earlier call", patterns.stale("sorted_ids"))
CORPUS.results("stale_choice", "stale", "the choice of an earlier call", patterns.stale("expert_ids"))
