"""A waiver covers a known failure until its day, and complains when it is of no more use."""

from __future__ import annotations

import re
from datetime import date

import pytest

from verification.records import Record
from verification.waivers import LEDGER, BadLedgerError, Waiver, Waivers

TODAY = date(2026, 6, 1)
ENTRY = """
[[waiver]]
id = "known"
pattern = "route/*:triton@hip*"
tracker = "#123"
expires = 2026-06-01
reason = "a reason"
"""


def record(check="route/rows=3/fp32/normal/0:triton@hip", verdict="failed"):
    return Record(
        check=check, case="route/rows=3/fp32/normal/0", group="sizes", suite="smoke", operator="route",
        implementation="triton", variant="official", target="hip", claim="a real GPU", verdict=verdict,
        kind="budget" if verdict == "failed" else None, commit="0", command="parity", seconds=0, date="2026-01-01",
    )  # fmt: skip


def ledger(pattern="route/*:triton@hip*", expires=TODAY, name="known"):
    return Waiver(id=name, pattern=pattern, tracker="#123", expires=expires, reason="a reason")


@pytest.mark.parametrize("verdict", ["failed", "error"])
def test_a_failure_that_matches_is_waived_by_name(verdict):
    waivers = Waivers([ledger()], TODAY)
    applied = waivers.applied(record(verdict=verdict))
    assert (applied.verdict, applied.waiver) == ("waived", "known")
    assert applied.kind == record(verdict=verdict).kind
    assert waivers.complaints(whole=True) == []


@pytest.mark.parametrize("check", [
    "route/rows=3/fp32/normal/0:triton@cuda", "route/rows=3/fp32/normal/0:Triton@hip",
    "route_sort/rows=3/fp32/normal/0:triton@hip",
])  # fmt: skip
def test_a_failure_that_does_not_match_stays_one(check):
    assert Waivers([ledger()], TODAY).applied(record(check)).verdict == "failed"


def test_a_law_and_a_configuration_match_the_pattern_of_their_case():
    waivers = Waivers([ledger()], TODAY)
    for check in (record().check + "+wide", record().check + ":row_isolation"):
        assert waivers.applied(record(check)).verdict == "waived"


def test_the_first_waiver_that_covers_a_failure_is_named():
    waivers = Waivers([ledger(pattern="nothing"), ledger(name="second"), ledger(name="third")], TODAY)
    assert waivers.applied(record()).waiver == "second"


def test_an_expired_waiver_waives_nothing_and_says_so():
    waivers = Waivers([ledger(expires=date(2026, 5, 31))], TODAY)
    assert waivers.applied(record()).verdict == "failed"
    assert waivers.complaints(whole=True) == ["waiver known expired on 2026-05-31; see #123"]


def test_an_unexpected_pass_is_a_complaint_and_stays_a_pass():
    waivers = Waivers([ledger()], TODAY)
    assert waivers.applied(record(verdict="passed")).verdict == "passed"
    assert waivers.complaints(whole=False) == [f"waiver known: {record().check} passes; remove the waiver"]


def test_an_unsupported_check_is_neither_waived_nor_a_pass():
    waivers = Waivers([ledger()], TODAY)
    assert waivers.applied(record(verdict="unsupported")).verdict == "unsupported"
    assert waivers.complaints(whole=True) == []


@pytest.mark.parametrize("whole", [True, False])
def test_a_pattern_that_met_nothing_is_a_complaint_of_a_whole_run_alone(whole):
    waivers = Waivers([ledger("route/nothing*")], TODAY)
    waivers.applied(record())
    assert waivers.complaints(whole=whole) == (["waiver known: 'route/nothing*' matches no check"] if whole else [])


def test_a_ledger_is_read_from_its_file(tmp_path):
    file = tmp_path / "waivers.toml"
    file.write_text(ENTRY)
    assert Waivers.read(file).waivers == (ledger(),)
    file.write_text("# nothing is waived\n")
    assert Waivers.read(file).waivers == ()


@pytest.mark.parametrize("text", [
    "[[waiver", ENTRY.replace('tracker = "#123"', ""), ENTRY.replace('"#123"', '""'),
    ENTRY.replace("2026-06-01", '"never"'), ENTRY + "until = 3", ENTRY.replace("[[waiver]]", "[waiver]"),
])  # fmt: skip
def test_a_malformed_ledger_is_refused_by_its_name(tmp_path, text):
    file = tmp_path / "waivers.toml"
    file.write_text(text)
    with pytest.raises(BadLedgerError, match=r"waivers\.toml: "):
        Waivers.read(file)


def test_the_projects_own_ledger_can_be_read():
    assert all(waiver.reason for waiver in Waivers.read(LEDGER).waivers)


@pytest.mark.parametrize(("text", "message"), [
    ("waiver = 3", "waiver is 3; expected"),
    ('[[waiver]]\nid = "one"\npattern = "x"', "waiver one: tracker: Field required"),
    ("[[waiver", "ledger.toml: "),
])  # fmt: skip
def test_a_malformed_ledger_is_refused_by_entry_and_reason(tmp_path, text, message):
    path = tmp_path / "ledger.toml"
    path.write_text(text)
    with pytest.raises(BadLedgerError, match=re.escape(message)):
        Waivers.read(path)


def test_two_waivers_of_one_name_are_refused(tmp_path):
    entry = '[[waiver]]\nid = "one"\npattern = "x"\ntracker = "#12"\nexpires = 2030-01-01\nreason = "why"\n'
    path = tmp_path / "ledger.toml"
    path.write_text(entry * 2)
    with pytest.raises(BadLedgerError, match="more than one waiver is called one"):
        Waivers.read(path)
