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

Rows = tuple[str, ...] | Mapping[str, int]
"""Tensors that have rows: by their first axis, or by the axis that stands beside the name."""


def differences(before: Outputs, after: Outputs, what: str) -> Iterator[str]:
    """A sentence an output whose shape or bits differ."""
    for name, value in before.items():
        other = after[name]
        if value.shape != other.shape or value.dtype != other.dtype:
            yield f"{name} is {list(value.shape)} {value.dtype} but {list(other.shape)} {other.dtype} {what}."
        elif (different := ~same_bits(value, other)).any():
            count = f"{int(different.sum())} of {value.numel()} elements"
            yield f"{name} differs {what} in {count}; {describe_failures(different)}."


def batch_invariance(row_arguments: Rows, outputs: Mapping[str, int] | None = None) -> Law:
    """Each row alone, and in batches of 2 and 8, has the bits that it has in the whole batch.

    `outputs` has the row axis of each output whose rows are not its first axis.
    """

    def check(context: LawContext) -> Iterator[str]:
        whole = context.call(context.arguments())
        rows = _count(context.arguments(), row_arguments)
        for low, high in [(t, t + 1) for t in range(min(rows, 3))] + [(0, 2), (rows - 1, rows), (0, 8)]:
            high = min(high, rows)
            part = context.call(_sliced_arguments(context.arguments(), row_arguments, low, high))
            yield from differences(_sliced(whole, outputs, low, high), part, f"for rows {low}…{high - 1} alone")

    return Law(
        "batch_invariance",
        "A row has the same bits alone and in a batch.",
        check,
        lambda case: dict(case.parameters).get("rows", 4) > 0,
    )


def _axes(names: Rows | None) -> dict[str, int]:
    return dict(names) if isinstance(names, Mapping) else dict.fromkeys(names or (), 0)


def _count(arguments: Arguments, names: Rows) -> int:
    """How many rows there are, by the first of the arguments that have them."""
    name, axis = next(iter(_axes(names).items()))
    return int(arguments[name].shape[axis])


def _sliced_arguments(arguments: Arguments, names: Rows, low: int, high: int) -> Arguments:
    axes = {name: axis for name, axis in _axes(names).items() if arguments[name] is not None}
    return arguments | {n: arguments[n].narrow(axis, low, high - low).clone() for n, axis in axes.items()}


def _sliced(outputs: Outputs, axes: Mapping[str, int] | None, low: int, high: int) -> Outputs:
    return {name: value.narrow((axes or {}).get(name, 0), low, high - low) for name, value in outputs.items()}


def row_isolation(row_arguments: Rows, outputs: Mapping[str, int] | None = None) -> Law:
    """NaN in every other row leaves a row's bits as they are, and a change in it does not."""

    def check(context: LawContext) -> Iterator[str]:
        whole = context.call(context.arguments())
        rows = _count(context.arguments(), row_arguments)
        for kept in sorted({0, rows // 2, rows - 1}):
            poisoned = context.arguments()
            for name, axis in _axes(row_arguments).items():
                _fill_other_rows(poisoned[name], axis, kept)
            yield from differences(
                _sliced(whole, outputs, kept, kept + 1),
                _sliced(context.call(poisoned), outputs, kept, kept + 1),
                f"for row {kept} when every other row is NaN",
            )
        changed = context.arguments()
        name, axis = next(iter(_axes(row_arguments).items()))
        row = changed[name].select(axis, 0)
        row.copy_(-row.roll(1))
        after = context.call(changed)
        if not any(differences(_sliced(whole, outputs, 0, 1), _sliced(after, outputs, 0, 1), "")):
            yield "A change of row 0 changed nothing in row 0: the control that shows that inputs are read."

    return Law(
        "row_isolation", "A row depends on no other row.", check, lambda case: dict(case.parameters).get("rows", 4) > 1
    )


def _fill_other_rows(x: Tensor | None, axis: int, kept: int) -> None:
    if x is not None:
        others = torch.arange(x.shape[axis]) != kept
        x.movedim(axis, 0)[others] = torch.nan if x.is_floating_point() else -1


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


def full_precision(*names: str, applies: Callable[[Case], bool] = lambda case: True) -> Law:
    """An fp32 argument is read in fp32: rounding it to bf16 changes some bit of some output."""

    def check(context: LawContext) -> Iterator[str]:
        usual = context.call(context.arguments())
        for name in names:
            arguments = context.arguments()
            arguments[name] = arguments[name].to(torch.bfloat16).to(torch.float32)
            if not any(differences(usual, context.call(arguments), "")):
                yield f"{name} rounded to bf16 changed no bit of any output: it is not read in fp32."

    return Law("full_precision", "An fp32 argument is read in fp32.", check, applies)


Layouts = Mapping[str, Callable[[Tensor], Tensor]]


def storage_order(names: str | tuple[str, ...], relaid: Layouts, others: Mapping[str, Layouts] | None = None) -> Law:
    """The same values under other strides, one argument at a time, are within the same budgets.

    `others` has further arguments, with layouts of their own. Not the same bits: a kernel may choose
    its vectors, and so its order of sums, by alignment.
    """

    def check(context: LawContext) -> Iterator[str]:
        layouts = dict.fromkeys((names,) if isinstance(names, str) else names, relaid) | dict(others or {})
        for name, table in layouts.items():
            for layout, relay in table.items():
                arguments = context.arguments()
                if arguments[name] is None:
                    continue
                arguments[name] = relay(arguments[name])
                findings = context.judge(outputs=context.call(arguments))
                yield from (f"With {name} {layout}: {finding}" for finding in findings)

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


def reassembly(
    name: str,
    claim: str,
    ways: Callable[[LawContext], Iterator[tuple[str, Outputs]]],
    applies: Callable[[Case], bool] = lambda case: True,
) -> Law:
    """Outputs put together from other calls, in each of the ways named, are within the case's own budgets."""

    def check(context: LawContext) -> Iterator[str]:
        for way, outputs in ways(context):
            yield from (f"{way}: {finding}" for finding in context.judge(outputs=outputs))

    return Law(name, claim, check, applies)


def _ordinary(case: Case) -> bool:
    return case.distribution in ("normal", "distinct")
