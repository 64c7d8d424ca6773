from __future__ import annotations

import math
import random

import pytest
import torch
from torch import Tensor

from reference.normalization import rms_norm
from reference.numerics import EXACT, ROUNDED, Variant, rounded

AGREEMENT = 1e-12
"""Relative difference of two float64 formulations."""

EPS = 1e-5


def normal(generator: random.Random, *shape: int, scale: float = 1.0) -> Tensor:
    values = [generator.gauss(0, scale) for _ in range(math.prod(shape))]
    return torch.tensor(values, dtype=torch.float64).view(shape)


def by_loops(rows: list[list[float]], weight: list[float], eps: float) -> list[list[float]]:
    results = []
    for row in rows:
        root = math.sqrt(math.fsum(x * x for x in row) / len(row) + eps)
        results.append([x / root * w for x, w in zip(row, weight, strict=True)])
    return results


def to_bfloat16(value: float) -> float:
    """Ties to even by the integer rounding of the language; normal range only."""
    fraction, exponent = math.frexp(value)
    return math.ldexp(round(math.ldexp(fraction, 8)), exponent - 8)


def by_loops_rounding(rows: list[list[float]], weight: list[float], eps: float, *, twice: bool) -> list[list[float]]:
    unweighted = by_loops(rows, [1.0] * len(weight), eps)
    inner = to_bfloat16 if twice else float
    return [[to_bfloat16(inner(x) * w) for x, w in zip(row, weight, strict=True)] for row in unweighted]


def assert_agree(got: Tensor, wanted: list[list[float]]) -> None:
    expected = torch.tensor(wanted, dtype=torch.float64)
    assert torch.all((got - expected).abs() <= AGREEMENT * expected.abs())


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (3, 5), (7, 33), (4, 192), (2, 2304), (2, 7168)])
@pytest.mark.parametrize("scale", [2.0**-20, 1.0, 2.0**15])
def test_agrees_with_loops(rows: int, width: int, scale: float) -> None:
    generator = random.Random(rows * width)
    x = normal(generator, rows, width, scale=scale).bfloat16()
    weight = normal(generator, width)
    y = rms_norm(x, weight, eps=EPS, numerics=EXACT)
    assert_agree(y, by_loops(x.double().tolist(), weight.tolist(), EPS))


@pytest.mark.parametrize("twice", [True, False])
def test_rounds_where_the_variant_says(twice: bool) -> None:
    generator = random.Random(5)
    x = normal(generator, 6, 65).bfloat16()
    weight = normal(generator, 65).bfloat16()
    one_rounding = Variant("one rounding", "", drops=frozenset({"normalized"}))
    y = rms_norm(x, weight, eps=EPS, numerics=ROUNDED if twice else rounded(one_rounding))
    rows, weights = x.double().tolist(), weight.double().tolist()
    assert y.double().tolist() == by_loops_rounding(rows, weights, EPS, twice=twice)
    assert y.double().tolist() != by_loops_rounding(rows, weights, EPS, twice=not twice)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_result_has_the_dtype_of_x_when_rounding_and_float64_when_exact(
    dtype: torch.dtype,
) -> None:
    x = torch.ones(2, 3, dtype=dtype)
    weight = torch.ones(3)
    assert rms_norm(x, weight, eps=EPS).dtype == dtype
    assert rms_norm(x, weight, eps=EPS, numerics=EXACT).dtype == torch.float64


def test_zero_rows_give_zeros_of_the_same_sign() -> None:
    x = torch.tensor([[0.0, -0.0, 0.0]], dtype=torch.bfloat16)
    y = rms_norm(x, torch.ones(3), eps=EPS)
    assert torch.equal(y.view(torch.int16), x.view(torch.int16))


def test_a_spiky_row_is_not_changed_by_the_size_of_its_spike() -> None:
    """An eps added after a division by the maximum would count 10⁴ times as much."""
    row = [100.0] + [0.01] * 63
    x = torch.tensor([row], dtype=torch.float64)
    y = rms_norm(x, torch.ones(64, dtype=torch.float64), eps=1e-2, numerics=EXACT)
    assert_agree(y, by_loops([row], [1.0] * 64, 1e-2))


@pytest.mark.parametrize(
    ("value", "width", "dtype"),
    [
        (16.0, 4096, torch.float16),
        (300.0, 8, torch.float16),
        (65504.0, 7168, torch.float16),
        (3e38, 7168, torch.bfloat16),
        (3e38, 5, torch.float32),
    ],
)
def test_large_rows_do_not_overflow(value: float, width: int, dtype: torch.dtype) -> None:
    x = torch.full((1, width), value).to(dtype)
    x[:, ::2] *= -1
    y = rms_norm(x, torch.ones(width, dtype=dtype), eps=EPS)
    assert torch.equal(y, torch.sign(x))


def test_eps_is_added_to_the_mean_square_inside_the_root() -> None:
    x = torch.full((1, 4), 3.0, dtype=torch.float64)
    y = rms_norm(x, torch.ones(4, dtype=torch.float64), eps=16.0, numerics=EXACT)
    assert_agree(y, [[3.0 / 5.0] * 4])


