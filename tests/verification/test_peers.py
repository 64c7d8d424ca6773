"""Each of the field's rules accepts a right kernel, falls into its published trap, and catches what it is for."""

from __future__ import annotations

import math

import pytest
import torch

from reference.numerics import EXACT, ROUNDED, round_to_nearest
from verification.operator import find_operator, parse_case
from verification.peers import rules

RULES = {rule.name: rule for rule in rules()}


def accepts(rule, got, exact, low=None):
    return RULES[rule].accepts({"y": got}, {"y": exact}, {"y": exact if low is None else low})


def values(rows=64, columns=256, dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, columns, generator=generator).to(dtype)


def changed(x, change):
    x = x.clone()
    change(x)
    return x


def one_of_64_rows_zero(x):
    return changed(x, lambda y: y[0].zero_())


def one_row_large():
    return changed(values(), lambda y: y[1].mul_(1000))


RANGE = torch.tensor([1e-3, 1000.0])

TRAPS = {
    "mismatch share 5 %": lambda: (one_of_64_rows_zero(values()), values()),
    "allclose 1e-2": lambda: (torch.zeros(8, 8), torch.full((8, 8), 0.009)),  # softmax over a hundred and more
    "torch.testing": lambda: (values() * (1 - 1 / 128), values()),  # a step of bf16, always the same way
    "mismatches by >": lambda: (torch.full((4, 4), math.nan), torch.ones(4, 4)),
    "relative RMS 0.005": lambda: (changed(torch.ones(50_000, 4), lambda y: y[7].zero_()), torch.ones(50_000, 4)),
    "cosine 0.99": lambda: (values() * 3, values()),
    "absolute and relative 1e-2": lambda: (torch.tensor([0.0, 1009.0]), RANGE),
    "SNR 35 dB": lambda: (changed(torch.ones(8192, 4), lambda y: y[7].zero_()), torch.ones(8192, 4)),
    "twice low precision": lambda: (one_of_64_rows_zero(one_row_large()), one_row_large()),
    "max(RMS, |ref|)": lambda: (torch.tensor([0.0, 1000.0]), RANGE),
    "sorted weights": lambda: (values().flip(1), values()),
}  # fmt: skip

CAUGHT = {
    "mismatch share 5 %": lambda: (changed(values(), lambda y: y[:4].zero_()), values()),
    "allclose 1e-2": lambda: (one_of_64_rows_zero(values()), values()),
    "torch.testing": lambda: (values() * 1.02, values()),
    "mismatches by >": lambda: (values() * 1.02, values()),
    "relative RMS 0.005": lambda: (one_of_64_rows_zero(values()), values()),
    "cosine 0.99": lambda: (values().roll(1, 1), values()),
    "absolute and relative 1e-2": lambda: (torch.tensor([1e-3, 1011.0]), RANGE),
    "SNR 35 dB": lambda: (one_of_64_rows_zero(values()), values()),
    "twice low precision": lambda: (one_of_64_rows_zero(values()), values()),
    "max(RMS, |ref|)": lambda: (one_of_64_rows_zero(values()), values()),
    "sorted weights": lambda: (values() * 1.02, values()),
}


CASES = ("rms_norm/rows=5,hidden=256/bf16/normal/0", "route/rows=5,experts=60,top_k=6/fp32/normal/0")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("case", CASES)
def test_a_rule_accepts_what_a_right_kernel_gives(rule, case):
    operator = find_operator(case.partition("/")[0])
    arguments = operator.arguments(parse_case(case))
    low, exact = (operator.evaluate(arguments, numerics=numerics) for numerics in (ROUNDED, EXACT))
    golden = {
        name: round_to_nearest(exact[name], x.dtype).to(x.dtype) if x.is_floating_point() else x
        for name, x in low.items()
    }
    assert RULES[rule].accepts(low, golden, low)


