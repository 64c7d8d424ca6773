from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from reference.kda import kda_commit
from verification.contracts.kda_inputs import DEFAULTS as SHARED
from verification.contracts.kda_inputs import (
    LINEAR,
    OUTPUTS,
    ROW_ARGUMENTS,
    SENSITIVITY,
    SMALL,
    VARIANTS,
    WEIGHTS,
    kda_arguments,
)
from verification.contracts.pages import read_lengths, untouched
from verification.contracts.sequence_laws import (
    Piece,
    batch_invariance,
    bounds,
    one_after_another,
    own_page,
    padding_invariance,
    sequence_isolation,
    slot_renaming,
    with_later_rows_changed,
)
from verification.inputs import TORCH_DTYPES
from verification.laws import differences, parameter_sensitivity
from verification.operator import Arguments, Case, CaseGroup, Law, LawContext, Operator, make_case, pick

DEFAULTS: dict[str, Any] = SHARED | {"lengths": "4x2", "kept": "turns"}

KEPT = {"turns": (1, 0, 3, 2), "none": (0,), "all": (8,), "beyond": (9, -2, 2**31 - 1, -(2**31))}
"""commit_rows by turns; those beyond a window are clamped to it."""


def case(distribution: str = "normal", seed: int = 0, **parameters: Any) -> Case:
    """A case of kda_commit."""
    return make_case("kda_commit", DEFAULTS, "bf16", distribution, seed, **parameters)


def make(case: Case) -> Arguments:
    """Windows that kda_verify is given first, and how many rows of each are kept."""
    p = DEFAULTS | dict(case.parameters)
    turns, count = pick(p["kept"], KEPT, "kept"), len(read_lengths(p["lengths"]))
    kept = torch.tensor(turns)[torch.arange(count) % len(turns)]
    arguments = kda_arguments(case.id, case.distribution, p)
    del arguments["has_initial_state"]
    return arguments | {"commit_rows": kept.to(TORCH_DTYPES[p["index"]])}


def kept_rows(arguments: Arguments) -> list[int]:
    """Rows that each sequence keeps, if it is no padding."""
    lengths = [high - low for low, high in bounds(arguments)]
    return [min(max(rows, 0), length) for rows, length in zip(arguments["commit_rows"].tolist(), lengths, strict=True)]


def commit_is_stepping(context: LawContext) -> Iterator[str]:
    """The kept rows in windows of one row, one after another; a sequence that keeps none is copied."""
    arguments = context.arguments()
    kept, spans = kept_rows(arguments), bounds(arguments)
    calls: list[list[Piece]] = []
    for step in range(max([1, *kept])):
        ends = [low + (step < max(rows, 1)) for rows, (low, _) in zip(kept, spans, strict=True)]
        calls.append([(b, low + step, end + step) for b, ((low, _), end) in enumerate(zip(spans, ends, strict=True))])
    outputs = one_after_another(context, ROW_ARGUMENTS, calls)
    yield from (f"Row by row: {finding}" for finding in context.judge(context.arguments(), outputs))


def rejected_rows_leave_no_trace(context: LawContext) -> Iterator[str]:
    """Other rows past the kept ones change no bit of either pool; other kept rows do."""
    usual = context.call(context.arguments())
    kept = dict(zip(bounds(context.arguments()), kept_rows(context.arguments()), strict=True))
    changed, _ = with_later_rows_changed(context.arguments(), ROW_ARGUMENTS, lambda low, high: low + kept[low, high])
    yield from differences(usual, context.call(changed), "when rejected rows are others")
    changed, _ = with_later_rows_changed(context.arguments(), ROW_ARGUMENTS, lambda low, high: low)
    if not any(differences(usual, context.call(changed), "")):
        yield "Other kept rows changed nothing: the control that shows that the window is read."


def moved_bounds(arguments: Arguments) -> Tensor:
    """Windows that all begin a row earlier, but for the first."""
    edges: Tensor = arguments["cu_seqlens"].clone()
    edges[1:-1] -= 1
    return edges


