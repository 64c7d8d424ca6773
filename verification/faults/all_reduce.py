"""all_reduce with one thing wrong."""

import torch

from verification import fault_patterns as patterns
from verification.fault_forms import Corpus

CORPUS = Corpus("all_reduce")
EAGER = "verification.eager.collectives"
START, LOOP = (
    "total = shards[0].float()",
    "    for shard in shards[1:]:\n        total = total + shard\n    return total",
)
EACH = "return ordered_sum(shards).to(shards.dtype).expand_as(shards).contiguous()"

CORPUS.edit("last_rank_left_out", "term", "the last rank left out", EAGER, (LOOP, LOOP.replace("[1:]", "[1:-1]")))
CORPUS.edit("own_shard_twice", "term", "rank 0 counted twice", EAGER, (LOOP, LOOP.replace("[1:]", "")))
CORPUS.edit(
    "mean_of_the_ranks",
    "constant",
    "the mean of the ranks",
    EAGER,
    (EACH, EACH.replace("ordered_sum(shards)", "(ordered_sum(shards) / len(shards))")),
)
CORPUS.edit(
    "sum_in_bf16",
    "accumulation",
    "the sum kept in bf16",
    EAGER,
    (LOOP, LOOP.replace("total + shard", "(total + shard).bfloat16().float()")),
)
CORPUS.edit(
    "sum_in_fp16",
    "accumulation",
    "the sum kept in fp16",
    EAGER,
    (LOOP, LOOP.replace("total + shard", "(total + shard).half().float()")),
)
CORPUS.edit(
    "shards_in_fp8",
    "rounding",
    "shards sent as e5m2",
    EAGER,
    (LOOP, LOOP.replace("total + shard", "total + shard.to(torch.float8_e5m2).float()")),
    ("from torch import Tensor, distributed", "import torch\nfrom torch import Tensor, distributed"),
)
CORPUS.edit("tree_of_ranks", "order", "ranks added as a tree", EAGER,
            (EACH, "x = shards.float()\n    while len(x) > 1:\n        x = torch.cat([x[0::2][: len(x) // 2] + x[1::2], x[len(x) // 2 * 2 :]])\n    return x[0].to(shards.dtype).expand_as(shards).contiguous()"),
            ("from torch import Tensor, distributed", "import torch\nfrom torch import Tensor, distributed"))  # fmt: skip
CORPUS.edit("own_rank_first", "order", "each rank adds its own shard first", EAGER,
            (EACH, "return torch.stack([ordered_sum(shards.roll(-r, 0)).to(shards.dtype) for r in range(len(shards))])"),
            ("from torch import Tensor, distributed", "import torch\nfrom torch import Tensor, distributed"), records="B142")  # fmt: skip
CORPUS.edit(
    "reversed_ranks",
    "order",
    "ranks added from the last",
    EAGER,
    (EACH, EACH.replace("ordered_sum(shards)", "ordered_sum(shards.flip(0))")),
)
CORPUS.results(
    "last_rank_without",
    "index",
    "the last rank keeps its own shard",
    lambda c: {"sum": torch.cat([c.outputs["sum"][:-1], c.arguments["shards"][-1:]])},
    records="B134 B135",
)
CORPUS.results("rows_off_by_one", "index", "each row with its neighbour's result", patterns.rolled("sum", 1))
CORPUS.results("tail_not_reduced", "index", "what is past the last whole 8 columns not reduced",
               lambda c: {"sum": torch.where(torch.arange(c.outputs["sum"].shape[-1]) < c.outputs["sum"].shape[-1] // 8 * 8, c.outputs["sum"], c.arguments["shards"])})  # fmt: skip
CORPUS.results("last_row_unwritten", "memory", "no last row", patterns.unwritten_last_row("sum", 1))
CORPUS.results("past_the_end", "memory", "one element past the end", patterns.written_past_the_end("sum"))
CORPUS.results("reduced_in_place", "memory", "the sum left in the shards", patterns.left_in("shards", "sum"))
CORPUS.results("sanitised", "special", "NaN and Inf made numbers", patterns.without_nan("sum"))
CORPUS.edit("negative_zeros_sent", "special", "−0 sent to a mailbox that waits for another word", EAGER,
            ("return all_reduce(shards + 0.0)", "return all_reduce(shards)"), base="eager_positive_zero")  # fmt: skip
CORPUS.results("stale", "stale", "those of an earlier call", patterns.stale("sum"), records="B136")
CORPUS.results("unsteady", "batch", "one ulp off every other run", patterns.nudged_on_second_run("sum"))
CORPUS.results("fp32_result", "interface", "fp32 where bf16 is promised", patterns.in_dtype("sum", torch.float32))
CORPUS.results("one_rank_result", "interface", "one sum for all ranks", patterns.with_shape("sum", lambda x: x[0]))
