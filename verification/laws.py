"""Metamorphic equalities: what must hold between two runs, without any reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from verification.comparison import same_bits
from verification.localization import describe_failures
from verification.operator import Arguments, Case, Law, LawContext, Outputs

Change = Callable[[Arguments], Any]


def differences(before: Outputs, after: Outputs, what: str) -> Iterator[str]:
    """A sentence an output whose shape or bits differ."""
    for name, value in before.items():
        other = after[name]
        if value.shape != other.shape or value.dtype != other.dtype:
            yield f"{name} is {list(value.shape)} {value.dtype} but {list(other.shape)} {other.dtype} {what}."
        elif (different := ~same_bits(value, other)).any():
            count = f"{int(different.sum())} of {value.numel()} elements"
            yield f"{name} differs {what} in {count}; {describe_failures(different)}."


def batch_invariance(row_arguments: tuple[str, ...]) -> Law:
    """Each row alone, and in batches of 2 and 8, has the bits that it has in the whole batch."""

    def check(context: LawContext) -> Iterator[str]:
        arguments = context.arguments()
        whole = context.call(context.arguments())
        rows = arguments[row_arguments[0]].shape[0]
        for low, high in [(t, t + 1) for t in range(min(rows, 3))] + [(0, 2), (rows - 1, rows), (0, 8)]:
            high = min(high, rows)
            part = _rows(context.arguments(), row_arguments, slice(low, high))
            yield from differences(_sliced(whole, low, high), context.call(part), f"for rows {low}…{high - 1} alone")

    return Law(
        "batch_invariance",
        "A row has the same bits alone and in a batch.",
        check,
        lambda case: dict(case.parameters).get("rows", 4) > 0,
    )


def _rows(arguments: Arguments, names: tuple[str, ...], rows: slice) -> Arguments:
    return {n: v[rows].clone() if n in names and v is not None else v for n, v in arguments.items()}


def _sliced(outputs: Outputs, low: int, high: int) -> Outputs:
    return {name: value[low:high] for name, value in outputs.items()}


def row_isolation(row_arguments: tuple[str, ...]) -> Law:
    """NaN in every other row leaves a row's bits as they are, and a change in it does not."""

    def check(context: LawContext) -> Iterator[str]:
        whole = context.call(context.arguments())
        rows = context.arguments()[row_arguments[0]].shape[0]
        for kept in sorted({0, rows // 2, rows - 1}):
            poisoned = context.arguments()
            for name in row_arguments:
                _fill_other_rows(poisoned[name], kept)
            yield from differences(
                _sliced(whole, kept, kept + 1),
                _sliced(context.call(poisoned), kept, kept + 1),
                f"for row {kept} when every other row is NaN",
            )
        changed = context.arguments()
        changed[row_arguments[0]][0] = -changed[row_arguments[0]][0].roll(1)
        if not any(differences(_sliced(whole, 0, 1), _sliced(context.call(changed), 0, 1), "")):
            yield "A change of row 0 changed nothing in row 0: the control that shows that inputs are read."

    return Law(
        "row_isolation", "A row depends on no other row.", check, lambda case: dict(case.parameters).get("rows", 4) > 1
    )


def _fill_other_rows(x: Tensor | None, kept: int) -> None:
    if x is not None:
        others = torch.arange(x.shape[0]) != kept
        x[others] = torch.nan if x.is_floating_point() else -1


def parameter_sensitivity(alternatives: Mapping[str, Change]) -> Law:
    """Each argument is able to change some output."""

    def check(context: LawContext) -> Iterator[str]:
        usual = context.call(context.arguments())
        for name, alternative in alternatives.items():
            arguments = context.arguments()
            before = arguments[name]
            arguments[name] = alternative(arguments)
            if arguments[name] is before:  # an option that this case leaves out
                continue
            if not any(differences(usual, context.call(arguments), "")):
                yield f"Changing {name} changed no bit of any output: it is ignored."

    return Law("parameter_sensitivity", "Every argument can change the output.", check, _ordinary)


def storage_order(name: str, relaid: Mapping[str, Callable[[Tensor], Tensor]]) -> Law:
    """The same values under other strides are within the same budgets.

    Not the same bits: a kernel may choose its vectors, and so its order of sums, by alignment.
    """

    def check(context: LawContext) -> Iterator[str]:
        for layout, relay in relaid.items():
            arguments = context.arguments()
            arguments[name] = relay(arguments[name])
            yield from (f"With {name} {layout}: {finding}" for finding in context.judge(arguments))

    return Law("storage_order", "Strides do not change values.", check)


def equivalence(
    name: str,
    claim: str,
    rewrite: Callable[[Arguments], Arguments],
    expected: Callable[[Arguments, Outputs], Outputs],
    applies: Callable[[Case], bool] = lambda case: True,
) -> Law:
    """Rewritten arguments give what the original outputs say they must, bit for bit, and are judged too."""

    def check(context: LawContext) -> Iterator[str]:
        usual = context.call(context.arguments())
        after = context.call(rewrite(context.arguments()))
        wanted = expected(context.arguments(), usual)
        yield from differences(wanted, {n: after[n] for n in wanted}, "after the rewrite")
        yield from (f"After the rewrite: {finding}" for finding in context.judge(rewrite(context.arguments())))

    return Law(name, claim, check, applies)


def _ordinary(case: Case) -> bool:
    return case.distribution in ("normal", "distinct")
