"""Inputs are the same bits everywhere, spread as they say, under every layout."""

from __future__ import annotations

import itertools

import pytest
import torch

from verification.inputs import LAYOUTS, TORCH_DTYPES, Inputs, digest, laid_out
from verification.operator import find_operator, parse_case

DIGESTS = {
    "rms_norm/rows=3,hidden=17/bf16/normal/0":
        "03f86caf7b2d14ea0ae68f998fe9c39755ad3f8aabcd59bbf7ded8e074469c3b",
    "rms_norm/rows=5,hidden=130,layout=offset/bf16/normal/0":
        "c7c2163844fb9434a7dea6df1160cca4eb7626ffcf869324ae3f33ae9f0860ef",
    "route/rows=5,experts=24,top_k=4/fp32/infinite/0":
        "1bbf5167a603f07973cba94c5a657fae9c8ec1eef7761ffb8b4366bf53823ec8",
    "route/rows=2,experts=128,top_k=8/fp32/normal/7":
        "30da6eb059c733c6977c49380c3e3817f5fc17bc106b3bcac7d3838ede8e4e51",
    "moe_sorting/rows=7,experts=24,top_k=4/fp32/invalid/0":
        "144f2da5056c6b1a4d5f5c09c30950c49a401ca891082e737b85cd5cde70e9a8",
    "moe_sorting/rows=33,buffer=96/fp32/distinct/0":
        "d4eb573a795267c1f3be7b7005a7240ce2665af5517737f551422af8ddbe06b4",
    "route_sort/rows=5,experts=24,top_k=4,mapped=yes,mask=odd/fp32/normal/0":
        "038f0cb1632ddb392006d5e7bcf8138fec22ae58c38800ff5a149cf5e8697645",
    "attention_residual/rows=3,hidden=96,blocks=5,write=yes,order=block_major/bf16/normal/0":
        "b2974fcea67d52d93e0a1d74d56d52763e8b201a13b4e9684033750d325c8da6",
    "attention_residual/hidden=1024/bf16/near_eps/0":
        "e0c66a8682ec13cc8dc2a134f4acd971cb910551fbedc99676c0db33840ed60d",
}  # fmt: skip

COUNT = 1 << 16
STANDARD_ERRORS = 5
"""How far a moment may be off: a fixed seed is used, so this is met always or never."""

INPUTS = Inputs("moments")


@pytest.mark.parametrize("case", DIGESTS)
def test_a_cases_inputs_have_the_bits_that_they_had_when_recorded(case):
    parsed = parse_case(case)
    assert digest(find_operator(parsed.operator).make(parsed)) == DIGESTS[case]


def test_raw_words_are_philoxs_under_a_key_of_ours():
    words = [0x2177DAC627C8AFC2, 0x6305A112A381161B, 0xAD3DE2AF03A9E870]
    assert Inputs("key").raw("x", 3).tolist() == words


@pytest.mark.parametrize(("change", "what"), [
    (lambda a: a | {"x": a["x"] + 1}, "values"),
    (lambda a: a | {"x": a["x"].t().contiguous().t()}, "strides"),
    (lambda a: a | {"x": a["x"].reshape(3, 2)}, "shapes"),
    (lambda a: a | {"x": a["x"].view(torch.int32)}, "dtypes"),
    (lambda a: a | {"eps": 2.0}, "numbers"),
    (lambda a: a | {"y": a["x"]}, "names"),
])  # fmt: skip
def test_a_digest_sees_every_part_of_the_arguments(change, what):
    arguments = {"x": torch.arange(6.0).reshape(2, 3), "eps": 1.0}
    assert digest(arguments) == digest(dict(reversed(arguments.items())))
    assert digest(change(arguments)) != digest(arguments), what


@pytest.mark.parametrize(("one", "other"), [
    ((Inputs("case"), "x"), (Inputs("case"), "weight")),
    ((Inputs("case"), "x"), (Inputs("another case"), "x")),
])  # fmt: skip
def test_streams_of_different_names_and_cases_are_independent(one, other):
    a, b = (inputs.normal(name, (COUNT,)) for inputs, name in (one, other))
    assert not (a[:-1] == b[1:]).all()
    assert not (a == b).all()
    for shift in range(4):
        correlation = float((a * b.roll(shift)).mean())
        assert abs(correlation) < STANDARD_ERRORS / COUNT**0.5


