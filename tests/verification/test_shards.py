"""What shards give together is the whole for a function that obeys, and is told from it for one that does not."""

from __future__ import annotations

import pytest
import torch

from reference.numerics import OFFICIAL
from verification.budget import derive
from verification.comparison import compare_numbers
from verification.operator import find_operator
from verification.shards import along, halves, shards

ROUTER = find_operator("router_logits")
HIDDEN, EXPERTS = 24, 10


class Context:
    """A law's view of a function that computes the router's logits."""

    operator, variant = ROUTER, OFFICIAL
    case = ROUTER.case(rows=3, hidden=HIDDEN, experts=EXPERTS)

    def __init__(self, function):
        self.function = function

    def arguments(self):
        return self.operator.arguments(self.case)

    def call(self, arguments):
        return {"logits": self.function(**arguments)}

    def judge(self, outputs):
        golden = derive(self.operator, self.arguments())
        findings = compare_numbers("logits", outputs["logits"], golden.exact["logits"], golden.budgets["logits"])[1]
        return [finding.message for finding in findings]


def honest(x, weight):
    return x.float() @ weight.float().t()


def drops_a_short_tail(x, weight):
    """Right where there are at least eight experts, as in a kernel without a mask."""
    logits = honest(x, weight)
    return logits if weight.shape[0] >= 8 else logits * 0


def adds_on_every_rank(x, weight):
    """Something once in the whole, and so in each of the terms of a sum."""
    return honest(x, weight) + 1.0


def poisons_shards(x, weight):
    return honest(x, weight) if x.shape[1] == HIDDEN else honest(x, weight) * torch.nan


BESIDE = shards("experts", "Side by side.", along({"weight": 0}), {"logits": 1})
SUMMED = shards("hidden", "As a sum.", along({"x": 1, "weight": 1}), {"logits": "sum"})
SAME = shards("replicas", "The same from each.", lambda a, count: [a] * count, {"logits": "same"})


@pytest.mark.parametrize("law", [BESIDE, SUMMED, SAME], ids=lambda law: law.name)
def test_the_shards_of_an_honest_function_are_the_whole(law):
    assert list(law.check(Context(honest))) == []


@pytest.mark.parametrize(("law", "function", "said"), [
    (BESIDE, drops_a_short_tail, "In 2 shards: logits: 30 of 30 elements exceed their budget"),
    (SUMMED, adds_on_every_rank, "In 2 shards: logits: 30 of 30 elements of the sum are not those of the whole"),
    (SUMMED, poisons_shards, "In 2 shards: logits: 30 of 30 elements of the sum are not those of the whole"),
    (SAME, lambda x, weight: honest(x, weight) * 2, "In 2 shards: logits: 30 of 30 elements exceed their budget"),
])  # fmt: skip
def test_shards_that_are_not_the_whole_are_found(law, function, said):
    assert any(broken.startswith(said) for broken in law.check(Context(function)))


def test_an_argument_that_is_left_out_is_in_no_shard_and_the_rest_in_every_one():
    parts = along({"x": 1, "bias": 0})({"x": torch.arange(10).view(2, 5), "bias": None, "eps": 1.0}, 2)
    assert [part["x"].tolist() for part in parts] == [[[0, 1, 2], [5, 6, 7]], [[3, 4], [8, 9]]]
    assert all(part["bias"] is None and part["eps"] == 1.0 for part in parts)


@pytest.mark.parametrize("axis", [0, 1])
def test_halves_hold_gates_before_ups_in_every_shard(axis):
    x = torch.arange(10)[:, None] if axis == 0 else torch.arange(10)[None]
    assert [part.flatten().tolist() for part in halves(x, 2, axis)] == [[0, 1, 2, 5, 6, 7], [3, 4, 8, 9]]
