"""Defects that the references once had, each as the right value."""

from __future__ import annotations

import pytest
import torch

from reference.attention_residual import attention_residual
from reference.moe_sorting import moe_sorting
from reference.numerics import EXACT, perturbed, rounded
from reference.routing import route

DOUBLE = torch.float64
IDS = torch.tensor([[0, 1], [1, 2], [2, 0]], dtype=torch.int32)
WEIGHTS = torch.ones(3, 2)


@pytest.mark.parametrize("experts", [17, 31, 65, 895, 896, 897, 1023])
def test_equal_logits_tie_whatever_lane_of_a_vector_they_fall_in(experts):
    """torch.sigmoid gave another last bit in the tail of a vector than in its lanes."""
    ids = route(torch.full((3, experts), -0.9895496368408203), top_k=4, numerics=EXACT).expert_ids
    assert ids.tolist() == [[0, 1, 2, 3]] * 3


@pytest.mark.parametrize("seed", range(4))
def test_perturbation_keeps_exact_ties(seed):
    ids = route(torch.zeros(2, 7), top_k=3, numerics=perturbed(seed)).expert_ids
    assert ids.tolist() == [[0, 1, 2]] * 2


@pytest.mark.parametrize("seed", range(16))
def test_perturbation_moves_a_subnormal_by_no_more_than_itself(seed):
    y = perturbed(seed).apply("sigmoid", torch.sigmoid, torch.tensor([-100.0], dtype=DOUBLE))
    exact = torch.sigmoid(torch.tensor([-100.0], dtype=DOUBLE))
    assert 0 <= float(y) <= 2.001 * float(exact)


@pytest.mark.parametrize("seed", range(4))
def test_perturbation_leaves_the_ends_of_a_function_exact(seed):
    ends = torch.tensor([-torch.inf, torch.inf], dtype=DOUBLE)
    assert perturbed(seed).apply("sigmoid", torch.sigmoid, ends).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("seed", range(4))
def test_perturbed_matmul_of_infinities_is_infinite_and_of_one_term_exact(seed):
    a = torch.tensor([[torch.inf, 1.0], [0.0, 3.0]], dtype=DOUBLE)
    product = perturbed(seed).matmul("m", a, torch.ones(2, 1, dtype=DOUBLE))
    assert product.flatten().tolist() == [torch.inf, 3.0]


def test_trace_of_the_prefix_is_the_rounded_candidate():
    reading = rounded()
    prefix, delta = torch.ones(1, 2).bfloat16(), torch.full((1, 2), 2.0**-9).bfloat16()
    with reading.trace() as trace:
        attention_residual(
            prefix, delta, torch.zeros(1, 1, 2).bfloat16(), torch.ones(2),
            num_blocks=0, eps=1e-5, output_eps=1e-5, numerics=reading,
        )  # fmt: skip
    assert trace["prefix"].tolist() == [[1.0, 1.0]]


def test_results_never_alias_arguments():
    prefix = torch.ones(1, 4, dtype=DOUBLE)
    result = attention_residual(
        prefix, None, torch.zeros(1, 1, 4, dtype=DOUBLE), torch.ones(4),
        num_blocks=0, eps=1e-5, output_eps=1e-5, numerics=EXACT,
    )  # fmt: skip
    assert result.prefix.data_ptr() != prefix.data_ptr()


@pytest.mark.parametrize(("arguments", "message"), [
    ({"num_experts": 1}, "2 slots of 1 experts"),
    ({"block_size": 0}, "block_size is 0"),
    ({"expert_mask": torch.ones(6)}, "expert_mask is"),
    ({"num_local_tokens": torch.tensor([-1])}, "num_local_tokens is"),
    ({"num_local_tokens": torch.tensor([4])}, "num_local_tokens is"),
    ({"expert_ids": IDS[0]}, "expert_ids is"),
])  # fmt: skip
def test_sorting_refuses_what_has_no_metadata(arguments, message):
    usual = {"expert_ids": IDS, "expert_weights": WEIGHTS, "num_experts": 4, "block_size": 8}
    with pytest.raises(ValueError, match=message):
        moe_sorting(**usual | arguments)
