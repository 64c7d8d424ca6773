from __future__ import annotations

import itertools
import math

import pytest
import torch

from reference.sampling import greedy_sample, greedy_verify


def first_largest(row):
    """The rule in plain Python: a number beats NaN, a larger number a smaller one, an earlier entry an equal one."""
    best = None
    for place, value in enumerate(row):
        if not math.isnan(value) and (best is None or value > row[best]):
            best = place
    return 0 if best is None else best


SPECIAL = (math.nan, -math.inf, -1.0, -0.0, 0.0, 1.0, math.inf)


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_every_row_of_special_values_is_chosen_as_the_rule_says(length):
    rows = list(itertools.product(SPECIAL, repeat=length))
    assert greedy_sample(torch.tensor(rows)).tolist() == [first_largest(row) for row in rows]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("vocab", [1, 63, 64, 65, 1000])
def test_ties_go_to_the_first(dtype, vocab):
    logits = torch.randint(-3, 4, (50, vocab), generator=torch.Generator().manual_seed(vocab)).to(dtype)
    assert greedy_sample(logits).tolist() == [first_largest(row) for row in logits.tolist()]
    assert greedy_sample(logits).dtype == torch.int32


def test_without_nan_it_is_argmax():
    logits = torch.randn(64, 4099, generator=torch.Generator().manual_seed(3))
    assert torch.equal(greedy_sample(logits), logits.argmax(-1).to(torch.int32))


def test_no_rows_give_no_ids():
    assert greedy_sample(torch.zeros(0, 5)).shape == (0,)


@pytest.mark.parametrize(("logits", "message"), [
    (torch.zeros(3), r"logits is \[3\]; expected \[T, vocab\]"),
    (torch.zeros(3, 0), "the vocabulary is empty"),
    (torch.zeros(3, 2, dtype=torch.int32), r"logits are torch.int32; expected bf16, fp16 or fp32"),
])  # fmt: skip
def test_bad_logits_are_refused(logits, message):
    with pytest.raises(ValueError, match=message):
        greedy_sample(logits)


def walked(draft, target):
    """One sequence in plain Python: go along the draft until the target says otherwise."""
    committed = []
    for drafted, chosen in zip(draft, target, strict=False):
        committed.append(chosen)
        if drafted != chosen:
            return len(committed) - 1, committed + [-1] * (len(target) - len(committed))
    return len(draft), list(target)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4])
def test_every_window_of_two_tokens_is_walked_alike(count):
    pairs = list(
        itertools.product(itertools.product((5, 6), repeat=count), itertools.product((5, 6), repeat=count + 1))
    )
    draft = torch.tensor([d for d, _ in pairs], dtype=torch.int32).reshape(len(pairs), count)
    target = torch.tensor([t for _, t in pairs], dtype=torch.int32)
    accepted, committed = greedy_verify(draft, target)
    wanted = [walked(d, t) for d, t in pairs]
    assert accepted.tolist() == [one for one, _ in wanted]
    assert committed.tolist() == [one for _, one in wanted]
    assert (accepted.dtype, committed.dtype) == (torch.int32, torch.int32)


def test_an_agreement_after_a_disagreement_is_not_accepted():
    accepted, committed = greedy_verify(torch.tensor([[1, 9, 3]]), torch.tensor([[1, 2, 3, 4]]))
    assert accepted.tolist() == [1]
    assert committed.tolist() == [[1, 2, -1, -1]]


def test_no_sequences_give_none():
    accepted, committed = greedy_verify(torch.zeros(0, 3, dtype=torch.int32), torch.zeros(0, 4, dtype=torch.int32))
    assert (accepted.shape, committed.shape) == ((0,), (0, 4))


@pytest.mark.parametrize(("draft", "target", "message"), [
    (torch.zeros(3, dtype=torch.int32), torch.zeros(1, 4, dtype=torch.int32), r"draft_ids is \[3\]"),
    (torch.zeros(1, 3, dtype=torch.int32), torch.zeros(1, 3, dtype=torch.int32), "the bonus token last"),
    (torch.zeros(2, 3, dtype=torch.int32), torch.zeros(1, 4, dtype=torch.int32), "target_ids is"),
    (torch.zeros(1, 3), torch.zeros(1, 4, dtype=torch.int32), "draft_ids is torch.float32; expected integers"),
])  # fmt: skip
def test_bad_windows_are_refused(draft, target, message):
    with pytest.raises(ValueError, match=message):
        greedy_verify(draft, target)
