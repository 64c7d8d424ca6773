from __future__ import annotations

from typing import Any

from reference.kda import kda_verify
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
from verification.contracts.sequence_laws import (
    batch_invariance,
    causality,
    padding_invariance,
    sequence_isolation,
    slot_renaming,
)
from verification.laws import parameter_sensitivity
from verification.operator import Arguments, Case, CaseGroup, Operator, make_case

DEFAULTS: dict[str, Any] = SHARED | {"lengths": "4x2"}


def case(distribution: str = "normal", seed: int = 0, **parameters: Any) -> Case:
    """A case of kda_verify."""
    return make_case("kda_verify", DEFAULTS, "bf16", distribution, seed, **parameters)


def make(case: Case) -> Arguments:
    """Windows of draft rows, of one length or of several."""
    arguments = kda_arguments(case.id, case.distribution, DEFAULTS | dict(case.parameters))
    del arguments["has_initial_state"], arguments["write_slots"]
    return arguments


GROUPS = (
    CaseGroup("production sizes", "smoke", (case(lengths="0", **SMALL), case(lengths="1"), case(lengths="3", heads=2))),
    CaseGroup(
        "production sizes",
        "full",
        (case(lengths="8", rank=128), case(lengths="2-1", **LINEAR), case(lengths="8-5", heads=2)),
    ),
    CaseGroup(
        "windows",
        "smoke",
        tuple(case(lengths=text, **SMALL) for text in ("1", "8x2", "3-3-2", "4-2-8-1", "1x17", "0-5-0-3")),
    ),
    CaseGroup("windows", "full", (case(lengths="8x32", **SMALL), case(lengths="2x8", **SMALL, rank=16))),
    CaseGroup(
        "odd sizes",
        "smoke",
        tuple(case(lengths="3-2", heads=n, key=k, value=v) for n, k, v in ((1, 8, 5), (3, 33, 17), (1, 16, 16))),
    ),
    CaseGroup(
        "pages and padding",
        "smoke",
        tuple(case(lengths="3-2-4-1", **SMALL, padding=k, past=2) for k in ("invalid", "null"))
        + (case(lengths="3-2", **SMALL, slots="shared"), case(lengths="0x3", **SMALL, past=1),
           case(lengths="3-2", **SMALL, index="int64"), case(lengths="3-2", **SMALL, layout="strided", rank=16))
        + tuple(case(lengths="0x0", **SMALL, past=rows) for rows in (0, 2)),
    ),
    CaseGroup(
        "options",
        "smoke",
        tuple(case(lengths="4-2", **SMALL, output=o) for o in ("norm", "plain"))
        + (case(lengths="4-2", **SMALL, weights="fp32"), case(lengths="4-2", **SMALL, rank=24),
           case(lengths="4-2", **SMALL, rank=8, lower_bound=None)),
    ),
    CaseGroup(
        "magnitudes",
        "smoke",
        tuple(case(d, lengths="8", **SMALL, output="plain") for d in ("bounds", "parallel", "tiny", "large"))
        + (case("bounds", lengths="8", **SMALL, lower_bound=None),),
    ),
    CaseGroup("NaN", "smoke", (case("nonfinite", lengths="2-3-3", **SMALL, output="plain"),)),
    CaseGroup("seeds", "nightly", tuple(case(seed=s, lengths="8-3", heads=2, rank=s % 2 * 128) for s in range(1, 17))),
    # Offsets beyond 2³¹ elements: more than an index of 32 bits reaches.
    CaseGroup(
        "far slots",
        "nightly",
        (case(lengths="1-0-1", layout="far"), case(lengths="1x3", slots="same", layout="far", **SMALL)),
        targets=("cuda", "hip"),
    ),
)  # fmt: skip

OPERATOR = Operator(
    name="kda_verify",
    reference=kda_verify,
    outputs=OUTPUTS[:1],
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(
        case(lengths="4-4-2-3-2", heads=2, key=16, value=32, rank=16),
        case(lengths="3-4-2", heads=2, key=16, value=32, lower_bound=None),
    ),
    weights=WEIGHTS,
    variants=VARIANTS,
    gives_payload=True,
    laws=(
        batch_invariance(ROW_ARGUMENTS),
        sequence_isolation(ROW_ARGUMENTS),
        padding_invariance(ROW_ARGUMENTS),
        slot_renaming(),
        causality(ROW_ARGUMENTS),
        parameter_sensitivity({n: change for n, change in SENSITIVITY.items() if n != "write_slots"}),
    ),
    special_values=("As kda_decode, and no pool is ever written: what would be, travels in the payload."),
)
