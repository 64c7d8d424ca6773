"""Records come back as they went, line by line, whatever ended the run."""

from __future__ import annotations

import json
import math
import stat

import jsonschema
import pytest

from verification.records import (
    BadRecordsError,
    BudgetRecord,
    Environment,
    OutputRecord,
    Record,
    RecordFile,
    read_records,
    schema,
    write_summary,
    write_whole,
)

NUMBERS = {
    "largest_error": 0.1, "ratio": 1 / 3, "worst_index": [1, 2], "worst_error": 5e-324, "worst_budget": 1e308,
    "worst_ulps": math.inf, "largest_ulps": math.nan, "bit_equal": 1.0, "row_ratio": -0.0, "bias": -math.inf,
    "bias_ratio": None, "median_budget_ulps": 2.4,
}  # fmt: skip


def record(**changes):
    return Record(**{
        "check": "toy//bf16/normal/0:mine@cpu", "case": "toy//bf16/normal/0", "group": "sizes", "suite": "smoke",
        "operator": "toy", "implementation": "mine", "variant": "official", "target": "cpu", "claim": "plain torch",
        "verdict": "passed", "commit": "0" * 12, "command": "parity verify", "seconds": 0.5, "date": "2026-01-01",
    } | changes)  # fmt: skip


FULL = record(
    verdict="failed", kind="budget", findings=["y: at [1, 2] got nan ± 3 × σ\nsecond line"], modes=["direct", "repeat"],
    outputs=[OutputRecord(output="y", dtype="bf16", elements=6, **NUMBERS)], configuration="wide", law=None,
    budget=BudgetRecord(formula="z·σ + ½ulp", runs=16, factor=6.4, false_alarm=1e-6), source_hash="abc",
    environment=Environment(
        device="cpu", architecture="cpu", python="3", torch="2", triton="3", tf32=True, float32_matmul_precision="high",
    ),
)  # fmt: skip


@pytest.fixture
def file(tmp_path):
    return RecordFile(tmp_path / "records.jsonl")


def test_records_come_back_as_they_were_written_nan_and_inf_included(file):
    written = [FULL, record(), record(verdict="unsupported", findings=["no such width"])]
    for one in written:
        file.append(one)
    read = read_records(file.path)
    assert [one.model_dump_json() for one in read] == [one.model_dump_json() for one in written]
    (output,) = read[0].outputs
    assert math.isnan(output.largest_ulps)
    assert (output.worst_ulps, output.bias, output.worst_error) == (math.inf, -math.inf, 5e-324)
    assert math.copysign(1, output.row_ratio) == -1


def test_a_record_is_one_line_of_strict_json_that_the_published_schema_takes(file):
    file.append(FULL)
    file.append(record())
    lines = file.path.read_text().splitlines()
    assert len(lines) == 2

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    for line in lines:
        parsed = json.loads(line, parse_constant=refuse)
        assert parsed["schema_version"] == 1
    jsonschema.validate(json.loads(lines[1]), schema())


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.99])
def test_a_last_line_cut_short_is_left_out(file, kept):
    file.append(record())
    whole = file.path.read_text()
    file.path.write_text(whole + whole[: int(len(whole) * kept)])
    assert read_records(file.path) == [record()]


def test_a_file_without_records_has_none(file):
    file.path.write_text("")
    assert read_records(file.path) == []
    file.path.write_text("\n\n")
    assert read_records(file.path) == []


@pytest.mark.parametrize(("line", "reason"), [
    ("{not json", "Invalid JSON"),
    ("[]", "the line: Input should be an object"),
    (record().model_dump_json().replace('"passed"', '"perhaps"'), "verdict: .*'passed'"),
    (record().model_dump_json().replace('"suite":"smoke",', ""), "suite: Field required"),
    (record().model_dump_json().replace('{"schema', '{"stranger":1,"schema'), "stranger: Extra inputs"),
])  # fmt: skip
def test_a_malformed_line_is_named_by_file_line_and_reason(file, line, reason):
    good = record().model_dump_json()
    file.path.write_text(f"{good}\n{line}\n{good}\n")
    with pytest.raises(BadRecordsError, match=rf"records\.jsonl:2: .*{reason}"):
        read_records(file.path)


@pytest.mark.parametrize(
    "changes", [{"verdict": "perhaps"}, {"kind": "bad luck"}, {"stranger": 1}, {"seconds": "long"}]
)
def test_a_record_takes_no_unknown_verdict_kind_or_field(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        record(**changes)


def test_a_record_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        FULL.verdict = "passed"


def test_a_file_is_written_whole_into_a_folder_that_is_made(tmp_path):
    path = tmp_path / "new" / "folder" / "report.md"
    write_whole(path, "first")
    write_whole(path, "σ second")
    assert path.read_text(encoding="utf-8") == "σ second"
    assert [one.name for one in path.parent.iterdir()] == ["report.md"]
    assert path.stat().st_mode & stat.S_IRUSR


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "report.md"
    write_whole(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "new \ud800")
    assert path.read_text() == "old"


def test_an_interruption_before_the_last_step_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "report.md"
    write_whole(path, "old")

    def interrupted(self, target):
        assert self.parent == path.parent, "a rename is whole only inside one file system"
        raise KeyboardInterrupt

    monkeypatch.setattr(type(path), "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "new")
    assert path.read_text() == "old"


def test_a_summary_counts_verdicts_and_holds_its_records(tmp_path):
    path = tmp_path / "summary.json"
    write_summary(path, "verify", iter([FULL, record(), record()]), 1, planned=7)
    summary = json.loads(path.read_text())
    assert (summary["command"], summary["exit_code"], summary["planned"]) == ("verify", 1, 7)
    assert summary["counts"] == {"passed": 2, "failed": 1, "error": 0, "unsupported": 0, "waived": 0}
    assert Record.model_validate(summary["records"][0]).model_dump_json() == FULL.model_dump_json()


def test_a_line_cut_inside_a_character_is_dropped_like_any_cut_line(tmp_path):
    path = tmp_path / "records.jsonl"
    line = record(group="größe").model_dump_json().encode()
    path.write_bytes(line + b"\n" + line[: line.index("ö".encode()) + 1])
    assert len(read_records(path)) == 1


def test_a_resumed_file_holds_whole_lines_alone(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text(record().model_dump_json() + "\n" + '{"schema_ver')
    file = RecordFile(path)
    file.replace(read_records(path))
    file.append(record())
    assert len(read_records(path)) == 2
