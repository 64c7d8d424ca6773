"""A law holds for a function that obeys it and breaks for one that does not."""

from __future__ import annotations

import math

import pytest
import torch

from verification.laws import (
    batch_invariance,
    differences,
    equivalence,
    parameter_sensitivity,
    reassembly,
    row_isolation,
    storage_order,
)
from verification.operator import Case

ROWS, WIDTH = 10, 6


class Context:
    """A law's view of a function."""

    def __init__(self, function, rows=ROWS):
        self.function, self.rows, self.calls = function, rows, 0
        self.case = Case("toy", (("rows", rows),))

    def arguments(self):
        x = torch.arange(self.rows * WIDTH, dtype=torch.float32).reshape(self.rows, WIDTH)
        return {
            "x": x,
            "ids": torch.arange(self.rows, dtype=torch.int32),
            "bias": torch.ones(WIDTH),
            "missing": None,
            "scale": 2.0,
        }

    def call(self, arguments):
        self.calls += 1
        return {"y": self.function(**arguments)}

    def judge(self, arguments=None, outputs=None):
        """As a golden would: by the values alone, however they are laid out."""
        if outputs is not None:
            return [] if torch.equal(outputs["y"], self.call(self.arguments())["y"]) else ["y is wrong"]
        plain = arguments | {"x": arguments["x"].contiguous()}
        wrong = not torch.equal(self.call(arguments)["y"], self.function(**plain))
        return ["y is wrong"] if wrong else []


def honest(x, ids, bias, missing, scale):
    return x.contiguous() * scale + bias + ids[:, None]


def otherwise_in_small_batches(x, ids, bias, missing, scale):
    return honest(x, ids, bias, missing, scale) + (x.shape[0] == 8)


def otherwise_alone(x, ids, bias, missing, scale):
    return honest(x, ids, bias, missing, scale) + (x.shape[0] == 1)


def leaks_the_mean(x, ids, bias, missing, scale):
    return honest(x, ids, bias, missing, scale) + x.mean()


def leaks_the_ids(x, ids, bias, missing, scale):
    return honest(x, ids, bias, missing, scale) + ids.sum()


def reads_nothing(x, ids, bias, missing, scale):
    return torch.zeros_like(x)


def ignores_the_bias(x, ids, bias, missing, scale):
    return x * scale + ids[:, None]


def trusts_the_strides(x, ids, bias, missing, scale):
    # As a kernel does that takes a pointer and assumes contiguous rows.
    return honest(x.as_strided(x.shape, (WIDTH, 1)), ids, bias, missing, scale)


def is_not_linear(x, ids, bias, missing, scale):
    return honest(x, ids, bias, missing, scale + (scale > 3))


ROW_ARGUMENTS = ("x", "ids", "missing")
TRANSPOSED = {"transposed": lambda x: x.t().contiguous().t()}
LAWS = {
    "batch_invariance": batch_invariance(ROW_ARGUMENTS),
    "row_isolation": row_isolation(ROW_ARGUMENTS),
    "parameter_sensitivity": parameter_sensitivity({"bias": lambda a: -a["bias"], "scale": lambda a: a["scale"] * 2}),
    "storage_order": storage_order("x", TRANSPOSED),
    "doubling": equivalence(
        "doubling", "Twice the scale and half of x give the same.",
        lambda a: a | {"x": a["x"] / 2, "scale": a["scale"] * 2}, lambda a, usual: usual,
    ),
}  # fmt: skip

BREAKERS = [
    ("batch_invariance", otherwise_in_small_batches, "y differs for rows 0…7 alone in 48 of 48 elements"),
    ("batch_invariance", otherwise_alone, "y differs for rows 0…0 alone in 6 of 6 elements"),
    ("row_isolation", leaks_the_mean, "y differs for row 0 when every other row is NaN"),
    ("row_isolation", leaks_the_ids, "y differs for row 0 when every other row is NaN"),
    ("row_isolation", reads_nothing, "A change of row 0 changed nothing in row 0"),
    ("parameter_sensitivity", ignores_the_bias, "Changing bias changed no bit of any output: it is ignored."),
    ("storage_order", trusts_the_strides, "With x transposed: y is wrong"),
    ("doubling", is_not_linear, "y differs after the rewrite"),
]


@pytest.mark.parametrize("name", LAWS)
def test_a_law_holds_for_a_function_that_obeys_it(name):
    context = Context(honest)
    assert list(LAWS[name].check(context)) == []
    assert context.calls >= 1


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_batch_invariance_holds_where_there_are_fewer_rows_than_it_slices(rows):
    assert list(LAWS["batch_invariance"].check(Context(honest, rows))) == []


