"""attention_residual_combine with one thing wrong."""

import torch

from verification import fault_patterns as patterns
from verification.fault_forms import Corpus, summed_in, to, truncated_to

CORPUS = Corpus("attention_residual_combine")
EAGER = "verification.eager.attention_residual_split"
SCORE = "score = torch.rsqrt(value.square().mean(-1) + eps) * (value * score_weight).sum(-1)"
LARGEST = "largest = torch.maximum(maximum, score)"
WEIGHTS = "kept, own = torch.exp(maximum - largest), torch.exp(score - largest)"
MERGED = "return (kept[:, None] * accumulator + own[:, None] * value) / (kept * sum + own)[:, None]"
RESULT = "return official_norm(mix.to(prefix.dtype), output_norm_weight, output_eps)"


def edit(name: str, kind: str, says: str, *edits: tuple[str, str], records: str = "") -> None:
    CORPUS.edit(name, kind, says, EAGER, *edits, records=records)


edit(
    "prefix_left_out", "term", "the prefix left out of the mix", (MERGED, MERGED.replace(" + own[:, None] * value", ""))
)
edit(
    "prefix_left_out_of_the_sum",
    "term",
    "the prefix left out of the sum",
    (MERGED, MERGED.replace(" * sum + own)", " * sum)")),
)
edit(
    "partial_not_rescaled",
    "term",
    "the accumulator not rescaled",
    (MERGED, MERGED.replace("kept[:, None] * accumulator", "accumulator")),
)
edit("sum_not_rescaled", "term", "the partial's sum not rescaled", (MERGED, MERGED.replace("kept * sum", "sum")))
edit("not_divided", "term", "the mix not divided by the sum", (MERGED, MERGED.partition(" / ")[0]))
edit("partial_counted_as_one", "term", "the partial's sum taken for 1", (MERGED, MERGED.replace("kept * sum", "kept")))
edit(
    "unnormed_score", "term", "a score of the row that is not normed", (SCORE, "score = (value * score_weight).sum(-1)")
)
edit("eps_left_out", "constant", "no eps in the score", (SCORE, SCORE.replace(" + eps", "")))
edit(
    "eps_for_the_output",
    "constant",
    "the score's eps in the output's norm",
    (RESULT, RESULT.replace("output_eps", "eps")),
)
edit("base_two", "constant", "powers of 2", (WEIGHTS, WEIGHTS.replace("torch.exp", "torch.exp2")))
edit(
    "largest_is_the_partials", "special", "the partial's maximum taken for the largest", (LARGEST, "largest = maximum")
)
edit("largest_is_zero", "special", "no largest taken off", (LARGEST, "largest = torch.zeros_like(score)"))
edit(
    "empty_partial_read",
    "special",
    "an empty partial's accumulator read",
    ("accumulator = accumulator.masked_fill((maximum == -torch.inf)[:, None], 0.0)", "pass"),
)
edit("output_norm_left_out", "option", "no output norm", (RESULT, "return mix.to(prefix.dtype)"))
edit(
    "score_in_bf16",
    "rounding",
    "the score rounded to bf16",
    (LARGEST, "score = score.bfloat16().float()\n    " + LARGEST),
)
edit(
    "weight_in_bf16",
    "rounding",
    "the score weight rounded to bf16",
    (SCORE, SCORE.replace("score_weight", "score_weight.bfloat16().float()")),
)
edit(
    "accumulator_in_bf16",
    "rounding",
    "the accumulator read as bf16",
    (MERGED, MERGED.replace("* accumulator", "* accumulator.bfloat16().float()")),
)
edit(
    "weights_in_bf16",
    "rounding",
    "the two weights rounded to bf16",
    (WEIGHTS, WEIGHTS + "\n    kept, own = kept.bfloat16().float(), own.bfloat16().float()"),
)
edit(
    "reciprocal_in_bf16",
    "rounding",
    "the sum's reciprocal rounded to bf16",
    (
        MERGED,
        MERGED.replace(" / (kept * sum + own)[:, None]", " * (1 / (kept * sum + own)).bfloat16().float()[:, None]"),
    ),
)
edit(
    "tail_of_the_score",
    "index",
    "the score ends at the last whole 64 columns",
    (
        SCORE,
        SCORE.replace("(value * score_weight)", "(value * score_weight)[..., : max(value.shape[-1] // 64 * 64, 1)]"),
    ),
)
CORPUS.at("dot_in_bf16", "accumulation", "the score's sum kept in bf16", sums={"dot": summed_in(torch.bfloat16, 16)})
CORPUS.at(
    "output_inverse_in_bf16",
    "rounding",
    "1 ÷ rms of the mix rounded to bf16",
    values={"output_inverse_rms": to(torch.bfloat16)},
)
CORPUS.at("result_truncated", "rounding", "the result truncated", values={"hidden": truncated_to(torch.bfloat16)})
CORPUS.results("rows_off_by_one", "index", "each row with its neighbour's result", patterns.rolled("hidden"))
CORPUS.results("last_row_unwritten", "memory", "no last row", patterns.unwritten_last_row("hidden"))
CORPUS.results(
    "scratch_in_accumulator", "memory", "the accumulator used as scratch", patterns.changed_input("accumulator")
)
CORPUS.results("sanitised", "special", "NaN and Inf made numbers", patterns.without_nan("hidden"))
CORPUS.results("stale", "stale", "those of an earlier call", patterns.stale("hidden"))
CORPUS.results("unsteady", "batch", "one ulp off every other run", patterns.nudged_on_second_run("hidden"))
