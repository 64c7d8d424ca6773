from __future__ import annotations

from typing import Any

from reference.kda import kda_prefill
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
    causality,
    own_page,
    padding_invariance,
    sequence_isolation,
    slot_renaming,
    split_is_whole,
)
from verification.laws import parameter_sensitivity
from verification.operator import Arguments, Case, CaseGroup, Operator, make_case

DEFAULTS: dict[str, Any] = SHARED


def case(distribution: str = "normal", seed: int = 0, **parameters: Any) -> Case:
    """A case of kda_prefill."""
    return make_case("kda_prefill", DEFAULTS, "bf16", distribution, seed, **parameters)


def make(case: Case) -> Arguments:
    """Sequences of any length, begun anew or continued."""
    return kda_arguments(case.id, case.distribution, DEFAULTS | dict(case.parameters))


GROUPS = (
    CaseGroup(
        "production sizes",
        "smoke",
        (case(lengths="0", **SMALL), case(lengths="1-2", heads=2, slots="same"), case(lengths="17", heads=1)),
    ),
    CaseGroup(
        "production sizes",
        "full",
        (case(lengths="12", rank=128), case(lengths="65-1-16", heads=1, initial="mixed"), case(lengths="9", **LINEAR)),
    ),
    CaseGroup(
        "lengths around chunks and blocks",
        "smoke",
        # One call: sequences of every length around a chunk and a block step side by side. With seed 12 keys repeat
        # and decays are weak in a head of it: a sum over 64 rows loses what the state must keep.
        tuple(case(seed=s, lengths="1-0-15-16-17-63-64-65", **SMALL, initial="mixed") for s in (0, 12)),
    ),
    CaseGroup(
        "lengths around chunks and blocks",
        "full",
        (case(lengths="127-128-129-1x3-67", **SMALL, initial="all"), case(lengths="257", **SMALL),
         case(lengths="130-3", **SMALL), case(lengths="1x17-4", **SMALL)),
    ),
    CaseGroup(
        "odd sizes",
        "smoke",
        tuple(case(lengths="18-3", heads=n, key=k, value=v) for n, k, v in ((1, 8, 5), (3, 33, 17), (1, 16, 16))),
    ),
    CaseGroup(
        "pages",
        "smoke",
        tuple(case(lengths="1-2-3-20", **SMALL, slots=s, initial=i)
              for s, i in (("same", "mixed"), ("shared", "none"), ("unwritten", "fresh")))
        + (case(lengths="2-3", **SMALL, index="int64"), case(lengths="17-3", **SMALL, layout="strided", rank=16)),
    ),
    CaseGroup(
        "padding",
        "smoke",
        tuple(case(lengths="3-9-0-1-2-4-0", **SMALL, padding=k, past=5, initial=i)
              for k, i in (("invalid", "mixed"), ("null", "none")))
        + (case(lengths="0x3", **SMALL, past=1), case(lengths="0-2-0-3", **SMALL))
        + tuple(case(lengths="0x0", **SMALL, past=rows, initial="all") for rows in (0, 2)),
    ),
    CaseGroup(
        "options",
        "smoke",
        tuple(case(lengths="5-2", **SMALL, output=o) for o in ("norm", "plain"))
        + (case(lengths="5-2", **SMALL, weights="fp32"), case(lengths="18", **SMALL, lower_bound=None),
           case(lengths="18", **SMALL, rank=24), case(lengths="5-2", **SMALL, rank=8, lower_bound=None)),
    ),
    CaseGroup(
        "magnitudes",
        "smoke",
        (case("bounds", lengths="66", **SMALL), case("parallel", lengths="34", **SMALL))
        + tuple(case(d, lengths="20", **SMALL, output="plain") for d in ("tiny", "large"))
        + (case("bounds", lengths="35", **SMALL, lower_bound=None),),
    ),
    CaseGroup(
        "magnitudes",
        "full",
        (case("bounds", lengths="200", **SMALL), case("parallel", lengths="200", **SMALL),
         case("parallel", lengths="66", heads=1), case("bounds", lengths="66", heads=1)),
    ),
    CaseGroup("NaN", "smoke", (case("nonfinite", lengths="5-18-3", **SMALL, output="plain"),)),
    CaseGroup(
        "seeds", "nightly",
        tuple(case(("normal", "bounds", "parallel")[s % 3], s, lengths=f"{17 * s}-{s}", heads=2, initial="mixed")
              for s in range(1, 9)),
    ),
    # Offsets beyond 2³¹ elements: more than an index of 32 bits reaches.
    CaseGroup(
        "far slots",
        "nightly",
        (case(lengths="17-0-3", initial="mixed", layout="far", **SMALL),),
        targets=("cuda", "hip"),
    ),
)  # fmt: skip

OPERATOR = Operator(
    name="kda_prefill",
    reference=kda_prefill,
    outputs=OUTPUTS,
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(
        case(lengths="5-2-19", heads=2, key=16, value=32, initial="all", rank=16),
        case(lengths="3-12-4", heads=2, key=16, value=32, initial="all", lower_bound=None),
    ),
    weights=WEIGHTS,
    in_place=("conv_state", "state"),
    variants=VARIANTS,
    structure=untouched,
    laws=(
        sequence_isolation(ROW_ARGUMENTS),
        padding_invariance(ROW_ARGUMENTS),
        slot_renaming(),
        own_page(),
        causality(ROW_ARGUMENTS),
        split_is_whole(ROW_ARGUMENTS),
        parameter_sensitivity(SENSITIVITY | {"has_initial_state": lambda a: ~a["has_initial_state"]}),
    ),
    special_values=(
        "As kda_decode. A sequence without an initial state starts from zeros, whatever lies in its slot. Rows past "
        "cu_seqlens[-1] are zero."
    ),
)
