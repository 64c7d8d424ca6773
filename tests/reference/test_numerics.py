from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate

import pytest
import torch
from torch import Tensor

from reference.numerics import (
    EXACT,
    ROUNDED,
    Numerics,
    Variant,
    perturbed,
    round_to_nearest,
    rounded,
    ulp,
)

LAYOUT = {torch.float32: (24, -126), torch.float16: (11, -14), torch.bfloat16: (8, -126)}
"""Digits of the significand and the smallest exponent of a normal value."""

FORMATS = pytest.mark.parametrize("dtype", LAYOUT, ids=str)
HALVES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
FIRST_SEEDS = (0, 5, 16, 1000)


def doubles(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def bits(x: Tensor) -> Tensor:
    """Compared as integers: zeros of either sign differ."""
    return x.contiguous().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()])


def spacing_of(value: float, dtype: torch.dtype) -> Fraction:
    digits, smallest = LAYOUT[dtype]
    magnitude = Fraction(abs(value))
    exponent = smallest
    if magnitude:
        exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
        exponent -= magnitude < Fraction(2) ** exponent
    return Fraction(2) ** (max(exponent, smallest) - digits + 1)


def largest_of(dtype: torch.dtype) -> Fraction:
    digits, smallest = LAYOUT[dtype]
    return (2 - Fraction(2) ** (1 - digits)) * Fraction(2) ** (1 - smallest)


def nearest(value: float, dtype: torch.dtype) -> float:
    if not math.isfinite(value):
        return value
    spacing = spacing_of(value, dtype)
    result = round(abs(Fraction(value)) / spacing) * spacing
    return math.copysign(math.inf if result > largest_of(dtype) else float(result), value)


def samples(dtype: torch.dtype, seed: int) -> list[float]:
    """Values over the whole range and past both ends, half of them at or beside a tie."""
    generator = random.Random(seed)
    digits, smallest = LAYOUT[dtype]
    values = []
    for exponent in range(smallest - digits - 2, 4 - smallest):
        sign = generator.choice((-1.0, 1.0))
        values.append(sign * math.ldexp(1 + generator.random(), exponent))
        steps = generator.randrange(1 << (digits - 1), 1 << digits)
        beside = generator.choice((-(2.0**-20), 0.0, 2.0**-20))
        values.append(sign * math.ldexp(steps + 0.5 + beside, exponent - digits + 1))
    return values


def finite_values(dtype: torch.dtype) -> Tensor:
    codes = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)
    values = codes.view(dtype)
    return values[torch.isfinite(values)]


@FORMATS
@pytest.mark.parametrize("seed", range(3))
def test_rounding_agrees_with_exact_fractions(dtype: torch.dtype, seed: int) -> None:
    values = samples(dtype, seed)
    wanted = doubles(*(nearest(value, dtype) for value in values))
    assert torch.equal(bits(round_to_nearest(doubles(*values), dtype)), bits(wanted))


@HALVES
def test_every_finite_value_of_a_half_format_is_a_fixed_point(dtype: torch.dtype) -> None:
    values = finite_values(dtype)
    result = round_to_nearest(values.double(), dtype)
    assert torch.equal(bits(result.to(dtype)), bits(values))
    assert torch.equal(result, values.double())


@HALVES
def test_every_midpoint_of_a_half_format_goes_to_the_even_code(dtype: torch.dtype) -> None:
    values = finite_values(dtype)
    positive = values[torch.signbit(values).logical_not()].double()
    low, high = positive[:-1], positive[1:]
    even = torch.where(torch.arange(len(low)) % 2 == 0, low, high)
    assert torch.equal(round_to_nearest((low + high) / 2, dtype), even)
    assert torch.equal(round_to_nearest(-(low + high) / 2, dtype), -even)


@pytest.mark.parametrize(("sign", "exponent"), [(1, 0), (-1, 0), (1, -60), (-1, 90)])
def test_a_value_just_above_a_tie_goes_up_although_fp32_would_lose_what_tells(sign: int, exponent: int) -> None:
    x = doubles(sign * math.ldexp(1 + 2.0**-8 + 2.0**-40, exponent))
    wanted = sign * math.ldexp(1 + 2.0**-7, exponent)
    assert round_to_nearest(x, torch.bfloat16).item() == wanted
    assert x.float().bfloat16().item() != wanted


