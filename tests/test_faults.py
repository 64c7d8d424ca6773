"""A seeded sample of the fault corpus, where its faults were last noticed; all of it is `parity faults`."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from verification import power
from verification.detection import attempt, read_hints, told, trials
from verification.fault import KINDS, faults
from verification.operator import find_operator, operators, parse_case
from verification.runner import Session

SEED = 1
FAULTS_EACH = 6
"""Faults an operator that are tried."""
RIGHT_EACH = 3
"""Cases an operator on which every reading of its reference, and every eager form, is judged."""

RECORDS = Path("verification/faults/field_records.toml")
OPERATORS = sorted({fault.operator for fault in faults().values()})


@pytest.fixture(scope="module")
def session():
    with Session(seconds=power.CALL_SECONDS) as shared:
        yield shared


@pytest.mark.parametrize("operator", OPERATORS)
def test_sampled_faults_are_noticed_where_they_were_noticed_last(session, operator):
    mine = [fault for fault in faults().values() if fault.operator == operator and fault.base != "triton"]
    hints = read_hints()
    tried = trials(power.sampled(mine, FAULTS_EACH, SEED), "cpu")
    assert tried
    for trial in tried:
        assert trial.fault.id in hints, "noticed by nothing so far: run `parity faults --remember`"
        case, _, law = hints[trial.fault.id].partition(":")
        attempt(session, find_operator(operator), trial, parse_case(case), law or None)
    assert [told(trial).fault for trial in tried if told(trial).noticed_by is None] == []


@pytest.mark.parametrize("operator", sorted(operators()))
def test_right_implementations_raise_no_alarm_on_sampled_cases(operator):
    job = power.Job(operator, (), "smoke", "cpu", RIGHT_EACH, SEED)
    result = power.perform(job)
    assert result.defect == ""
    assert result.comparisons >= RIGHT_EACH
    assert [alarm.finding for alarm in result.alarms] == []


def test_every_fault_has_a_kind_a_sentence_and_records_that_exist():
    records = tomllib.loads(RECORDS.read_text())
    for fault in faults().values():
        assert fault.kind in KINDS
        assert fault.says
        assert fault.says[-1] != "."
        assert set(fault.records) <= set(records), fault.id


def test_every_fault_was_noticed_when_all_were_last_run():
    assert sorted(set(faults()) - set(read_hints())) == []


def test_what_was_noticed_still_exists():
    assert sorted(set(read_hints()) - set(faults())) == []
