from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from reference.activation import situ
from reference.numerics import EXACT, ROUNDED, perturbed, round_to_nearest

AGREEMENT = 1e-12


def by_exponentials(gate: float, up: float, beta: float, linear_beta: float | None) -> float:
    """With expm1, so that nothing cancels near zero."""

    def bounded(x: float, bound: float) -> float:
        e = math.expm1(-2 * abs(x) / bound)
        return math.copysign(bound * -e / (2 + e), x)

    gated = bounded(gate, beta) * (1 / (1 + math.exp(-gate)) if gate > -700 else 0.0)
    return gated * (up if linear_beta is None else bounded(up, linear_beta))


def pair(gate: list[float], up: list[float], dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor([gate + up], dtype=torch.float64).to(dtype)


SIZES = (0.0, 1e-30, 1e-9, 0.003, 0.5, 1.0, 4.0, 17.0, 30.0, 88.0, 600.0)


@pytest.mark.parametrize(("beta", "linear_beta"), [(4.0, 25.0), (25.0, 4.0), (1.0, 1.0), (2.0, 1.5), (4.0, None)])
def test_agrees_with_exponentials(beta: float, linear_beta: float | None) -> None:
    values = [sign * size for size in SIZES for sign in (1, -1)]
    pairs = [(g, u) for g in values for u in values]
    got = situ(pair([g for g, _ in pairs], [u for _, u in pairs]), beta=beta, linear_beta=linear_beta, numerics=EXACT)
    wanted = torch.tensor([by_exponentials(g, u, beta, linear_beta) for g, u in pairs], dtype=torch.float64)
    assert torch.all((got[0] - wanted).abs() <= AGREEMENT * wanted.abs())


def test_rounds_once() -> None:
    generator = random.Random(2)
    x = torch.tensor([[generator.gauss(0, 9) for _ in range(2000)] for _ in range(3)]).bfloat16()
    exact = situ(x, beta=4.0, linear_beta=25.0, numerics=EXACT)
    assert exact.dtype == torch.float64
    assert torch.equal(situ(x, beta=4.0, linear_beta=25.0), round_to_nearest(exact, torch.bfloat16).bfloat16())


def test_both_sides_saturate_at_their_betas() -> None:
    x = pair([1e4, 1e4, -1e4, 1e4], [1e4, -1e4, 1e4, 3.0], torch.bfloat16)
    assert situ(x, beta=4.0, linear_beta=25.0)[0, :3].tolist() == [100.0, -100.0, 0.0]
    assert situ(x, beta=4.0)[0, 3].item() == 12.0


def test_small_values_are_those_of_a_gated_sigmoid() -> None:
    x = pair([2.0**-40], [2.0**-30])
    assert situ(x, beta=4.0, linear_beta=25.0, numerics=EXACT).item() == pytest.approx(2.0**-71, rel=1e-11)


def test_gates_are_the_first_half() -> None:
    x = pair([1.0, 2.0], [0.0, 0.0], torch.bfloat16)
    assert situ(x, beta=4.0, linear_beta=25.0).tolist() == [[0.0, 0.0]]
    assert (situ(x.flip(1), beta=4.0, linear_beta=25.0) == 0).all()
    assert situ(pair([1.0, 2.0], [0.0, 3.0]), beta=4.0, linear_beta=25.0, numerics=EXACT)[0, 1] > 0


def test_nan_and_infinities_propagate_or_saturate() -> None:
    inf = math.inf
    x = pair([math.nan, 1.0, inf, -inf, -inf, 1.0], [1.0, math.nan, 2.0, 2.0, inf, -inf], torch.bfloat16)
    y = situ(x, beta=4.0, linear_beta=25.0)[0]
    assert y[:2].isnan().all()
    assert y[2:5].tolist() == [round_to_nearest(torch.tensor(100 * math.tanh(2 / 25)).double(), torch.bfloat16), 0, 0]
    assert y[5] < 0
    unbounded = situ(x, beta=4.0)[0]
    assert unbounded[4].isnan()
    assert unbounded[5] == -inf


@pytest.mark.parametrize("seed", range(4))
def test_a_tangent_formed_from_an_exponential_is_within_what_perturbed_runs_show(seed: int) -> None:
    """In fp32 (1 − e) ÷ (1 + e) loses the last bits of 1, which near zero are many of the result's."""
    gates = torch.linspace(1e-3, 2e-3, 64).double()
    x = torch.cat([gates, torch.full_like(gates, 25.0)])[None]
    exact = situ(x, beta=4.0, linear_beta=25.0, numerics=EXACT)
    e = torch.exp(gates.float() / -2)
    formed = 4 * ((1 - e) / (1 + e)).double()
    error = (formed / torch.tanh(gates / 4) / 4 - 1).abs().max()
    moved = (situ(x, beta=4.0, linear_beta=25.0, numerics=perturbed(seed)) / exact - 1).abs().max()
    assert 2.0**-24 * 8 < error < moved * 8


def test_is_differentiable() -> None:
    x = torch.randn(3, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: situ(x, beta=4.0, linear_beta=25.0, numerics=EXACT), (x,))


@pytest.mark.parametrize("shape", [(0, 8), (3, 0)])
def test_empty_inputs_are_legal(shape: tuple[int, int]) -> None:
    assert situ(torch.empty(shape, dtype=torch.bfloat16), beta=4.0, numerics=ROUNDED).shape == (shape[0], shape[1] // 2)


@pytest.mark.parametrize(("call", "said"), [
    (lambda x: situ(x[:, :5], beta=4.0), "situ: gate_up has 5 columns; expected F gates, then F ups"),
    (lambda x: situ(x[0], beta=4.0), r"situ: gate_up is \[6\]; expected \[T, 2F\]"),
    (lambda x: situ(x, beta=0.0), "situ: beta is 0.0; expected a positive number"),
    (lambda x: situ(x, beta=math.nan), "situ: beta is nan"),
    (lambda x: situ(x, beta=4.0, linear_beta=-25.0), "linear_beta is -25.0; expected a positive number, 25.0"),
])  # fmt: skip
def test_bad_arguments_are_refused(call: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call(torch.ones(2, 6))
