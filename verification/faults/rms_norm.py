"""rms_norm with one thing wrong."""

import torch

from verification import fault_patterns as patterns
from verification.fault_forms import Corpus, ones, summed_in, to, truncated_to

CORPUS = Corpus("rms_norm")
EAGER, KERNEL = "verification.eager.rms_norm", "fused.rms_norm"
BF16, FP16 = torch.bfloat16, torch.float16
WEIGHTED = "return (normalized(x, eps) * weight.float()).to(x.dtype)"
NORMALIZED = "functional.rms_norm(x.float(), (x.shape[-1],), eps=eps).to(x.dtype).float()"
LOAD = "x = tl.load(x_ptr + row * x_row_stride + offset * x_column_stride, mask=inside, other=0.0).to(tl.float32)"

# Terms and constants.
CORPUS.edit("one_plus_weight", "term", "1 + weight in the place of weight", EAGER,
            (WEIGHTED, "return (normalized(x, eps) * (1 + weight.float())).to(x.dtype)"))  # fmt: skip
CORPUS.edit("no_weight", "term", "no weight", EAGER, (WEIGHTED, "return normalized(x, eps).to(x.dtype)"))
CORPUS.edit("mean_subtracted", "term", "the mean subtracted, a layer norm", EAGER,
            (NORMALIZED, "functional.layer_norm(x.float(), (x.shape[-1],), eps=eps).to(x.dtype).float()"))  # fmt: skip
CORPUS.at("not_normalized", "term", "x not scaled by its root mean square", values={"inverse_rms": ones})
CORPUS.edit("sum_for_mean", "term", "the sum of squares in the place of their mean", EAGER,
            (NORMALIZED, "(x.float() * torch.rsqrt(x.float().square().sum(-1, keepdim=True) + eps)).to(x.dtype).float()"))  # fmt: skip
CORPUS.edit("one_less", "constant", "H − 1 in the place of H", EAGER,
            (NORMALIZED, "(x.float() * torch.rsqrt(x.float().square().sum(-1, keepdim=True) / (x.shape[-1] - 1) + eps)).to(x.dtype).float()"))  # fmt: skip
CORPUS.arguments("eps_1e-6", "constant", "eps 1e-6 whatever is asked", lambda a: {"eps": 1e-6})
CORPUS.arguments("no_eps", "constant", "no eps", lambda a: {"eps": 0.0})
CORPUS.edit("eps_outside_the_root", "constant", "eps added to the root", EAGER,
            (NORMALIZED, "(x.float() / (x.float().square().mean(-1, keepdim=True).sqrt() + eps)).to(x.dtype).float()"))  # fmt: skip
CORPUS.edit("eps_after_the_largest_is_divided_out", "constant", "eps added after x is divided by its largest", EAGER,
            (NORMALIZED, "functional.rms_norm(x.float() / x.float().abs().amax(-1, keepdim=True), (x.shape[-1],), eps=eps).to(x.dtype).float()"),
            records="B138")  # fmt: skip

# Roundings and sums.
CORPUS.at("sum_in_bf16", "accumulation", "the sum of squares kept in bf16", sums={"square_sum": summed_in(BF16, 8)})
CORPUS.at("sum_in_fp16", "accumulation", "the sum of squares kept in fp16", sums={"square_sum": summed_in(FP16, 64)},
          records="B137")  # fmt: skip
CORPUS.edit("squares_in_fp16", "accumulation", "squares formed in fp16", EAGER,
            (NORMALIZED, "(x.float() * torch.rsqrt(x.half().square().float().mean(-1, keepdim=True) + eps)).to(x.dtype).float()"),
            records="B141")  # fmt: skip
CORPUS.at("inverse_in_bf16", "rounding", "1 ÷ rms rounded to bf16", values={"inverse_rms": to(BF16)}, records="B140")
CORPUS.at("result_truncated", "rounding", "the result truncated", values={"y": truncated_to(BF16)}, records="B140")
CORPUS.edit("weight_in_bf16", "rounding", "an fp32 weight rounded to bf16", EAGER,
            (WEIGHTED, "return (normalized(x, eps) * weight.bfloat16().float()).to(x.dtype)"))  # fmt: skip
CORPUS.edit("normalized_in_fp8", "rounding", "the normalised row rounded to e4m3", EAGER,
            (NORMALIZED, "functional.rms_norm(x.float(), (x.shape[-1],), eps=eps).to(torch.float8_e4m3fn).float()"))  # fmt: skip

# Tiles, strides, masks.
CORPUS.edit("tail_of_the_sum", "index", "the sum of squares ends at the last whole 256 columns", EAGER,
            (NORMALIZED, "(x.float() * torch.rsqrt(x[..., : max(x.shape[-1] // 256 * 256, 1)].float().square().sum(-1, keepdim=True) / x.shape[-1] + eps)).to(x.dtype).float()"))  # fmt: skip