@FORMATS
def test_half_a_step_past_the_largest_value_is_infinite_and_less_is_not(
    dtype: torch.dtype,
) -> None:
    largest = float(largest_of(dtype))
    edge = largest + float(spacing_of(largest, dtype)) / 2
    below = math.nextafter(edge, 0)
    x = doubles(edge, below, -edge, -below, 1e60, -1e300)
    inf = math.inf
    wanted = [inf, largest, -inf, -largest, inf, -inf]
    assert round_to_nearest(x, dtype).tolist() == wanted


@FORMATS
def test_half_the_smallest_subnormal_is_zero_of_its_sign_and_more_is_the_smallest(
    dtype: torch.dtype,
) -> None:
    smallest = float(spacing_of(0.0, dtype))
    half = smallest / 2
    more = math.nextafter(half, 1)
    result = round_to_nearest(doubles(half, -half, more, -more, 0.0, -0.0, 1e-300), dtype)
    wanted = doubles(0.0, -0.0, smallest, -smallest, 0.0, -0.0, 0.0)
    assert torch.equal(bits(result), bits(wanted))


@FORMATS
def test_rounding_keeps_nan_and_infinities(dtype: torch.dtype) -> None:
    result = round_to_nearest(doubles(math.nan, math.inf, -math.inf), dtype)
    assert result[0].isnan()
    assert result[1:].tolist() == [math.inf, -math.inf]


@FORMATS
def test_ulp_is_the_spacing_of_the_format(dtype: torch.dtype) -> None:
    values = [*samples(dtype, seed=9), 0.0, -0.0, 1.0, math.nextafter(1.0, 0.0), 2.0, -1.0]
    wanted = [float(spacing_of(value, dtype)) for value in values]
    assert ulp(doubles(*values), dtype).tolist() == wanted


def test_ulp_of_float64_is_that_of_the_standard_library() -> None:
    values = [0.0, 5e-324, 2.0**-1022, 1e-310, 0.1, 1.0, -3.0, 1e300]
    assert ulp(doubles(*values), torch.float64).tolist() == [math.ulp(x) for x in values]


def test_a_variant_adds_optional_points_and_drops_default_ones() -> None:
    official = rounded()
    other = rounded(Variant("other", "", adds=frozenset({"extra"}), drops=frozenset({"usual"})))
    assert official.has("usual")
    assert not official.has("extra", default=False)
    assert not other.has("usual")
    assert other.has("extra", default=False)
    assert other.has("another")
    assert not other.has("another", default=False)


@pytest.mark.parametrize("make", [rounded, lambda variant: perturbed(3, variant)])
def test_a_point_that_the_variant_lacks_is_an_identity(
    make: Callable[[Variant], Numerics],
) -> None:
    x = doubles(1.001, -2.003)
    numerics = make(Variant("without", "", drops=frozenset({"point"})))
    assert numerics.round("point", x, torch.bfloat16) is x
    assert numerics.round("optional", x, torch.bfloat16, default=False) is x
    added = make(Variant("with", "", adds=frozenset({"optional"})))
    assert not torch.equal(added.round("optional", x, torch.bfloat16, default=False), x)


def test_exact_is_an_identity_at_every_point_and_returns_float64() -> None:
    x = doubles(1.001, -2.003, 1e-300)
    assert torch.equal(EXACT.round("point", x, torch.bfloat16), x)
    assert torch.equal(EXACT.computed("value", x), x)
    assert torch.equal(EXACT.apply("exponential", torch.exp, x), torch.exp(x))
    assert torch.equal(EXACT.divide("quotient", x, x + 1), x / (x + 1))
    assert EXACT.sum("sum", x, 0).item() == (1.001 - 2.003)
    assert torch.equal(EXACT.matmul("product", x[None], x[:, None]), x[None] @ x[:, None])
    assert torch.equal(EXACT.output("y", x, torch.bfloat16), x)
    assert EXACT.load(x.float()).dtype == torch.float64


