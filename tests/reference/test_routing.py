from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from reference.numerics import EXACT, ROUNDED, Variant, rounded
from reference.routing import Routing, route
from verification.budget import derive
from verification.comparison import compare_numbers
from verification.operator import find_operator

AGREEMENT = 1e-12
"""Relative difference of two float64 formulations."""

NAN, INF = math.nan, math.inf
SCORE_FUNCTIONS = pytest.mark.parametrize("score_function", ["sigmoid", "softmax"])


def rank(value: float, index: int) -> tuple[bool, float, int]:
    """Sorts by descending value with NaN last, then by ascending index."""
    return (True, 0.0, index) if math.isnan(value) else (False, -value, index)


def sigmoid(value: float) -> float:
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    return math.exp(value) / (1 + math.exp(value))


def softmax(row: list[float]) -> list[float]:
    largest = max((value for value in row if not math.isnan(value)), default=-INF)
    masses = []
    for value in row:
        if math.isnan(value):
            masses.append(NAN)
        elif value == -INF:
            masses.append(0.0)
        else:
            masses.append(1.0 if value == largest else math.exp(value - largest))
    total = math.fsum(mass for mass in masses if not math.isnan(mass))
    return [mass / total if total else mass for mass in masses]


def by_sorting(
    row: list[float],
    bias: list[float] | None = None,
    *,
    top_k: int,
    num_groups: int = 1,
    top_groups: int = 1,
    score_function: str = "sigmoid",
    renormalize: bool = True,
    scaling_factor: float = 1.0,
) -> tuple[list[int], list[float]]:
    scores = softmax(row) if score_function == "softmax" else [sigmoid(x) for x in row]
    choice = list(scores)
    if bias is not None:
        choice = [score + shift for score, shift in zip(scores, bias, strict=True)]
    size = len(row) // num_groups
    groups = [range(group * size, group * size + size) for group in range(num_groups)]
    totals = []
    for group in groups:
        best = sorted(group, key=lambda expert: rank(choice[expert], expert))
        totals.append(sum(choice[expert] for expert in best[: 1 if bias is None else 2]))
    kept = sorted(range(num_groups), key=lambda group: rank(totals[group], group))[:top_groups]
    inside = [expert for group in kept for expert in groups[group]]
    ids = sorted(inside, key=lambda expert: rank(choice[expert], expert))[:top_k]
    weights = [0.0 if math.isnan(scores[expert]) else scores[expert] for expert in ids]
    if renormalize:
        total = math.fsum(weights) + 1e-20
        weights = [weight / total for weight in weights]
    return ids, [weight * scaling_factor for weight in weights]


def assert_agrees(logits: Tensor, bias: Tensor | None = None, **options: Any) -> None:
    got = route(logits, bias, numerics=EXACT, **options)
    biases = None if bias is None else bias.tolist()
    rows = [by_sorting(row, biases, **options) for row in logits.tolist()]
    assert got.expert_ids.tolist() == [ids for ids, _ in rows]
    wanted = torch.tensor([weights for _, weights in rows], dtype=torch.float64)
    assert torch.all((got.expert_weights - wanted).abs() <= AGREEMENT * wanted.abs())


