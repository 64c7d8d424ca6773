"""Right implementations raise no alarm; a wrong one among them does."""

from __future__ import annotations

import pytest
import torch

from verification import sound
from verification.operator import find_operator, parse_case

SUMS = {
    "reversed": sound.reversed_sum,
    "pairwise": sound.pairwise_sum,
    "compensated": sound.compensated_sum,
    "split": sound.split_sum,
}


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 64, 65])
@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("keepdim", [False, True])
def test_each_order_of_a_sum_adds_every_term_once(name, count, dim, keepdim):
    terms = torch.randint(-8, 9, (count, 3) if dim == 0 else (3, count), generator=torch.Generator().manual_seed(count))
    terms = terms.double()
    assert torch.equal(SUMS[name](terms, dim, keepdim), terms.sum(dim, keepdim=keepdim))


def test_the_compensated_sum_keeps_what_a_plain_chain_loses():
    terms = torch.cat([torch.ones(1), torch.full((4096,), 2.0**-25)])
    assert sound.reversed_sum(terms.flip(0), 0, False) == 1
    assert sound.compensated_sum(terms, 0, False) == 1 + 4096 * 2.0**-25


def test_the_orders_differ_in_their_last_bits():
    terms = torch.rand(1, 4099, generator=torch.Generator().manual_seed(0))
    assert len({total(terms, -1, False).item() for total in SUMS.values()}) > 1


def test_products_in_blocks_add_every_term():
    a, b = torch.randint(-4, 5, (3, 37)).float(), torch.randint(-4, 5, (37, 2)).float()
    for block in (0, 16, 64):
        assert torch.equal(sound.Single(block=block).matmul("p", a, b), a @ b)


def test_a_right_operator_is_judged_by_every_reading_and_every_eager_form_without_alarm():
    operator = find_operator("rms_norm")
    judged = sound.judge(operator, parse_case("rms_norm/rows=3,hidden=1000/bf16/normal/5"), operator.variants[0])
    assert judged.comparisons == len(sound.READINGS) + 1
    assert judged.alarms == ()


def test_a_reading_that_is_wrong_raises_an_alarm(monkeypatch):
    def halved(terms, dim, keepdim):
        return terms.sum(dim, keepdim=keepdim) / 2

    monkeypatch.setitem(sound.READINGS, "halved", lambda variant, seed: sound.Single("rounded", variant, total=halved))
    operator = find_operator("rms_norm")
    judged = sound.judge(operator, parse_case("rms_norm/rows=3,hidden=1000/bf16/normal/5"), operator.variants[0])
    assert [alarm.implementation for alarm in judged.alarms] == ["halved"]
    assert "exceed their budget" in judged.alarms[0].finding
