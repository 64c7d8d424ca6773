"""Changed instructions are noticed, and what is not noticed has a reason."""

from __future__ import annotations

import pytest

from verification.mutants import CASES, mutate, summary


@pytest.mark.parametrize("name", CASES)
def test_most_mutants_are_noticed_and_the_others_are_sorted_by_reason(name):
    mutants = mutate(name, count=60, seed=2)
    counts = summary(mutants)
    assert sum(counts.values()) == 60
    assert counts["noticed"] > 30
    assert set(counts) <= {"noticed", "order", "equal", "within"}
    assert all(mutant.told for mutant in mutants if mutant.outcome == "noticed")
    again = mutate(name, count=60, seed=2)
    assert [(one.line, one.change, one.outcome) for one in again] == [(m.line, m.change, m.outcome) for m in mutants]
