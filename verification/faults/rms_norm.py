"""rms_norm with one thing wrong."""

import torch

from verification.fault_forms import Corpus, summed_in, to

CORPUS = Corpus("rms_norm")
EAGER, KERNEL = "verification.eager.rms_norm", "fused.rms_norm"

CORPUS.at(
    "sum_in_bf16", "accumulation", "the sum of squares kept in bf16", sums={"square_sum": summed_in(torch.bfloat16, 8)}
)
CORPUS.at("inverse_in_bf16", "rounding", "rsqrt rounded to bf16", values={"inverse_rms": to(torch.bfloat16)})
CORPUS.edit(
    "one_plus_weight", "term", "1 + weight in the place of weight", EAGER,
    ("return (normalized(x, eps) * weight.float()).to(x.dtype)", "return (normalized(x, eps) * (1 + weight.float())).to(x.dtype)"),
)  # fmt: skip
CORPUS.arguments("eps_1e-6", "constant", "eps 1e-6 whatever is asked", lambda a: {"eps": 1e-6})
CORPUS.edit(
    "mask_left_out", "mask", "lanes past the row read as they are", KERNEL,
    ("x = tl.load(x_ptr + row * x_row_stride + offset * x_column_stride, mask=inside, other=0.0)", "x = tl.load(x_ptr + row * x_row_stride + offset * x_column_stride)"),
    base="triton",
)  # fmt: skip
