"""kda_gate with one thing wrong."""

import torch

from verification import fault_patterns as patterns
from verification.fault_forms import Corpus

CORPUS = Corpus("kda_gate")
EAGER = "verification.eager.kda_rows"


def edit(name: str, kind: str, says: str, *edits: tuple[str, str], records: str = "") -> None:
    CORPUS.edit(name, kind, says, EAGER, *edits, records=records)


RATE = "rate, gate = torch.exp(A_log)[:, None], gate + dt_bias"
DECAY = "return -rate * functional.softplus(gate) if lower_bound is None else lower_bound * torch.sigmoid(rate * gate)"

edit(
    "rate_not_exponentiated",
    "term",
    "A_log in the place of its exponential",
    (RATE, RATE.replace("torch.exp(A_log)", "A_log")),
)
edit("base_two", "constant", "2 to the A_log", (RATE, RATE.replace("torch.exp(", "torch.exp2(")))
edit("bias_left_out", "term", "dt_bias left out", (RATE, RATE.replace("gate + dt_bias", "gate")))
edit("bias_twice", "term", "dt_bias added twice", (RATE, RATE.replace("gate + dt_bias", "gate + 2 * dt_bias")))
edit(
    "bias_of_the_first_head",
    "index",
    "the first head's bias for all",
    (RATE, RATE.replace("gate + dt_bias", "gate + dt_bias[:1]")),
)
edit(
    "rate_of_the_first_head",
    "index",
    "the first head's rate for all",
    (RATE, RATE.replace("torch.exp(A_log)", "torch.exp(A_log[:1])")),
)
edit("always_softplus", "option", "the bound ignored", (DECAY, "return -rate * functional.softplus(gate)"))
edit(
    "clamped_softplus",
    "term",
    "the softplus form clamped at the bound",
    (DECAY, "return (-rate * functional.softplus(gate)).clamp(min=-1e30 if lower_bound is None else lower_bound)"),
)
edit(
    "rate_outside_the_sigmoid",
    "term",
    "the rate outside the sigmoid",
    (DECAY, DECAY.replace("lower_bound * torch.sigmoid(rate * gate)", "lower_bound * rate * torch.sigmoid(gate)")),
)
edit(
    "positive",
    "constant",
    "the sign lost",
    (DECAY, DECAY.replace("return -rate", "return rate").replace("else lower_bound", "else -lower_bound")),
)
edit(
    "bound_of_minus_five",
    "constant",
    "a bound of −5 whatever is asked",
    (DECAY, DECAY.replace("else lower_bound *", "else -5.0 *")),
)
edit(
    "softplus_linear_above",
    "special",
    "the softplus linear above 1",
    (DECAY, DECAY.replace("functional.softplus(gate)", "functional.softplus(gate, threshold=1.0)")),
)
edit(
    "softplus_overflows",
    "special",
    "log(1 + exp) as it stands",
    (DECAY, DECAY.replace("functional.softplus(gate)", "torch.log(1 + torch.exp(gate))")),
)
edit(
    "decay_in_bf16",
    "rounding",
    "the logarithm rounded to bf16",
    (DECAY, "return (" + DECAY.removeprefix("return ") + ").bfloat16().float()"),
)
edit(
    "biased_gate_in_bf16",
    "rounding",
    "the biased gate rounded to bf16",
    (RATE, RATE.replace("gate + dt_bias", "(gate + dt_bias).bfloat16().float()")),
)
edit(
    "bias_in_bf16",
    "rounding",
    "dt_bias rounded to bf16",
    (RATE, RATE.replace("gate + dt_bias", "gate + dt_bias.bfloat16().float()")),
)
edit(
    "rate_in_bf16",
    "rounding",
    "the rate rounded to bf16",
    (RATE, RATE.replace("torch.exp(A_log)", "torch.exp(A_log).bfloat16().float()")),
)
CORPUS.results(
    "exponentiated",
    "term",
    "the decay in the place of its logarithm",
    lambda c: {"log_decay": c.outputs["log_decay"].exp()},
)
CORPUS.results("heads_off_by_one", "index", "each head with its neighbour's result", patterns.rolled("log_decay", 1))
CORPUS.results("last_row_unwritten", "memory", "no last row", patterns.unwritten_last_row("log_decay"))
CORPUS.results("past_the_end", "memory", "one element past the end", patterns.written_past_the_end("log_decay"))
CORPUS.results("scratch_in_gate", "memory", "the gate used as scratch", patterns.changed_input("raw_gate"))
CORPUS.results("stale", "stale", "those of an earlier call", patterns.stale("log_decay"))
CORPUS.results("unsteady", "batch", "one ulp off every other run", patterns.nudged_on_second_run("log_decay"))
CORPUS.results(
    "bf16_result", "interface", "bf16 where fp32 is promised", patterns.in_dtype("log_decay", torch.bfloat16)
)
