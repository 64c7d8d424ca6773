from __future__ import annotations

from typing import Any

from reference.kda import kda_decode
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
from verification.contracts.pages import untouched
from verification.contracts.sequence_laws import (
    batch_invariance,
    own_page,
    padding_invariance,
    sequence_isolation,
    slot_renaming,
)
from verification.laws import parameter_sensitivity
from verification.operator import Arguments, Case, CaseGroup, Operator, make_case

DEFAULTS: dict[str, Any] = SHARED


def case(distribution: str = "normal", seed: int = 0, **parameters: Any) -> Case:
    """A case of kda_decode."""
    return make_case("kda_decode", DEFAULTS, "bf16", distribution, seed, **parameters)


def make(case: Case) -> Arguments:
    """One row a sequence, or none where it pads the batch."""
    p = DEFAULTS | dict(case.parameters)
    arguments = kda_arguments(case.id, case.distribution, p)
    del arguments["has_initial_state"]
    return arguments


GROUPS = (
    CaseGroup(
        "production sizes",
        "smoke",
        (case(lengths="0", **SMALL), case(lengths="1", slots="same"), case(lengths="1x2", **LINEAR, slots="same")),
    ),
    CaseGroup(
        "production sizes",
        "full",
        (case(lengths="1x8", slots="same"), case(lengths="1x4", **LINEAR), case(lengths="1x2"),
         case(lengths="1x4", rank=128), case(lengths="1x2", heads=24)),
    ),
    CaseGroup("row counts", "smoke", tuple(case(lengths=f"1x{b}", **SMALL) for b in (1, 2, 8, 16, 17))),
    CaseGroup(
        "row counts",
        "full",
        tuple(case(lengths=f"1x{b}", **SMALL, rank=16) for b in (64, 257)) + (case(lengths="1x22", key=16, value=16),),
    ),
    CaseGroup(
        "odd sizes",
        "smoke",
        tuple(case(lengths="1x3", heads=n, key=k, value=v)
              for n, k, v in ((1, 8, 5), (3, 33, 17), (1, 17, 130), (6, 16, 16))),
    ),
    CaseGroup(
        "pages",
        "smoke",
        tuple(case(lengths="1x5", **SMALL, slots=s) for s in ("same", "shared", "unwritten"))
        + (case(lengths="1x5", **SMALL, index="int64"), case(lengths="1x5", **SMALL, layout="strided", rank=16)),
    ),
    CaseGroup(
        "padding",
        "smoke",
        tuple(case(lengths="1-1-0-1x3-0", **SMALL, padding=k, past=2) for k in ("invalid", "null"))
        + (case(lengths="0x3", **SMALL, past=1), case(lengths="0-1x3", **SMALL))
        + tuple(case(lengths="0x0", **SMALL, past=rows) for rows in (0, 2)),
    ),
    CaseGroup(
        "options",
        "smoke",
        tuple(case(lengths="1x3", **SMALL, output=o) for o in ("norm", "plain"))
        + (case(lengths="1x3", **SMALL, weights="fp32"), case(lengths="1x3", **SMALL, lower_bound=None),
           case(lengths="1x3", **SMALL, rank=24), case(lengths="1x3", **SMALL, rank=8, lower_bound=None),
           case(lengths="1x3", **SMALL, eps=0.5)),
    ),
    CaseGroup(
        "magnitudes",
        "smoke",
        tuple(case(d, lengths="1x3", **SMALL) for d in ("bounds", "parallel", "tiny", "large"))
        + (case("bounds", lengths="1x3", **SMALL, lower_bound=None),
           case("large", lengths="1x3", **SMALL, output="plain")),
    ),
    CaseGroup("NaN", "smoke", (case("nonfinite", lengths="1x4", **SMALL, output="plain"),)),
    CaseGroup("seeds", "nightly", tuple(case(seed=s, lengths="1x4", heads=2, rank=s % 2 * 128) for s in range(1, 17))),
    # Offsets beyond 2³¹ elements: more than an index of 32 bits reaches.
    CaseGroup(
        "far slots",
        "nightly",
        (case(lengths="1-0-1", layout="far"), case(lengths="1x3", slots="same", layout="far", **SMALL)),
        targets=("cuda", "hip"),
    ),
)  # fmt: skip

OPERATOR = Operator(
    name="kda_decode",
    reference=kda_decode,
    outputs=OUTPUTS,
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(
        case(lengths="1x9", heads=2, key=16, value=32, rank=16),
        case(lengths="1x16", heads=2, key=16, value=32, output="plain"),
    ),
    weights=WEIGHTS,
    in_place=("conv_state", "state"),
    variants=VARIANTS,
    structure=untouched,
    laws=(
        batch_invariance(ROW_ARGUMENTS),
        sequence_isolation(ROW_ARGUMENTS),
        padding_invariance(ROW_ARGUMENTS),
        slot_renaming(),
        own_page(),
        parameter_sensitivity(SENSITIVITY),
    ),
    special_values=(
        "A padding row, an invalid read slot or an empty sequence gives zeros and touches nothing; a valid read "
        "with an invalid write slot computes its output and writes nothing. Slots that no sequence names keep their "
        "bits, even where they hold NaN."
    ),
)
