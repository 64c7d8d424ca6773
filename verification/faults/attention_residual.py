"""attention_residual with one thing wrong."""

import torch

from verification import fault_patterns as patterns
from verification.fault_forms import Corpus, summed_in, to, truncated_to

CORPUS = Corpus("attention_residual")
EAGER, KERNEL = "verification.eager.attention_residual", "fused.attention_residual"
BF16 = torch.bfloat16
ADD, WRITE = "prefix.add_(delta)", "blocks[:, block_write_index] = prefix"
CANDIDATES = "candidates = tiled(torch.cat([blocks[:, :num_blocks], prefix[:, None]], dim=1)).float()"
INVERSE = "inverse_rms = torch.rsqrt(candidates.square().mean(-1) + eps)"
SCORE = "score = inverse_rms * (candidates * score_weight).sum(-1)"
MIX = "mix = (torch.softmax(score, dim=-1)[..., None] * candidates).sum(1).to(prefix.dtype)"
RESULT = "return official_norm(mix[: len(prefix)], output_norm_weight, output_eps)"


def edit(name: str, kind: str, says: str, *edits: tuple[str, str], records: str = "", base: str = "eager") -> None:
    CORPUS.edit(name, kind, says, KERNEL if base == "triton" else EAGER, *edits, records=records, base=base)


