"""projection_attention_residual with one thing wrong."""

import torch

from verification import fault_patterns as patterns
from verification.fault_forms import Corpus, truncated_to

CORPUS = Corpus("projection_attention_residual")
EAGER = "verification.eager.attention_residual_split"
PROJECTION = "projection = rows_product(x, weight).to(x.dtype)"
PARTIAL = "return projection, *attention_residual_partial(blocks, score_weights, num_blocks, eps)"


def edit(name: str, kind: str, says: str, *edits: tuple[str, str], records: str = "") -> None:
    CORPUS.edit(name, kind, says, EAGER, *edits, records=records)


edit(
    "accumulated_in_bf16",
    "accumulation",
    "the projection's accumulator kept in bf16",
    (
        PROJECTION,
        "projection = x.new_zeros(len(x), len(weight))\n    for a, b in zip(x.split(64, 1), weight.split(64, 1)):\n        projection = (projection + rows_product(a, b)).to(x.dtype)",
    ),
)
edit(
    "split_halves_in_bf16",
    "accumulation",
    "two halves of K added in bf16",
    (
        PROJECTION,
        "half = x.shape[1] // 2\n    projection = rows_product(x[:, :half], weight[:, :half]).to(x.dtype) + rows_product(x[:, half:], weight[:, half:]).to(x.dtype)",
    ),
)
edit(
    "tail_of_k",
    "index",
    "K ends at the last whole 64",
    (
        PROJECTION,
        "whole = max(x.shape[1] // 64 * 64, 1)\n    projection = rows_product(x[:, :whole], weight[:, :whole]).to(x.dtype)",
    ),
)
edit(
    "last_k_left_out",
    "index",
    "the last column of K left out",
    (PROJECTION, PROJECTION.replace("rows_product(x, weight)", "rows_product(x[:, :-1], weight[:, :-1])")),
)
edit(
    "outputs_off_by_one",
    "index",
    "each output with its neighbour's weights",
    (PROJECTION, PROJECTION.replace("weight)", "weight.roll(1, 0))")),
)
edit(
    "x_in_fp8", "rounding", "x rounded to e4m3", (PROJECTION, PROJECTION.replace("(x,", "(x.to(torch.float8_e4m3fn),"))
)
edit(
    "no_block_no_partial",
    "special",
    "the partials of no block not written",
    (
        PARTIAL,
        "maximum, total, accumulator = attention_residual_partial(blocks, score_weights, num_blocks, eps)\n    return projection, (maximum if num_blocks else torch.zeros_like(maximum)), total, accumulator",
    ),
)
edit(
    "one_block_less",
    "index",
    "the last block left out",
    (PARTIAL, PARTIAL.replace("num_blocks", "max(num_blocks - 1, 0)")),
)
edit("eps_1e-6", "constant", "eps 1e-6 whatever is asked", (PARTIAL, PARTIAL.replace("eps)", "1e-6)")))
edit(
    "scorers_reversed",
    "order",
    "scorers in reversed order",
    (PARTIAL, PARTIAL.replace("score_weights,", "score_weights.flip(0),")),
)
edit(
    "accumulator_in_bf16",
    "rounding",
    "the accumulator rounded to bf16",
    (
        PARTIAL,
        "maximum, total, accumulator = attention_residual_partial(blocks, score_weights, num_blocks, eps)\n    return projection, maximum, total, accumulator.bfloat16().float()",
    ),
)
CORPUS.at(
    "projection_truncated", "rounding", "the projection truncated", values={"projection": truncated_to(torch.bfloat16)}
)
CORPUS.results("rows_off_by_one", "index", "each row with its neighbour's projection", patterns.rolled("projection"))
CORPUS.results(
    "last_row_unwritten", "memory", "no last row of the projection", patterns.unwritten_last_row("projection")
)
CORPUS.results("past_the_end", "memory", "one element past the end", patterns.written_past_the_end("projection"))
CORPUS.results("scratch_in_x", "memory", "x used as scratch", patterns.changed_input("x"))
CORPUS.results("sanitised", "special", "NaN and Inf made numbers", patterns.without_nan("projection"))
CORPUS.results("stale_projection", "stale", "the projection of an earlier call", patterns.stale("projection"))
CORPUS.results("stale_partial", "stale", "the partial of an earlier call", patterns.stale("accumulator"))
CORPUS.results(
    "fp32_projection", "interface", "fp32 where bf16 is promised", patterns.in_dtype("projection", torch.float32)
)
