from __future__ import annotations

import math

import pytest
import torch

from reference.moe_front import latent_moe_tail, moe_preroute, router_logits
from reference.numerics import EXACT, Variant, rounded

BF16 = torch.bfloat16
TIGHT = 1e-12
"""Relative: two evaluations in float64 differ by their order of sums alone."""


def drawn(*shape, seed=0, scale=1.0):
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape))) * scale).to(BF16)


def agree(got, wanted):
    wanted = torch.as_tensor(wanted, dtype=torch.float64)
    assert got.dtype == torch.float64
    assert float((got - wanted).abs().max()) <= TIGHT * max(1.0, float(wanted.abs().max()))


def dot(a, b):
    """Sum of products in plain Python, exactly rounded."""
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def silu_like(gate, up, beta, linear_beta):
    """SiTU of two numbers, from exponentials alone."""
    bound = beta * (1 - 2 / (math.exp(2 * gate / beta) + 1))
    linear = up if linear_beta is None else linear_beta * (1 - 2 / (math.exp(2 * up / linear_beta) + 1))
    return bound / (1 + math.exp(-gate)) * linear


@pytest.mark.parametrize(("rows", "hidden", "experts"), [(1, 1, 1), (3, 17, 5), (4, 130, 9)])
def test_logits_are_dot_products(rows, hidden, experts):
    x, weight = drawn(rows, hidden), drawn(experts, hidden, seed=1)
    agree(router_logits(x, weight, numerics=EXACT), [[dot(a, b) for b in weight.tolist()] for a in x.tolist()])


def test_logits_are_fp32_and_their_bf16_variant_is_rounded():
    x, weight = drawn(3, 50), drawn(7, 50, seed=1)
    logits = router_logits(x, weight)
    assert logits.dtype == torch.float32
    assert not torch.equal(logits, logits.to(BF16).float())
    coarse = router_logits(x, weight, numerics=rounded(Variant("bf16", "", adds=frozenset({"logits"}))))
    assert torch.equal(coarse, logits.to(BF16).float())


@pytest.mark.parametrize("linear_beta", [25.0, 1.5, None])
@pytest.mark.parametrize(("rows", "hidden", "latent", "width"), [(1, 1, 1, 1), (3, 12, 7, 5), (2, 40, 9, 16)])
def test_preroute_is_two_paths_written_out(rows, hidden, latent, width, linear_beta):
    x, down = drawn(rows, hidden), drawn(hidden, width, seed=3)
    into_latent, gate_up = drawn(latent, hidden, seed=1), drawn(2 * width, hidden, seed=2)
    got = moe_preroute(x, into_latent, gate_up, down, beta=4.0, linear_beta=linear_beta, numerics=EXACT)
    for t, row in enumerate(x.tolist()):
        agree(got.latent[t], [dot(row, w) for w in into_latent.tolist()])
        both = [dot(row, w) for w in gate_up.tolist()]
        activated = [silu_like(both[f], both[width + f], 4.0, linear_beta) for f in range(width)]
        agree(got.shared[t], [dot(activated, w) for w in down.tolist()])


@pytest.mark.parametrize("with_prefix", [True, False])
@pytest.mark.parametrize(("rows", "hidden", "latent"), [(1, 1, 1), (3, 7, 12), (2, 33, 40)])
def test_tail_is_written_out(rows, hidden, latent, with_prefix):
    routed, shared, prefix = drawn(rows, latent), drawn(rows, hidden, seed=1), drawn(rows, hidden, seed=2)
    gain, up = drawn(latent, seed=3), drawn(hidden, latent, seed=4)
    got = latent_moe_tail(routed, shared, prefix if with_prefix else None, gain, up, eps=1e-5, numerics=EXACT)
    for t, row in enumerate(routed.tolist()):
        scale = 1 / math.sqrt(math.fsum(v * v for v in row) / latent + 1e-5)
        normed = [v * scale * w for v, w in zip(row, gain.tolist(), strict=True)]
        terms = [dot(normed, w) for w in up.tolist()]
        wanted = [y + s + (p if with_prefix else 0.0)
                  for y, s, p in zip(terms, shared[t].tolist(), prefix[t].tolist(), strict=True)]  # fmt: skip
        agree(got[t], wanted)


def test_the_tail_rounds_after_each_add_and_its_variant_once():
    """1 + 2⁻⁸ is a tie that goes down to 1: added one by one both halves of a step are lost."""
    routed, gain, up = torch.zeros(1, 4, dtype=BF16), torch.ones(4, dtype=BF16), torch.zeros(1, 4, dtype=BF16)
    shared, prefix = torch.tensor([[1.0]], dtype=BF16), torch.tensor([[2.0**-8]], dtype=BF16)
    up_term = torch.tensor([[2.0**-8]], dtype=BF16)
    official = latent_moe_tail(routed, shared, prefix, gain, up, eps=1e-5)
    assert official.item() == 1.0
    ones = torch.ones(1, 1, dtype=BF16)
    args = (ones, shared, prefix, ones[0], up_term)
    once = rounded(Variant("fp32_sum", "", drops=frozenset({"norm_normalized", "sum"})))
    assert latent_moe_tail(*args, eps=0.0).item() == 1.0
    assert latent_moe_tail(*args, eps=0.0, numerics=once).item() == 1.0 + 2.0**-7


def test_a_token_without_experts_keeps_shared_and_prefix():
    shared, prefix = drawn(2, 5), drawn(2, 5, seed=1)
    hidden = latent_moe_tail(torch.zeros(2, 8, dtype=BF16), shared, prefix, drawn(8), drawn(5, 8), eps=1e-5)
    assert torch.equal(hidden, (shared.float() + prefix.float()).to(BF16))


def test_nan_spoils_its_row_alone():
    x = drawn(3, 8)
    x[1, 2] = torch.nan
    got = moe_preroute(x, drawn(4, 8), drawn(6, 8), drawn(8, 3), beta=4.0)
    for one in (router_logits(x, drawn(5, 8)), got.latent, got.shared):
        assert one[1].isnan().all()
        assert not one[[0, 2]].isnan().any()


@pytest.mark.parametrize(("call", "message"), [
    (lambda: router_logits(drawn(8), drawn(5, 8)), r"x is \[8\] torch.bfloat16; expected \[rows, width\]"),
    (lambda: router_logits(drawn(2, 8), drawn(8, 5)), r"weight is \[8, 5\]; expected \[E, H\] = \[any, 8\]"),
    (lambda: moe_preroute(drawn(2, 8), drawn(4, 8), drawn(5, 8), drawn(8, 2), beta=4.0), "F gates, then F ups"),
    (lambda: moe_preroute(drawn(2, 8), drawn(4, 8), drawn(6, 8), drawn(3, 8), beta=4.0), r"down_weight is \[3, 8\]"),
    (lambda: moe_preroute(drawn(2, 8), drawn(4, 8), drawn(6, 8), drawn(8, 3), beta=0.0), "beta"),
    (lambda: latent_moe_tail(drawn(2, 8), drawn(3, 5), None, drawn(8), drawn(5, 8), eps=1e-5), r"shared is \[3, 5\]"),
    (lambda: latent_moe_tail(drawn(2, 8), drawn(2, 5), drawn(2, 4), drawn(8), drawn(5, 8), eps=1e-5), "prefix is"),
    (lambda: latent_moe_tail(drawn(2, 8), drawn(2, 5), None, drawn(5), drawn(5, 8), eps=1e-5), "norm_weight is"),
])  # fmt: skip
def test_bad_shapes_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
