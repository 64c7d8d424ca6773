"""attention_residual_partial with one thing wrong."""

import torch

from verification import fault_patterns as patterns
from verification.fault_forms import Corpus, summed_in, to

CORPUS = Corpus("attention_residual_partial")
EAGER = "verification.eager.attention_residual_split"
VALUES = "values = tiled(blocks[:, :num_blocks]).float()"
INVERSE = "inverse_rms = torch.rsqrt(values.square().mean(-1) + eps)"
SCORE = "score = inverse_rms * (values * score_weights[:, None, None]).sum(-1)"
MASS = "mass = torch.exp(score - maximum[..., None])"
SUM = "accumulator = (mass[..., None] * values).sum(2)"


def edit(name: str, kind: str, says: str, *edits: tuple[str, str], records: str = "") -> None:
    CORPUS.edit(name, kind, says, EAGER, *edits, records=records)


edit(
    "last_block_left_out",
    "index",
    "the last block left out",
    (VALUES, VALUES.replace(":num_blocks", ": max(num_blocks - 1, 0)")),
)
edit("whole_capacity", "mask", "blocks past the valid ones read", (VALUES, VALUES.replace("[:, :num_blocks]", "")))
edit("unnormed_scores", "term", "scores of rows that are not normed", (SCORE, SCORE.replace("inverse_rms * ", "")))
edit("eps_left_out", "constant", "no eps", (INVERSE, INVERSE.replace(" + eps", "")))
edit(
    "first_scorer_for_all",
    "index",
    "the first scorer for all",
    (
        SCORE,
        SCORE.replace(
            "score_weights[:, None, None]", "score_weights[:1, None, None].expand(len(score_weights), 1, 1, -1)"
        ),
    ),
)
edit(
    "absolute_maximum",
    "term",
    "the largest magnitude in the place of the largest",
    ("value=-torch.inf).amax(-1)", "value=-torch.inf).abs().amax(-1)"),
)
edit("maximum_from_zero", "special", "the maximum never below 0", ("value=-torch.inf)", "value=0.0)"))
edit(
    "no_block_is_zero",
    "special",
    "a maximum of 0 where there is no block",
    ("return maximum[:, :rows].contiguous()", "return maximum[:, :rows].contiguous().nan_to_num(neginf=0.0)"),
)
edit("base_two", "constant", "powers of 2", (MASS, MASS.replace("torch.exp", "torch.exp2")))
edit(
    "normalized_accumulator",
    "term",
    "the accumulator divided by the sum",
    (SUM, SUM + "\n    accumulator = accumulator / mass.sum(-1, keepdim=True)"),
)
edit(
    "sum_of_all_scorers",
    "index",
    "the sum over all scorers",
    ("mass.sum(-1)[:, :rows]", "mass.sum(-1).sum(0, keepdim=True).expand(len(score_weights), -1)[:, :rows]"),
)
edit(
    "normed_values_summed",
    "term",
    "normed rows in the accumulator",
    (SUM, SUM.replace("* values)", "* values * inverse_rms[..., None])")),
)
edit(
    "scores_in_bf16",
    "rounding",
    "scores rounded to bf16",
    (
        SCORE,
        SCORE.replace(
            "inverse_rms * (values * score_weights[:, None, None]).sum(-1)",
            "(inverse_rms * (values * score_weights[:, None, None]).sum(-1)).bfloat16().float()",
        ),
    ),
)
edit(
    "weights_in_bf16",
    "rounding",
    "score weights rounded to bf16",
    (SCORE, SCORE.replace("score_weights[", "score_weights.bfloat16().float()[")),
)
edit(
    "masses_in_bf16",
    "rounding",
    "exponentials rounded to bf16 in the accumulator",
    (SUM, SUM.replace("mass[..., None]", "mass.bfloat16().float()[..., None]")),
)
edit(
    "accumulator_in_bf16",
    "rounding",
    "the accumulator rounded to bf16",
    ("return maximum", "accumulator = accumulator.bfloat16().float()\n    return maximum"),
)
CORPUS.at("inverse_in_bf16", "rounding", "1 ÷ rms rounded to bf16", values={"inverse_rms": to(torch.bfloat16)})
CORPUS.at("dot_in_bf16", "accumulation", "the score's sum kept in bf16", sums={"dot": summed_in(torch.bfloat16, 16)})
edit(
    "tail_of_the_score",
    "index",
    "scores end at the last whole 64 columns",
    (SCORE, SCORE.replace(".sum(-1)", "[..., : max(values.shape[-1] // 64 * 64, 1)].sum(-1)")),
)
CORPUS.results(
    "last_row_unwritten", "memory", "no last row of the accumulator", patterns.unwritten_last_row("accumulator", 1)
)
CORPUS.results("scratch_in_blocks", "memory", "blocks used as scratch", patterns.changed_input("blocks"))
CORPUS.results("stale", "stale", "the sum of an earlier call", patterns.stale("sum"))
CORPUS.results("rows_off_by_one", "index", "each row with its neighbour's maximum", patterns.rolled("maximum", 1))
CORPUS.results("unsteady", "batch", "one ulp off every other run", patterns.nudged_on_second_run("accumulator"))
CORPUS.results("scorers_last", "layout", "[T, S] for [S, T]", patterns.with_shape("sum", lambda x: x.t()))
