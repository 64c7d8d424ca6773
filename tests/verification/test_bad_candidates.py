"""A candidate that misbehaves gets a verdict that says how, and the run goes on."""

from __future__ import annotations

import re

import pytest

from verification.plan import Selection, build
from verification.runner import Problem, Session

CASE = "rms_norm/rows=3,hidden=16/bf16/normal/0"

BAD = {
    "takes_other_arguments": ("error", "signature", r"does not take the operator's arguments: .*eps|weight"),
    "returns_two": ("failed", "structure", r"returned 2 tensors; expected 1: y"),
    "returns_a_dict": ("failed", "structure", r"returned a dict where a tensor is expected"),
    "returns_nothing": ("failed", "structure", r"returned 0 tensors; expected 1: y"),
    "wrong_shape": ("failed", "structure", r"y has shape \[16, 3\]; expected \[3, 16\]"),
    "wrong_dtype": ("failed", "structure", r"y has dtype fp32; expected bf16"),
    "wrong_device": ("failed", "structure", r"y is on meta; expected cpu"),
    "raises": ("error", "raised", r"RuntimeError: the kernel met something at bad.py:\d+"),
    "segfaults": ("error", "crash", r"signal SIGSEGV"),
    "exits_python": ("error", "raised", r"SystemExit: 0"),
    "exits_process": ("error", "crash", r"exit status 0; it last said: about to leave"),
    "refuses": ("unsupported", None, r"only rows of 3 elements"),
    "raises_unprintable": ("error", "raised", r"Unprintable: \(its text cannot be had\)"),
    "raises_odd_text": ("error", "raised", r"ValueError: \\ud800 \\x1b\[31m"),
    "returns_sparse": ("failed", "structure", r"layout torch.sparse_coo; expected a dense one"),
    "forks": ("passed", None, r""),
    "chatters": ("passed", None, r""),
}


@pytest.mark.parametrize("name", BAD)
def test_verdict_says_what_the_candidate_did(judge, name):
    record = judge("bad.py", name, CASE)
    verdict, kind, message = BAD[name]
    assert (record.verdict, record.kind) == (verdict, kind), record.findings
    assert re.search(message, " ".join(record.findings))


@pytest.mark.parametrize(("name", "limits", "kind"), [
    ("hangs", {"seconds": 5}, "timeout"),
    ("eats_memory", {"memory_bytes": 1 << 30}, "memory"),
])  # fmt: skip
def test_a_candidate_over_its_limits_is_killed_and_the_next_check_runs(candidates, name, limits, kind):
    with Session(**limits) as limited:
        declared = {c.declared.name: c for c in limited.declared(candidates / "bad.py")}
        selection = Selection(candidates=tuple(declared.values()), case=CASE, target="cpu", law="none")
        checks = {check.candidate.declared.name: check for check in build(selection)}
        record = limited.run(checks[name])
        assert (record.verdict, record.kind) == ("error", kind)
        assert "killed" in record.findings[0]
        assert limited.run(checks["chatters"]).verdict == "passed"


@pytest.mark.parametrize(("text", "message"), [
    ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
    ("def kernel(:", "SyntaxError"),
    ("x = 1", "declares no implementation; decorate one with @candidate"),
    ("raise SystemExit(3)", "SystemExit: 3"),
])  # fmt: skip
def test_a_file_that_cannot_be_imported_is_refused_by_name(session, tmp_path, text, message):
    file = tmp_path / "kernel.py"
    file.write_text(text)
    with pytest.raises(Problem, match=re.escape(message)) as refusal:
        session.declared(file)
    assert refusal.value.kind == "import"
    assert str(file) in str(refusal.value)


TWICE = """
from verification import candidate
from fused.route import route

for factor in (1, 0):
    globals()[f"norm_{factor}"] = candidate("rms_norm", name="same")(lambda x, weight, eps, factor=factor: x * factor)
"""


def test_two_declarations_of_one_name_are_refused(session, tmp_path):
    """The second would never run, and its verdict would be the first's."""
    file = tmp_path / "twice.py"
    file.write_text(TWICE)
    with pytest.raises(Problem, match="declares same of rms_norm more than once"):
        session.declared(file)


def test_what_a_file_imports_is_not_judged_as_its_own(session, tmp_path):
    file = tmp_path / "imports.py"
    file.write_text(TWICE.replace("(1, 0)", "(1,)"))
    assert [c.declared.operator for c in session.declared(file)] == ["rms_norm"]


def test_a_misspelt_operator_in_a_file_is_answered_with_the_nearest(session, tmp_path):
    file = tmp_path / "misspelt.py"
    file.write_text(TWICE.replace("(1, 0)", "(1,)").replace("rms_norm", "rms_nrom"))
    with pytest.raises(ValueError, match="did you mean rms_norm"):
        session.declared(file)
