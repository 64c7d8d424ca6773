"""A run keeps what it did, resumes where it ended, and its exit code tells what it came to."""

from __future__ import annotations

from datetime import date
from types import SimpleNamespace

import pytest

from verification import campaign
from verification.campaign import Outcome, UnwritableError, already_done, below_floor, executed, floors, prepared_folder
from verification.operator import SUITES
from verification.plan import Selection, build
from verification.records import Record, read_records
from verification.runner import current_hash
from verification.targets import targets
from verification.waivers import Waiver, Waivers

FILTERED = Selection(operators=("rms_norm",), target="cpu", law="none")
WHOLE = Selection(target="cpu")


def record_of(check, verdict="passed", **changes):
    return Record(**{
        "check": check.id, "case": check.case.id, "group": check.group, "suite": check.suite,
        "operator": check.operator.name, "implementation": check.candidate.declared.name, "variant": "official",
        "target": check.target.name, "claim": check.target.describes, "verdict": verdict,
        "kind": "budget" if verdict == "failed" else None, "source_hash": current_hash(check), "commit": "0",
        "command": check.command, "seconds": 0, "date": "2026-01-01",
    } | changes)  # fmt: skip


class Session:
    """A session whose checks have the verdicts that are given, the last of them again and again."""

    def __init__(self, *verdicts, waivers=()):
        self.verdicts, self.ran = verdicts or ("passed",), []
        self.waivers = Waivers(waivers, date(2026, 1, 1))

    def run(self, check):
        verdict = self.verdicts[min(len(self.ran), len(self.verdicts) - 1)]
        if verdict == "ctrl-c":
            raise KeyboardInterrupt
        self.ran.append(check.id)
        return self.waivers.applied(record_of(check, verdict))


@pytest.fixture(scope="module")
def checks():
    return build(FILTERED)[:4]


@pytest.fixture
def no_floor(monkeypatch):
    monkeypatch.setattr(campaign, "floors", dict)


@pytest.mark.parametrize(("verdicts", "fields", "code"), [
    (("passed", "passed"), {}, 0),
    (("passed", "unsupported"), {}, 0),
    (("passed", "waived"), {}, 0),
    (("passed", "failed"), {}, 1),
    (("passed", "error"), {}, 1),
    (("unsupported", "error"), {}, 1),
    (("passed", "passed"), {"complaints": ["below the floor"]}, 1),
    (("unsupported", "unsupported"), {}, 3),
    (("passed", "failed"), {"interrupted": True}, 130),
    ((), {"interrupted": True}, 130),
])  # fmt: skip
def test_an_exit_code_tells_what_a_run_came_to(checks, verdicts, fields, code):
    records = [record_of(check, verdict) for check, verdict in zip(checks, verdicts, strict=False)]
    assert Outcome(records, **fields).exit_code == code


def test_every_check_runs_once_in_order_and_is_recorded(checks, tmp_path):
    file, session = prepared_folder(tmp_path, resume=False), Session("passed", "failed", "error", "unsupported")
    outcome = campaign.run(checks, session, FILTERED, file=file)
    assert session.ran == [check.id for check in checks]
    assert [r.verdict for r in outcome.records] == ["passed", "failed", "error", "unsupported"]
    assert outcome.planned == 4
    assert read_records(file.path) == outcome.records


def test_an_interruption_leaves_whole_records_and_exits_130(checks, tmp_path):
    file = prepared_folder(tmp_path, resume=False)
    outcome = campaign.run(checks, Session("passed", "failed", "ctrl-c"), FILTERED, file=file)
    assert (outcome.interrupted, outcome.exit_code, outcome.planned) == (True, 130, 4)
    assert [r.verdict for r in read_records(file.path)] == ["passed", "failed"]
    assert file.path.read_bytes().endswith(b"\n")


def test_an_interrupted_run_goes_on_where_it_ended(checks, tmp_path):
    first = prepared_folder(tmp_path, resume=False)
    campaign.run(checks, Session("passed", "failed", "ctrl-c"), FILTERED, file=first)
    file, session = prepared_folder(tmp_path, resume=True), Session()
    done = already_done(tmp_path, checks)
    outcome = campaign.run(checks, session, FILTERED, file=file, done=done)
    assert session.ran == [check.id for check in checks[2:]]
    assert [r.verdict for r in outcome.records] == ["passed", "failed", "passed", "passed"]
    assert outcome.exit_code == 1
    assert len(read_records(file.path)) == 4


