"""The MoE sorting of tokenspeed-kernel-amd, executed against AITER's metadata."""

from __future__ import annotations

import pytest
import torch

from reference.moe_sorting import SLOT_SHIFT
from verification.contracts.moe_sorting import OPERATOR, case
from verification.guards import fill_poison

production = pytest.importorskip(
    "tokenspeed_kernel_amd.ops.gfx950.moe.mxfp4.moe_sorting", reason="tokenspeed-kernel-amd is not installed"
)

LATENT = 64


def run(execute, arguments, *, compact):
    """Ids, weights, expert ids and counts; a mask becomes the window of local experts that the kernel knows."""
    local = arguments["expert_mask"]
    window = torch.arange(arguments["num_experts"]) if local is None else local.nonzero().flatten()
    found = execute(
        production.gluon_moe_sorting, arguments["expert_ids"], arguments["expert_weights"], len(window), LATENT,
        torch.bfloat16, arguments["block_size"], compact_route_programs=compact, expert_start=int(window[0]),
    )  # fmt: skip
    return found[:4]


def in_order(results, block_size):
    """The same with each expert's run in the contract's order, token before slot.

    The kernel ranks the pairs of a chunk by atomics: beyond a wave, their order is that in which waves come.
    """
    ids, weights, experts, counts = (result.clone() for result in results)
    valid = int(counts[0])
    owner = experts[: valid // block_size].repeat_interleave(block_size).long()
    token, slot = ids[:valid].long() & ((1 << SLOT_SHIFT) - 1), ids[:valid].long() >> SLOT_SHIFT
    order = torch.argsort(owner << 32 | token << 8 | slot)
    ids[:valid], weights[:valid] = ids[:valid][order], weights[:valid][order]
    return ids, weights, experts, counts


def with_room(results, arguments):
    """The same in AITER's capacity, which is larger: what the contract leaves open is poison."""
    wanted = OPERATOR.evaluate(arguments)
    names = ("sorted_ids", "sorted_weights", "sorted_expert_ids", "num_valid_ids")
    for name, result in zip(names, results, strict=True):
        room = fill_poison(torch.empty(wanted[name].shape, dtype=result.dtype))
        room[: len(result)] = result
        yield room


CASES = (
    case(rows=1, experts=112),
    case(rows=4, mask="eighth"),
    case("invalid", rows=4, experts=112),
    case("repeated", rows=33, experts=8, top_k=2),
    case("one_expert", rows=9, experts=8, top_k=4),
    case("all_invalid", rows=3, experts=8, top_k=2),
    case("distinct", rows=300, experts=8, top_k=4),
    case("last_expert", rows=2, experts=129, block_size=128),
)


@pytest.mark.parametrize(
    ("chosen", "compact"),
    # With all of 896 experts, prefill launches 2688 workgroups of little work.
    [(chosen, compact) for chosen in CASES for compact in (True, False)] + [(case(rows=r), True) for r in (1, 4)],
    ids=lambda value: {True: "decode", False: "prefill"}[value] if isinstance(value, bool) else value.id,
)
def test_metadata_is_that_of_the_contract(execute, judge, chosen, compact):
    arguments = OPERATOR.arguments(chosen)
    results = in_order(run(execute, arguments, compact=compact), arguments["block_size"])
    assert judge(OPERATOR, arguments, list(with_room(results, arguments))).findings == []


def test_two_pairs_exchanged_are_found(execute, judge):
    arguments = OPERATOR.arguments(case(rows=4))
    block = arguments["block_size"]
    results = list(with_room(in_order(run(execute, arguments, compact=True), block), arguments))
    results[0][[0, block]] = results[0][[block, 0]]
    assert judge(OPERATOR, arguments, results).findings != []
