from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from reference.convolution import causal_conv1d
from reference.numerics import EXACT, ROUNDED
from verification.inputs import Inputs

AGREEMENT = 1e-12


def arguments(lengths: list[int], channels: int = 5, slots: int = 9, **changes: Any) -> dict[str, Any]:
    """Sequence b goes on from slot 2b + 1 and is left in slot 2b."""
    inputs, rows, count = Inputs(f"{lengths} {channels}"), sum(lengths), len(lengths)
    return {
        "x": inputs.normal("x", (rows, channels)).bfloat16(),
        "weight": inputs.normal("weight", (channels, 4)).bfloat16(),
        "conv_state": inputs.normal("conv_state", (slots, channels, 3)).bfloat16(),
        "read_slots": torch.arange(count) * 2 + 1,
        "write_slots": torch.arange(count) * 2,
        "cu_seqlens": torch.tensor([0, *lengths]).cumsum(0),
    } | changes


def by_loops(given: dict[str, Any]) -> tuple[list[list[float]], list[list[list[float]]]]:
    """Sample by sample on Python's own numbers; every sequence is live."""
    x, weight, pool = (given[name].double().tolist() for name in ("x", "weight", "conv_state"))
    after = [[list(channel) for channel in page] for page in pool]
    y = [[0.0] * len(weight) for _ in x]
    bounds, starts = given["cu_seqlens"].tolist(), given.get("has_initial_state")
    for b, (read, write) in enumerate(zip(given["read_slots"].tolist(), given["write_slots"].tolist(), strict=True)):
        for c, taps in enumerate(weight):
            history = list(pool[read][c]) if starts is None or starts[b] else [0.0] * 3
            for t in range(bounds[b], bounds[b + 1]):
                total = math.fsum(w * sample for w, sample in zip(taps, [*history, x[t][c]], strict=True))
                y[t][c] = total / (1 + math.exp(-total))
                history = [*history[1:], x[t][c]]
            after[write][c] = history
    return y, after


@pytest.mark.parametrize("initial", [None, (True, False, True)])
@pytest.mark.parametrize("lengths", [[1, 2, 3], [4, 5, 9], [1, 1, 1], [2, 17, 1]])
def test_agrees_with_loops(lengths: list[int], initial: tuple[bool, ...] | None) -> None:
    given = arguments(lengths, has_initial_state=None if initial is None else torch.tensor(initial))
    got = causal_conv1d(**given, numerics=EXACT)
    y, pool = by_loops(given)
    wanted = torch.tensor(y, dtype=torch.float64)
    assert ((got.y - wanted).abs() <= AGREEMENT * wanted.abs()).all()
    assert torch.equal(got.conv_state.double(), torch.tensor(pool, dtype=torch.float64))


def test_the_first_weight_is_that_of_the_oldest_sample() -> None:
    given = arguments([1], channels=1, slots=2)
    given["conv_state"][1, 0], given["x"][0, 0] = torch.tensor([16.0, 32.0, 64.0]), 128.0
    given["weight"][0] = torch.tensor([1.0, 2.0, 4.0, 8.0])
    assert causal_conv1d(**given).y.item() == 16 + 64 + 256 + 1024
    assert causal_conv1d(**given).conv_state[0].tolist() == [[32.0, 64.0, 128.0]]


def test_two_calls_are_one() -> None:
    given = arguments([5])
    whole = causal_conv1d(**given, numerics=EXACT)
    for cut in (1, 2, 3, 4):
        first = causal_conv1d(**given | {"x": given["x"][:cut], "cu_seqlens": torch.tensor([0, cut])}, numerics=EXACT)
        rest = {"x": given["x"][cut:], "cu_seqlens": torch.tensor([0, 5 - cut]), "conv_state": first.conv_state}
        second = causal_conv1d(**given | rest | {"read_slots": given["write_slots"]}, numerics=EXACT)
        assert torch.equal(torch.cat([first.y, second.y]), whole.y)
        assert torch.equal(second.conv_state[0], whole.conv_state[0])


@pytest.mark.parametrize("read", [-1, 9, 2**31 - 1, 3])
def test_a_padding_sequence_gives_zeros_and_touches_nothing(read: int) -> None:
    given = arguments([2, 2], read_slots=torch.tensor([read, 5]), write_slots=torch.tensor([7, 8]), padding_slot=3)
    given["x"][:2] = torch.nan
    got = causal_conv1d(**given)
    assert torch.equal(got.y[:2], torch.zeros(2, 5, dtype=torch.bfloat16))
    assert (got.y[2:] != 0).any()
    assert torch.equal(got.conv_state[:8], given["conv_state"][:8])