def test_rounded_rounds_at_points_and_outputs_and_nowhere_else() -> None:
    x = doubles(1.001, -2.003)
    wanted = doubles(*(nearest(value, torch.bfloat16) for value in x.tolist()))
    assert torch.equal(ROUNDED.round("point", x, torch.bfloat16), wanted)
    assert torch.equal(ROUNDED.computed("value", x), x)
    assert torch.equal(ROUNDED.apply("exponential", torch.exp, x), torch.exp(x))
    assert torch.equal(ROUNDED.divide("quotient", x, x + 1), x / (x + 1))
    assert torch.equal(ROUNDED.sum("sum", x, 0), x.sum())
    output = ROUNDED.output("y", x, torch.bfloat16)
    assert output.dtype == torch.bfloat16
    assert torch.equal(output.double(), wanted)


@FORMATS
@pytest.mark.parametrize("seed", range(4))
def test_a_perturbed_point_stays_within_one_step(dtype: torch.dtype, seed: int) -> None:
    finite = float(largest_of(dtype))
    values = [value for value in samples(dtype, seed) if abs(value) <= finite]
    moved = perturbed(seed).round("point", doubles(*values), dtype)
    assert torch.all((moved - doubles(*values)).abs() <= ulp(doubles(*values), dtype))


@HALVES
def test_a_perturbed_point_leaves_representable_values_alone(dtype: torch.dtype) -> None:
    values = torch.cat([finite_values(dtype).double(), doubles(math.inf, -math.inf)])
    for seed in range(5):
        assert torch.equal(perturbed(seed).round("point", values, dtype), values)
    assert perturbed(0).round("point", doubles(math.nan), dtype).isnan()


def every_reading(numerics: Numerics) -> list[Tensor]:
    x = torch.linspace(0.3, 1.7, 24, dtype=torch.float64)
    return [
        numerics.round("point", x, torch.bfloat16),
        numerics.computed("value", x),
        numerics.apply("exponential", torch.exp, x),
        numerics.divide("quotient", x, x.flip(0)),
        numerics.sum("sum", x, 0),
        numerics.matmul("product", x.view(4, 6), x.view(6, 4)),
    ]


def test_a_seed_repeats_bit_for_bit() -> None:
    pairs = zip(every_reading(perturbed(7)), every_reading(perturbed(7)), strict=True)
    assert all(torch.equal(first, second) for first, second in pairs)


def test_no_two_seeds_share_their_noise() -> None:
    """Seeds that differ above bit 32 too: a generator may look at the low bits alone."""
    runs = [every_reading(perturbed(seed)) for seed in [*range(20), 1 << 32, (1 << 40) + 3]]
    for readings in zip(*runs, strict=True):
        assert len({tuple(x.flatten().tolist()) for x in readings}) == len(runs)


def test_no_two_names_share_their_noise() -> None:
    x = torch.full((20,), 1.3, dtype=torch.float64)
    names = [f"point {index}" for index in range(12)]
    sums = {perturbed(0).sum(name, x, 0).item() for name in names}
    points = {perturbed(0).round(name, x, torch.bfloat16)[0].item() for name in names}
    assert len(sums) == len(points) == len(names)


@pytest.mark.parametrize("first", FIRST_SEEDS)
def test_sixteen_consecutive_seeds_cover_the_step_evenly(first: int) -> None:
    quarter = doubles(1 + 2.0**-7 / 4)
    step = 2.0**-7
    strata = []
    for seed in range(first, first + 16):
        error = perturbed(seed).round("point", quarter, torch.bfloat16) - quarter
        strata.append(math.floor((error.item() / step + 0.5) * 16))
    assert sorted(strata) == list(range(16))


def test_elements_that_move_apart_cover_the_step_evenly_each_for_itself() -> None:
    x = torch.full((3, 4), 1 + 2.0**-10, dtype=torch.float64)
    errors = torch.stack([perturbed(s).round("p", x, torch.bfloat16, apart=True) - x for s in range(16)]) / 2.0**-7
    assert torch.equal(
        torch.floor((errors + 0.5) * 16).sort(0).values, torch.arange(16.0).double()[:, None, None].expand(16, 3, 4)
    )
    assert len(set(errors[0].flatten().tolist())) == 12


