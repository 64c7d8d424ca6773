"""route with one thing wrong."""

import torch

from verification import fault_patterns as patterns
from verification.fault_forms import Corpus

CORPUS = Corpus("route")
EAGER, KERNEL = "verification.eager.route", "fused.route"
SIGMOID = "return torch.sigmoid(logits)"
CHOICE = "choice = scores if correction_bias is None else scores + correction_bias"
MASKED = (
    "keys = keys.masked_fill(~in_kept_groups(choice, num_groups, top_groups, correction_bias is not None), EXCLUDED)"
)
SORTED = "ids = keys.sort(dim=-1, descending=True, stable=True).indices[:, :top_k]"
WEIGHTS = "weights = scores.gather(1, ids).nan_to_num(nan=0.0)"
RENORMALIZED = "weights = weights / (weights.sum(-1, keepdim=True) + EPSILON)"
RESULT = "return ids.to(torch.int32), weights * scaling_factor"
BEST = "best = ordered(groups).sort(dim=-1, descending=True, stable=True).indices[..., : min(2 if biased else 1, size)]"


def edit(name: str, kind: str, says: str, *edits: tuple[str, str], records: str = "", base: str = "eager") -> None:
    CORPUS.edit(name, kind, says, KERNEL if base == "triton" else EAGER, *edits, records=records, base=base)