def test_only_records_of_the_code_as_it_is_now_are_kept(checks, tmp_path):
    file = prepared_folder(tmp_path, resume=False)
    stale, unknown, older, current = checks
    for record in (
        record_of(stale, source_hash="of other code"), record_of(unknown, source_hash=None),
        record_of(older, "failed"), record_of(older), record_of(current),
    ):  # fmt: skip
        file.append(record)
    assert [(r.check, r.verdict) for r in already_done(tmp_path, checks)] == [
        (older.id, "passed"),
        (current.id, "passed"),
    ]
    assert [r.check for r in already_done(tmp_path, [current])] == [current.id]


def test_a_folder_is_made_and_its_old_records_go_unless_a_run_is_resumed(checks, tmp_path):
    folder = tmp_path / "new" / "folder"
    prepared_folder(folder, resume=False).append(record_of(checks[0]))
    assert len(read_records(prepared_folder(folder, resume=True).path)) == 1
    assert read_records(prepared_folder(folder, resume=False).path) == []
    assert prepared_folder(None, resume=False) is None


@pytest.mark.parametrize("resume", [True, False])
def test_a_folder_that_cannot_be_written_is_refused_by_name(tmp_path, resume):
    (tmp_path / "file").write_text("no folder")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UnwritableError, match=f"^{folder} cannot be written: "):
            prepared_folder(folder, resume=resume)


def test_checks_that_ran_are_counted_by_target(checks):
    records = [record_of(checks[0]), record_of(checks[1], "failed"), record_of(checks[2], target="hip")]
    assert executed([*records, record_of(checks[3], "unsupported")]) == {"cpu": 2, "hip": 1}


@pytest.mark.parametrize(("floor", "complaints"), [
    (4, []), (3, []), (5, ["only 4 checks of suite smoke ran on cpu; the floor in floors.json is 5"]),
])  # fmt: skip
def test_a_whole_run_below_its_floor_fails(monkeypatch, checks, floor, complaints):
    monkeypatch.setattr(campaign, "floors", lambda: {"smoke": {"cpu": floor}})
    outcome = campaign.run(checks, Session(), WHOLE)
    assert outcome.complaints == complaints
    assert outcome.exit_code == bool(complaints)


@pytest.mark.parametrize(("selection", "whole"), [(FILTERED, True), (WHOLE, False)])
def test_a_part_of_a_suite_has_no_floor(monkeypatch, checks, selection, whole):
    monkeypatch.setattr(campaign, "floors", lambda: {"smoke": {"cpu": 5}})
    assert campaign.run(checks, Session(), selection, whole=whole).exit_code == 0


def test_a_suite_or_target_without_a_floor_promises_nothing(monkeypatch, checks):
    monkeypatch.setattr(campaign, "floors", lambda: {"smoke": {"hip": 5}})
    records = [record_of(check) for check in checks]
    assert below_floor("smoke", records) == []
    assert below_floor("nightly", records) == []


def test_the_recorded_floors_are_of_known_suites_and_targets_and_can_be_met():
    for suite, wanted in floors().items():
        assert suite in SUITES
        assert wanted.keys() <= targets().keys()
        for target, floor in wanted.items():
            if targets()[target].missing() is None:
                assert floor <= len(build(Selection(suite=suite, target=target)))


WAIVER = Waiver(id="known", pattern="rms_norm/*", tracker="#123", expires=date(2026, 1, 2), reason="a reason")


@pytest.mark.parametrize(("verdict", "pattern", "complaint"), [
    ("failed", "rms_norm/*", None),
    ("passed", "rms_norm/*", "passes; remove the waiver"),
    ("failed", "route/*", "matches no check"),
])  # fmt: skip
def test_what_is_wrong_with_the_ledger_fails_a_whole_run(no_floor, checks, verdict, pattern, complaint):
    session = Session(verdict, waivers=[WAIVER.model_copy(update={"pattern": pattern})])
    outcome = campaign.run(checks, session, WHOLE)
    if complaint is None:
        assert (outcome.complaints, outcome.exit_code) == ([], 0)
    else:
        assert complaint in outcome.complaints[0]
        assert outcome.exit_code == 1


def test_progress_is_told_now_and_then_with_the_check_that_runs(monkeypatch, capsys, checks):
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(campaign, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    campaign.run(checks, Session(), FILTERED)
    lines = capsys.readouterr().err.splitlines()
    assert 1 <= len(lines) < len(checks)
    assert lines[0].startswith("2 of 4 checks, ")
    assert lines[0].endswith(checks[1].id)
