"""A choice is judged by margins: ties by id, near ties either way, NaN last, groups sure or possible."""

from __future__ import annotations

import math

import pytest
import torch

from verification.budget import Golden
from verification.topk import check_choice, kept_experts, precedes

NAN, INF = math.nan, math.inf
ERROR = 0.01


def arguments_of(**changes):
    return {"num_groups": 1, "top_groups": 1, "correction_bias": None} | changes


def golden_of(choice, error=ERROR):
    choice = torch.tensor(choice, dtype=torch.float64)
    return Golden({}, {}, {"choice": choice}, {"choice": torch.full_like(choice, error)})


def findings(ids, choice, error=ERROR, **changes):
    golden = golden_of(choice, error)
    return [f.message for f in check_choice(torch.tensor(ids), arguments_of(**changes), golden)]


@pytest.mark.parametrize(("a", "b", "a_id", "b_id", "first"), [
    (1.0, 0.5, 7, 3, True), (0.5, 1.0, 3, 7, False),
    (1.0, 1.0, 3, 7, True), (1.0, 1.0, 7, 3, False),
    (1.0, 0.985, 7, 3, False), (0.985, 1.0, 3, 7, False),
    (1.0, 0.975, 7, 3, True),
    (INF, 1e300, 7, 3, True), (INF, INF, 3, 7, True), (INF, INF, 7, 3, False), (0.0, -INF, 7, 3, True),
    (-INF, NAN, 7, 3, True), (NAN, -INF, 3, 7, False), (NAN, 5.0, 3, 7, False), (5.0, NAN, 7, 3, True),
    (NAN, NAN, 3, 7, True), (NAN, NAN, 7, 3, False),
    (0.0, -0.0, 7, 3, False), (0.0, -0.0, 3, 7, True),
])  # fmt: skip
def test_what_must_come_first(a, b, a_id, b_id, first):
    value = lambda x: torch.tensor([x], dtype=torch.float64)  # noqa: E731
    error = value(ERROR)
    assert precedes(value(a), error, torch.tensor([a_id]), value(b), error, torch.tensor([b_id])).tolist() == [first]


