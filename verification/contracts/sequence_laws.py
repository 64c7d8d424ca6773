"""Laws of operators over packed sequences and paged states."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from verification.laws import differences
from verification.operator import Arguments, Law, LawContext, Outputs

HAS = "has_initial_state"
SEQUENCE_ARGUMENTS = ("read_slots", "write_slots", HAS, "commit_rows")
POOLS = ("conv_state", "state")

Names = tuple[str, ...]

Piece = tuple[int, int, int]
"""A sequence, the first of its rows, and the one past the last."""


def bounds(arguments: Arguments) -> list[tuple[int, int]]:
    """First row and row past the end of each sequence."""
    edges = arguments["cu_seqlens"].tolist()
    return list(itertools.pairwise(edges))


def cut_out(arguments: Arguments, rows: Names, pieces: list[Piece]) -> tuple[Arguments, Tensor]:
    """Arguments with these pieces alone, and where their rows were."""
    taken = torch.cat([torch.arange(low, high) for _, low, high in pieces])
    chosen = torch.tensor([sequence for sequence, _, _ in pieces])
    edges = torch.tensor([0, *(high - low for _, low, high in pieces)]).cumsum(0).to(arguments["cu_seqlens"].dtype)
    changed: Arguments = {"cu_seqlens": edges}
    changed |= {n: arguments[n][taken].clone() for n in rows if arguments.get(n) is not None}
    changed |= {n: arguments[n][chosen].clone() for n in SEQUENCE_ARGUMENTS if arguments.get(n) is not None}
    return arguments | changed, taken


def share(arguments: Arguments, outputs: Outputs, taken: Tensor | None) -> Outputs:
    """Of the outputs those rows, and the pages that the arguments' sequences write."""
    pages = [s for s in arguments.get("write_slots", torch.tensor([])).tolist() if 0 <= s < len(arguments[POOLS[0]])]
    return {
        name: value[pages] if name in POOLS else value if taken is None else value[taken]
        for name, value in outputs.items()
    }


def batch_invariance(rows: Names) -> Law:
    """Each sequence alone, and groups of them, have the bits that they have among all."""

    def check(context: LawContext) -> Iterator[str]:
        arguments = context.arguments()
        whole, spans = context.call(context.arguments()), bounds(arguments)
        for low, high in [(0, 1), (1, 2), (2, 3), (0, 2), (len(spans) - 1, len(spans)), (0, 8)]:
            pieces = [(b, *spans[b]) for b in range(low, min(high, len(spans)))]
            part, taken = cut_out(context.arguments(), rows, pieces)
            wanted, got = share(part, whole, taken), share(part, context.call(part), None)
            yield from differences(wanted, got, f"for sequences {low}…{min(high, len(spans)) - 1} alone")

    return Law("batch_invariance", "A sequence has the same bits alone and in a batch.", check)


