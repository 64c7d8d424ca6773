"""A wrong result is given the name of the known fault that gives its numbers, and of no other."""

from __future__ import annotations

import math

import pytest
import torch

from reference.numerics import ROUNDED
from verification.budget import Budget, Golden, derive
from verification.eager.rms_norm import rms_norm, rms_norm_once
from verification.nearest import nearest
from verification.operator import find_operator, parse_case

EXACT = torch.tensor([[4.0, -5.0, 6.0], [5.0, 7.0, -6.0]], dtype=torch.float64)
IDS = torch.tensor([3, 1], dtype=torch.int32)


def golden_of(exact=EXACT):
    ones = torch.ones_like(exact)
    budget = Budget(ones, ones, torch.ones(2, dtype=torch.float64), None)
    return Golden({"y": exact, "ids": IDS}, {"y": budget}, {}, {})


def outputs(y, ids=IDS):
    return {"y": y.float(), "ids": ids.clone()}


def at(value, y=EXACT):
    y = y.clone()
    y[1, 2] = value
    return y


def names(got, *faults, golden=None):
    return nearest(got, golden or golden_of(), [(f"fault {n}", fault) for n, fault in enumerate(faults)])


def test_the_fault_with_the_same_numbers_is_named():
    assert names(outputs(EXACT * 3), outputs(EXACT * 2), outputs(EXACT * 3)) == "fault 1"


def test_rounding_is_allowed_and_no_more():
    assert names(outputs(at(7.9)), outputs(at(7.0))) == "fault 0"
    assert names(outputs(at(8.1)), outputs(at(7.0))) is None


def test_a_fault_that_makes_numbers_large_is_given_as_many_ulps_there():
    assert names(outputs(at(23.9)), outputs(at(20.0))) == "fault 0"
    assert names(outputs(at(24.1)), outputs(at(20.0))) is None


def test_a_right_element_that_the_fault_has_wrong_is_no_match():
    assert names(outputs(at(20.0)), outputs(at(20.0) + torch.tensor([2.0, 0, 0]))) is None


def test_of_two_within_rounding_the_closer_is_named():
    assert names(outputs(at(20.0)), outputs(at(20.5)), outputs(at(20.25)), outputs(at(19.0))) == "fault 1"


def test_equally_close_faults_are_all_named():
    assert names(outputs(EXACT * 3), outputs(EXACT * 3), outputs(EXACT * 2), outputs(EXACT * 3)) == "fault 0 or fault 2"


def test_a_fault_hardly_nearer_than_the_exact_result_is_not_named():
    got = outputs(at(-6.0 + 1.2))
    assert names(got, outputs(at(-6.0 + 0.3))) is None  # within its budget of both
    assert names(got, outputs(at(-6.0 + 1.1))) == "fault 0"


def test_a_right_result_has_no_fault():
    assert names(outputs(EXACT), outputs(EXACT), outputs(EXACT * 3)) is None


def test_where_no_element_fails_the_whole_decides():
    lean = torch.full_like(EXACT, 0.5)
    assert names(outputs(EXACT + lean), outputs(EXACT - lean), outputs(EXACT + lean)) == "fault 1"
    assert names(outputs(EXACT + lean), outputs(EXACT + 0.5 * lean)) is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_special_values_must_be_the_same(value):
    assert names(outputs(at(value)), outputs(at(20.0)), outputs(at(value)), outputs(EXACT)) == "fault 1"
    infinite = golden_of(at(value))
    assert names(outputs(EXACT), outputs(EXACT), golden=infinite) == "fault 0"
    assert names(outputs(at(value)), outputs(at(value)), golden=infinite) is None


def test_other_outputs_must_have_the_same_bits():
    wrong = torch.tensor([1, 3], dtype=torch.int32)
    assert names(outputs(EXACT, wrong), outputs(EXACT, IDS), outputs(EXACT, wrong)) == "fault 1"
    assert names(outputs(EXACT * 3, IDS), outputs(EXACT * 3, wrong)) is None


def test_what_cannot_be_compared_is_no_match():
    got = outputs(EXACT * 3)
    others = ({"y": got["y"]}, outputs(EXACT[:1] * 3), got | {"y": got["y"].double()})
    assert names(got, *others) is None
    assert names(others[1], got) is None
    assert names(got) is None


def one_plus_weight(**a):
    return rms_norm_once(**a | {"weight": 1 + a["weight"].float()})


def weight_backwards(**a):
    return rms_norm_once(**a | {"weight": a["weight"].flip(0)})


def other_eps(**a):
    return rms_norm_once(**a | {"eps": 1e-6})


NORM_FAULTS = {"one plus weight": one_plus_weight, "weight backwards": weight_backwards, "eps 1e-6": other_eps}


@pytest.mark.parametrize("name", NORM_FAULTS)
def test_a_wrong_norm_that_rounds_elsewhere_is_named(name):
    """The known faults are the reference with one argument changed; what is judged rounds once, not twice."""
    operator = find_operator("rms_norm")
    arguments = operator.arguments(parse_case("rms_norm/rows=4,hidden=256/bf16/near_eps/0"))
    changed = {
        "one plus weight": {"weight": 1 + arguments["weight"].double()},
        "weight backwards": {"weight": arguments["weight"].flip(0)},
        "eps 1e-6": {"eps": 1e-6},
        "eps 1e-3": {"eps": 1e-3},
    }
    known = [(n, operator.evaluate(arguments | change, numerics=ROUNDED)) for n, change in changed.items()]
    golden = derive(operator, arguments)
    got = {"y": NORM_FAULTS[name](**arguments)}
    assert not torch.equal(got["y"], dict(known)[name]["y"])
    assert nearest(got, golden, known) == name
    assert nearest({"y": rms_norm(**arguments)}, golden, known) is None