RIGHT = {
    "descending": ([[2, 0, 3]], [[0.5, 0.1, 0.9, 0.3]]),
    "equal ones by id": ([[0, 1, 2]], [[0.5, 0.5, 0.5, 0.5]]),
    "within the error one way": ([[0, 1]], [[0.500, 0.505, 0.1]]),
    "within the error the other way": ([[1, 0]], [[0.500, 0.505, 0.1]]),
    "the last slot within the error": ([[2, 1]], [[0.500, 0.505, 0.9]]),
    "NaN after -Inf": ([[1, 2, 0, 3]], [[NAN, 1.0, -INF, NAN]]),
    "all NaN": ([[0, 1]], [[NAN, NAN, NAN]]),
    "Inf by id": ([[1, 2]], [[0.0, INF, INF, INF]]),
    "all of them": ([[1, 0]], [[0.1, 0.9]]),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_choice_has_no_finding(name):
    assert findings(*RIGHT[name]) == []


WRONG = {
    "order": ([[0, 2, 3]], [[0.5, 0.1, 0.9, 0.3]], "row 0, slot 0 is expert 0 with choice 0.5, but expert 2 with 0.9"),
    "a better one left out": ([[2, 1]], [[0.5, 0.1, 0.9]], "slot 1 is expert 1 with choice 0.1, but expert 0 with 0.5"),
    "a tie by the higher id": ([[1, 0]], [[0.5, 0.5, 0.1]], "slot 0 is expert 1 with choice 0.5, but expert 0"),
    "a tie left out": ([[0, 2]], [[0.5, 0.5, 0.5]], "slot 1 is expert 2 with choice 0.5, but expert 1"),
    "beyond the error": ([[0, 1]], [[0.500, 0.525, 0.1]], "margin 0.025, error of both 0.02"),
    "NaN before a number": ([[0, 1]], [[NAN, 1.0, -INF]], "slot 0 is expert 0 with choice nan, but expert 1"),
    "NaN by the higher id": ([[1, 0]], [[NAN, NAN]], "slot 0 is expert 1 with choice nan, but expert 0"),
    "-Inf before a number": ([[1, 0]], [[0.0, -INF]], "slot 0 is expert 1 with choice -inf, but expert 0"),
    "a later row": ([[1, 0], [0, 1]], [[0.1, 0.9], [0.1, 0.9]], "row 1, slot 0 is expert 0"),
    "an expert twice": ([[2, 2]], [[0.5, 0.1, 0.9]], "row 0 holds an expert twice: [2, 2]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_choice_is_named_by_row_and_slot(name):
    ids, choice, said = WRONG[name]
    (message,) = findings(ids, choice)
    assert message.startswith("expert_ids: ")
    assert said in message


GROUPS = {"num_groups": 3, "top_groups": 1}
CLEAR = [[0.9, 0.1, 0.3, 0.3, 0.2, 0.2]]
CLOSE = [[0.900, 0.1, 0.905, 0.3, 0.2, 0.2]]


@pytest.mark.parametrize(("choice", "bias", "sure", "possible"), [
    (CLEAR, None, [0, 1], [0, 1]),
    (CLOSE, None, [], [0, 1, 2, 3]),
    (CLOSE, torch.zeros(6), [2, 3], [2, 3]),
    ([[0.5, 0.1, 0.5, 0.1, 0.5, 0.1]], None, [0, 1], [0, 1]),
    ([[0.5, NAN, 0.9, NAN, 0.2, 0.2]], torch.zeros(6), [4, 5], [4, 5]),
    ([[NAN] * 6], None, [0, 1], [0, 1]),
    ([[0.5, NAN, 0.4, 0.4, 0.2, 0.2]], None, [0, 1], [0, 1]),
])  # fmt: skip
def test_groups_are_kept_surely_or_possibly(choice, bias, sure, possible):
    golden = golden_of(choice)
    arguments = arguments_of(**GROUPS, correction_bias=bias)
    surely, possibly = kept_experts(golden.trace["choice"], golden.trace_error["choice"], arguments)
    assert surely[0].nonzero().flatten().tolist() == sure
    assert possibly[0].nonzero().flatten().tolist() == possible


@pytest.mark.parametrize(("bias", "sure"), [(None, [2, 3]), (torch.zeros(6), [])])
def test_the_error_of_a_sum_of_two_is_that_of_both(bias, sure):
    golden = golden_of([[0.5, 0.5, 0.525, 0.505, 0.1, 0.1]])
    arguments = arguments_of(**GROUPS, correction_bias=bias)
    surely, _ = kept_experts(golden.trace["choice"], golden.trace_error["choice"], arguments)
    assert surely[0].nonzero().flatten().tolist() == sure


def test_where_all_groups_are_kept_every_expert_is_sure():
    golden = golden_of([[0.5, NAN, 0.1]])
    surely, possibly = kept_experts(golden.trace["choice"], golden.trace_error["choice"], arguments_of())
    assert surely.all()
    assert possibly.all()


@pytest.mark.parametrize(("ids", "choice", "said"), [
    ([[0, 1]], CLEAR, None),
    ([[0, 2]], CLEAR, "slot 1 is expert 2, outside the kept groups (1 such slots)"),
    ([[2, 3]], CLOSE, None),
    ([[0, 1]], CLOSE, None),
    ([[2, 4]], CLOSE, "slot 1 is expert 4, outside the kept groups"),
])  # fmt: skip
def test_a_choice_stays_inside_groups_that_may_be_kept(ids, choice, said):
    messages = findings(ids, choice, **GROUPS)
    assert (messages == []) if said is None else (said in messages[0])


def test_no_rows_have_no_findings():
    ids = torch.zeros(0, 2, dtype=torch.int64)
    empty = torch.zeros(0, 4, dtype=torch.float64)
    assert list(check_choice(ids, arguments_of(), Golden({}, {}, {"choice": empty}, {"choice": empty}))) == []