def test_each_turn_of_a_loop_has_noise_of_its_own_and_no_trace() -> None:
    x = torch.linspace(1, 2, 50, dtype=torch.float64)
    numerics = perturbed(3)
    with numerics.trace() as trace:
        turns = [numerics.at(f"turn {turn}").at("inner").round("p", x, torch.bfloat16) for turn in (0, 1, 0)]
    assert not trace
    assert torch.equal(turns[0], turns[2])
    assert not torch.equal(turns[0], turns[1])
    assert not torch.equal(turns[0], numerics.round("p", x, torch.bfloat16))
    assert EXACT.at("turn").round("p", x, torch.bfloat16) is x


def test_equal_values_get_equal_errors() -> None:
    x = torch.full((50,), 1.001, dtype=torch.float64)
    assert len(perturbed(2).round("point", x, torch.bfloat16).unique()) == 1


def test_ties_go_both_ways_by_half_a_step() -> None:
    ties = torch.full((256,), 1 + 2.0**-8, dtype=torch.float64)
    moved = perturbed(1).round("point", ties, torch.bfloat16)
    assert moved.unique().tolist() == [1.0, 1 + 2.0**-7]


def test_a_perturbed_operation_stays_within_half_an_fp32_step() -> None:
    x = doubles(*samples(torch.float32, seed=4))
    x = x[x.abs() >= 2.0**-126]
    moved = perturbed(6).computed("value", x)
    assert not torch.equal(moved, x)
    assert torch.all((moved - x).abs() <= ulp(x, torch.float32))


def test_a_perturbed_subnormal_may_be_flushed() -> None:
    x = torch.full((64,), 1e-39, dtype=torch.float64)
    moved = perturbed(0).computed("value", x)
    assert moved.unique().tolist() == [0.0, 2e-39]
    assert perturbed(0).computed("value", doubles(0.0, -0.0)).tolist() == [0.0, 0.0]


def test_a_perturbed_function_is_exact_at_zero_and_at_the_ends_of_the_range() -> None:
    zero, one = doubles(0.0), doubles(1.0)
    for seed in range(5):
        numerics = perturbed(seed)
        x = doubles(-math.inf, -2000.0)
        assert numerics.apply("sigmoid", torch.sigmoid, x).tolist() == [0.0, 0.0]
        assert numerics.apply("inverse", torch.rsqrt, doubles(0.0, math.inf)).tolist() == [
            math.inf,
            0.0,
        ]
        assert numerics.divide("quotient", zero, one).item() == 0.0
        assert numerics.divide("quotient", -one, zero).item() == -math.inf
        assert numerics.divide("quotient", zero, zero).isnan()
        assert numerics.apply("sigmoid", torch.sigmoid, doubles(math.nan)).isnan()


def test_a_perturbed_function_is_off_by_its_argument_and_two_ulps() -> None:
    x = torch.linspace(1.1, 1.9, 500, dtype=torch.float64)
    moved = perturbed(8).apply("identity", lambda value: value, x)
    assert 0 < (moved - x).abs().max() <= 2.0**-24 * 1.9 + 2 * 2.0**-23


def test_a_function_formed_as_a_difference_is_off_by_ulps_of_its_terms() -> None:
    x = torch.linspace(-1e-6, 1e-6, 501, dtype=torch.float64)
    moved = perturbed(8).apply("tangent", torch.tanh, x, formed_at=1.0)
    assert 2.0**-23 < (moved - torch.tanh(x)).abs().max() <= 2 * 2.0**-23 + 1e-12
    assert perturbed(8).apply("tangent", torch.tanh, doubles(0.0), formed_at=1.0).item() == 0.0
    large = perturbed(8).apply("identity", lambda value: value, doubles(3.0), formed_at=1.0)
    assert torch.equal(large, perturbed(8).apply("identity", lambda value: value, doubles(3.0)))
    assert torch.equal(EXACT.apply("tangent", torch.tanh, x, formed_at=1.0), torch.tanh(x))