GROUPS = (
    CaseGroup(
        "production sizes", "smoke", (case(lengths="0", **SMALL), case(lengths="2", heads=2, kept="all", slots="same"))
    ),
    CaseGroup(
        "production sizes",
        "full",
        (case(lengths="8", kept="all", rank=128), case(lengths="3-2", **LINEAR), case(lengths="4-4", heads=2)),
    ),
    CaseGroup(
        "kept rows",
        "smoke",
        tuple(case(lengths="5-8-4-4-1", **SMALL, kept=k, slots=s) for k in KEPT for s in ("apart", "same")),
    ),
    CaseGroup("kept rows", "full", (case(lengths="8x32", **SMALL), case(lengths="1x17", **SMALL, kept="all"))),
    CaseGroup(
        "odd sizes",
        "smoke",
        tuple(case(lengths="3-2-4", heads=n, key=k, value=v) for n, k, v in ((1, 8, 5), (3, 33, 17), (1, 16, 16))),
    ),
    CaseGroup(
        "pages and padding",
        "smoke",
        tuple(case(lengths="3-2-4-1-5", **SMALL, padding=k, past=2, kept=a)
              for k in ("invalid", "null") for a in ("turns", "none"))
        + tuple(case(lengths="4-0-3-4-0", **SMALL, slots=s) for s in ("shared", "unwritten"))
        + (case(lengths="0x3", **SMALL, past=1), case(lengths="3-2", **SMALL, index="int64"),
           case(lengths="3-2-4", **SMALL, layout="strided", rank=16))
        + tuple(case(lengths="0x0", **SMALL, past=rows) for rows in (0, 2)),
    ),
    CaseGroup(
        "gates",
        "smoke",
        (case(lengths="4-2", **SMALL, weights="fp32"), case(lengths="4-2", **SMALL, rank=24),
         case(lengths="4-2", **SMALL, rank=8, lower_bound=None, kept="all")),
    ),
    CaseGroup(
        "magnitudes",
        "smoke",
        tuple(case(d, lengths="8", **SMALL, kept="all") for d in ("bounds", "parallel", "tiny", "large"))
        + (case("bounds", lengths="8", **SMALL, lower_bound=None, kept="all"),),
    ),
    CaseGroup("NaN", "smoke", (case("nonfinite", lengths="2-3-3", **SMALL, kept="all"),)),
    CaseGroup("seeds", "nightly", tuple(case(seed=s, lengths="8-3-5-8", heads=2) for s in range(1, 17))),
    # Offsets beyond 2³¹ elements: more than an index of 32 bits reaches.
    CaseGroup("far slots", "nightly", (case(lengths="4x3", layout="far", **SMALL),), targets=("cuda", "hip")),
)  # fmt: skip

OPERATOR = Operator(
    name="kda_commit",
    reference=kda_commit,
    outputs=OUTPUTS[1:],
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(
        case(lengths="4-3-4-4-2", heads=2, key=16, value=32, rank=16),
        case(lengths="3-4-2-4-1", heads=2, key=16, value=32, lower_bound=None),
    ),
    weights=WEIGHTS,
    in_place=("conv_state", "state"),
    variants=tuple(v for v in VARIANTS if v.name not in ("output_rounded", "split")),
    structure=untouched,
    payload_of="kda_verify",
    laws=(
        batch_invariance(ROW_ARGUMENTS),
        sequence_isolation(ROW_ARGUMENTS),
        padding_invariance(ROW_ARGUMENTS),
        slot_renaming(),
        own_page(),
        Law("commit_is_stepping", "Committed rows are the rows one by one.", commit_is_stepping),
        Law("rejected_rows", "A rejected row leaves no trace.", rejected_rows_leave_no_trace),
        parameter_sensitivity(
            {n: change for n, change in SENSITIVITY.items()
             if n not in ("scale", "output_gate", "norm_weight", "eps")}
            | {"commit_rows": lambda a: a["commit_rows"] + 1, "cu_seqlens": moved_bounds}
        ),
    ),
    special_values=(
        "commit_rows is clamped to the window; 0 copies the page that is read; an invalid write slot writes "
        "nothing; a padding row is a no-op. Slots that no sequence names keep their bits."
    ),
)  # fmt: skip