@pytest.mark.parametrize(("name", "function", "said"), BREAKERS, ids=[f"{n}-{f.__name__}" for n, f, _ in BREAKERS])
def test_a_law_breaks_for_a_function_that_violates_it(name, function, said):
    broken = list(LAWS[name].check(Context(function)))
    assert broken
    assert said in broken[0]


@pytest.mark.parametrize(("name", "function"), [(n, f) for n, f, _ in BREAKERS if f is not reads_nothing])
def test_a_violation_of_one_law_obeys_the_laws_that_it_does_not_touch(name, function):
    touched = {name, "doubling"} if function is leaks_the_mean else {name}
    if function in (leaks_the_mean, leaks_the_ids):
        touched.add("batch_invariance")
    for other in LAWS.keys() - touched:
        assert list(LAWS[other].check(Context(function))) == [], other


@pytest.mark.parametrize(("name", "case", "applies"), [
    ("batch_invariance", Case("toy", ()), True), ("batch_invariance", Case("toy", (("rows", 0),)), False),
    ("row_isolation", Case("toy", (("rows", 2),)), True), ("row_isolation", Case("toy", (("rows", 1),)), False),
    ("parameter_sensitivity", Case("toy", ()), True),
    ("parameter_sensitivity", Case("toy", (), distribution="distinct"), True),
    ("parameter_sensitivity", Case("toy", (), distribution="zeros"), False),
    ("storage_order", Case("toy", ()), True), ("doubling", Case("toy", ()), True),
])  # fmt: skip
def test_a_law_is_asked_of_the_cases_that_it_speaks_of(name, case, applies):
    assert LAWS[name].applies(case) == applies


def halves(context):
    """The first rows and the rest, put together."""
    arguments = context.arguments()
    parts = [{n: v[rows] if n in ("x", "ids") else v for n, v in arguments.items()}
             for rows in (slice(0, 4), slice(4, None))]  # fmt: skip
    yield "Rows split at 4", {"y": torch.cat([context.call(part)["y"] for part in parts])}


def test_a_reassembly_judges_what_was_put_together():
    law = reassembly("halves", "The rows may come in two calls.", halves, lambda case: case.seed == 0)
    assert list(law.check(Context(honest))) == []
    assert list(law.check(Context(leaks_the_ids))) == ["Rows split at 4: y is wrong"]
    assert [law.applies(Case("toy", (), seed=seed)) for seed in (0, 1)] == [True, False]


def across(function):
    """The same function with rows along the last axis of x and y."""
    return lambda x, **others: function(x.t(), **others).t()


class Across(Context):
    """A context whose x has rows along its last axis."""

    def arguments(self):
        arguments = super().arguments()
        return arguments | {"x": arguments["x"].t().contiguous()}


ROW_AXES = {"x": 1, "ids": 0, "missing": 0}


@pytest.mark.parametrize("law", [batch_invariance(ROW_AXES, {"y": 1}), row_isolation(ROW_AXES, {"y": 1})])
def test_rows_may_lie_along_any_axis(law):
    assert list(law.check(Across(across(honest)))) == []
    assert list(law.check(Across(across(leaks_the_ids))))


def test_every_argument_named_is_stored_in_the_other_order():
    law = storage_order(("ids", "x"), {"flipped": lambda x: x.flip(0)})
    told = [said.split(":")[0] for said in law.check(Context(honest))]
    assert told == ["With ids flipped", "With x flipped"]


def test_an_equivalence_compares_only_what_it_expects():
    law = equivalence(
        "part", "Only y is compared.", lambda a: a, lambda a, usual: {"y": usual["y"]}, lambda case: False
    )
    assert list(law.check(Context(honest))) == []
    assert not law.applies(Case("toy", ()))


@pytest.mark.parametrize(("after", "said"), [
    (torch.ones(2, 3), None),
    (torch.ones(3, 2), r"y is [2, 3] torch.float32 but [3, 2] torch.float32 here."),
    (torch.ones(2, 3, dtype=torch.int32), "y is [2, 3] torch.float32 but [2, 3] torch.int32 here."),
    (1 + torch.eye(2, 3) * torch.tensor([[0], [1]]), "y differs here in 1 of 6 elements; they share index 1 of axis 0 "
     "and index 1 of axis 1."),
])  # fmt: skip
def test_differences_are_told_in_a_sentence(after, said):
    assert list(differences({"y": torch.ones(2, 3)}, {"y": after}, "here")) == ([] if said is None else [said])


def test_differences_are_of_bits_save_that_nan_is_nan():
    one, other = torch.tensor([0.0, math.nan]), torch.tensor([-0.0, -math.nan])
    (said,) = differences({"y": one}, {"y": other}, "here")
    assert "1 of 2 elements; they share index 0" in said
