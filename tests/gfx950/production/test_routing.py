"""The sigmoid and softmax routers of tokenspeed-kernel-amd, executed."""

from __future__ import annotations

import pytest
import torch

from reference.numerics import round_to_nearest
from reference.routing import ranked
from verification.contracts.route import KIMI_K2, OPERATOR, case

production = pytest.importorskip(
    "tokenspeed_kernel_amd.ops.gfx950.moe.mxfp4.routing", reason="tokenspeed-kernel-amd is not installed"
)

ROUTERS = {
    "sigmoid": production.invoke_sigmoid_bias_topk_route_gluon,
    "sigmoid-prefill": production.invoke_sigmoid_bias_topk_route_prefill_gluon,
    "softmax": production.invoke_softmax_topk_route_gluon,
}
VARIANTS = {"sigmoid": "official", "sigmoid-prefill": "denominator_guard", "softmax": "denominator_guard"}

CHOICES = (
    case(rows=1),
    case(rows=4),
    case("near_tie", rows=2),
    case("equal", rows=2),
    case("few_values", rows=2),
    case("skewed", rows=2),
    case("saturated", rows=2),
    case(rows=2, bias="large"),
    case(rows=4, **KIMI_K2),
    case(rows=2, renormalize=False),
)
SOFTMAX = (
    case(rows=1, score="softmax", bias="none"),
    case(rows=4, score="softmax"),
    case("few_values", rows=2, score="softmax"),
    case("equal", rows=2, score="softmax", bias="none"),
    case("wide", rows=2, score="softmax"),
    case(rows=2, score="softmax", renormalize=False, scaling=2.5),
)


def run(execute, router, arguments):
    """Ids and weights of the router's own host code."""
    logits, bias = arguments["logits"], arguments["correction_bias"]
    options = {"routed_scaling_factor": arguments["scaling_factor"], "normalize_topk_weights": arguments["renormalize"]}
    if router == "softmax":
        return execute(ROUTERS[router], logits, arguments["top_k"], correction_bias=bias, **options)
    return execute(ROUTERS[router], logits, bias, arguments["top_k"], **options)


@pytest.mark.parametrize(
    ("router", "chosen"),
    [(router, chosen) for router in ("sigmoid", "sigmoid-prefill") for chosen in CHOICES]
    + [("softmax", chosen) for chosen in SOFTMAX],
    ids=lambda value: value if isinstance(value, str) else value.id,
)
def test_ids_and_weights_are_those_of_the_equations(execute, judge, router, chosen):
    arguments = OPERATOR.arguments(chosen)
    assert judge(OPERATOR, arguments, run(execute, router, arguments), variant=VARIANTS[router]).findings == []


@pytest.mark.parametrize("router", ROUTERS)
def test_equal_logits_give_the_lowest_ids_and_equal_weights(execute, router):
    arguments = OPERATOR.arguments(
        case("equal", rows=1, bias="zero", score="softmax" if router == "softmax" else "sigmoid")
    )
    ids, weights = run(execute, router, arguments)
    assert ids.tolist() == [list(range(16))]
    # A quotient may be off by two ulps, and the sum of sixteen equal scores is exact.
    assert ((weights - 1 / 16).abs() <= 2 * 2.0**-23 / 16).all()


def test_bf16_logits_have_bf16_scores_sums_and_weights(execute):
    """Not the contract's reading of bf16 logits, which keeps the scores in fp32: a variant, told by its bits."""
    arguments = OPERATOR.arguments(case(rows=2, dtype="bf16", scaling=2.5))
    ids, weights = run(execute, "sigmoid", arguments)

    def stored(x):
        return round_to_nearest(x, torch.bfloat16)

    scores = stored(torch.sigmoid(arguments["logits"].double()))
    assert torch.equal(ids.long(), ranked(scores + arguments["correction_bias"].double())[:, :16])
    chosen = scores.gather(1, ids.long())
    wanted = stored(stored(chosen / stored(chosen.sum(-1, keepdim=True))) * 2.5)
    assert torch.equal(weights.double(), wanted)


@pytest.mark.parametrize("router", ["sigmoid", "sigmoid-prefill"])
def test_a_bias_that_weighs_or_is_left_out_is_found(execute, judge, router):
    chosen = case(rows=2, bias="positive")
    arguments = OPERATOR.arguments(chosen)
    unbiased = run(execute, router, arguments | {"correction_bias": torch.zeros_like(arguments["correction_bias"])})
    assert judge(OPERATOR, arguments, unbiased, variant=VARIANTS[router]).findings != []
    scaled = run(execute, router, arguments | {"scaling_factor": 1.0 + 2.0**-16})
    assert judge(OPERATOR, arguments, scaled, variant=VARIANTS[router]).findings != []


DEPARTURES = {
    "sigmoid": (case("all_nan", rows=1), list(range(16)), torch.nan),
    "sigmoid-prefill": (case("all_nan", rows=1), [896] * 16, 0.0),
    "softmax": (case("all_nan", rows=1, score="softmax"), [896] * 16, torch.nan),
}


@pytest.mark.parametrize("router", DEPARTURES)
def test_a_row_of_nan_departs_from_the_contract(execute, judge, router):
    """Ids from 0 with NaN weights, or the id 896 that no expert has."""
    chosen, expected, weight = DEPARTURES[router]
    arguments = OPERATOR.arguments(chosen)
    ids, weights = run(execute, router, arguments)
    assert ids.tolist() == [expected]
    assert torch.equal(weights.nan_to_num(-1.0), torch.full_like(weights, weight).nan_to_num(-1.0))
    assert judge(OPERATOR, arguments, [ids, weights], variant=VARIANTS[router]).findings != []


def test_the_decode_router_departs_where_it_does_not_normalize_and_where_all_scores_are_zero(execute, judge):
    """Unnormalized weights are not scaled; a sum of zero is divided by."""
    arguments = OPERATOR.arguments(case(rows=1, renormalize=False, scaling=2.5))
    ids, weights = run(execute, "sigmoid", arguments)
    assert judge(OPERATOR, arguments, [ids, weights]).findings != []
    assert judge(OPERATOR, arguments | {"scaling_factor": 1.0}, [ids, weights]).findings == []
    _, weights = run(execute, "sigmoid", OPERATOR.arguments(case("underflow", rows=1, bias="zero")))
    assert torch.isnan(weights).all()
