from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from reference.normalization import gated_rms_norm, rms_norm
from reference.numerics import EXACT, ROUNDED
from verification.inputs import Inputs

AGREEMENT = 1e-12


def arguments(rows: int, heads: int, width: int, scale: float = 1.0) -> dict[str, Any]:
    inputs = Inputs(f"{rows} {heads} {width} {scale}")
    return {
        "x": inputs.normal("x", (rows, heads, width), scale).bfloat16(),
        "gate": inputs.normal("gate", (rows, heads, width), 3.0).bfloat16(),
        "weight": inputs.normal("weight", (width,)).bfloat16(),
        "eps": 1e-5,
    }


@pytest.mark.parametrize("scale", [2.0**-12, 1.0, 2.0**15])
@pytest.mark.parametrize(("rows", "heads", "width"), [(1, 1, 1), (3, 2, 5), (2, 12, 128)])
def test_agrees_with_loops(rows: int, heads: int, width: int, scale: float) -> None:
    given = arguments(rows, heads, width, scale)
    got = gated_rms_norm(**given, numerics=EXACT)
    weight = given["weight"].double().tolist()
    for t in range(rows):
        for n in range(heads):
            x, gate = (given[name][t, n].double().tolist() for name in ("x", "gate"))
            root = math.sqrt(math.fsum(value * value for value in x) / width + 1e-5)
            for v in range(width):
                wanted = x[v] / root * weight[v] / (1 + math.exp(-gate[v]))
                assert abs(float(got[t, n, v]) - wanted) <= AGREEMENT * abs(wanted)


def test_an_open_gate_is_a_plain_norm_and_a_shut_one_gives_zeros() -> None:
    given = arguments(3, 2, 8)
    plain = rms_norm(given["x"], given["weight"], eps=1e-5, numerics=EXACT)
    opened = gated_rms_norm(**given | {"gate": torch.full((3, 2, 8), 100.0)}, numerics=EXACT)
    assert ((opened - plain).abs() <= AGREEMENT * plain.abs()).all()
    assert gated_rms_norm(**given | {"gate": torch.full((3, 2, 8), -1000.0)}).abs().sum() == 0


def test_it_is_rounded_once() -> None:
    given = arguments(5, 3, 32)
    assert torch.equal(gated_rms_norm(**given, numerics=ROUNDED), gated_rms_norm(**given, numerics=EXACT).bfloat16())


def test_a_nan_spoils_its_head_alone() -> None:
    given = arguments(2, 3, 8)
    expected = gated_rms_norm(**given)
    given["x"][1, 2, 3] = torch.nan
    got = gated_rms_norm(**given)
    assert got[1, 2].isnan().all()
    assert torch.equal(got[0], expected[0])
    assert torch.equal(got[1, :2], expected[1, :2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.ones(3, 8)}, r"x is \[3, 8\]; expected \[T, N, V\]"),
        ({"gate": torch.ones(3, 16)}, r"gate is \[3, 16\]; expected \[T, N, V\] = \[3, 2, 8\]"),
        ({"weight": torch.ones(16)}, r"weight is \[16\]; expected \[V\] = \[8\]"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"gated_rms_norm: {message}"):
        gated_rms_norm(**arguments(3, 2, 8) | change)
