"""all_reduce_attention_residual with one thing wrong."""

import torch

from verification import fault_patterns as patterns
from verification.fault_forms import Corpus, truncated_to

CORPUS = Corpus("all_reduce_attention_residual")
EAGER, SPLIT = "verification.eager.collectives", "verification.eager.attention_residual_split"
ADD = "residual.add_(ordered_sum(shards).to(shards.dtype))"
MIX = "mix = merged(residual[0], maximum, sum, accumulator, score_weight, eps)"
NORM = "hidden = official_norm(mix.to(residual.dtype), output_norm_weight, eps)"
LOOP = "    for shard in shards[1:]:\n        total = total + shard\n    return total"
IMPORTS = ("from torch import Tensor, distributed", "import torch\nfrom torch import Tensor, distributed")


def edit(name: str, kind: str, says: str, *edits: tuple[str, str], records: str = "") -> None:
    CORPUS.edit(name, kind, says, EAGER, *edits, records=records)


edit(
    "sum_added_unrounded",
    "rounding",
    "the sum added before it is rounded",
    (ADD, "residual.copy_(residual.float() + ordered_sum(shards))"),
    records="B142",
)
edit(
    "residual_left_out",
    "term",
    "the residual left out",
    (ADD, "residual.copy_(ordered_sum(shards).to(shards.dtype).expand_as(residual))"),
)
edit("residual_twice", "term", "the residual counted twice", (ADD, "residual.add_(residual.clone()); " + ADD))
edit(
    "residual_summed_over_ranks",
    "term",
    "every rank's residual added",
    (ADD, "residual.copy_((ordered_sum(shards) + ordered_sum(residual)).to(shards.dtype).expand_as(residual))"),
)
edit("last_rank_left_out", "term", "the last rank left out", (LOOP, LOOP.replace("[1:]", "[1:-1]")))
edit(
    "sum_in_bf16",
    "accumulation",
    "the sum over ranks kept in bf16",
    (LOOP, LOOP.replace("total + shard", "(total + shard).bfloat16().float()")),
)
edit(
    "reversed_ranks",
    "order",
    "ranks added from the last",
    (ADD, ADD.replace("ordered_sum(shards)", "ordered_sum(shards.flip(0))")),
)
edit(
    "stored_on_one_rank",
    "memory",
    "the residual stored on rank 0 alone",
    (ADD, "residual[0].add_(ordered_sum(shards).to(shards.dtype))"),
)
edit(
    "residual_not_stored",
    "memory",
    "the residual not stored",
    (ADD, "residual = residual + ordered_sum(shards).to(shards.dtype)"),
)
edit(
    "mixed_before_the_sum",
    "order",
    "the mix made before the sum is added",
    (ADD, "before = residual.clone(); " + ADD),
    (MIX, MIX.replace("residual[0]", "before[0]")),
)
edit("eps_1e-6_for_the_output", "constant", "eps 1e-6 in the output's norm", (NORM, NORM.replace("eps)", "1e-6)")))
edit("output_norm_left_out", "option", "no output norm", (NORM, "hidden = mix.to(residual.dtype)"))
edit(
    "norm_weight_off_by_one",
    "index",
    "each column with its neighbour's norm weight",
    (NORM, NORM.replace("output_norm_weight", "output_norm_weight.roll(1)")),
)
edit(
    "score_weight_in_bf16",
    "rounding",
    "the score weight rounded to bf16",
    (MIX, MIX.replace("score_weight", "score_weight.bfloat16().float()")),
)
edit(
    "partial_left_out",
    "term",
    "the partial left out",
    (
        MIX,
        MIX.replace(
            "maximum, sum, accumulator", "maximum.new_full(maximum.shape, -float('inf')), sum * 0, accumulator * 0"
        ),
    ),
)
edit(
    "one_ulp_apart",
    "batch",
    "the last rank's result one ulp apart",
    (
        "hidden = official_norm(mix.to(residual.dtype), output_norm_weight, eps)\n    return hidden.expand_as(shards).contiguous()",
        NORM
        + "\n    out = hidden.expand_as(shards).contiguous()\n    out[-1] = torch.nextafter(out[-1], torch.full_like(out[-1], torch.inf))\n    return out",
    ),
    IMPORTS,
)
CORPUS.edit(
    "partial_not_rescaled",
    "term",
    "the accumulator not rescaled",
    SPLIT,
    ("kept[:, None] * accumulator +", "accumulator +"),
)
CORPUS.edit(
    "empty_partial_read",
    "special",
    "an empty partial's accumulator read",
    SPLIT,
    ("accumulator = accumulator.masked_fill((maximum == -torch.inf)[:, None], 0.0)", "pass"),
)
CORPUS.at("result_truncated", "rounding", "the result truncated", values={"hidden": truncated_to(torch.bfloat16)})
CORPUS.results(
    "last_rank_without",
    "index",
    "the last rank given rank 0's shard",
    lambda c: {"hidden": torch.cat([c.outputs["hidden"][:-1], c.arguments["shards"][:1]])},
    records="B134",
)
CORPUS.results("rows_off_by_one", "index", "each row with its neighbour's result", patterns.rolled("hidden", 1))
CORPUS.results("last_row_unwritten", "memory", "no last row", patterns.unwritten_last_row("hidden", 1))
CORPUS.results("shards_overwritten", "memory", "the shards used as scratch", patterns.changed_input("shards"))
CORPUS.results("sanitised", "special", "NaN and Inf made numbers", patterns.without_nan("hidden"))
CORPUS.results("stale", "stale", "those of an earlier call", patterns.stale("hidden"))
CORPUS.results("unsteady", "batch", "one ulp off every other run", patterns.nudged_on_second_run("hidden"))
