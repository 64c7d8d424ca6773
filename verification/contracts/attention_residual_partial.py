from __future__ import annotations

from typing import Any

from reference.attention_residual_split import attention_residual_partial
from verification.contracts.partials import LAWS, OUTPUTS, ROW_AXES, SENSITIVITY, VARIANTS, snapshots, structure
from verification.inputs import Inputs
from verification.laws import batch_invariance, parameter_sensitivity, row_isolation
from verification.operator import Arguments, Case, CaseGroup, Operator, make_case

DEFAULTS: dict[str, Any] = {
    "rows": 4, "hidden": 7168, "blocks": 8, "capacity": 8, "scorers": 2, "order": "block_major",
    "score_scale": 2.0, "eps": 1e-6,
}  # fmt: skip

ROWS = (0, 1, 2, 4, 8, 16, 17, 32)


def case(distribution: str = "normal", seed: int = 0, **parameters: Any) -> Case:
    """A case of attention_residual_partial."""
    return make_case("attention_residual_partial", DEFAULTS, "bf16", distribution, seed, **parameters)


def make(case: Case) -> Arguments:
    """Snapshots and scorers."""
    return snapshots(Inputs(case.id), DEFAULTS | dict(case.parameters), case.distribution)


GROUPS = (
    CaseGroup(
        "production sizes",
        "smoke",
        (
            case(rows=0),
            case(rows=1),
            case(rows=2, blocks=3, order="token_major"),
            case(rows=4, scorers=1, order="token_major"),
        ),
    ),
    CaseGroup(
        "production sizes",
        "full",
        tuple(case(rows=r) for r in ROWS) + tuple(case(rows=r, order="token_major") for r in (1, 16)),
    ),
    CaseGroup(
        "block counts",
        "smoke",
        tuple(case(rows=3, hidden=128, blocks=b) for b in range(9))
        + tuple(case(rows=3, hidden=128, blocks=b, capacity=12) for b in (9, 11, 12))
        + (case(rows=2, hidden=128, blocks=0, capacity=0), case(rows=2, blocks=0)),
    ),
    CaseGroup("block counts", "full", tuple(case(rows=4, blocks=b) for b in (1, 4, 7))),
    CaseGroup("scorers", "smoke", tuple(case(rows=5, hidden=512, blocks=4, scorers=s) for s in (1, 2, 3))),
    CaseGroup(
        "rows",
        "smoke",
        tuple(case(rows=r, hidden=128, blocks=5, order="token_major") for r in (7, 8, 16, 17, 33, 64, 257)),
    ),
    CaseGroup(
        "odd widths",
        "smoke",
        tuple(case(rows=3, hidden=h, blocks=5, order=o) for h, o in ((96, "row_padded"), (1000, "token_major")))
        + tuple(case(rows=3, hidden=h, blocks=5) for h in (1, 130, 1025)),
    ),
    CaseGroup(
        "magnitudes",
        "smoke",
        (
            case("near_eps", hidden=512),
            case("large", hidden=512),
            case("zeros", hidden=256),
            case("near_eps", hidden=512, eps=1e-3),
            # Scores far beyond ±88, where an exponential without the right maximum over- or underflows.
            *(case(rows=9, hidden=256, blocks=b, score_scale=s) for b in (1, 8) for s in (30.0, 300.0)),
        ),
    ),
    CaseGroup("magnitudes", "full", (case("near_eps"), case("large"), case(score_scale=30.0))),
    CaseGroup("NaN and Inf", "smoke", (case("nonfinite", hidden=256, blocks=3), case("nonfinite", hidden=256))),
    CaseGroup("seeds", "nightly", tuple(case(seed=s, rows=17, blocks=s % 9) for s in range(1, 33))),
)

OPERATOR = Operator(
    name="attention_residual_partial",
    reference=attention_residual_partial,
    outputs=OUTPUTS,
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(case(rows=9, hidden=1024, blocks=4), case(rows=16, hidden=512)),
    weights=("score_weights",),
    variants=VARIANTS,
    structure=structure,
    laws=(
        batch_invariance(("blocks",), ROW_AXES),
        row_isolation(("blocks",), ROW_AXES),
        parameter_sensitivity(SENSITIVITY),
        *LAWS,
    ),
    special_values=(
        "Without a block: maximum −Inf, sum 0, accumulator 0, exactly. A NaN in a block makes that row's partials "
        "NaN for every scorer and no other row's."
    ),
)
