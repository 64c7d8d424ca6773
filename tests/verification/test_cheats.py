"""A kernel that cheats fails by name, and an honest one that the same session judges next passes."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import verification
from fused.boundary import Implementation
from verification.operator import find_operator, parse_case
from verification.plan import Candidate, Check, Selection, build
from verification.runner import Session
from verification.targets import targets

FOLDER = Path(verification.__file__).parent / "faults" / "cheats"
CASE = "rms_norm/rows=3,hidden=16/bf16/normal/0"

KEPT = ("failed", "determinism", r"rows of an earlier one|differ between the first call and a second")
KNOWS = ("failed", "conduct", r"the candidate uses (reference|verification)\.\w+.*, which knows what is right")
GUARD = ("failed", "conduct", r"calls _get_current_dispatch_mode, which leads to the harness's guard")
PLAIN = ("failed", "structure", r"expected a plain torch\.Tensor")
NUMBERS = ("failed", "budget", r"y: \d+ of 48 elements exceed their budget")

CAUGHT = {
    "answers_without_end": ("error", "crash", r"announced an answer of 4294967295 bytes; killed"),
    "cache_by_bits": KEPT,
    "cache_by_bits_copied": ("failed", "determinism", r"a later one on the same inputs none: it returned a result"),
    "cache_by_pointer": KEPT,
    "cache_by_shape": KEPT,
    "calls_eager": KNOWS,
    "calls_reference": KNOWS,
    "calls_reference_when_watched": KNOWS,
    "clears_the_guard": GUARD,
    "early_return": ("failed", "guard", r"48 of 48 elements still hold the allocation's poison"),
    "fake_records": NUMBERS,
    "forges_answers": ("error", "crash", r"the child's answer is none: results: Input should be a valid list"),
    "inspects_stack": ("failed", "conduct", r"looks through its callers"),
    "kills_parent": ("failed", "conduct", r"sends a signal to process \d+, which is not its own"),
    "lies_about_dtype": PLAIN,
    "mutates_inputs": ("failed", "guard", r"x was changed"),
    "mutates_inputs_later": ("failed", "guard", r"a second call after other inputs: x was changed"),
    "noise": NUMBERS,
    "other_shape_later": ("failed", "structure", r"a second call .*: y has shape \[48\]; expected \[3, 16\]"),
    "overrides_tensor": PLAIN,
    "patches_builtins": ("error", "crash", r"the process ended with exit status 1"),
    "patches_comparison": KNOWS,
    "patches_guard": ("failed", "conduct", r"replaces AllocationGuard\.damages"),
    "patches_modules": ("failed", "conduct", r"replaces .*verification\.transport"),
    "patches_results": ("failed", "conduct", r"replaces verification\.execution\.write_results"),
    "patches_tensor": ("failed", "conduct", r"replaces Tensor\.contiguous"),
    "patches_torch": ("failed", "conduct", r"replaces torch\.isnan"),
    "previous_output": KEPT,
    "reads_parent_memory": ("failed", "conduct", r"opens /proc/\d+/maps, which is another process's"),
    "reads_reference_source": KNOWS,
    "reads_scratch": ("failed", "conduct", r"a file of the harness's own"),
    "reference_in_another_process": ("failed", "conduct", r"starts .*python"),
    "returns_input": NUMBERS,
    "reused_buffer": KEPT,
    "right_first": KEPT,
    "right_guarded": GUARD,
    "right_later": NUMBERS,
    "right_under_grad": NUMBERS,
    "right_unguarded": NUMBERS,
    "two_results_later": ("failed", "structure", r"a second call .*: returned 2 tensors; expected 1: y"),
    "vast_meta_tensor": ("failed", "structure", r"y is on meta; expected cpu"),
    "writes_beside_later": ("failed", "guard", r"a second call .* 2 bytes after an allocation"),
    "writes_the_pattern_beside": ("failed", "guard", r"64 bytes after an allocation"),
    "writes_the_pattern_beside_input": ("failed", "guard", r"64 bytes beside the memory of x"),
}

ELSEWHERE = {"sampled_case", "side_stream"}
"""Judged below: one on its whole suite, one on a GPU."""


def candidate_of(path, name="cheat"):
    return Candidate(Implementation("rms_norm", name, call=print), str(path))


def check_of(candidate, case, target="cpu"):
    return Check(parse_case(case), "cheats", "smoke", find_operator("rms_norm"), candidate, targets()[target])


@pytest.fixture(scope="module")
def verdicts(candidates):
    """Records of each cheat, and of an honest implementation judged after it in the same session."""

    def judge(names):
        with Session(seconds=20) as session:
            honest = check_of(candidate_of(candidates / "bad.py", "chatters"), CASE)
            return {
                name: (session.run(check_of(candidate_of(FOLDER / f"{name}.py"), CASE)), session.run(honest))
                for name in names
            }

    with ThreadPoolExecutor(2) as pool:
        halves = pool.map(judge, (list(CAUGHT)[::2], list(CAUGHT)[1::2]))
        return {name: records for half in halves for name, records in half.items()}


def test_every_cheat_there_is_has_its_verdict_here():
    assert {path.stem for path in FOLDER.glob("*.py")} == CAUGHT.keys() | ELSEWHERE


@pytest.mark.parametrize("name", CAUGHT)
def test_a_cheat_is_caught_and_what_is_judged_next_can_trust_the_session(verdicts, name):
    cheat, honest = verdicts[name]
    verdict, kind, message = CAUGHT[name]
    assert (cheat.verdict, cheat.kind) == (verdict, kind), cheat.findings
    assert re.search(message, " ".join(cheat.findings)), cheat.findings
    assert honest.verdict == "passed", honest.findings


def test_a_table_of_listed_answers_passes_on_those_and_fails_on_the_seed_that_only_its_digest_gives(session):
    table = candidate_of(FOLDER / "sampled_case.py")
    checks = build(Selection(("rms_norm",), target="cpu", candidates=(table,), law="none"))
    (unlisted,) = [check for check in checks if check.group == "unlisted seed"]
    assert unlisted.case.seed > 0
    assert session.run(check_of(table, CASE)).verdict == "passed"
    assert session.run(unlisted).kind == "budget"


def test_a_file_that_is_edited_is_judged_on_another_seed(tmp_path):
    seeds = set()
    for text in ("a = 1", "a = 2"):
        (tmp_path / "kernel.py").write_text(text)
        checks = build(Selection(("rms_norm",), target="cpu", candidates=(candidate_of(tmp_path / "kernel.py"),)))
        seeds |= {check.case.seed for check in checks if check.group == "unlisted seed"}
    assert len(seeds) == 2


@pytest.mark.parametrize("borrows", [False, True])
def test_only_a_fault_made_on_purpose_may_borrow_what_is_right(borrows):
    borrower = replace(candidate_of(FOLDER / "calls_eager.py"), borrows=borrows)
    with Session() as own:
        assert own.run(check_of(borrower, CASE)).verdict == ("passed" if borrows else "failed")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or HIP device")
def test_work_on_another_stream_does_not_pass(session):
    """Poison is read, or, where loading a kernel has waited for that stream, no graph can be captured."""
    target = "hip" if torch.version.hip else "cuda"
    record = session.run(check_of(candidate_of(FOLDER / "side_stream.py"), CASE, target))
    assert (record.verdict, record.kind) in (("failed", "guard"), ("error", "raised")), record.findings
    assert record.kind == "guard" or "captur" in record.findings[0]