# Which experts.
edit(
    "excluded_groups_are_zero",
    "mask",
    "experts of the groups not kept masked with 0",
    (MASKED, MASKED.replace("EXCLUDED", "0")),
    records="B01 B22",
)
edit(
    "group_score_is_the_best",
    "term",
    "a group's best in the place of its two best",
    (BEST, BEST.replace("min(2 if biased else 1, size)", "1")),
    records="B02",
)
edit(
    "group_score_is_always_two",
    "term",
    "a group's two best where there is no bias",
    (BEST, BEST.replace("min(2 if biased else 1, size)", "min(2, size)")),
)
edit(
    "group_score_is_three",
    "term",
    "a group's three best",
    (BEST, BEST.replace("min(2 if biased else 1, size)", "min(3 if biased else 1, size)")),
)
edit("groups_not_kept", "option", "groups not looked at", ("if top_groups < num_groups:", "if False:"))
edit(
    "one_group_less", "index", "one group too few kept", ("order[:, :top_groups]", "order[:, : max(top_groups - 1, 1)]")
)
edit(
    "groups_interleaved",
    "layout",
    "groups taken as every n-th expert",
    (
        "groups = choice.unflatten(-1, (num_groups, -1))",
        "groups = choice.unflatten(-1, (-1, num_groups)).transpose(-1, -2)",
    ),
)
edit("bias_left_out", "option", "the bias ignored", (CHOICE, "choice = scores"), records="B18")
edit("bias_subtracted", "constant", "the bias subtracted", (CHOICE, CHOICE.replace("scores +", "scores -")))
edit(
    "bias_before_the_sigmoid",
    "term",
    "the bias added to the logits",
    (
        CHOICE,
        "choice = scores if correction_bias is None else scored(logits.float() + correction_bias, score_function)",
    ),
)
edit(
    "bias_in_bf16",
    "rounding",
    "the bias rounded to bf16",
    (CHOICE, CHOICE.replace("+ correction_bias", "+ correction_bias.bfloat16()")),
    records="B08",
)
edit(
    "bias_in_bf16_for_groups",
    "rounding",
    "groups chosen by a bias in bf16",
    (
        MASKED,
        MASKED.replace(
            "in_kept_groups(choice",
            "in_kept_groups(choice if correction_bias is None else scores + correction_bias.bfloat16()",
        ),
    ),
    records="B08",
)
edit(
    "logits_in_bf16",
    "rounding",
    "logits rounded to bf16",
    ("scores = scored(logits.float(), score_function)", "scores = scored(logits.bfloat16().float(), score_function)"),
    records="B18",
)
edit(
    "sigmoid_in_bf16",
    "rounding",
    "the sigmoid formed in bf16",
    (SIGMOID, "return torch.sigmoid(logits.bfloat16()).float()"),
    records="B10",
)
edit(
    "higher_id_first",
    "order",
    "the higher id first among equals",
    (
        SORTED,
        SORTED.replace("keys.sort", "keys.flip(-1).sort").replace(
            "[:, :top_k]", "[:, :top_k].neg() + keys.shape[-1] - 1"
        ),
    ),
)
edit("ascending_choice", "order", "the chosen in ascending order", (SORTED, SORTED + ".flip(-1)"))
edit("sorted_by_id", "order", "the chosen in the order of their ids", (SORTED, SORTED + ".sort(-1).values"))
edit(
    "smallest_chosen",
    "order",
    "the smallest scores chosen",
    (SORTED, SORTED.replace("descending=True", "descending=False")),
)
edit(
    "one_expert_repeated",
    "index",
    "one expert for every slot of a row of NaN",
    (SORTED, SORTED + "\n    ids = torch.where(logits.isnan().all(-1, keepdim=True), ids[:, :1], ids)"),
    records="B05",
)
edit(
    "out_of_range_for_nan",
    "special",
    "an id past the last expert for a row of NaN",
    (
        RESULT,
        RESULT.replace(
            "ids.to(torch.int32)",
            "torch.where(logits.isnan().all(-1, keepdim=True), logits.shape[-1], ids).to(torch.int32)",
        ),
    ),
    records="B06 B16",
)
edit(
    "nan_first",
    "special",
    "NaN above everything",
    (".masked_fill(x.isnan(), MISSING)", ".masked_fill(x.isnan(), 2**31 - 1)"),
)
edit(
    "nan_below_nothing",
    "special",
    "NaN equal to −Inf",
    (".masked_fill(x.isnan(), MISSING)", ".masked_fill(x.isnan(), -2139095041)"),
)
edit(
    "negative_keys_unordered",
    "constant",
    "negative scores ordered by their bits",
    ("torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)", "bits"),
    records="B22",
)
edit(
    "one_slot_less",
    "index",
    "the last slot filled with the best but first",
    (
        SORTED,
        SORTED
        + "\n    ids = torch.cat([ids[:, :-1], keys.sort(dim=-1, descending=True, stable=True).indices[:, top_k : top_k + 1]], -1) if top_k < keys.shape[1] else ids",
    ),
    records="B09",
)
edit("map_left_out", "option", "ids not mapped to physical ones", ("if logical_to_physical is not None:", "if False:"))
edit(
    "map_backwards",
    "index",
    "ids mapped by the inverse",
    ("ids = logical_to_physical[ids]", "ids = logical_to_physical.argsort()[ids]"),
)
# Their weights.
edit(
    "biased_weights",
    "term",
    "weights from the biased scores",
    (WEIGHTS, WEIGHTS.replace("scores.", "choice.")),
    records="B17",
)
edit(
    "softmax_weights",
    "term",
    "softmax in the place of the sigmoid",
    (SIGMOID, "return torch.softmax(logits, -1)"),
    records="B17",
)
edit(
    "sigmoid_for_softmax",
    "option",
    "the sigmoid where softmax is asked",
    ('if score_function == "sigmoid":', "if True:"),
)
edit(
    "softmax_over_the_chosen",
    "term",
    "softmax over the chosen alone",
    (
        WEIGHTS,
        WEIGHTS
        + '\n    weights = weights if score_function == "sigmoid" else weights / weights.sum(-1, keepdim=True).clamp(min=1e-30)',
    ),
)
edit("renormalize_ignored", "option", "weights not renormalised", ("if renormalize:", "if False:"), records="B18")
edit("always_renormalized", "option", "weights renormalised unasked", ("if renormalize:", "if True:"))
edit("scaling_left_out", "option", "the scaling factor ignored", (RESULT, RESULT.replace(" * scaling_factor", "")))
edit(
    "scaling_twice",
    "option",
    "the scaling factor applied twice",
    (RESULT, RESULT + " * scaling_factor"),
    records="B12 B13",
)
edit(
    "scaling_only_when_renormalized",
    "option",
    "the scaling factor skipped without renormalisation",
    (RESULT, RESULT.replace("* scaling_factor", "* (scaling_factor if renormalize else 1.0)")),
    records="B14",
)
edit(
    "no_epsilon",
    "constant",
    "no 1e-20 in the renormalisation",
    (RENORMALIZED, "weights = weights / weights.sum(-1, keepdim=True)"),
    records="B24",
)
edit("large_epsilon", "constant", "1e-6 in the place of 1e-20", (RENORMALIZED, RENORMALIZED.replace("EPSILON", "1e-6")))
edit(
    "scaled_before_renormalized",
    "term",
    "scaled before it is renormalised",
    (RENORMALIZED, "weights = weights * scaling_factor / (weights.sum(-1, keepdim=True) * scaling_factor)"),
    (RESULT, RESULT.replace(" * scaling_factor", "")),
)
edit(
    "weights_in_bf16",
    "rounding",
    "weights rounded to bf16",
    (RESULT, RESULT.replace("weights * scaling_factor", "(weights * scaling_factor).bfloat16().float()")),
    records="B20",
)
edit(
    "reciprocal_in_bf16",
    "rounding",
    "the reciprocal of the sum rounded to bf16",
    (RENORMALIZED, "weights = weights * (1 / (weights.sum(-1, keepdim=True) + EPSILON)).bfloat16().float()"),
    records="B20",
)
edit(
    "weights_of_the_slots_before",
    "index",
    "each slot with its neighbour's weight",
    (RESULT, RESULT.replace("weights * scaling_factor", "weights.roll(1, -1) * scaling_factor")),
)
edit("nan_weights", "special", "a NaN score keeps its weight", (WEIGHTS, WEIGHTS.replace(".nan_to_num(nan=0.0)", "")))
edit(
    "one_nan_spoils_the_row",
    "special",
    "one NaN logit spoils the softmax of its row",
    ("present = logits.masked_fill(logits.isnan(), -torch.inf)", "present = logits"),
    records="B06",
)
edit(
    "softmax_without_its_largest",
    "special",
    "softmax without taking its largest off",
    ("torch.exp(present - largest)", "torch.exp(present)"),
    ("torch.where(present == largest, 1.0,", "torch.where(present == torch.inf, 1.0,"),
)
# Lanes, memory, runs.
edit(
    "padding_lanes_win",
    "mask",
    "lanes past a group compete",
    (
        "waiting = packed(tl.where(eligible, order_key(choice), -0x80000000), expert)",
        "waiting = packed(tl.where(eligible | (member >= SIZE), order_key(choice), -0x80000000), expert)",
    ),
    records="B04",
    base="triton",
)
edit(
    "logit_stride_ignored",
    "layout",
    "the stride between logits taken for 1",
    ("expert.to(tl.int64) * logit_stride", "expert.to(tl.int64)"),
    base="triton",
)
CORPUS.results("last_row_unwritten", "memory", "no last row of weights", patterns.unwritten_last_row("expert_weights"))
CORPUS.results("scratch_in_logits", "memory", "the logits used as scratch", patterns.changed_input("logits"))
CORPUS.results("stale_ids", "stale", "ids of an earlier call", patterns.stale("expert_ids"))
CORPUS.results("rows_off_by_one", "index", "each row with its neighbour's weights", patterns.rolled("expert_weights"))
CORPUS.results("unsteady", "batch", "one ulp off every other run", patterns.nudged_on_second_run("expert_weights"))
CORPUS.results("wide_ids", "interface", "int64 ids", patterns.in_dtype("expert_ids", torch.int64))
CORPUS.results("weights_as_bf16", "interface", "bf16 weights", patterns.in_dtype("expert_weights", torch.bfloat16))