def test_either_of_two_values_is_drawn_by_lot_when_perturbed_and_else_the_usual_one() -> None:
    usual, other = torch.zeros(4096, dtype=torch.float64), torch.ones(4096, dtype=torch.float64)
    for numerics in (EXACT, ROUNDED):
        assert torch.equal(numerics.either("code", usual, other), usual)
    drawn = perturbed(3).either("code", usual, other)
    assert drawn.unique().tolist() == [0.0, 1.0]
    assert abs(drawn.mean().item() - 0.5) < 6 * 0.5 / 4096**0.5
    assert torch.equal(drawn, perturbed(3).either("code", usual, other))
    assert not torch.equal(drawn, perturbed(4).either("code", usual, other))


def test_a_value_before_a_choice_says_by_how_much_storing_it_moves_it() -> None:
    x = doubles(1.003, -3.1, 0.0, math.inf, math.nan)
    half = [2.0**-8, 2.0**-7, 2.0**-134, 0.0, 0.0]
    for numerics, value in ((EXACT, x), (perturbed(2), x), (ROUNDED, round_to_nearest(x, torch.bfloat16))):
        kept, slack = numerics.before_choice("stored", x, torch.bfloat16)
        assert torch.equal(kept.nan_to_num(), value.nan_to_num())
        assert slack.tolist() == half
    without = rounded(Variant("without", "", drops=frozenset({"stored"})))
    kept, slack = without.before_choice("stored", x, torch.bfloat16)
    assert torch.equal(kept.nan_to_num(), x.nan_to_num())
    assert slack.tolist() == [0.0] * 5


def test_terms_arrive_by_their_keys_and_when_perturbed_in_any_order() -> None:
    keys = doubles(2.0, 1.0, 2.0, 0.0).expand(64, 4)
    for numerics in (EXACT, ROUNDED):
        assert numerics.arrival("order", keys).tolist() == [[3, 1, 0, 2]] * 64
    orders = perturbed(1).arrival("order", keys)
    assert torch.equal(orders.sort(dim=1).values, torch.arange(4).expand(64, 4))
    assert len({tuple(order) for order in orders.tolist()}) > 12


def test_a_perturbed_quotient_is_off_by_two_ulps() -> None:
    x = torch.linspace(1.1, 1.9, 500, dtype=torch.float64)
    moved = perturbed(8).divide("quotient", x, torch.ones_like(x))
    assert 2.0**-23 < (moved - x).abs().max() <= 2 * 2.0**-23


def test_a_perturbed_sum_of_a_single_term_has_no_noise() -> None:
    terms = torch.tensor([[1.3, 0.0, 0.0], [0.0, 0.0, -0.7], [0.0, 0.0, 0.0]]).double()
    for seed in range(5):
        assert torch.equal(perturbed(seed).sum("sum", terms, -1), terms.sum(-1))
        assert torch.equal(perturbed(seed).sum("one", terms[:, :1], 1), terms[:, 0])


def test_the_noise_of_a_sum_is_that_of_a_tree_or_of_one_chain() -> None:
    terms = torch.linspace(-1, 2, 5 * 33, dtype=torch.float64).view(5, 33)
    tree = [math.sqrt(32 * math.fsum(t * t for t in row)) for row in terms.tolist()]
    chains = [
        [math.sqrt(math.fsum(s * s for s in accumulate(row[::step]))) for row in terms.tolist()] for step in (1, -1)
    ]
    bound = [2.0**-24 * 1.000001 * max(sizes) for sizes in zip(tree, *chains, strict=True)]
    for seed in range(5):
        noise = perturbed(seed).sum("sum", terms, -1, keepdim=True) - terms.sum(-1, keepdim=True)
        assert noise.shape == (5, 1)
        assert torch.all(noise.abs().squeeze() <= doubles(*bound))
        assert torch.all(noise != 0)


def test_a_perturbed_sum_with_an_infinite_term_is_infinite() -> None:
    terms = torch.tensor([[1.0, math.inf, 2.0]], dtype=torch.float64)
    assert all(perturbed(seed).sum("sum", terms, -1).item() == math.inf for seed in range(5))