def test_tiny_rows_are_governed_by_eps() -> None:
    x = torch.full((1, 4), 2.0**-100, dtype=torch.float64)
    y = rms_norm(x, torch.ones(4, dtype=torch.float64), eps=2.0**-16, numerics=EXACT)
    assert_agree(y, [[2.0**-92] * 4])


def test_mean_is_over_the_width_and_not_a_sum() -> None:
    for width in (1, 2, 63, 7168):
        x = torch.full((1, width), -2.0, dtype=torch.float64)
        weight = torch.ones(width, dtype=torch.float64)
        assert_agree(rms_norm(x, weight, eps=0.0, numerics=EXACT), [[-1.0] * width])


def test_a_power_of_two_scale_without_eps_changes_nothing() -> None:
    x = normal(random.Random(1), 3, 17)
    weight = normal(random.Random(2), 17)
    expected = rms_norm(x, weight, eps=0.0, numerics=EXACT)
    for exponent in (-20, -3, 7, 15):
        assert torch.equal(rms_norm(x * 2.0**exponent, weight, eps=0.0, numerics=EXACT), expected)


def test_an_fp32_weight_keeps_its_bits() -> None:
    x = torch.ones(1, 2, dtype=torch.bfloat16)
    weight = torch.tensor([1 + 2.0**-20, 1.0])
    y = rms_norm(x, weight, eps=0.0, numerics=EXACT)
    assert y.tolist() == [[1 + 2.0**-20, 1.0]]


@pytest.mark.parametrize("layout", ["transposed", "every second", "padded rows", "expanded"])
def test_strides_change_nothing(layout: str) -> None:
    wide = normal(random.Random(3), 12, 34).bfloat16()
    x = {
        "transposed": wide.t()[:12, :12],
        "every second": wide[:, ::2],
        "padded rows": wide[:, :17],
        "expanded": wide[:1, :17].expand(5, 17),
    }[layout]
    weight = normal(random.Random(4), 2 * x.shape[1])[::2]
    assert not (x.is_contiguous() and weight.is_contiguous())
    got = rms_norm(x, weight, eps=EPS)
    assert torch.equal(got, rms_norm(x.contiguous(), weight.contiguous(), eps=EPS))
    assert_agree(
        rms_norm(x, weight, eps=EPS, numerics=EXACT),
        by_loops(x.double().tolist(), weight.tolist(), EPS),
    )


def test_rows_are_independent_and_a_bad_row_spoils_only_itself() -> None:
    x = normal(random.Random(6), 5, 9)
    weight = normal(random.Random(7), 9)
    expected = rms_norm(x, weight, eps=EPS, numerics=EXACT)
    order = [3, 1, 4, 0, 2]
    assert torch.equal(rms_norm(x[order], weight, eps=EPS, numerics=EXACT), expected[order])
    x[2, 4] = math.nan
    y = rms_norm(x, weight, eps=EPS, numerics=EXACT)
    assert y[2].isnan().all()
    others = [0, 1, 3, 4]
    assert torch.equal(y[others], expected[others])


def test_an_infinite_element_is_nan_and_the_rest_of_its_row_zero() -> None:
    x = torch.tensor([[math.inf, 1.0, -2.0]])
    y = rms_norm(x, torch.ones(3), eps=EPS)
    assert y[0, 0].isnan()
    assert y[0, 1:].tolist() == [0.0, 0.0]


def test_no_rows_give_no_rows() -> None:
    y = rms_norm(torch.empty(0, 7168, dtype=torch.bfloat16), torch.ones(7168), eps=EPS)
    assert y.shape == (0, 7168)
    assert y.dtype == torch.bfloat16


def test_inputs_are_left_alone() -> None:
    x, weight = normal(random.Random(8), 3, 5), normal(random.Random(9), 5)
    before = x.clone(), weight.clone()
    rms_norm(x, weight, eps=EPS)
    assert torch.equal(x, before[0])
    assert torch.equal(weight, before[1])


def test_named_intermediates_are_traced() -> None:
    with EXACT.trace() as trace:
        rms_norm(torch.full((1, 2), 3.0), torch.full((2,), 2.0), eps=0.0, numerics=EXACT)
    assert trace["square_sum"].tolist() == [[18.0]]
    assert_agree(trace["normalized"], [[1.0, 1.0]])
    assert_agree(trace["y"], [[2.0, 2.0]])


def test_exact_reading_is_differentiable() -> None:
    x = normal(random.Random(10), 3, 5).requires_grad_()
    weight = normal(random.Random(11), 5).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, weight: rms_norm(x, weight, eps=EPS, numerics=EXACT), (x, weight))


@pytest.mark.parametrize("shape", [(4,), (6,), (1, 5), ()])
def test_a_weight_that_does_not_fit_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"rms_norm: weight is \[.*\]; expected \[H\] = \[5\]"):
        rms_norm(torch.ones(2, 5), torch.ones(shape), eps=EPS)