def test_an_invalid_write_slot_is_written_nothing() -> None:
    given = arguments([2], write_slots=torch.tensor([-1]))
    got = causal_conv1d(**given)
    assert (got.y != 0).any()
    assert torch.equal(got.conv_state, given["conv_state"])


def test_a_fresh_sequence_does_not_read_its_slot() -> None:
    given = arguments([2], has_initial_state=torch.tensor([False]))
    zeros = causal_conv1d(**given)
    given["conv_state"][1] = torch.nan
    assert torch.equal(causal_conv1d(**given).y, zeros.y)


def test_rows_past_the_last_sequence_and_no_sequences_give_zeros() -> None:
    given = arguments([3], cu_seqlens=torch.tensor([0, 1]))
    assert torch.equal(causal_conv1d(**given).y[1:], torch.zeros(2, 5, dtype=torch.bfloat16))
    none = arguments([], slots=2)
    assert causal_conv1d(**none | {"x": given["x"]}).y.abs().sum() == 0


def test_inputs_are_left_alone_and_strides_change_nothing() -> None:
    given = arguments([2, 3])
    before = {name: value.clone() for name, value in given.items()}
    wanted = causal_conv1d(**given, numerics=ROUNDED)
    given["conv_state"] = given["conv_state"].transpose(1, 2).contiguous().transpose(1, 2)
    got = causal_conv1d(**given, numerics=ROUNDED)
    assert all(torch.equal(value, before[name]) for name, value in given.items())
    assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


def test_the_exact_rows_are_differentiable() -> None:
    given = arguments([2, 3])
    names = ("x", "weight", "conv_state")

    def rows(*values: Tensor) -> Tensor:
        return causal_conv1d(**given | dict(zip(names, values, strict=True)), numerics=EXACT).y

    assert torch.autograd.gradcheck(rows, tuple(given[name].double().requires_grad_() for name in names))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.ones(5)}, r"x is \[5\]; expected \[T, C\]"),
        ({"weight": torch.ones(4, 5)}, r"weight is tap-first \[4, 5\]; expected \[C, 4\]"),
        ({"weight": torch.ones(5, 3)}, r"weight is \[5, 3\]; expected \[C, 4\] = \[5, 4\]"),
        ({"conv_state": torch.ones(9, 3, 5).bfloat16()}, r"channels last; expected \[slots, C, 3\]: pass a transposed"),
        ({"conv_state": torch.ones(9, 5, 4).bfloat16()}, r"conv_state is \[9, 5, 4\]; expected \[slots, C, 3\]"),
        ({"conv_state": torch.ones(9, 5, 3)}, r"conv_state is torch.float32; expected the rows' torch.bfloat16"),
        ({"cu_seqlens": torch.tensor([0, 2, 1])}, r"cu_seqlens is \[0, 2, 1\]; expected 0 first, then no decrease"),
        ({"cu_seqlens": torch.tensor([1, 2, 3])}, "expected 0 first"),
        ({"cu_seqlens": torch.tensor([0, 2, 6])}, "cu_seqlens ends at 6; expected at most the 5 rows given"),
        ({"cu_seqlens": torch.tensor([0, 2])}, r"cu_seqlens is \[2\]; expected \[B \+ 1\] = \[3\]"),
        ({"cu_seqlens": torch.tensor([0.0, 2, 5])}, "expected one axis of int32 or int64"),
        ({"write_slots": torch.tensor([0])}, r"write_slots is \[1\]; expected \[B\] = \[2\]"),
        ({"read_slots": torch.ones(2)}, r"read_slots is \[2\] torch.float32; expected one axis of int32 or int64"),
        ({"has_initial_state": torch.ones(3).bool()}, r"has_initial_state is \[3\]; expected \[B\] = \[2\]"),
        ({"write_slots": torch.tensor([4, 4])}, "slot 4 is written by sequence 0 and written by sequence 1"),
        ({"write_slots": torch.tensor([3, 4])}, "slot 3 is written by sequence 0 and read by sequence 1"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"causal_conv1d: .*{message}"):
        causal_conv1d(**arguments([2, 3]) | change)
