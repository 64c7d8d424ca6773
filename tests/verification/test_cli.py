"""The program as a user meets it: exit codes, messages, files."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from verification.cli import main
from verification.records import read_records

ROOT = Path(__file__).resolve().parents[2]
CASE = "rms_norm/rows=3,hidden=16/bf16/normal/0"


@pytest.fixture
def parity(capsys):
    """Run the program in this process: exit code, output, error output."""

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(list(words))
        said = capsys.readouterr()
        return int(left.value.code or 0), said.out, said.err

    return run


@pytest.mark.parametrize(("words", "message"), [
    (["verify", "rmsnorm"], "unknown operator 'rmsnorm'; did you mean rms_norm"),
    (["verify", "--suite", "smok"], "unknown suite 'smok'; did you mean smoke?"),
    (["verify", "--target", "cuba"], "unknown target 'cuba'; did you mean cuda?"),
    (["verify", "--implementation", "tritn"], "unknown implementation 'tritn'; did you mean triton?"),
    (["verify", "--case", "rms_norm"], "not a case id: 'rms_norm'"),
    (["verify", "--case", "rms_norm/width=3/bf16/normal/0"], "rms_norm has no parameter ['width']"),
    (["verify", "--case", "route/top_k=1000/fp32/normal/0", "--target", "cpu"], "top_k is 1000"),
    (["verify", "--case", "route//fp32/norml/0", "--target", "cpu"], "did you mean normal or subnormal?"),
    (["verify", "--case", CASE, "--law", "batch_invarance"], "did you mean batch_invariance"),
    (["verify", "--shard", "3/2"], "--shard '3/2'; expected i/n"),
    (["verify", "--candidate", "nowhere.py"], "there is no such file"),
    (["verify", "--resume", "nowhere"], "there is no records.jsonl in it"),
    (["report", "render", "nowhere"], "there is no records.jsonl in it"),
    (["verify", "--suite"], "requires an argument"),
])  # fmt: skip
def test_wrong_words_exit_2_with_one_line_and_the_nearest_name(parity, words, message):
    code, _, error = parity(*words)
    assert code == 2
    assert message in error
    assert "Traceback" not in error


def test_promised_hardware_that_is_absent_exits_3(parity):
    code, _, error = parity("verify", "--require-target", "hip")
    assert code == 3
    assert "target hip is not here" in error


def test_everything_unsupported_exits_3(parity, candidates):
    words = ["--candidate", str(candidates / "bad.py"), "--implementation", "refuses", "--case", CASE]
    assert parity("verify", *words)[0] == 3


def test_a_failure_exits_1_and_names_the_command_that_repeats_it(parity, candidates, tmp_path):
    words = [
        "--candidate",
        str(candidates / "bad.py"),
        "--implementation",
        "wrong_shape",
        "--case",
        CASE,
        "--target",
        "cpu",
    ]
    code, said, _ = parity("verify", *words, "--report", str(tmp_path), "--json", str(tmp_path / "out.json"))
    assert code == 1
    assert f"repeat: parity verify --case {CASE} --implementation wrong_shape --target cpu --candidate" in said
    summary = json.loads((tmp_path / "out.json").read_text())
    assert (summary["exit_code"], summary["counts"]["failed"]) == (1, 1)
    assert "MAY NOT LAND" in (tmp_path / "report.md").read_text()


def test_a_candidate_that_does_not_import_exits_1_without_a_traceback_of_ours(parity, tmp_path):
    (tmp_path / "kernel.py").write_text("import nothing_of_this_name")
    code, said, error = parity("verify", "--candidate", str(tmp_path / "kernel.py"))
    assert code == 1
    assert "error (import)" in said
    assert "Traceback" not in said + error


def test_a_report_folder_that_cannot_be_written_is_refused_before_anything_runs(parity, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, error = parity("verify", "--report", str(tmp_path / "file" / "report"))
    assert code == 2
    assert "cannot be written" in error


def test_list_and_doctor_name_every_operator_and_target(parity, tmp_path):
    code, said, _ = parity("list", "--json", str(tmp_path / "list.json"))
    assert code == 0
    listed = json.loads((tmp_path / "list.json").read_text())
    assert {"rms_norm", "route", "moe_sorting", "route_sort", "attention_residual"} <= listed["operators"].keys()
    assert all(name in said for name in listed["operators"])
    code, said, _ = parity("doctor")
    assert code == 0
    assert all(f"target {name}" in said for name in listed["targets"])


def test_a_run_is_resumed_where_it_ended_and_its_report_rendered_anew(parity, tmp_path):
    words = ["rms_norm", "--target", "cpu", "--implementation", "eager", "--law", "none"]
    assert parity("verify", *words, "--shard", "1/4", "--report", str(tmp_path))[0] == 0
    first = read_records(tmp_path / "records.jsonl")
    assert parity("verify", *words, "--resume", str(tmp_path))[0] == 0
    both = read_records(tmp_path / "records.jsonl")
    assert both[: len(first)] == first
    assert len({r.check for r in both}) == len(both) > len(first)
    assert parity("report", "render", str(tmp_path))[0] == 0
    assert f"{len(both)} passed" in (tmp_path / "report.md").read_text()


def test_ctrl_c_keeps_whole_records_and_exits_130(tmp_path):
    words = [sys.executable, "-m", "verification", "verify", "--target", "cpu", "--report", str(tmp_path)]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    path = tmp_path / "records.jsonl"
    while not (path.exists() and path.read_text().count("\n") >= 3):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "interrupted" in said
    assert len(read_records(path)) == path.read_text().count("\n") >= 3
    assert "INTERRUPTED: no verdict" in (tmp_path / "report.md").read_text()


def test_identify_variant_tells_a_kernel_that_rounds_once_from_one_that_rounds_twice(parity):
    words = ["rms_norm", "--target", "cpu", "--identify-variant", "--implementation"]
    for name, follows in (("eager", "official"), ("eager_one_rounding", "one_rounding")):
        code, said, _ = parity("verify", *words, name)
        rows = [line.split("│")[1].strip() for line in said.splitlines() if "│" in line]
        assert code == 0
        assert rows[0] == follows


def test_derive_budgets_refuses_to_widen_without_a_reason(parity, monkeypatch, tmp_path):
    from verification import provenance

    path = tmp_path / "budget_provenance.json"
    monkeypatch.setattr(provenance, "FILE", path)
    monkeypatch.setattr(provenance.rewrite, "__defaults__", (path,))
    words = ["verify", "--case", CASE, "--target", "cpu", "--derive-budgets"]
    assert parity(*words)[0] == 0
    narrower = json.loads(path.read_text())
    for row in narrower["budgets"].values():
        row["median_budget_ulps"] /= 2
    path.write_text(json.dumps(narrower))
    code, _, error = parity(*words)
    assert code == 2
    assert "budgets would widen without --reason" in error
    assert parity(*words, "--reason", "a new rounding point")[0] == 0
    assert json.loads(path.read_text())["reason"] == "a new rounding point"
