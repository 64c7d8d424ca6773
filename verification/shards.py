"""Laws of tensor and expert parallelism: what shards of the arguments give is together what the whole gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import torch
from torch import Tensor

from verification.budget import derive
from verification.localization import describe_failures
from verification.operator import Arguments, Case, Law, LawContext, Outputs

Cut = Callable[[Arguments, int], list[Arguments]]
"""The arguments of so many shards."""

Joined = int | Literal["sum", "same"]
"""Side by side along that axis, added up, or the same from every shard."""


def shards(
    name: str,
    claim: str,
    cut: Cut,
    joined: Mapping[str, Joined],
    counts: tuple[int, ...] = (2, 3),
    applies: Callable[[Case], bool] = lambda case: True,
) -> Law:
    """Outputs of shards, joined as `joined` says of each by name, are those of the whole.

    Side by side they are within the case's own budgets. A sum is within the budgets of its terms, each of
    which is stored, and of the whole.
    """

    def check(context: LawContext) -> Iterator[str]:
        whole = context.call(context.arguments())
        for count in counts:
            parts = cut(context.arguments(), count)
            given = [context.call(part) for part in parts]
            together = {n: whole[n] if how == "sum" else _beside(n, given, how) for n, how in joined.items()}
            findings = [*context.judge(outputs=together)]
            for summed in (n for n, how in joined.items() if how == "sum"):
                findings += _sum_differs(context, summed, whole[summed], parts, [one[summed] for one in given])
            yield from (f"In {count} shards: {finding}" for finding in findings)

    return Law(name, claim, check, applies)


def along(axes: Mapping[str, int]) -> Cut:
    """Each of these arguments cut along its axis, and the others whole in every shard."""

    def cut(arguments: Arguments, count: int) -> list[Arguments]:
        present = {name: axis for name, axis in axes.items() if arguments[name] is not None}
        parts = {name: arguments[name].tensor_split(count, axis) for name, axis in present.items()}
        return [arguments | {name: part[rank].clone() for name, part in parts.items()} for rank in range(count)]

    return cut


def halves(x: Tensor, count: int, axis: int) -> list[Tensor]:
    """Shards of gates before ups: each has its gates before its ups."""
    gates, ups = (half.tensor_split(count, axis) for half in x.chunk(2, axis))
    return [torch.cat(pair, axis) for pair in zip(gates, ups, strict=True)]


def _beside(name: str, given: list[Outputs], how: int | str) -> Tensor:
    return torch.cat([one[name] for one in given], how) if isinstance(how, int) else given[-1][name]


def _sum_differs(
    context: LawContext, name: str, whole: Tensor, parts: list[Arguments], terms: list[Tensor]
) -> Iterator[str]:
    total = torch.stack(terms).double().sum(0)
    budgets = [
        derive(context.operator, one, context.variant).budgets[name].allowed for one in (context.arguments(), *parts)
    ]
    wrong = ~((total - whole.double()).abs() <= torch.stack(budgets).sum(0))
    if wrong.any():
        yield (
            f"{name}: {int(wrong.sum())} of {wrong.numel()} elements of the sum are not those of the whole; "
            f"{describe_failures(wrong)}."
        )
