from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import Tensor

from reference.moe import moe_experts
from reference.moe_sorting import moe_sorting
from reference.numerics import EXACT, ROUNDED, Variant, perturbed, round_to_nearest, rounded

AGREEMENT = 1e-12
BETA, LINEAR_BETA = 4.0, 25.0
LATENT, INTER, EXPERTS, TOP_K = 64, 96, 5, 3

ELEMENT = {"mxfp4": ml_dtypes.float4_e2m1fn, "mxfp8": ml_dtypes.float8_e4m3fn}
LARGEST = {"mxfp4": 6.0, "mxfp8": 448.0}

BF16_ADDS = rounded(Variant("adds", "", adds=frozenset({"weighted", "running"}), drops=frozenset({"route"})))
GATE_UP_FP32 = rounded(Variant("fp32", "", drops=frozenset({"gate_up"})))


def problem(rows: int = 6, seed: int = 0, **changes: Any) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)

    def integers(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator)

    return {
        "x": torch.randn(rows, LATENT, generator=generator).bfloat16(),
        "w13": integers(0, 256, EXPERTS, 2 * INTER, LATENT // 2).to(torch.uint8),
        "w13_scale": integers(120, 125, EXPERTS, 2 * INTER, LATENT // 32).to(torch.uint8),
        "w2": integers(0, 256, EXPERTS, LATENT, INTER // 2).to(torch.uint8),
        "w2_scale": integers(119, 124, EXPERTS, LATENT, INTER // 32).to(torch.uint8),
        "expert_ids": integers(0, EXPERTS, rows, TOP_K).to(torch.int32),
        "expert_weights": torch.rand(rows, TOP_K, generator=generator),
        "beta": BETA,
        "linear_beta": LINEAR_BETA,
    } | changes


def expanded(codes: Tensor, scales: Tensor) -> np.ndarray[Any, Any]:
    packed = codes.numpy()
    pairs = np.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:-1], -1)
    factors = scales.numpy().view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    return pairs.view(ml_dtypes.float4_e2m1fn).astype(np.float64) * np.repeat(factors, 32, -1)


def situ(gate: np.ndarray[Any, Any], up: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return BETA * np.tanh(gate / BETA) / (1 + np.exp(-gate)) * LINEAR_BETA * np.tanh(up / LINEAR_BETA)


def through(x: np.ndarray[Any, Any], format: str) -> np.ndarray[Any, Any]:
    """One vector through a format: exponents by exact fractions, codes by ml_dtypes."""
    if format == "bf16":
        return x
    parts = []
    for group in x.reshape(-1, 32):
        exponent = -140
        while max(Fraction(np.abs(group).max()), Fraction(1e-10)) > Fraction(LARGEST[format]) * Fraction(2) ** exponent:
            exponent += 1
        scaled = np.clip(group * 2.0**-exponent, -LARGEST[format], LARGEST[format])
        parts.append(scaled.astype(ELEMENT[format]).astype(np.float64) * 2.0**exponent)
    return np.concatenate(parts)


def stored(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return round_to_nearest(torch.from_numpy(np.ascontiguousarray(x)), torch.bfloat16).numpy()


def unchanged(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return x


def one_route(arguments: dict[str, Any], token: int, expert: int, format: str, points: frozenset[str]) -> Any:
    """What an expert gives a token, with bf16 stores at the named points."""

    def at(name: str) -> Any:
        return stored if name in points else unchanged

    w13 = expanded(arguments["w13"][expert], arguments["w13_scale"][expert])
    w2 = expanded(arguments["w2"][expert], arguments["w2_scale"][expert])
    gate_up = at("gate_up")(w13 @ through(arguments["x"][token].double().numpy(), format))
    activated = at("activated")(situ(gate_up[:INTER], gate_up[INTER:]))
    return at("route")(w2 @ through(activated, format))


def by_tokens(
    arguments: dict[str, Any], format: str, points: frozenset[str] = frozenset(), offset: int = 0
) -> list[list[Any]]:
    """The weighted routes of every token, in slot order."""
    at = stored if "weighted" in points else unchanged
    ids, weights = arguments["expert_ids"].tolist(), arguments["expert_weights"].double().tolist()
    return [
        [at(w * one_route(arguments, token, e - offset, format, points)) for e, w in zip(row, ws, strict=True)
         if 0 <= e - offset < len(arguments["w13"])]
        for token, (row, ws) in enumerate(zip(ids, weights, strict=True))
    ]  # fmt: skip


def totals(routes: list[list[Any]]) -> Tensor:
    return torch.from_numpy(np.stack([np.sum([np.zeros(LATENT), *row], axis=0) for row in routes]))


def assert_agree(got: Tensor, routes: list[list[Any]]) -> None:
    """Relative to the terms of each sum, which may cancel."""
    size = totals([[np.abs(term) for term in row] for row in routes])
    assert torch.all((got - totals(routes)).abs() <= AGREEMENT * (size + size.mean()))


FORMATS = ("bf16", "mxfp8", "mxfp4")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_a_loop_over_tokens(format: str, seed: int) -> None:
    arguments = problem(seed=seed)
    got = moe_experts(**arguments, activation_format=format, numerics=EXACT)
    assert_agree(got, by_tokens(arguments, format))


def test_agrees_with_every_expert_on_every_token() -> None:
    arguments = problem(rows=7, seed=4)
    w13, w2 = (torch.from_numpy(expanded(arguments[n], arguments[f"{n}_scale"])) for n in ("w13", "w2"))
    gate, up = torch.einsum("tl,efl->tef", arguments["x"].double(), w13).chunk(2, dim=2)
    activated = torch.from_numpy(situ(gate.numpy(), up.numpy()))
    share = torch.zeros(7, EXPERTS, dtype=torch.float64)
    share.scatter_add_(1, arguments["expert_ids"].long(), arguments["expert_weights"].double())
    wanted = torch.einsum("te,tef,elf->tl", share, activated, w2)
    got = moe_experts(**arguments, numerics=EXACT)
    size = torch.einsum("te,tef,elf->tl", share, activated.abs(), w2.abs())
    assert torch.all((got - wanted).abs() <= AGREEMENT * size)


@pytest.mark.parametrize("format", FORMATS)
def test_rounds_at_the_points_of_the_official_variant(format: str) -> None:
    arguments = problem(seed=5)
    points = {"activated", "route"} | ({"gate_up"} if format == "bf16" else set())
    routes = by_tokens(arguments, format, frozenset(points))
    got = moe_experts(**arguments, activation_format=format)
    assert torch.equal(got, round_to_nearest(totals(routes), torch.bfloat16).bfloat16())


def test_gates_and_ups_are_not_rounded_in_the_variant_without_that_point() -> None:
    arguments = problem(seed=6)
    routes = by_tokens(arguments, "bf16", frozenset({"activated", "route"}))
    got = moe_experts(**arguments, numerics=GATE_UP_FP32)
    assert torch.equal(got, round_to_nearest(totals(routes), torch.bfloat16).bfloat16())
    assert not torch.equal(got, moe_experts(**arguments))


def added(routes: list[list[Any]]) -> Tensor:
    """bf16 after every addition, in the order of the lists."""
    rows = []
    for row in routes:
        total = np.zeros(LATENT)
        for term in row:
            total = stored(total + term)
        rows.append(total)
    return torch.from_numpy(np.stack(rows)).bfloat16()


def test_bf16_adds_round_each_sum_in_slot_order() -> None:
    arguments = problem(seed=7)
    routes = by_tokens(arguments, "bf16", frozenset({"gate_up", "activated", "weighted"}))
    got = moe_experts(**arguments, numerics=BF16_ADDS)
    assert torch.equal(got, added(routes))
    assert not torch.equal(got, added([row[::-1] for row in routes]))


def test_atomic_adds_round_each_sum_in_the_order_of_the_experts() -> None:
    arguments = problem(seed=8)
    routes = by_tokens(arguments, "bf16", frozenset({"gate_up", "activated", "weighted"}))
    order = arguments["expert_ids"].argsort(dim=1, stable=True).tolist()
    wanted = added([[row[slot] for slot in slots] for row, slots in zip(routes, order, strict=True)])
    assert torch.equal(moe_experts(**arguments, combine="atomic"), wanted)


def test_perturbed_atomic_adds_arrive_in_any_order_and_exact_ones_have_none() -> None:
    arguments = problem(seed=9, combine="atomic")
    exact = moe_experts(**arguments, numerics=EXACT)
    ordered = moe_experts(**arguments | {"combine": "ordered"}, numerics=EXACT)
    assert torch.all((exact - ordered).abs() <= AGREEMENT * (ordered.abs() + ordered.abs().mean()))
    one, other = (perturbed(seed).arrival("arrival", torch.zeros(6, TOP_K)) for seed in range(2))
    assert not torch.equal(one, other)
    again = [moe_experts(**arguments, numerics=perturbed(3)) for _ in range(2)]
    assert torch.equal(*again)


@pytest.mark.parametrize("block_size", [1, 4, 32])
@pytest.mark.parametrize("combine", ["ordered", "atomic"])
def test_sort_metadata_give_the_bits_of_ids_and_weights(block_size: int, combine: str) -> None:
    arguments = problem(rows=9, seed=10, combine=combine)
    ids, weights = arguments.pop("expert_ids"), arguments.pop("expert_weights")
    wanted = moe_experts(**arguments, expert_ids=ids, expert_weights=weights)
    prepared = moe_sorting(ids, weights, num_experts=EXPERTS, block_size=block_size)
    metadata = {name: value for name, value in prepared._asdict().items() if name != "output_buffer"}
    # What lies past the end is garbage in a real buffer.
    valid = int(prepared.num_valid_ids[0])
    metadata["sorted_ids"][valid:] = 0
    metadata["sorted_expert_ids"][valid // block_size :] = 7
    metadata["sorted_weights"][valid:] = math.nan
    got = moe_experts(**arguments, **metadata, block_size=block_size, top_k=TOP_K)
    assert torch.equal(got, wanted)


def test_blocks_of_masked_experts_are_left_out_and_ids_are_local() -> None:
    arguments = problem(rows=9, seed=11)
    ids, weights = arguments.pop("expert_ids"), arguments.pop("expert_weights")
    mask = torch.tensor([0, 1, 1, 0, 1], dtype=torch.int32)
    bank = {n: arguments[n][mask.bool()] for n in ("w13", "w13_scale", "w2", "w2_scale")}
    prepared = moe_sorting(ids, weights, num_experts=EXPERTS, block_size=4, expert_mask=mask)
    metadata = {name: value for name, value in prepared._asdict().items() if name != "output_buffer"}
    got = moe_experts(**arguments | bank, **metadata, block_size=4, top_k=TOP_K, numerics=EXACT)
    kept = torch.where(mask.bool()[ids.long()], ids, -1)
    assert torch.equal(got, moe_experts(**arguments, expert_ids=kept, expert_weights=weights, numerics=EXACT))


def test_only_the_local_range_is_run_and_ids_outside_it_are_never_looked_up() -> None:
    arguments = problem(seed=12)
    ids = torch.tensor([[10, 11, 12], [9, 15, -1], [14, 14, 14], [2**31 - 1, -(2**31), 13], [10, 14, 9], [9, 9, 9]])
    arguments["expert_ids"] = ids.to(torch.int32)
    arguments["expert_weights"][ids == 9] = math.nan
    got = moe_experts(**arguments, expert_offset=10, num_local_experts=EXPERTS, numerics=EXACT)
    assert_agree(got, by_tokens(arguments, "bf16", offset=10))
    for row in (1, 5):
        assert torch.equal(got[row], torch.zeros(LATENT, dtype=torch.float64))
        assert not torch.signbit(got[row]).any()


def test_an_expert_that_a_row_chose_twice_counts_twice() -> None:
    arguments = problem(rows=1, seed=13)
    arguments["expert_ids"] = torch.tensor([[3, 3, 3]], dtype=torch.int32)
    single = problem(rows=1, seed=13, expert_ids=torch.tensor([[3]]),
                     expert_weights=arguments["expert_weights"].double().sum(1, keepdim=True))  # fmt: skip
    got, wanted = (moe_experts(**a, numerics=EXACT) for a in (arguments, single))
    assert torch.all((got - wanted).abs() <= 1e-12 * wanted.abs() + 1e-13)


def test_interleaved_rows_are_a_gate_and_an_up_in_turn() -> None:
    arguments = problem(seed=14)
    order = torch.stack([torch.arange(INTER), torch.arange(INTER) + INTER], dim=1).flatten()
    relaid = {n: arguments[n][:, order] for n in ("w13", "w13_scale")}
    got = moe_experts(**arguments | relaid, w13_layout="interleaved")
    assert torch.equal(got, moe_experts(**arguments))
    assert not torch.equal(got, moe_experts(**arguments | relaid))


@pytest.mark.parametrize("format", FORMATS)
def test_a_nan_spoils_its_row_and_no_other(format: str) -> None:
    arguments = problem(seed=15, activation_format=format)
    clean = moe_experts(**arguments)
    arguments["x"][2, 7] = math.nan
    got = moe_experts(**arguments)
    assert got[2].isnan().all()
    others = [0, 1, 3, 4, 5]
    assert torch.equal(got[others], clean[others])


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("numerics", [EXACT, ROUNDED, perturbed(1)])
def test_no_rows_give_no_rows(format: str, numerics: Any) -> None:
    assert moe_experts(**problem(rows=0), activation_format=format, numerics=numerics).shape == (0, LATENT)


def test_intermediates_are_traced_by_pair_in_the_order_of_the_experts() -> None:
    arguments = problem(rows=2, seed=16)
    arguments["expert_ids"] = torch.tensor([[4, 0, 9], [1, 4, 4]], dtype=torch.int32)
    with EXACT.trace() as trace:
        moe_experts(**arguments, activation_format="mxfp8", numerics=EXACT)
    assert trace["gate_up_product"].shape == (5, 2 * INTER)
    assert trace["activated"].shape == (5, INTER)
    assert trace["down_product"].shape == (5, LATENT)
    for row, (token, expert) in enumerate([(0, 0), (1, 1), (0, 4), (1, 4), (1, 4)]):
        wanted = torch.from_numpy(one_route(arguments, token, expert, "mxfp8", frozenset()))
        assert torch.all((trace["down_product"][row] - wanted).abs() <= 1e-11)


def test_inputs_are_left_alone() -> None:
    arguments = problem(seed=17)
    before = {n: v.clone() for n, v in arguments.items() if isinstance(v, Tensor)}
    moe_experts(**arguments, activation_format="mxfp4", combine="atomic")
    assert all(torch.equal(arguments[name], value) for name, value in before.items())


def zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.uint8)


@pytest.mark.parametrize(("changes", "said"), [
    ({"w13": zeros(5, 192, 64)}, r"w13_scale is \[5, 192, 2\]; expected \[5, 192, 4\]"),
    ({"w13": zeros(5, 192, 64), "w13_scale": zeros(5, 192, 4)},
     r"w13 is \[5, 192, 64\]; expected \[E, 2F, L/2\] with L/2 = 32; two codes go in a byte"),
    ({"w2": zeros(5, 96, 32), "w2_scale": zeros(5, 96, 2)},
     r"w2 is \[5, 96, 32\]; expected \[E, L, F/2\] = \[5, 64, 48\]; is it transposed\?"),
    ({"w2_scale": zeros(5, 64, 16)}, r"w2_scale is \[5, 64, 16\]; expected \[5, 64, 3\].*padded or swizzled"),
    ({"w13": torch.zeros(5, 192, 32, dtype=torch.int8)}, "w13 is torch.int8; expected uint8; view packed dtypes"),
    ({"w13": zeros(192, 32), "w13_scale": zeros(192, 2)}, r"w13 is \[192, 32\]; expected \[E, 2F, L/2\]"),
    ({"x": torch.zeros(64)}, r"x is \[64\]; expected \[T, L\]"),
    ({"num_local_experts": 6}, "num_local_experts is 6; w13 holds 5 experts"),
    ({"expert_offset": -1}, "expert_offset is -1; expected 0 or more"),
    ({"expert_ids": torch.zeros(6, 3)}, "expert_ids is torch.float32; expected integers; are ids and weights exch"),
    ({"expert_ids": torch.zeros(18, dtype=torch.int32)}, r"expert_ids is \[18\]; expected \[T, k\] = \[6, any\]"),
    ({"expert_weights": torch.zeros(6, 4)}, r"expert_weights is \[6, 4\]; expected \[T, k\] = \[6, 3\]"),
    ({"expert_weights": None}, "expert_ids are given without expert_weights"),
    ({"expert_ids": None}, "expert_weights are given without expert_ids"),
    ({"expert_ids": None, "expert_weights": None}, "sorted_ids, .*top_k missing; expected expert_ids and"),
    ({"block_size": 32}, "both expert_ids and sort metadata are given; expected one of them"),
    ({"expert_ids": None, "expert_weights": None, "expert_offset": 2}, "expert_offset is 2 with sort metadata"),
    ({"w13_layout": "swizzled"}, "w13_layout is 'swizzled'; expected one of separated, interleaved"),
    ({"activation_format": "fp8"}, "activation_format is 'fp8'; expected one of bf16, mxfp8, mxfp4"),
    ({"combine": "fast"}, "combine is 'fast'; expected one of ordered, atomic"),
    ({"beta": 0}, "beta is 0; expected a positive number"),
])  # fmt: skip
def test_bad_arguments_are_refused_with_what_was_expected(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"^moe_experts: .*{said}"):
        moe_experts(**problem() | changes)


@pytest.mark.parametrize(("changes", "said"), [
    ({"num_valid_ids": torch.tensor([999, 6])}, r"num_valid_ids\[0\] is 999; expected 0…35"),
    ({"num_valid_ids": torch.tensor([12])}, r"num_valid_ids is \[1\]; expected"),
    ({"sorted_weights": torch.zeros(3)}, r"sorted_weights is \[3\]; expected \[slots\] = \[35\]"),
    ({"block_size": 0}, "block_size is 0; expected 1 or more"),
    ({"top_k": 0}, "top_k is 0; expected 1 or more"),
    ({"top_k": None}, "top_k missing"),
])  # fmt: skip
def test_bad_metadata_are_refused(changes: dict[str, Any], said: str) -> None:
    arguments = problem()
    ids, weights = arguments.pop("expert_ids"), arguments.pop("expert_weights")
    prepared = moe_sorting(ids, weights, num_experts=EXPERTS, block_size=4)._asdict()
    metadata = {name: value for name, value in prepared.items() if name != "output_buffer"}
    with pytest.raises(ValueError, match=said):
        moe_experts(**arguments | metadata | {"block_size": 4, "top_k": TOP_K} | changes)
