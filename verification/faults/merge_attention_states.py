"""merge_attention_states with one thing wrong."""

import torch

from verification import fault_patterns as patterns
from verification.fault_forms import Corpus

CORPUS = Corpus("merge_attention_states")
EAGER = "verification.eager.attention_states"


def edit(name: str, kind: str, says: str, *edits: tuple[str, str], records: str = "") -> None:
    CORPUS.edit(name, kind, says, EAGER, *edits, records=records)


MASSES = "mass_a, mass_b = torch.exp(lse_a - base), torch.exp(lse_b - base)"
WEIGHTED = "weighted = mass_a[..., None] * a + mass_b[..., None] * b"
RESULT = "return out.to(out_a.dtype), base + torch.log(total)"

edit("base_two", "constant", "logarithms taken for base 2", (MASSES, MASSES.replace("torch.exp", "torch.exp2")))
edit(
    "lse_in_base_two",
    "constant",
    "the merged logarithm in base 2",
    (RESULT, RESULT.replace("torch.log(", "torch.log2(")),
)
edit(
    "largest_left_out_of_the_lse",
    "term",
    "the largest left out of the logarithm",
    (RESULT, RESULT.replace("base + ", "")),
)
edit(
    "largest_is_the_first",
    "special",
    "the first side's logarithm taken for the largest",
    ("largest = torch.maximum(lse_a, lse_b)", "largest = lse_a"),
)
edit(
    "smaller_taken_off",
    "special",
    "the smaller logarithm taken off",
    ("torch.maximum(lse_a, lse_b)", "torch.minimum(lse_a, lse_b)"),
)
edit("plain_mean", "term", "both sides weighed alike", (WEIGHTED, "weighted = total[..., None] * (a + b) / 2"))
edit(
    "sides_swapped",
    "index",
    "each side with the other's weight",
    (
        WEIGHTED,
        WEIGHTED.replace("* a +", "* b +")
        .replace("* b", "* b")
        .replace("mass_b[..., None] * b", "mass_b[..., None] * a"),
    ),
)
edit(
    "not_divided",
    "term",
    "the sum not divided",
    ("out = weighted / total.masked_fill(total == 0, 1.0)[..., None]", "out = weighted"),
)
edit(
    "empty_side_read",
    "special",
    "the values of a side without keys read",
    ("a = out_a.float().masked_fill((lse_a == -torch.inf)[..., None], 0.0)", "a = out_a.float()"),
)
edit(
    "nan_for_no_keys",
    "special",
    "NaN where neither side has keys",
    ("base = largest.masked_fill(largest == -torch.inf, 0.0)\n    mass_a", "base = largest\n    mass_a"),
)
edit(
    "zero_over_zero",
    "special",
    "0 ÷ 0 where neither side has keys",
    ("out = weighted / total.masked_fill(total == 0, 1.0)[..., None]", "out = weighted / total[..., None]"),
)
edit(
    "weights_in_bf16",
    "rounding",
    "weights rounded to bf16",
    (WEIGHTED, "mass_a, mass_b = mass_a.bfloat16().float(), mass_b.bfloat16().float()\n    " + WEIGHTED),
)
edit(
    "lse_in_bf16",
    "rounding",
    "the logarithm rounded to bf16",
    (RESULT, "return out.to(out_a.dtype), (base + torch.log(total)).bfloat16().float()"),
)
edit(
    "products_in_bf16",
    "rounding",
    "each product rounded to bf16",
    (WEIGHTED, "weighted = (mass_a[..., None] * a).bfloat16().float() + (mass_b[..., None] * b).bfloat16().float()"),
)
edit(
    "first_heads_weight",
    "index",
    "every head with the first one's weight",
    (MASSES, MASSES + "\n    mass_a = mass_a[:, :1].expand_as(mass_a)"),
)
CORPUS.results("last_row_unwritten", "memory", "no last row", patterns.unwritten_last_row("out"))
CORPUS.results("scratch_in_lse", "memory", "a logarithm used as scratch", patterns.changed_input("lse_a"))
CORPUS.results("merged_in_place", "memory", "the result left in the first side", patterns.left_in("out_a", "out"))
CORPUS.results("rows_off_by_one", "index", "each row with its neighbour's result", patterns.rolled("out"))
CORPUS.results("stale_lse", "stale", "the logarithm of an earlier call", patterns.stale("lse"))
CORPUS.results("unsteady", "batch", "one ulp off every other run", patterns.nudged_on_second_run("out"))
CORPUS.results("lse_as_bf16", "interface", "a bf16 logarithm", patterns.in_dtype("lse", torch.bfloat16))
CORPUS.results("heads_first", "layout", "[N, T] for [T, N]", patterns.with_shape("lse", lambda x: x.t()))
