"""Which contract variant an unknown kernel follows, told by the bits that it gives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reference.numerics import Variant, rounded
from verification.comparison import compare, named, same_bits
from verification.operator import Arguments, Operator, Outputs
from verification.plan import Check
from verification.runner import Problem, Session


@dataclass
class Likeness:
    """How an implementation compares with one variant over its cases."""

    variant: Variant
    cases: int = 0
    failed: int = 0
    elements: int = 0
    equal: int = 0

    @property
    def share(self) -> float:
        """Bit-equal share of elements against the nearest-rounding evaluation of the variant."""
        return self.equal / self.elements if self.elements else 0.0


def identify(session: Session, checks: Iterable[Check]) -> list[Likeness]:
    """Every variant of the checks' operator, the likeliest first: fewest failed cases, then most equal bits.

    Raises Problem where the implementation gives no result.
    """
    checks = [check for check in checks if check.law is None]
    operator = checks[0].operator
    table = [Likeness(variant) for variant in operator.variants]
    for check in checks:
        try:
            observed, _ = session.execute(check, operator.make(check.case))
        except Problem as problem:
            if problem.kind == "unsupported":
                continue
            raise
        for row in table:
            arguments, golden = session.golden(operator, check.case, row.variant.name)
            outcome = compare(operator, arguments, observed, golden, check.target.device)
            row.cases += 1
            row.failed += not outcome.held
            if all(finding.check != "structure" for finding in outcome.findings):
                _count_bits(row, operator, arguments, named(operator, observed, golden))
    return sorted(table, key=lambda row: (row.failed, -row.share))


def _count_bits(row: Likeness, operator: Operator, arguments: Arguments, outputs: Outputs) -> None:
    conditions = operator.condition(arguments, outputs) if operator.condition else {}
    ideal = operator.evaluate(arguments, numerics=rounded(row.variant), **conditions)
    for output in operator.outputs:
        # An in-place argument is stored the same way under every variant.
        if output.kind != "structural" and output.argument is None and output.name in outputs:
            got = outputs[output.name]
            equal = same_bits(got, ideal[output.name].to(got.dtype))
            row.elements += equal.numel()
            row.equal += int(equal.sum())