def test_a_stream_does_not_depend_on_what_was_drawn_before():
    inputs = Inputs("case")
    first = inputs.normal("x", (100,))
    inputs.uniform("weight", (7,))
    assert torch.equal(inputs.normal("x", (100,)), first)
    assert torch.equal(inputs.normal("x", (300,))[:100], first)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 5.0)])
def test_uniform_values_fill_their_range(low, high):
    x = INPUTS.uniform("uniform", (COUNT // 64, 64), low, high)
    assert x.dtype == torch.float64
    assert low <= float(x.min())
    assert float(x.max()) < high
    deviation = (high - low) / 12**0.5
    assert abs(float(x.mean()) - (low + high) / 2) < STANDARD_ERRORS * deviation / COUNT**0.5
    assert torch.histc(x, 16, low, high).min() > COUNT / 16 - STANDARD_ERRORS * (COUNT / 16) ** 0.5


@pytest.mark.parametrize("scale", [1.0, 0.25, 0.0])
def test_normal_values_have_mean_0_their_scale_and_a_bound(scale):
    x = INPUTS.normal("normal", (COUNT,), scale)
    assert x.abs().max() <= 2 * 3**0.5 * scale
    assert abs(float(x.mean())) <= STANDARD_ERRORS * scale / COUNT**0.5
    # The fourth moment of four uniforms is 2.7 σ⁴, so the variance of x² is 1.7 σ⁴.
    assert abs(float(x.square().mean()) - scale**2) <= STANDARD_ERRORS * (1.7 / COUNT) ** 0.5 * scale**2


@pytest.mark.parametrize(("low", "high"), [(0, 2), (-1, 6), (5, 6), (-(2**31), 2**31)])
def test_integers_fill_their_range_and_stay_in_it(low, high):
    x = INPUTS.integers("integers", (COUNT,), low, high)
    assert x.dtype == torch.int64
    assert low <= int(x.min())
    assert int(x.max()) < high
    if high - low <= 8:
        assert set(x.tolist()) == set(range(low, high))
        share = COUNT / (high - low)
        assert torch.bincount(x - low).min() >= share - STANDARD_ERRORS * share**0.5


def test_permutations_hold_each_number_once_a_row_and_differ_between_rows():
    x = INPUTS.permutations("permutations", 500, 7)
    assert torch.equal(x.sort(dim=1).values, torch.arange(7).expand(500, 7))
    first = torch.bincount(x[:, 0], minlength=7)
    assert first.min() > 500 / 7 - STANDARD_ERRORS * (500 / 7) ** 0.5


@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0)])
def test_empty_shapes_give_empty_tensors(shape):
    assert INPUTS.normal("empty", shape).shape == shape
    assert INPUTS.uniform("empty", shape).shape == shape
    assert INPUTS.integers("empty", shape, 0, 4).shape == shape


@pytest.mark.parametrize(("layout", "dtype"), list(itertools.product(LAYOUTS, ("bf16", "fp32", "int32"))))
def test_a_layout_holds_equal_values_and_its_filler_lies_outside_the_view(layout, dtype):
    x = (1 + INPUTS.integers("laid out", (5, 6), 0, 100)).to(TORCH_DTYPES[dtype])
    view = laid_out(x, layout)
    assert torch.equal(view, x)
    storage = torch.empty(0, dtype=x.dtype).set_(view.untyped_storage())
    is_filler = storage.isnan() if x.is_floating_point() else storage == torch.iinfo(x.dtype).min
    assert int(is_filler.sum()) == storage.numel() - x.numel()
    view.fill_(0)
    assert int((storage == 0).sum()) == x.numel()


def test_every_layout_but_the_contiguous_one_differs_in_memory():
    x = INPUTS.normal("laid out", (5, 6))
    places = {(laid_out(x, layout).stride(), laid_out(x, layout).storage_offset()) for layout in LAYOUTS}
    assert len(places) == len(LAYOUTS)


def test_an_unknown_layout_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown layout 'diagonal'.*row_padded"):
        laid_out(torch.zeros(2, 2), "diagonal")
