from __future__ import annotations

from typing import Any

import torch

from reference.convolution import causal_conv1d
from verification.contracts.kda_inputs import channels_last
from verification.contracts.pages import draw_pages, idle_rows, paged_arguments, read_lengths, untouched
from verification.contracts.sequence_laws import (
    batch_invariance,
    causality,
    own_page,
    padding_invariance,
    sequence_isolation,
    slot_renaming,
    split_is_whole,
)
from verification.inputs import TORCH_DTYPES, Inputs, laid_out
from verification.laws import parameter_sensitivity
from verification.operator import Arguments, Case, CaseGroup, Operator, Output, make_case, pick

DEFAULTS: dict[str, Any] = {
    "lengths": "1x4", "channels": 4608, "slots": "apart", "padding": "none", "past": 0, "initial": "none",
    "weights": "bf16", "index": "int32", "layout": "contiguous",
}  # fmt: skip

SCALES = {"normal": 1.0, "tiny": 2.0**-20, "large": 2.0**10, "nonfinite": 1.0}
"""Distributions, by the magnitude of their rows."""


def case(distribution: str = "normal", seed: int = 0, **parameters: Any) -> Case:
    """A case of causal_conv1d."""
    return make_case("causal_conv1d", DEFAULTS, "bf16", distribution, seed, **parameters)


def make(case: Case) -> Arguments:
    """Rows and histories of the named magnitude; NaN in rows of padding and in pages that nobody goes on from."""
    p = DEFAULTS | dict(case.parameters)
    inputs, lengths, channels = Inputs(case.id), read_lengths(p["lengths"]), p["channels"]
    scale, rows = pick(case.distribution, SCALES, "distribution"), sum(lengths) + p["past"]
    pages = draw_pages(inputs, len(lengths), p)
    x = inputs.normal("x", (rows, channels), scale).to(torch.bfloat16)
    x[idle_rows(pages, lengths, rows)] = torch.nan
    conv_state = inputs.normal("conv_state", (pages.slots, channels, 3), scale).to(torch.bfloat16)
    conv_state[pages.fresh] = torch.nan
    if case.distribution == "nonfinite":
        x[0, 0], x[-1, 1], conv_state[pages.read[0], 2, 2] = torch.nan, torch.inf, -torch.inf
    strided = p["layout"] == "strided"
    weight = inputs.normal("weight", (channels, 4), 0.5).to(TORCH_DTYPES[p["weights"]])
    return paged_arguments(pages, lengths, p) | {
        "x": laid_out(x, "row_padded") if strided else x,
        "weight": laid_out(weight, "transposed") if strided else weight,
        "conv_state": channels_last(conv_state) if strided else conv_state,
    }


GROUPS = (
    CaseGroup(
        "production sizes",
        "smoke",
        (case(lengths="0"), case(lengths="1"), case(), case(lengths="1x17"), case(lengths="5-0-12", initial="mixed")),
    ),
    CaseGroup(
        "production sizes",
        "full",
        tuple(case(lengths=f"1x{b}") for b in (2, 8, 16, 64))
        + (case(lengths="65-64-1-127", initial="mixed"), case(lengths="1x257", channels=384)),
    ),
    CaseGroup(
        "short sequences",
        "smoke",
        # Shorter than the history that they leave behind, where old samples and new ones share a page.
        tuple(case(lengths="1-2-3-4-5-0", channels=c, slots=s, initial=i) for c in (33, 96)
              for s, i in (("apart", "none"), ("same", "mixed"), ("shared", "all"), ("apart", "fresh"))),
    ),
    CaseGroup(
        "padding",
        "smoke",
        tuple(case(lengths="3-2-0-1-4-2", channels=40, padding=k, past=3, initial=i)
              for k in ("invalid", "null") for i in ("none", "mixed"))
        + (case(lengths="0x3", channels=8, past=2), case(lengths="2-3-1-4", channels=40, slots="unwritten"))
        + tuple(case(lengths="0x0", channels=8, past=rows, initial="all") for rows in (0, 2)),
    ),
    CaseGroup(
        "layouts",
        "smoke",
        (case(lengths="2-3", channels=130, layout="strided"), case(lengths="7-1", channels=96, weights="fp32"),
         case(lengths="2-1-1", channels=40, index="int64", padding="invalid")),
    ),
    CaseGroup("magnitudes", "smoke", tuple(case(d, lengths="9-2", channels=200) for d in ("tiny", "large"))),
    CaseGroup("NaN and Inf", "smoke", (case("nonfinite", lengths="7-2-9", channels=64),)),
    CaseGroup("seeds", "nightly", tuple(case(seed=s, lengths=f"{s}-1-{2 * s}", channels=512) for s in range(1, 17))),
)  # fmt: skip

ROWS = ("x",)

OPERATOR = Operator(
    name="causal_conv1d",
    reference=causal_conv1d,
    outputs=(
        Output("y", "number", "=x"),
        Output("conv_state", "exact", "=conv_state", argument="conv_state"),
    ),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(case(lengths="3-5-2", channels=64, initial="all"), case(lengths="2x5", channels=96, initial="all")),
    weights=("weight",),
    in_place=("conv_state",),
    structure=untouched,
    laws=(
        batch_invariance(ROWS),
        sequence_isolation(ROWS),
        padding_invariance(ROWS),
        slot_renaming(),
        own_page(),
        causality(ROWS),
        split_is_whole(ROWS),
        parameter_sensitivity(
            {
                "x": lambda a: a["x"].roll(1, 0),
                "weight": lambda a: a["weight"].flip(1),
                "conv_state": lambda a: a["conv_state"].flip(2),
                "read_slots": lambda a: a["read_slots"].flip(0),
                "write_slots": lambda a: a["write_slots"].flip(0),
                "cu_seqlens": lambda a: torch.cat([a["cu_seqlens"][:-1], a["cu_seqlens"][-1:] - 1]),
                "has_initial_state": lambda a: ~a["has_initial_state"],
                "padding_slot": lambda a: int(a["read_slots"][0]),
            }
        ),
    ),
    special_values=(
        "A padding row, an invalid read slot or an empty sequence gives zeros and touches no state. Where "
        "has_initial_state is false the state read counts as zeros, whatever lies there. Rows past cu_seqlens[-1] "
        "are zero. NaN reaches the three rows behind it in its own channel and no further."
    ),
)
