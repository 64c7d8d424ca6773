"""The fused attention residual of tokenspeed-kernel-amd, executed; its bits tell its variant."""

from __future__ import annotations

import pytest
import torch

from reference.numerics import rounded
from verification.comparison import same_bits
from verification.contracts.attention_residual import OPERATOR, VARIANTS, block_major, case
from verification.inputs import Inputs

production = pytest.importorskip(
    "tokenspeed_kernel_amd.ops.gfx950.attention.kda.attn_res", reason="tokenspeed-kernel-amd is not installed"
)

FOLLOWED = "one_rounding"


def arguments_of(chosen):
    """The contract's arguments, and the scorer as the kernel takes it: a norm's gain and a projection, bf16 both."""
    arguments = OPERATOR.arguments(chosen)
    gain = (1 + Inputs(chosen.id).normal("score_gain", arguments["score_weight"].shape, 0.1)).to(torch.bfloat16)
    projection = (arguments["score_weight"] / gain).to(torch.bfloat16)
    # Two significands of 8 bits: their product is exact in fp32.
    return arguments | {"score_weight": gain.float() * projection.float()}, (gain, projection)


def run(execute, arguments, scorer, **changed):
    """Hidden rows, and what became of the prefix and the blocks."""
    gain, projection = scorer
    prefix, blocks = arguments["prefix"].clone(), arguments["blocks"].clone()
    taken = {
        "layer_residual": prefix, "delta": arguments["delta"], "block_residual": blocks,
        "res_weight": projection, "score_rms_weight": gain, "score_eps": arguments["eps"],
        "output_rms_weight": arguments["output_norm_weight"], "output_eps": arguments["output_eps"],
        "num_valid_blocks": arguments["num_blocks"], "block_write_idx": arguments["block_write_index"],
    }  # fmt: skip
    return execute(production.attn_res_rmsnorm_gfx950, **taken | changed), {"prefix": prefix, "blocks": blocks}


@pytest.mark.parametrize("chosen", [
    case(rows=2),
    case(rows=2, order="block_major"),
    case(rows=1, delta=False),
    case(rows=1, blocks=3, write=True),
    case(rows=2, blocks=0, write=True),
    case(rows=2, blocks=1, delta=False),
    case("near_eps", rows=1),
    case("zeros", rows=1),
    case("nonfinite", rows=2),
    case(rows=1, score_scale=300.0),
], ids=lambda value: value.id)  # fmt: skip
def test_every_element_is_within_the_budget_of_its_variant(execute, judge, chosen):
    arguments, scorer = arguments_of(chosen)
    hidden, in_place = run(execute, arguments, scorer)
    assert judge(OPERATOR, arguments, [hidden], in_place, FOLLOWED).findings == []


def test_prefix_and_written_block_are_the_rounded_sum_bit_for_bit(execute):
    arguments, scorer = arguments_of(case(rows=2, blocks=5, write=True))
    _, in_place = run(execute, arguments, scorer)
    wanted = (arguments["prefix"].float() + arguments["delta"].float()).to(torch.bfloat16)
    assert same_bits(in_place["prefix"], wanted).all()
    blocks = arguments["blocks"].clone()
    blocks[:, 5] = wanted
    assert same_bits(in_place["blocks"], blocks).all()


def test_bits_tell_that_the_mix_is_rounded_before_the_norm_and_the_norm_once(execute, record_property):
    arguments, scorer = arguments_of(case(rows=2))
    hidden, _ = run(execute, arguments, scorer)
    ideals = {v.name: OPERATOR.evaluate(arguments, numerics=rounded(v))["hidden"] for v in VARIANTS}
    for name, ideal in ideals.items():
        record_property(f"bit-equal share, {name}", share(hidden, ideal))
    apart = min(1 - share(ideals[FOLLOWED], ideal) for name, ideal in ideals.items() if name != FOLLOWED)
    # Less than half the way from this variant to the next: no other can be as near.
    assert 1 - share(hidden, ideals[FOLLOWED]) < apart / 2


def share(a, b):
    return float(same_bits(a, b).double().mean())


def test_a_row_has_the_same_bits_alone_and_in_either_storage_order(execute):
    arguments, scorer = arguments_of(case(rows=2, blocks=4))
    together, _ = run(execute, arguments, scorer)
    last = {name: arguments[name][1:] for name in ("prefix", "delta", "blocks")}
    alone, _ = run(execute, arguments | last, scorer)
    assert same_bits(alone, together[1:]).all()
    other, _ = run(execute, arguments | {"blocks": block_major(arguments["blocks"])}, scorer)
    assert same_bits(other, together).all()


@pytest.mark.parametrize("fault", [
    {"score_eps": 2e-6, "output_eps": 1e-6},
    {"num_valid_blocks": 7},
    {"delta": None},
], ids=["eps-swapped", "a-block-fewer", "no-delta"])  # fmt: skip
def test_a_wrong_argument_is_found(execute, judge, fault):
    arguments, scorer = arguments_of(case("near_eps", rows=1))
    hidden, in_place = run(execute, arguments, scorer, **fault)
    assert judge(OPERATOR, arguments, [hidden], in_place, FOLLOWED).findings != []