def sequence_isolation(rows: Names) -> Law:
    """NaN in every other sequence and its page leaves a sequence's bits as they are; a change in it does not."""

    def check(context: LawContext) -> Iterator[str]:
        arguments = context.arguments()
        whole, spans = context.call(context.arguments()), bounds(arguments)
        for kept in sorted({0, len(spans) // 2, len(spans) - 1}):
            only, taken = cut_out(context.arguments(), rows, [(kept, *spans[kept])])
            poisoned = context.arguments()
            outside = torch.ones(len(poisoned[rows[0]]), dtype=torch.bool)
            outside[taken] = False
            for name in rows:
                if poisoned.get(name) is not None:
                    poisoned[name][outside] = torch.nan
            others = arguments["read_slots"][arguments["read_slots"] != arguments["read_slots"][kept]].long()
            for name in POOLS:
                if name in poisoned:
                    poisoned[name][others[(others >= 0) & (others < len(poisoned[name]))]] = torch.nan
            wanted, got = share(only, whole, taken), share(only, context.call(poisoned), taken)
            yield from differences(wanted, got, f"for sequence {kept} when every other one is NaN")
            changed = context.arguments()
            changed[rows[0]][taken] = -changed[rows[0]][taken].roll(1, -1)
            if not any(differences(wanted, share(only, context.call(changed), taken), "")):
                yield f"A change of sequence {kept} changed nothing in it: the control that shows that inputs are read."

    return Law("sequence_isolation", "A sequence depends on no other sequence.", check)


def padding_invariance(rows: Names) -> Law:
    """Sequences of no rows or of no page, and rows past the last one, change nothing and give zeros."""

    def check(context: LawContext) -> Iterator[str]:
        arguments = context.arguments()
        usual = context.call(context.arguments())
        padded = with_padding(arguments, rows)
        after = context.call(padded)
        count = len(arguments[rows[0]])
        for name, value in after.items():
            if name not in POOLS and (value[count:] != 0).any():
                yield f"{name} is not zero in rows of padding."
        if context.batch_invariant:
            kept = {name: value if name in POOLS else value[:count] for name, value in after.items()}
            yield from differences(usual, kept, "when padding is added")
        else:
            yield from (f"With padding added: {finding}" for finding in context.judge(padded))

    return Law("padding_invariance", "Padding changes nothing.", check)


def with_padding(arguments: Arguments, rows: Names) -> Arguments:
    """A sequence of no rows first, then the usual ones, one of a row and no page, and two rows past the end of NaN."""
    last = len(arguments[POOLS[0]]) - 1
    edges = arguments["cu_seqlens"]
    end = int(edges[-1])
    changed: Arguments = {"cu_seqlens": torch.cat([edges[:1], edges, edges[-1:] + 1])}
    for name in rows:
        if (x := arguments.get(name)) is not None:
            changed[name] = torch.cat([x[:end], torch.full((3, *x.shape[1:]), torch.nan, dtype=x.dtype)])
    for name, (first, padding) in {"read_slots": (last, -1), "write_slots": (last, last),
                                   "has_initial_state": (1, 0), "commit_rows": (1, 1)}.items():  # fmt: skip
        if (x := arguments.get(name)) is not None:
            changed[name] = torch.cat([x.new_tensor([first]), x, x.new_tensor([padding])])
    return arguments | changed


def slot_renaming() -> Law:
    """Pages in other slots give the same rows, and the same pages there."""

    def check(context: LawContext) -> Iterator[str]:
        arguments = context.arguments()
        usual = context.call(context.arguments())
        slots = len(arguments[POOLS[0]])
        moved = context.arguments()
        for name in POOLS:
            if name in moved:
                moved[name] = moved[name].flip(0).clone()
        for name in ("read_slots", "write_slots"):
            if (x := moved.get(name)) is not None:
                moved[name] = torch.where((x >= 0) & (x < slots), slots - 1 - x, x)
        after = context.call(moved)
        back = {name: value.flip(0) if name in POOLS else value for name, value in after.items()}
        yield from differences(usual, back, "with the pages in other slots")

    return Law("slot_renaming", "Where a page lies does not matter.", check)


def own_page() -> Law:
    """Sequences that write the page that they read give the rows and the pages that they give with another."""

    def check(context: LawContext) -> Iterator[str]:
        apart, same = context.arguments(), context.arguments()
        same["write_slots"] = same["read_slots"].clone()
        wanted, got = (share(one, context.call(one), None) for one in (apart, same))
        yield from differences(wanted, got, "where each page is written over the one that was read")

    return Law("own_page", "A page may be written over the one that was read.", check)


def causality(rows: Names) -> Law:
    """Other later rows leave the earlier rows' bits as they are, and change their own."""

    def check(context: LawContext) -> Iterator[str]:
        usual = context.call(context.arguments())
        changed, later = with_later_rows_changed(context.arguments(), rows, lambda low, high: (low + high) // 2)
        after = context.call(changed)
        wanted = {n: v[~later] for n, v in usual.items() if n not in POOLS}
        yield from differences(wanted, {n: after[n][~later] for n in wanted}, "in rows before those that were changed")
        if not any(differences({n: usual[n][later] for n in wanted}, {n: after[n][later] for n in wanted}, "")):
            yield "Changed rows gave the same results: the control that shows that inputs are read."

    return Law("causality", "A row depends on no later row.", check)


def with_later_rows_changed(
    arguments: Arguments, rows: Names, first: Callable[[int, int], int]
) -> tuple[Arguments, Tensor]:
    """The rows of each sequence from `first(low, high)` on made others, finite ones; and which they are."""
    later = torch.zeros(len(arguments[rows[0]]), dtype=torch.bool)
    for low, high in bounds(arguments):
        later[first(low, high) : high] = True
    for name in rows:
        if arguments.get(name) is not None:
            arguments[name][later] = 2 - arguments[name][later].roll(1, -1)
    return arguments, later


def split_is_whole(rows: Names) -> Law:
    """A part of each sequence's rows and then the rest are within the budget of all at once."""

    def check(context: LawContext) -> Iterator[str]:
        for what, cut in SPLITS.items():
            parts = [[(b, low, cut(low, high)), (b, cut(low, high), high)]
                     for b, (low, high) in enumerate(bounds(context.arguments()))]  # fmt: skip
            calls = [list(pieces) for pieces in zip(*parts, strict=True)]
            outputs = one_after_another(context, rows, calls)
            yield from (f"After {what}: {finding}" for finding in context.judge(context.arguments(), outputs))

    return Law("split_is_whole", "Rows in two calls are the rows in one.", check)


SPLITS: dict[str, Callable[[int, int], int]] = {
    "the first row": lambda low, high: low + 1,
    "half the rows": lambda low, high: (low + high) // 2,
    "all but the last row": lambda low, high: high - 1,
}


def one_after_another(context: LawContext, rows: Names, calls: list[list[Piece]]) -> Outputs:
    """The outputs of calls on these pieces of the rows, each going on from the pages that the one before wrote."""
    pools: Arguments = {}
    gathered: list[tuple[Tensor, Outputs]] = []
    for pieces in calls:
        part, taken = cut_out(context.arguments(), rows, pieces)
        if pools:
            part |= pools | {"read_slots": part["write_slots"].clone()}
            part |= {"has_initial_state": torch.ones(len(pieces), dtype=torch.bool)} if HAS in part else {}
        outputs = context.call(part)
        pools = {name: outputs[name].clone() for name in POOLS if name in outputs}
        gathered.append((taken, {name: value for name, value in outputs.items() if name not in POOLS}))
    places = torch.cat([taken for taken, _ in gathered]).argsort()
    return {name: torch.cat([part[name] for _, part in gathered])[places] for name in gathered[0][1]} | pools