def test_the_noise_of_a_product_is_bounded_by_its_operands() -> None:
    a = torch.linspace(-1, 1, 3 * 7, dtype=torch.float64).view(3, 7)
    b = torch.linspace(2, -1, 7 * 5, dtype=torch.float64).view(7, 5)
    noise = perturbed(1).matmul("product", a, b) - a @ b
    for i, row in enumerate(a.tolist()):
        for j, column in enumerate(b.t().tolist()):
            norm = math.fsum((x * y) ** 2 for x, y in zip(row, column, strict=True))
            assert 0 < abs(noise[i, j].item()) <= 2.0**-24 * math.sqrt(7 * norm)


def test_a_perturbed_output_keeps_its_float64_value() -> None:
    x = doubles(1.001)
    assert perturbed(0).output("y", x, torch.bfloat16) is x


def test_a_trace_collects_the_named_intermediates() -> None:
    numerics, x = rounded(), doubles(1.001)
    with numerics.trace() as trace:
        numerics.round("point", x, torch.bfloat16)
        numerics.round("optional", x, torch.bfloat16, default=False)
        numerics.computed("value", x)
        numerics.apply("exponential", torch.exp, x)
        numerics.divide("quotient", x, x)
        numerics.sum("sum", x, 0)
        numerics.matmul("product", x[None], x[:, None])
        numerics.note("noted", x)
        numerics.output("y", x, torch.bfloat16)
    names = "point optional value exponential quotient sum product noted y"
    assert list(trace) == names.split()
    assert trace["point"].item() == 1.0
    assert trace["optional"].item() == trace["y"].item() == 1.001


def test_a_trace_ends_with_its_block_even_when_that_raises() -> None:
    numerics, x = rounded(), doubles(1.0)
    seen = {}

    def raising() -> None:
        with numerics.trace() as trace:
            numerics.note("inside", x)
            seen["trace"] = trace
            raise KeyError

    with pytest.raises(KeyError):
        raising()
    numerics.note("outside", x)
    assert list(seen["trace"]) == ["inside"]


def test_an_inner_trace_gives_back_to_the_outer_one() -> None:
    numerics, x = rounded(), doubles(1.0)
    with numerics.trace() as outer:
        with numerics.trace() as inner:
            numerics.note("inner", x)
        numerics.note("outer", x)
    assert list(inner) == ["inner"]
    assert list(outer) == ["outer"]


def test_exact_readings_are_differentiable() -> None:
    x = torch.linspace(0.5, 1.5, 6, dtype=torch.float64).view(2, 3).requires_grad_()

    def reading(value: Tensor) -> Tensor:
        value = EXACT.round("point", EXACT.load(value), torch.bfloat16)
        value = EXACT.apply("exponential", torch.exp, EXACT.computed("value", value))
        value = EXACT.divide("quotient", value, value.sum(-1, keepdim=True))
        value = EXACT.matmul("product", value, value.t())
        return EXACT.output("y", EXACT.sum("sum", value, -1), torch.bfloat16)

    assert torch.autograd.gradcheck(reading, (x,))


def test_what_an_implementation_chooses_is_the_usual_value_unless_perturbed() -> None:
    usual, other = (
        torch.tensor([1.0, 1.0, 4.0], dtype=torch.float64),
        torch.tensor([8.0, 1.0, 2.0], dtype=torch.float64),
    )
    for numerics in (EXACT, ROUNDED):
        assert torch.equal(numerics.between("unit", usual, other), usual)
    drawn = torch.stack([perturbed(seed).between("unit", usual, other) for seed in range(64)])
    assert ((drawn[:, 0] >= 1) & (drawn[:, 0] <= 8)).all()
    assert ((drawn[:, 2] >= 2) & (drawn[:, 2] <= 4)).all()
    assert (drawn[:, 1] == 1).all()
    assert drawn[:, 0].min() < 1.5
    assert drawn[:, 0].max() > 5


def test_what_a_chain_loses_beside_a_large_term_is_in_the_noise_of_a_sum() -> None:
    terms = torch.full((1, 1000), 1e-4, dtype=torch.float64)
    terms[0, -1] = 1e4
    noise = [(perturbed(seed).sum("sum", terms, -1) - terms.sum(-1)).abs().item() for seed in range(16)]
    assert 0.05 < max(noise) <= 0.0999 + 2.0**-24 * 1.1e4 * math.sqrt(1000)
