"""gated_rms_norm with one thing wrong."""

import torch

from verification import fault_patterns as patterns
from verification.fault_forms import Corpus, dropped, ones, summed_in, to, truncated_to

CORPUS = Corpus("gated_rms_norm")
EAGER = "verification.eager.gated_rms_norm"
BF16 = torch.bfloat16
NORM = "y = functional.rms_norm(x, (x.shape[-1],), eps=eps) * weight.float()"
GATED = "y if gate is None else y * torch.sigmoid(gate.float())"

CORPUS.edit("silu_gate", "term", "gate · sigmoid(gate) in the place of sigmoid(gate)", EAGER,
            (GATED, "y if gate is None else y * functional.silu(gate.float())"))  # fmt: skip
CORPUS.edit("no_gate", "term", "no gate", EAGER, (GATED, "y"))
CORPUS.edit("gate_before_the_norm", "term", "the gate applied before the norm", EAGER,
            (NORM, "x = x if gate is None else x * torch.sigmoid(gate.float()); " + NORM), (GATED, "y"))  # fmt: skip
CORPUS.edit("gate_without_sigmoid", "term", "the raw gate", EAGER, (GATED, "y if gate is None else y * gate.float()"))
CORPUS.edit("no_weight", "term", "no weight", EAGER, (NORM, NORM.removesuffix(" * weight.float()")))
CORPUS.edit(
    "one_plus_weight", "term", "1 + weight", EAGER, (NORM, NORM.replace("weight.float()", "(1 + weight.float())"))
)
CORPUS.at("not_normalized", "term", "x not scaled by its root mean square", values={"inverse_rms": ones})
CORPUS.arguments("eps_1e-6", "constant", "eps 1e-6 whatever is asked", lambda a: {"eps": 1e-6})
CORPUS.arguments("no_eps", "constant", "no eps", lambda a: {"eps": 0.0})
CORPUS.edit("norm_over_all_heads", "index", "the norm over all heads at once", EAGER,
            (NORM, "y = functional.rms_norm(x.flatten(-2), (x.shape[-1] * x.shape[-2],), eps=eps).view_as(x) * weight.float()"))  # fmt: skip
CORPUS.edit("next_heads_gate", "index", "each head with the next one's gate", EAGER,
            (GATED, "y if gate is None else y * torch.sigmoid(gate.float().roll(-1, -2))"))  # fmt: skip
CORPUS.edit("weight_off_by_one", "index", "each column with its neighbour's weight", EAGER,
            (NORM, NORM.replace("weight.float()", "weight.float().roll(1)")))  # fmt: skip
CORPUS.edit("tail_of_the_sum", "index", "the sum of squares ends at the last whole 64 columns", EAGER,
            (NORM, "y = x * torch.rsqrt(x[..., : max(x.shape[-1] // 64 * 64, 1)].square().sum(-1, keepdim=True) / x.shape[-1] + eps) * weight.float()"))  # fmt: skip
CORPUS.edit("two_roundings", "rounding", "the normed row rounded before the gate", EAGER,
            (GATED, "y if gate is None else y.bfloat16().float() * torch.sigmoid(gate.float())"))  # fmt: skip
CORPUS.at("sigmoid_in_bf16", "rounding", "the gate's sigmoid rounded to bf16", values={"gate_sigmoid": to(BF16)})
CORPUS.at("inverse_in_bf16", "rounding", "1 ÷ rms rounded to bf16", values={"inverse_rms": to(BF16)}, records="B140")
CORPUS.at("result_truncated", "rounding", "the result truncated", values={"y": truncated_to(BF16)})
CORPUS.at("sum_in_bf16", "accumulation", "the sum of squares kept in bf16", sums={"square_sum": summed_in(BF16, 8)})
CORPUS.at("gate_dropped_below", "special", "0 where the gate's sigmoid is below 2⁻⁸",
          values={"gate_sigmoid": lambda s: torch.where(s < 2.0**-8, dropped(s), s)})  # fmt: skip
CORPUS.results("sanitised", "special", "NaN and Inf made numbers", patterns.without_nan("y"))
CORPUS.results("rows_off_by_one", "index", "each row with its neighbour's result", patterns.rolled("y"))
CORPUS.results("heads_off_by_one", "index", "each head with its neighbour's result", patterns.rolled("y", 1))
CORPUS.results("last_row_unwritten", "memory", "no last row", patterns.unwritten_last_row("y"))
CORPUS.results("past_the_end", "memory", "one element past the end", patterns.written_past_the_end("y"))
CORPUS.results("scratch_in_gate", "memory", "the gate used as scratch", patterns.changed_input("gate"))
CORPUS.results("stale", "stale", "those of an earlier call", patterns.stale("y"))
CORPUS.results("unsteady", "batch", "one ulp off every other run", patterns.nudged_on_second_run("y"))
CORPUS.results("fp32_result", "interface", "fp32 where bf16 is promised", patterns.in_dtype("y", torch.float32))
CORPUS.results(
    "flat_result", "interface", "heads and columns in one axis", patterns.with_shape("y", lambda y: y.flatten(1))
)
