"""situ with one thing wrong."""

import torch

from verification import fault_patterns as patterns
from verification.fault_forms import Corpus

CORPUS = Corpus("situ")
EAGER = "verification.eager.situ"


def edit(name: str, kind: str, says: str, *edits: tuple[str, str], records: str = "") -> None:
    CORPUS.edit(name, kind, says, EAGER, *edits, records=records)


GATED = "gated = beta * torch.tanh(gate / beta) * torch.sigmoid(gate)\n    return"
UP = "return gated * (up if linear_beta is None else linear_beta * torch.tanh(up / linear_beta))"
HALVES = "gate, up = gate_up.float().chunk(2, dim=1)\n    return"

edit("up_first", "layout", "up taken for gate", (HALVES, HALVES.replace("gate, up", "up, gate")))
edit(
    "interleaved",
    "layout",
    "gate and up interleaved",
    (HALVES, "gate, up = gate_up.float()[:, 0::2], gate_up.float()[:, 1::2]\n    return"),
)
edit(
    "beta_ignored",
    "option",
    "beta 1 whatever is asked",
    (GATED, GATED.replace("beta * torch.tanh(gate / beta)", "torch.tanh(gate)")),
)
edit("silu", "term", "the gate not bounded, SwiGLU", (GATED, GATED.replace("beta * torch.tanh(gate / beta)", "gate")))
edit(
    "clamped",
    "term",
    "the gate clamped at beta",
    (GATED, GATED.replace("beta * torch.tanh(gate / beta)", "gate.clamp(-beta, beta)")),
)
edit(
    "sigmoid_of_the_bounded",
    "term",
    "the sigmoid of the bounded gate",
    (GATED, GATED.replace("torch.sigmoid(gate)", "torch.sigmoid(beta * torch.tanh(gate / beta))")),
)
edit("no_sigmoid", "term", "no sigmoid", (GATED, GATED.replace(" * torch.sigmoid(gate)", "")))
edit(
    "beta_not_multiplied",
    "constant",
    "the bounded gate not multiplied by beta",
    (GATED, GATED.replace("beta * torch.tanh", "torch.tanh")),
)
edit("up_not_bounded", "option", "up not bounded where linear_beta is given", (UP, "return gated * up"))
edit(
    "up_bounded_by_beta",
    "constant",
    "up bounded by beta",
    (UP, "return gated * (up if linear_beta is None else beta * torch.tanh(up / beta))"),
)
edit("one_plus_up", "term", "1 + up", (UP, UP.replace("gated * (", "gated * (1 + ")))
edit("up_left_out", "term", "up left out", (UP, "return gated"))
edit(
    "linear_beta_not_multiplied",
    "constant",
    "the bounded up not multiplied",
    (UP, UP.replace("linear_beta * torch.tanh", "torch.tanh")),
)
edit("gated_in_bf16", "rounding", "the gated half rounded to bf16", (UP, "gated = gated.bfloat16().float()\n    " + UP))
edit(
    "sigmoid_in_bf16",
    "rounding",
    "the sigmoid rounded to bf16",
    (GATED, GATED.replace("torch.sigmoid(gate)", "torch.sigmoid(gate).bfloat16().float()")),
)
edit(
    "tanh_in_bf16",
    "rounding",
    "the hyperbolic tangent rounded to bf16",
    (GATED, GATED.replace("torch.tanh(gate / beta)", "torch.tanh(gate / beta).bfloat16().float()")),
)
CORPUS.results("last_row_unwritten", "memory", "no last row", patterns.unwritten_last_row("y"))
CORPUS.results("past_the_end", "memory", "one element past the end", patterns.written_past_the_end("y"))
CORPUS.results("scratch_in_gate_up", "memory", "the input used as scratch", patterns.changed_input("gate_up"))
CORPUS.results("sanitised", "special", "NaN and Inf made numbers", patterns.without_nan("y"))
CORPUS.results("rows_off_by_one", "index", "each row with its neighbour's result", patterns.rolled("y"))
CORPUS.results("columns_off_by_one", "index", "each column with its neighbour's result", patterns.rolled("y", 1))
CORPUS.results("stale", "stale", "those of an earlier call", patterns.stale("y"))
CORPUS.results("unsteady", "batch", "one ulp off every other run", patterns.nudged_on_second_run("y"))
CORPUS.results("fp32_result", "interface", "fp32 where bf16 is promised", patterns.in_dtype("y", torch.float32))
