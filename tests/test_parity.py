from __future__ import annotations

from verification.records import Record


def test_implementation_is_the_reference(parity_record: Record) -> None:
    """Each check of the plan: numbers within budgets, structure, memory, laws."""
    if parity_record.verdict in ("failed", "error"):
        findings = "\n".join(parity_record.findings)
        raise AssertionError(
            f"{parity_record.verdict} ({parity_record.kind}) {parity_record.check}\n{findings}\nrepeat: "
            f"{parity_record.command}"
        )