def normal(seed: int, *shape: int, scale: float = 1.0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def ids_of(row: list[float], bias: list[float] | None = None, **options: Any) -> list[int]:
    shift = None if bias is None else torch.tensor(bias, dtype=torch.float64)
    logits = torch.tensor([row], dtype=torch.float64)
    return route(logits, shift, **options).expert_ids[0].tolist()


def weights_of(row: list[float], bias: list[float] | None = None, **options: Any) -> list[float]:
    options.setdefault("numerics", EXACT)
    shift = None if bias is None else torch.tensor(bias, dtype=torch.float64)
    logits = torch.tensor([row], dtype=torch.float64)
    return route(logits, shift, **options).expert_weights[0].tolist()


def logits_for(scores: list[float]) -> list[float]:
    return [math.log(score / (1 - score)) for score in scores]


@pytest.mark.parametrize(
    ("experts", "top_k", "num_groups", "top_groups"),
    [
        (1, 1, 1, 1),
        (5, 5, 1, 1),
        (13, 3, 1, 1),
        (24, 4, 3, 2),
        (21, 6, 7, 2),
        (8, 4, 8, 4),
        (128, 8, 1, 1),
        (256, 8, 8, 4),
        (896, 16, 1, 1),
        (896, 16, 7, 3),
    ],
)
@SCORE_FUNCTIONS
@pytest.mark.parametrize("biased", [True, False])
def test_agrees_with_sorting_by_tuples(
    experts: int, top_k: int, num_groups: int, top_groups: int, score_function: str, biased: bool
) -> None:
    options = {
        "top_k": top_k,
        "num_groups": num_groups,
        "top_groups": top_groups,
        "score_function": score_function,
    }
    logits = normal(experts, 5, experts, scale=2.0)
    bias = normal(experts + 1, experts, scale=0.1) if biased else None
    for renormalize in (True, False):
        for factor in (1.0, 2.5):
            assert_agrees(logits, bias, renormalize=renormalize, scaling_factor=factor, **options)


@pytest.mark.parametrize("seed", range(30))
@SCORE_FUNCTIONS
def test_agrees_with_sorting_by_tuples_on_special_values_and_ties(seed: int, score_function: str) -> None:
    generator = random.Random(seed)
    num_groups = generator.choice((1, 2, 3, 4))
    size = generator.choice((1, 2, 3, 5))
    experts = num_groups * size
    top_groups = generator.randint(1, num_groups)
    values = (NAN, INF, -INF, 0.0, -0.0, 0.0, 3.0, -200.0, -2000.0)
    rows = [[generator.choice(values) for _ in range(experts)] for _ in range(8)]
    shifts = [generator.choice((0.0, -0.5, -2.0, 0.25, -INF, NAN)) for _ in range(experts)]
    assert_agrees(
        torch.tensor(rows, dtype=torch.float64),
        generator.choice((None, torch.tensor(shifts, dtype=torch.float64))),
        top_k=generator.randint(1, top_groups * size),
        num_groups=num_groups,
        top_groups=top_groups,
        score_function=score_function,
        renormalize=generator.random() < 0.5,
    )


def test_agrees_on_near_ties_and_on_skewed_rows() -> None:
    near = normal(1, 4, 896).double() * 1e-4
    assert_agrees(near, normal(2, 896).double() * 1e-6, top_k=16)
    ramp = torch.linspace(-8, 8, 896)
    skewed = torch.stack([ramp.roll(37 * token) for token in range(8)])
    assert_agrees(skewed, normal(3, 896, scale=0.1), top_k=16)


@SCORE_FUNCTIONS
@pytest.mark.parametrize("experts", [6, 160, 896])
def test_all_nan_row_gets_the_first_ids_with_weight_zero(score_function: str, experts: int) -> None:
    for bias in (None, [1.0] * experts):
        row = [NAN] * experts
        assert ids_of(row, bias, top_k=4, score_function=score_function) == [0, 1, 2, 3]
        assert weights_of(row, bias, top_k=4, score_function=score_function) == [0.0] * 4


@SCORE_FUNCTIONS
def test_a_row_of_minus_infinity_gets_the_first_ids_with_weight_zero(score_function: str) -> None:
    assert ids_of([-INF] * 9, top_k=3, score_function=score_function) == [0, 1, 2]
    assert weights_of([-INF] * 9, top_k=3, score_function=score_function) == [0.0] * 3


def test_nan_ranks_below_minus_infinity_and_the_lower_id_first() -> None:
    bias = [0.0, 0.0, -INF, 0.0, -INF]
    row = [NAN, 0.0, 0.0, NAN, 0.0]
    assert ids_of(row, bias, top_k=5) == [1, 2, 4, 0, 3]


def test_an_expert_chosen_at_minus_infinity_keeps_its_unbiased_score_as_weight() -> None:
    weights = weights_of([0.0, 0.0, 0.0], [0.0, -INF, -INF], top_k=2, renormalize=False)
    assert weights == [0.5, 0.5]


def test_a_nan_bias_puts_its_expert_last_and_keeps_its_weight() -> None:
    assert ids_of([5.0, 0.0], [NAN, 0.0], top_k=2) == [1, 0]
    assert weights_of([0.0, 0.0], [NAN, 0.0], top_k=2, renormalize=False) == [0.5, 0.5]


def test_group_score_is_the_sum_of_two_with_a_bias_and_the_maximum_without() -> None:
    row = logits_for([0.9, 0.1, 0.1, 0.1, 0.6, 0.6, 0.1, 0.1])
    groups = {"num_groups": 2, "top_groups": 1}
    assert ids_of(row, [0.0] * 8, top_k=2, **groups) == [4, 5]
    assert ids_of(row, None, top_k=2, **groups) == [0, 1]


def test_group_score_counts_the_biased_scores() -> None:
    bias = [0.0] * 4 + [0.2, 0.2, 0.0, 0.0]
    assert ids_of([0.0] * 8, bias, top_k=2, num_groups=2, top_groups=1) == [4, 5]


def test_a_group_of_one_expert_is_scored_by_that_expert() -> None:
    row = [0.0, 3.0, 1.0, 2.0, 7.0, -1.0, 6.0, 5.0]
    for bias in (None, [0.0] * 8):
        assert ids_of(row, bias, top_k=4, num_groups=8, top_groups=4) == [4, 6, 7, 1]


def test_equal_groups_are_kept_by_lower_index() -> None:
    assert ids_of([0.0] * 12, top_k=3, num_groups=4, top_groups=2) == [0, 1, 2]
    row = [1.0] * 3 + [2.0] * 3 + [2.0] * 3 + [2.0] * 3
    assert ids_of(row, top_k=6, num_groups=4, top_groups=2) == [3, 4, 5, 6, 7, 8]


def test_a_group_with_a_nan_score_is_kept_last() -> None:
    row = [NAN, NAN, -5.0, -6.0, NAN, NAN]
    assert ids_of(row, [0.0] * 6, top_k=2, num_groups=3, top_groups=1) == [2, 3]
    assert ids_of(row, [0.0] * 6, top_k=4, num_groups=3, top_groups=2) == [2, 3, 0, 1]


def test_one_nan_in_a_group_spoils_its_score_only_when_it_is_among_the_best_two() -> None:
    groups = {"num_groups": 2, "top_groups": 1}
    assert ids_of([4.0, NAN, -9.0, -9.0], [0.0] * 4, top_k=1, **groups) == [2]
    row = [4.0, 4.0, NAN, -9.0, -9.0, -9.0]
    assert ids_of(row, [0.0] * 6, top_k=1, **groups) == [0]
    assert ids_of([4.0, NAN, -9.0, -9.0], None, top_k=1, **groups) == [0]


def test_negative_bias_never_lets_a_masked_expert_win() -> None:
    bias = [-0.9, -0.9] + [-1.0] * 6
    assert ids_of([0.0] * 8, bias, top_k=2, num_groups=4, top_groups=1) == [0, 1]
    bias = [-1.0] * 6 + [-0.9, -0.9]
    assert ids_of([0.0] * 8, bias, top_k=2, num_groups=4, top_groups=1) == [6, 7]


@pytest.mark.parametrize("value", [NAN, -INF])
def test_experts_of_a_kept_group_win_however_bad_they_are(value: float) -> None:
    """The second best kept group holds nothing usable, and still no other group is asked."""
    row = [0.0] * 24 + [9.0, 9.0] + [value] * 22
    ids = ids_of(row, [0.0] * 48, top_k=8, num_groups=2, top_groups=1)
    assert ids == list(range(24, 32))


def test_order_follows_a_negative_biased_score_and_weights_the_unbiased() -> None:
    bias = [-2.0, -0.6, -1.5, -0.7]
    row = [3.0, -1.0, 2.0, 0.0]
    assert ids_of(row, bias, top_k=3) == [3, 1, 2]
    scores = [sigmoid(row[expert]) for expert in (3, 1, 2)]
    got = weights_of(row, bias, top_k=3, renormalize=False)
    assert got == pytest.approx(scores, rel=AGREEMENT, abs=0)


def test_plus_infinity_scores_one_under_sigmoid() -> None:
    row = [0.0, INF, NAN, -INF, INF]
    assert ids_of(row, top_k=5) == [1, 4, 0, 3, 2]
    assert weights_of(row, top_k=5, renormalize=False) == [1.0, 1.0, 0.5, 0.0, 0.0]


def test_plus_infinities_share_one_equally_under_softmax() -> None:
    row = [0.0, INF, NAN, -INF, INF]
    options = {"top_k": 5, "score_function": "softmax"}
    assert ids_of(row, **options) == [1, 4, 0, 3, 2]
    assert weights_of(row, renormalize=False, **options) == [0.5, 0.5, 0.0, 0.0, 0.0]


def test_a_nan_logit_is_left_out_of_the_softmax_of_its_row() -> None:
    options = {"top_k": 3, "score_function": "softmax", "renormalize": False}
    assert ids_of([NAN, 0.0, 0.0], **options) == [1, 2, 0]
    assert weights_of([NAN, 0.0, 0.0], **options) == [0.5, 0.5, 0.0]


@pytest.mark.parametrize("numerics", [EXACT, ROUNDED])
@pytest.mark.parametrize("logit", [-120.0, -2000.0, -3e38])
def test_underflowing_sigmoid_gives_finite_zero_weights(numerics: Any, logit: float) -> None:
    bias = normal(5, 32).abs().tolist()
    best = sorted(range(32), key=lambda expert: -bias[expert])[:4]
    assert ids_of([logit] * 32, bias, top_k=4, numerics=numerics) == best
    weights = weights_of([logit] * 32, bias, top_k=4, numerics=numerics)
    assert all(0 <= weight < 2.0**-24 for weight in weights)


def test_the_denominator_has_a_small_constant_a_floor_or_a_guard() -> None:
    """At a sum of 2⁻⁷⁰ the three forms give three different weights."""
    logit = math.log(2.0**-71)
    given = {
        name: weights_of([logit] * 2, top_k=2, numerics=rounded(variant(name)))[0]
        for name in ("denominator_constant", "denominator_floor", "denominator_guard")
    }
    score, floor = 2.0**-71, 1e-20
    wanted = [score / (2 * score + floor), score / floor, 0.5]
    assert list(given.values()) == torch.tensor(wanted).tolist()
    for name in given:
        numerics = rounded(variant(name))
        assert weights_of([-INF] * 2, top_k=2, numerics=numerics) == [0.0, 0.0]


def variant(*points: str) -> Variant:
    return Variant("test", "", adds=frozenset(points))


def test_nan_weights_are_a_variant() -> None:
    numerics = rounded(variant("nan_weights"))
    weights = weights_of([NAN] * 4, top_k=2, numerics=numerics)
    assert all(math.isnan(weight) for weight in weights)
    assert ids_of([NAN] * 4, top_k=2, numerics=numerics) == [0, 1]


def test_all_zero_logits_give_the_first_ids_an_equal_share() -> None:
    assert ids_of([0.0] * 896, top_k=16) == list(range(16))
    assert weights_of([0.0] * 896, top_k=16, numerics=ROUNDED) == [1 / 16] * 16


def test_a_tie_at_the_cut_goes_to_the_lower_id() -> None:
    row = [-3.0] * 896
    equal = list(range(7, 7 + 18 * 31, 31))
    for expert in equal:
        row[expert] = 2.0
    assert ids_of(row, [0.0] * 896, top_k=16) == equal[:16]


def test_zeros_of_either_sign_tie() -> None:
    assert ids_of([-0.0, 0.0, -0.0], top_k=3) == [0, 1, 2]


def test_biases_that_bf16_would_merge_are_told_apart() -> None:
    bias = [1.0001, 1.0002, 1.0003, 1.0004]
    assert ids_of([0.0] * 4, bias, top_k=4) == [3, 2, 1, 0]
    assert ids_of([0.0] * 4, bias, top_k=2, num_groups=2, top_groups=1) == [3, 2]


def test_bf16_logits_are_scored_in_full_precision() -> None:
    logits = torch.tensor([[6.0, 6.125, 6.0625, 7.0]], dtype=torch.bfloat16)
    got = route(logits, top_k=4, numerics=EXACT)
    assert got.expert_ids.tolist() == [[3, 1, 2, 0]]
    assert_agrees(logits.double(), top_k=4)
    wanted = route(logits.double(), top_k=4, numerics=EXACT)
    assert torch.equal(got.expert_weights, wanted.expert_weights)


def test_scaling_does_not_depend_on_renormalizing() -> None:
    options = {"top_k": 2, "scaling_factor": 2.5}
    assert weights_of([0.0] * 4, renormalize=False, **options) == [1.25, 1.25]
    assert weights_of([0.0] * 4, renormalize=True, **options) == [1.25, 1.25]
    assert weights_of([0.0] * 4, top_k=1, scaling_factor=2.5, renormalize=False) == [1.25]
    assert weights_of([0.0] * 4, top_k=1, scaling_factor=2.5, renormalize=True) == [2.5]


@pytest.mark.parametrize("experts", [1, 3, 128, 896])
def test_weights_are_the_unbiased_scores_at_every_width(experts: int) -> None:
    top_k = min(8, experts)
    bias = normal(7, experts)
    logits = normal(8, 3, experts)
    got = route(logits, bias, top_k=top_k, renormalize=False, numerics=EXACT)
    for row, ids, weights in zip(logits.tolist(), *map(Tensor.tolist, got), strict=True):
        assert weights == pytest.approx([sigmoid(row[i]) for i in ids], rel=AGREEMENT, abs=0)


def test_renormalized_weights_sum_to_the_scaling_factor() -> None:
    got = route(normal(9, 6, 64), top_k=5, scaling_factor=2.827, numerics=EXACT)
    for row in got.expert_weights.tolist():
        assert math.fsum(row) == pytest.approx(2.827, rel=AGREEMENT, abs=0)


def test_ids_are_distinct_and_in_range_for_any_garbage() -> None:
    generator = random.Random(11)
    values = (NAN, INF, -INF, 1.0, -1.0)
    rows = [[generator.choice(values) for _ in range(40)] for _ in range(50)]
    for score_function in ("sigmoid", "softmax"):
        got = route(torch.tensor(rows), top_k=12, score_function=score_function)
        for ids in got.expert_ids.tolist():
            assert len(set(ids)) == 12
            assert set(ids) <= set(range(40))
        assert torch.isfinite(got.expert_weights).all()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_the_physical_map_applies_after_the_choice(dtype: torch.dtype) -> None:
    physical = torch.tensor([30, 20, 10, 0, 7], dtype=dtype)
    row = [0.0, 5.0, 1.0, 5.0, -1.0]
    logits = torch.tensor([row])
    got = route(logits, top_k=3, logical_to_physical=physical)
    assert got.expert_ids.tolist() == [[20, 0, 10]]
    assert torch.equal(got.expert_weights, route(logits, top_k=3).expert_weights)


def test_chosen_experts_are_weighed_instead_of_the_best() -> None:
    row = [4.0, 0.0, -2.0, 1.0]
    chosen = torch.tensor([[2, 1]], dtype=torch.int32)
    got = route(torch.tensor([row]), top_k=2, chosen=chosen, renormalize=False, numerics=EXACT)
    assert got.expert_ids.tolist() == [[2, 1]]
    wanted = [sigmoid(-2.0), 0.5]
    assert got.expert_weights[0].tolist() == pytest.approx(wanted, rel=AGREEMENT, abs=0)


@pytest.mark.parametrize(("numerics", "dtype"), [(EXACT, torch.float64), (ROUNDED, torch.float32)])
def test_ids_are_int32_and_weights_are_rounded_to_fp32(numerics: Any, dtype: torch.dtype) -> None:
    got = route(normal(1, 2, 6), top_k=2, numerics=numerics)
    assert isinstance(got, Routing)
    assert got.expert_ids.dtype == torch.int32
    assert got.expert_weights.dtype == dtype


@SCORE_FUNCTIONS
@pytest.mark.parametrize("num_groups", [1, 4])
def test_no_rows_give_no_rows(score_function: str, num_groups: int) -> None:
    got = route(
        torch.empty(0, 896), torch.zeros(896), top_k=16, num_groups=num_groups,
        score_function=score_function,
    )  # fmt: skip
    assert got.expert_ids.shape == got.expert_weights.shape == (0, 16)


def test_rows_are_independent() -> None:
    logits, bias = normal(12, 7, 33), normal(13, 33)
    whole = route(logits, bias, top_k=5)
    for row in range(7):
        alone = route(logits[row : row + 1], bias, top_k=5)
        assert torch.equal(alone.expert_ids[0], whole.expert_ids[row])
        assert torch.equal(alone.expert_weights[0], whole.expert_weights[row])


@pytest.mark.parametrize(("num_groups", "top_groups"), [(1, 1), (8, 4)])
@pytest.mark.parametrize("renormalize", [False, True])
def test_agrees_with_the_router_of_deepseek_v3(num_groups: int, top_groups: int, renormalize: bool) -> None:
    model = pytest.importorskip(
        "transformers.models.deepseek_v3.modeling_deepseek_v3",
        reason="transformers is not installed; it is in the extra `peers`",
    )
    logits, bias = normal(14, 32, 64).float(), normal(15, 64).float() / 8
    config = model.DeepseekV3Config(
        hidden_size=64, n_routed_experts=64, num_experts_per_tok=8, n_group=num_groups, topk_group=top_groups,
        norm_topk_prob=renormalize, routed_scaling_factor=2.5,
    )  # fmt: skip
    router = model.DeepseekV3TopkRouter(config)
    with torch.no_grad():
        router.weight.copy_(torch.eye(64))  # its logits are then its rows
        router.e_score_correction_bias.copy_(bias)
        theirs, weights, ids = router(logits)
    assert torch.equal(theirs, logits)
    golden = derive(find_operator("route"), {
        "logits": logits, "correction_bias": bias, "top_k": 8, "num_groups": num_groups, "top_groups": top_groups,
        "score_function": "sigmoid", "renormalize": renormalize, "scaling_factor": 2.5, "logical_to_physical": None,
    })  # fmt: skip
    # It gives its choice in no order.
    wanted, order = golden.exact["expert_ids"].long().sort(-1)
    ids, theirs = ids.sort(-1)
    assert torch.equal(ids, wanted)
    got = torch.empty_like(weights).scatter(1, order, weights.gather(1, theirs))
    exact, budget = golden.exact["expert_weights"], golden.budgets["expert_weights"]
    metrics, findings = compare_numbers("expert_weights", got, exact, budget)
    assert metrics is not None
    assert not findings


def test_choices_and_scores_are_traced() -> None:
    with EXACT.trace() as trace:
        route(torch.zeros(1, 3), torch.tensor([0.25, 0.0, 0.0]), top_k=1, numerics=EXACT)
    assert trace["choice"].tolist() == [[0.75, 0.5, 0.5]]
    assert trace["score"].tolist() == [[0.5, 0.5, 0.5]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_groups": 5}, "12 experts do not divide into 5 groups"),
        ({"num_groups": 0}, "12 experts do not divide into 0 groups"),
        ({"top_groups": 0}, "top_groups is 0; expected 1…4"),
        ({"top_groups": 5}, "top_groups is 5; expected 1…4"),
        ({"top_k": 7}, "top_k is 7; 2 groups of 3 hold 6"),
        ({"top_k": 0}, "top_k is 0; 2 groups of 3 hold 6"),
        ({"score_function": "tanh"}, "score_function is 'tanh'; expected one of"),
        ({"correction_bias": torch.zeros(11)}, r"correction_bias is \[11\]; expected \[E\]"),
        ({"logical_to_physical": torch.zeros(13)}, r"logical_to_physical is \[13\]; expected"),
        ({"correction_bias": torch.zeros(1, 12)}, r"correction_bias is \[1, 12\]; expected"),
        ({"logits": torch.zeros(12)}, r"logits is \[12\]; expected \[T, E\]"),
        ({"logits": torch.zeros(2, 3, 12)}, r"logits is \[2, 3, 12\]; expected \[T, E\]"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    arguments = {"logits": torch.zeros(2, 12), "top_k": 3, "num_groups": 4, "top_groups": 2}
    with pytest.raises(ValueError, match=f"route: {message}"):
        route(**(arguments | change))
