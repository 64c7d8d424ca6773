"""causal_conv1d with one thing wrong."""

import torch

from verification import fault_patterns as patterns
from verification.fault_forms import Corpus

CORPUS = Corpus("causal_conv1d")
EAGER = "verification.eager.causal_conv1d"


def edit(name: str, kind: str, says: str, *edits: tuple[str, str], records: str = "") -> None:
    CORPUS.edit(name, kind, says, EAGER, *edits, records=records)


FIRST = "total = x.float() * weight[:, TAPS - 1].float()"
SAMPLE = "sample = torch.where((packed.place >= lag)[:, None], x[(row - lag).clamp(min=0)], earlier)"
STORED = "store(conv_state, write_slots, shifted(x, history, packed, packed.lengths), packed.lengths > 0, padding_slot)"
HISTORY = "return history if has_initial_state is None else torch.where(has_initial_state[:, None, None], history, 0.0)"

edit("taps_reversed", "layout", "the taps in reversed order", (FIRST, "weight = weight.flip(1)\n    " + FIRST))
edit("three_taps", "index", "the oldest tap left out", ("for lag in range(1, TAPS):", "for lag in range(1, TAPS - 1):"))
edit("no_silu", "term", "no SiLU", ("return torch.nn.functional.silu(total)", "return total"))
edit(
    "sigmoid",
    "term",
    "the sigmoid in the place of SiLU",
    ("return torch.nn.functional.silu(total)", "return torch.sigmoid(total)"),
)
edit(
    "reads_over_sequences",
    "mask",
    "rows of the sequence before read",
    (SAMPLE, "sample = torch.where((row >= lag)[:, None], x[(row - lag).clamp(min=0)], earlier)"),
)
edit("history_left_out", "state", "the state not read", (SAMPLE, SAMPLE.replace("earlier)", "0.0)")))
edit("always_continues", "option", "has_initial_state ignored", (HISTORY, "return history"))
edit(
    "never_continues",
    "option",
    "the state read as zeros where has_initial_state is given",
    (HISTORY, "return history if has_initial_state is None else history * 0"),
)
edit(
    "history_reversed",
    "layout",
    "the state's samples in reversed order",
    ("history = conv_state[packed.read].transpose(1, 2)", "history = conv_state[packed.read].transpose(1, 2).flip(1)"),
)
edit("state_not_written", "state", "the state not written", (STORED, "pass"))
edit(
    "state_of_the_read_slot",
    "state",
    "the state written where it was read",
    (STORED, STORED.replace("write_slots", "read_slots")),
)
edit(
    "first_rows_stored",
    "index",
    "the rows before the last stored",
    (STORED, STORED.replace("packed.lengths)", "(packed.lengths - 1).clamp(min=0))")),
)
edit(
    "short_sequence_forgets",
    "state",
    "a sequence of fewer than three rows loses its older samples",
    (
        "return torch.where((place >= 0)[..., None], samples, earlier).transpose(1, 2)",
        "return torch.where((place >= 0)[..., None], samples, 0.0).transpose(1, 2)",
    ),
)
edit(
    "padding_stored",
    "state",
    "padding sequences stored",
    (STORED, STORED.replace("packed.lengths > 0", "packed.lengths >= 0")),
)
edit(
    "padding_computed",
    "mask",
    "rows of padding not zero",
    (
        "y = torch.where(packed.live[:, None], convolved(x, weight, history, packed), 0.0)",
        "y = convolved(x, weight, history, packed)",
    ),
)
edit(
    "sum_in_bf16",
    "accumulation",
    "the sum kept in bf16",
    (
        "total = total + sample.float() * weight[:, TAPS - 1 - lag].float()",
        "total = (total + sample.float() * weight[:, TAPS - 1 - lag].float()).bfloat16().float()",
    ),
)
edit(
    "products_in_bf16",
    "rounding",
    "products rounded to bf16",
    (
        "total = total + sample.float() * weight[:, TAPS - 1 - lag].float()",
        "total = total + sample * weight[:, TAPS - 1 - lag]",
    ),
)
CORPUS.results("last_row_unwritten", "memory", "no last row", patterns.unwritten_last_row("y"))
CORPUS.results("rows_off_by_one", "index", "each row with its neighbour's result", patterns.rolled("y"))
CORPUS.results("scratch_in_x", "memory", "x used as scratch", patterns.changed_input("x"))
CORPUS.results("stale", "stale", "those of an earlier call", patterns.stale("y"))
CORPUS.results("unsteady", "batch", "one ulp off every other run", patterns.nudged_on_second_run("y"))
CORPUS.results("fp32_result", "interface", "fp32 where bf16 is promised", patterns.in_dtype("y", torch.float32))