CORPUS.edit("tail_of_the_weight", "index", "columns past the last whole 512 not multiplied by their weight", EAGER,
            (WEIGHTED, "return (normalized(x, eps) * torch.where(torch.arange(x.shape[-1]) < max(x.shape[-1] // 512 * 512, 512), weight.float(), 1)).to(x.dtype)"))  # fmt: skip
CORPUS.edit("weight_off_by_one", "index", "each column with its neighbour's weight", EAGER,
            (WEIGHTED, "return (normalized(x, eps) * weight.float().roll(1)).to(x.dtype)"))  # fmt: skip
CORPUS.results("rows_off_by_one", "index", "each row with its neighbour's result", patterns.rolled("y"))
CORPUS.edit("mean_over_the_tile", "mask", "the mean over the padded width", KERNEL,
            ("tl.sum(x * x, axis=0) / width", "tl.sum(x * x, axis=0) / x.shape[0]"), base="triton")  # fmt: skip
CORPUS.edit("lanes_past_the_row", "mask", "lanes past the row read", KERNEL,
            (LOAD, LOAD.replace(", mask=inside, other=0.0", "")), base="triton")  # fmt: skip
CORPUS.edit("lanes_past_the_row_stored", "mask", "lanes past the row stored", KERNEL,
            ("y.to(y_ptr.dtype.element_ty), mask=inside)", "y.to(y_ptr.dtype.element_ty))"), base="triton")  # fmt: skip
CORPUS.edit("column_stride_ignored", "layout", "the stride between columns taken for 1", KERNEL,
            ("offset * x_column_stride", "offset"), base="triton", records="B129")  # fmt: skip
CORPUS.edit("column_stride_in_one_pass", "layout", "the stride between columns used for the mean alone", KERNEL,
            ("    y = normalized_row(x, weight, width, eps, TWO_ROUNDINGS)\n",
             "    dense = tl.load(x_ptr + row * x_row_stride + offset, mask=inside, other=0.0).to(tl.float32)\n"
             "    y = dense * tl.rsqrt(tl.sum(x * x, axis=0) / width + eps)\n"
             "    y = (y.to(tl.bfloat16).to(tl.float32) if TWO_ROUNDINGS else y) * weight\n"),
            base="triton", records="B128")  # fmt: skip
CORPUS.edit("row_stride_is_the_width", "layout", "the stride between rows taken for H", KERNEL,
            ("x_ptr + row * x_row_stride", "x_ptr + row * width"), base="triton")  # fmt: skip
CORPUS.edit("result_in_the_inputs_stride", "layout", "rows stored with x's stride", KERNEL,
            ("y_ptr + row * y_row_stride", "y_ptr + row * x_row_stride"), base="triton", records="B130")  # fmt: skip
CORPUS.edit("fp32_weight_as_bf16", "layout", "an fp32 weight read as bf16 pairs", EAGER,
            (WEIGHTED, "return (normalized(x, eps) * (weight.view(torch.bfloat16)[: len(weight)] if weight.dtype == torch.float32 else weight).float()).to(x.dtype)"),
            records="B133")  # fmt: skip

# Memory, special values, runs.
CORPUS.results("last_row_unwritten", "memory", "no last row", patterns.unwritten_last_row("y"))
CORPUS.results("past_the_end", "memory", "one element past the end", patterns.written_past_the_end("y"))
CORPUS.results("scratch_in_x", "memory", "x used as scratch", patterns.changed_input("x"))
CORPUS.results("sanitised", "special", "NaN and Inf made numbers", patterns.without_nan("y"))
CORPUS.edit("zero_over_zero", "special", "a row of zeros divided by its largest", EAGER,
            (NORMALIZED, "(x.float() / x.float().abs().amax(-1, keepdim=True) * functional.rms_norm(x.float(), (x.shape[-1],), eps=eps).abs().amax(-1, keepdim=True)).to(x.dtype).float()"))  # fmt: skip
CORPUS.results("stale", "stale", "those of an earlier call", patterns.stale("y"))
CORPUS.results("unsteady", "batch", "one ulp off every other run", patterns.nudged_on_second_run("y"))
CORPUS.edit("order_by_rows", "batch", "another order of the sum above 8 rows, one chain", EAGER,
            (NORMALIZED, "functional.rms_norm(x.float(), (x.shape[-1],), eps=eps).to(x.dtype).float() if len(x) <= 8 else (x.float() * torch.rsqrt(torch.from_numpy(np.cumsum(x.float().square().numpy(), -1))[..., -1:] / x.shape[-1] + eps)).to(x.dtype).float()"),
            ("import torch\nfrom", "import numpy as np\nimport torch\nfrom"),
            records="B193")  # fmt: skip
CORPUS.results("fp32_result", "interface", "fp32 where bf16 is promised", patterns.in_dtype("y", torch.float32))
CORPUS.results("flat_result", "interface", "one axis", patterns.with_shape("y", torch.flatten))
