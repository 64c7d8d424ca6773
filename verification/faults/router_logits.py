"""router_logits with one thing wrong."""

import torch

from verification import fault_patterns as patterns
from verification.fault_forms import Corpus

CORPUS = Corpus("router_logits")
EAGER = "verification.eager.moe_front"


def edit(name: str, kind: str, says: str, *edits: tuple[str, str], records: str = "") -> None:
    CORPUS.edit(name, kind, says, EAGER, *edits, records=records)


PLAIN = '"""One product in fp32: bf16 operands are exact there.\n\n    Shapes: x [T, H], weight [E, H] → logits [T, E] fp32.\n    """\n    return rows_product(x, weight)'


def product(name: str, kind: str, says: str, body: str, records: str = "") -> None:
    edit(name, kind, says, (PLAIN, body), records=records)


product("logits_in_bf16", "rounding", "logits rounded to bf16", "return rows_product(x, weight).to(BF16).float()")
product(
    "two_halves_in_bf16",
    "accumulation",
    "two halves of H added in bf16",
    "half = x.shape[1] // 2\n    return (rows_product(x[:, :half], weight[:, :half]).to(BF16) + rows_product(x[:, half:], weight[:, half:]).to(BF16)).float()",
)
product(
    "tail_of_h",
    "index",
    "H ends at the last whole 64",
    "whole = max(x.shape[1] // 64 * 64, 1)\n    return rows_product(x[:, :whole], weight[:, :whole])",
)
product(
    "last_column_left_out", "index", "the last column of H left out", "return rows_product(x[:, :-1], weight[:, :-1])"
)
product(
    "experts_off_by_one",
    "index",
    "each expert with its neighbour's weights",
    "return rows_product(x, weight.roll(1, 0))",
)
product("x_in_fp8", "rounding", "x rounded to e4m3", "return rows_product(x.to(torch.float8_e4m3fn), weight)")
product(
    "weight_in_fp8", "rounding", "the weight rounded to e4m3", "return rows_product(x, weight.to(torch.float8_e4m3fn))"
)
product("scaled", "constant", "logits divided by the root of H", "return rows_product(x, weight) / x.shape[1] ** 0.5")
product("sigmoid", "term", "the sigmoid of the logits", "return torch.sigmoid(rows_product(x, weight))")
CORPUS.results("sanitised", "special", "NaN and Inf made numbers", patterns.without_nan("logits"))
CORPUS.results("rows_off_by_one", "index", "each row with its neighbour's logits", patterns.rolled("logits"))
CORPUS.results("last_row_unwritten", "memory", "no last row", patterns.unwritten_last_row("logits"))
CORPUS.results("past_the_end", "memory", "one element past the end", patterns.written_past_the_end("logits"))
CORPUS.results("scratch_in_x", "memory", "x used as scratch", patterns.changed_input("x"))
CORPUS.results("stale", "stale", "those of an earlier call", patterns.stale("logits"))
CORPUS.results("unsteady", "batch", "one ulp off every other run", patterns.nudged_on_second_run("logits"))
CORPUS.results("bf16_result", "interface", "bf16 where fp32 is promised", patterns.in_dtype("logits", torch.bfloat16))