edit("delta_left_out", "term", "delta left out", (ADD, "pass"))
edit("delta_twice", "term", "delta added twice", (ADD, ADD + ".add_(delta)"))
edit("delta_only_for_the_mix", "memory", "the prefix not stored with delta", (ADD, "prefix = prefix + delta"))
edit(
    "block_written_without_delta",
    "term",
    "the block written before delta is added",
    (
        "if delta is not None:\n        prefix.add_(delta)\n    if block_write_index >= 0:\n        blocks[:, block_write_index] = prefix",
        "if block_write_index >= 0:\n        blocks[:, block_write_index] = prefix\n    if delta is not None:\n        prefix.add_(delta)",
    ),
)
edit("block_not_written", "memory", "the block not written", (WRITE, "pass"))
edit(
    "block_always_written",
    "option",
    "the next block written unasked",
    (
        "if block_write_index >= 0:\n        blocks[:, block_write_index]",
        "if num_blocks < blocks.shape[1]:\n        blocks[:, num_blocks]",
    ),
)
edit(
    "written_one_too_far",
    "index",
    "the block before the right one written",
    (WRITE, "blocks[:, max(block_write_index - 1, 0)] = prefix"),
)
edit(
    "written_block_mixed",
    "index",
    "the block written now is a candidate too",
    (CANDIDATES, CANDIDATES.replace("[:, :num_blocks]", "[:, : num_blocks + (block_write_index >= 0)]")),
)
edit(
    "one_block_less",
    "index",
    "the last block left out",
    (CANDIDATES, CANDIDATES.replace("[:, :num_blocks]", "[:, : max(num_blocks - 1, 0)]")),
)
edit(
    "first_block_left_out",
    "index",
    "the first block left out",
    (CANDIDATES, CANDIDATES.replace("[:, :num_blocks]", "[:, min(num_blocks, 1) : num_blocks]")),
)
edit(
    "whole_capacity",
    "mask",
    "blocks past the valid ones mixed",
    (CANDIDATES, CANDIDATES.replace("[:, :num_blocks]", "")),
)
edit(
    "prefix_left_out",
    "term",
    "the prefix not mixed where there are blocks",
    (CANDIDATES, CANDIDATES + "\n    candidates = candidates[:, :num_blocks] if num_blocks else candidates"),
)
edit(
    "blocks_by_capacity",
    "layout",
    "blocks read as [capacity, T]",
    (
        CANDIDATES,
        CANDIDATES.replace("blocks[:, :num_blocks]", "blocks.transpose(0, 1).reshape(blocks.shape)[:, :num_blocks]"),
    ),
)
edit("unnormed_scores", "term", "scores of rows that are not normed", (SCORE, SCORE.replace("inverse_rms * ", "")))
edit("eps_left_out", "constant", "no eps in the scores", (INVERSE, INVERSE.replace(" + eps", "")))
edit(
    "output_eps_for_scores",
    "constant",
    "the output's eps in the scores",
    (INVERSE, INVERSE.replace("+ eps", "+ output_eps")),
)
edit(
    "eps_for_the_output",
    "constant",
    "the scores' eps in the output's norm",
    (RESULT, RESULT.replace("output_eps", "eps")),
)
edit("scores_scaled", "constant", "scores divided by the root of H", (SCORE, SCORE + " / candidates.shape[-1] ** 0.5"))
edit(
    "mean_for_softmax",
    "term",
    "the plain mean of the candidates",
    (MIX, MIX.replace("torch.softmax(score, dim=-1)", "torch.softmax(score * 0, dim=-1)")),
)
edit(
    "sigmoid_for_softmax",
    "term",
    "sigmoids in the place of the softmax",
    (MIX, MIX.replace("torch.softmax(score, dim=-1)", "torch.sigmoid(score)")),
)
edit(
    "softmax_without_its_largest",
    "special",
    "the softmax without taking its largest off",
    (MIX, MIX.replace("torch.softmax(score, dim=-1)", "(score.exp() / score.exp().sum(-1, keepdim=True))")),
)
edit(
    "base_two",
    "constant",
    "powers of 2 in the softmax",
    (MIX, MIX.replace("torch.softmax(score, dim=-1)", "torch.softmax(score * 0.6931471805599453, dim=-1)")),
)
edit("output_norm_left_out", "option", "no output norm", (RESULT, "return mix[: len(prefix)]"))
edit(
    "normed_values_mixed",
    "term",
    "the normed candidates mixed",
    (MIX, MIX.replace("* candidates)", "* candidates * inverse_rms[..., None])")),
)
edit(
    "scores_in_bf16",
    "rounding",
    "scores rounded to bf16",
    (SCORE, "score = (inverse_rms * (candidates * score_weight).sum(-1)).bfloat16().float()"),
)
edit(
    "score_weight_in_bf16",
    "rounding",
    "the score weight rounded to bf16",
    (SCORE, SCORE.replace("score_weight)", "score_weight.bfloat16())")),
)
edit(
    "probabilities_in_bf16",
    "rounding",
    "probabilities rounded to bf16",
    (MIX, MIX.replace("torch.softmax(score, dim=-1)", "torch.softmax(score, dim=-1).bfloat16().float()")),
)
edit(
    "normed_rows_in_bf16",
    "rounding",
    "the normed candidates rounded to bf16 before they are scored",
    (SCORE, "score = ((candidates * inverse_rms[..., None]).bfloat16().float() * score_weight).sum(-1)"),
)
CORPUS.at("inverse_in_bf16", "rounding", "1 ÷ rms of the candidates rounded to bf16", values={"inverse_rms": to(BF16)})
CORPUS.at("dot_in_bf16", "accumulation", "the score's sum kept in bf16", sums={"dot": summed_in(BF16, 16)})
CORPUS.at(
    "squares_in_bf16", "accumulation", "the sum of squares kept in bf16", sums={"square_sum": summed_in(BF16, 16)}
)
CORPUS.at("mix_in_bf16", "accumulation", "the mix kept in bf16", sums={"mix_sum": summed_in(BF16)})
CORPUS.at(
    "output_inverse_in_bf16", "rounding", "1 ÷ rms of the mix rounded to bf16", values={"output_inverse_rms": to(BF16)}
)
CORPUS.at("result_truncated", "rounding", "the result truncated", values={"hidden": truncated_to(BF16)})
edit(
    "tail_of_the_score",
    "index",
    "scores end at the last whole 64 columns",
    (
        SCORE,
        "score = inverse_rms * (candidates * score_weight)[..., : max(candidates.shape[-1] // 64 * 64, 1)].sum(-1)",
    ),
)
edit(
    "running_largest_kept",
    "term",
    "the sum not rescaled when the largest changes",
    ("total = total * kept + added", "total = total + added"),
    base="triton",
)
edit(
    "mix_not_rescaled",
    "term",
    "the mix not rescaled when the largest changes",
    ("mix = mix * kept + candidate * added", "mix = mix + candidate * added"),
    base="triton",
)
edit(
    "delta_stored_unmasked",
    "mask",
    "the prefix stored past the row",
    (
        "tl.store(prefix_ptr + row * prefix_stride + column, stored, mask=inside)",
        "tl.store(prefix_ptr + row * prefix_stride + column, stored)",
    ),
    base="triton",
)
edit(
    "delta_in_the_prefixs_stride",
    "layout",
    "delta read with the prefix's stride",
    ("delta_ptr + row * delta_stride", "delta_ptr + row * prefix_stride"),
    records="B130",
    base="triton",
)
edit(
    "eight_waves_skip_a_block",
    "tuning",
    "the last block skipped with eight waves",
    ("WIDTH=tile, BLOCKS=num_blocks,", "WIDTH=tile, BLOCKS=num_blocks - (num_warps == 8 and num_blocks > 0),"),
    base="triton",
)
CORPUS.results("rows_off_by_one", "index", "each row with its neighbour's result", patterns.rolled("hidden"))
CORPUS.results("last_row_unwritten", "memory", "no last row", patterns.unwritten_last_row("hidden"))
CORPUS.results("past_the_end", "memory", "one element past the end", patterns.written_past_the_end("hidden"))
CORPUS.results("scratch_in_delta", "memory", "delta used as scratch", patterns.changed_input("delta"))
CORPUS.results("sanitised", "special", "NaN and Inf made numbers", patterns.without_nan("hidden"))
CORPUS.results("stale", "stale", "those of an earlier call", patterns.stale("hidden"))
CORPUS.results("unsteady", "batch", "one ulp off every other run", patterns.nudged_on_second_run("hidden"))
CORPUS.results("fp32_result", "interface", "fp32 where bf16 is promised", patterns.in_dtype("hidden", torch.float32))