@pytest.mark.parametrize("rule", TRAPS)
def test_a_rule_falls_into_its_trap(rule):
    got, exact = TRAPS[rule]()
    assert not torch.equal(got, exact)
    assert accepts(rule, got, exact)


@pytest.mark.parametrize("rule", CAUGHT)
def test_a_rule_catches_what_it_is_for(rule):
    assert not accepts(rule, *CAUGHT[rule]())


def test_every_rule_has_a_trap_and_a_catch():
    assert TRAPS.keys() == CAUGHT.keys() == RULES.keys()


ALL = set(RULES)
WITHOUT_DTYPES = {
    "mismatches by >", "relative RMS 0.005", "cosine 0.99", "SNR 35 dB", "twice low precision", "max(RMS, |ref|)",
    "sorted weights",
}  # fmt: skip

HOLES = {
    "all NaN": (lambda x: torch.full_like(x, math.nan), lambda x: x, {"mismatches by >"}),
    "NaN in the reference alone": (
        lambda x: x, lambda x: changed(x, lambda y: y[0, :1].fill_(math.nan)),
        {"mismatch share 5 %", "mismatches by >", "absolute and relative 1e-2"},
    ),
    "one element NaN": (
        lambda x: changed(x, lambda y: y[0, :1].fill_(math.nan)), lambda x: x,
        {"mismatch share 5 %", "mismatches by >"},
    ),
    "NaN where NaN belongs": (
        lambda x: changed(x, lambda y: y[0, :1].fill_(math.nan)),
        lambda x: changed(x, lambda y: y[0, :1].fill_(math.nan)),
        {"mismatch share 5 %", "mismatches by >"},
    ),
    "Inf where Inf belongs": (
        lambda x: changed(x, lambda y: y[0, :1].fill_(math.inf)),
        lambda x: changed(x, lambda y: y[0, :1].fill_(math.inf)),
        {"mismatch share 5 %", "allclose 1e-2", "torch.testing", "mismatches by >", "max(RMS, |ref|)",
         "sorted weights"},
    ),
    "another shape": (lambda x: x.reshape(32, -1), lambda x: x, {"cosine 0.99"}),
    "one row for all": (
        lambda x: x[:1], lambda x: x[:1].expand_as(x),
        {"mismatch share 5 %", "mismatches by >", "relative RMS 0.005", "twice low precision", "sorted weights"},
    ),
    "another dtype": (lambda x: x.float(), lambda x: x, WITHOUT_DTYPES),
    "ids within 1 %": (
        lambda x: 1001 + torch.arange(64), lambda x: 1000 + torch.arange(64),
        {"mismatch share 5 %", "allclose 1e-2", "absolute and relative 1e-2", "sorted weights"},
    ),
    "other ids": (lambda x: torch.arange(64).flip(0), lambda x: torch.arange(64), {"sorted weights"}),
    "one id of 64": (
        lambda x: changed(torch.arange(64), lambda y: y[9:10].zero_()), lambda x: torch.arange(64),
        {"mismatch share 5 %", "sorted weights"},
    ),
    "no elements": (lambda x: x[:0], lambda x: x[:0], ALL),
    "no elements of another shape": (lambda x: x[:0, :3], lambda x: x[:0], {"cosine 0.99", "max(RMS, |ref|)"}),
    "all zeros, rightly": (torch.zeros_like, torch.zeros_like, ALL - {"cosine 0.99"}),
}  # fmt: skip


@pytest.mark.parametrize("hole", HOLES)
def test_the_holes_of_each_rule_are_as_published(hole):
    got, exact, accepting = HOLES[hole]
    assert {rule for rule in RULES if accepts(rule, got(values()), exact(values()))} == accepting


def test_an_output_that_is_missing_is_accepted_by_none():
    assert not any(rule.accepts({}, {"y": values()}, {"y": values()}) for rule in rules())


def test_twice_the_low_precision_error_widens_with_that_error():
    got = values() + 0.2
    assert not accepts("twice low precision", got, values())
    assert accepts("twice low precision", got, values(), values() - 0.2)
