"""Laws of `moe_experts`: what moves between its arguments without moving its result."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from reference.moe_sorting import moe_sorting
from verification.laws import differences
from verification.operator import Arguments, LawContext

BANK = ("w13", "w13_scale", "w2", "w2_scale")


def judged(context: LawContext, arguments: Arguments, what: str) -> Iterator[str]:
    """Findings on the rewritten arguments, against their own golden."""
    yield from (f"{what}: {finding}" for finding in context.judge(arguments))


def expert_permutation(context: LawContext) -> Iterator[str]:
    """The bank in reverse order, and ids that follow it: the same bits where a row's bits are its own."""
    arguments = context.arguments()
    offset, experts = arguments["expert_offset"], arguments["num_local_experts"]
    local = arguments["expert_ids"] - offset
    inside = (local >= 0) & (local < experts)
    renamed = torch.where(inside, offset + experts - 1 - local, arguments["expert_ids"])
    reversed_bank = {name: arguments[name].flip(0) for name in BANK}
    after = arguments | reversed_bank | {"expert_ids": renamed}
    if context.batch_invariant:
        yield from differences(context.call(context.arguments()), context.call(after), "with the experts reversed")
    yield from judged(context, after, "With the experts reversed")


def experts_apart(arguments: Arguments, count: int) -> list[Arguments]:
    """The same call for ranges of the local experts: what expert-parallel ranks hold."""
    ranges = torch.arange(arguments["num_local_experts"]).tensor_split(count)
    return [
        arguments
        | {name: arguments[name][part] for name in BANK}
        | {"expert_offset": arguments["expert_offset"] + int(part[0]), "num_local_experts": len(part)}
        for part in ranges
    ]


GROUP = 32


def intermediates_apart(arguments: Arguments, count: int) -> list[Arguments]:
    """Whole groups of each expert's intermediate: what tensor-parallel ranks hold."""
    return [
        arguments | {name: arguments[name][:, gates_and_ups(arguments, part)] for name in ("w13", "w13_scale")}
        | {"w2": arguments["w2"].unflatten(2, (-1, GROUP // 2))[:, :, part].flatten(2)}
        | {"w2_scale": arguments["w2_scale"][:, :, part]}
        for part in torch.arange(arguments["w2_scale"].shape[2]).tensor_split(count)
    ]  # fmt: skip


def gates_and_ups(arguments: Arguments, groups: Tensor) -> Tensor:
    """Rows of w13 that make these groups of the intermediate, in the order of its layout."""
    place = (groups[:, None] * GROUP + torch.arange(GROUP)).flatten()
    if arguments["w13_layout"] == "interleaved":
        return torch.stack([2 * place, 2 * place + 1], dim=1).flatten()
    return torch.cat([place, place + arguments["w13"].shape[1] // 2])


def nothing_local(context: LawContext) -> Iterator[str]:
    """Zeros where the local range is one that no slot chose, whatever the rows hold."""
    arguments = context.arguments()
    arguments["expert_offset"] = int(arguments["expert_ids"].max()) + 1
    arguments["x"].fill_(torch.nan)
    out = context.call(arguments)["out"]
    if (out != 0).any():
        yield f"{int((out != 0).sum())} of {out.numel()} elements are not zero though no expert is local."


PADDING = 3


def padding_rows(context: LawContext) -> Iterator[str]:
    """Rows of NaN with ids −1 after the live ones."""
    arguments = context.arguments()
    rows = arguments["x"].shape[0]
    fillers = {"x": torch.nan, "expert_ids": -1, "expert_weights": torch.nan}
    padded = arguments | {n: functional.pad(arguments[n], (0, 0, 0, PADDING), value=v) for n, v in fillers.items()}
    after = context.call(padded)["out"]
    if (after[rows:] != 0).any():
        yield "Rows of padding are not zero."
    if context.batch_invariant:
        yield from differences(context.call(context.arguments()), {"out": after[:rows]}, "beside rows of padding")
    yield from judged(context, padded, "Beside rows of padding")


def slots_exchanged(context: LawContext) -> Iterator[str]:
    """Slots in reverse order: another order of the same sum."""
    arguments = context.arguments()
    names = ("expert_ids", "expert_weights")
    yield from judged(context, arguments | {n: arguments[n].flip(1) for n in names}, "With the slots reversed")


def sorted_routing(context: LawContext) -> Iterator[str]:
    """The same routing as sort metadata, in blocks of several sizes."""
    for block_size in (1, 16):
        arguments = context.arguments()
        ids, weights = arguments["expert_ids"], arguments["expert_weights"]
        offset, local = arguments["expert_offset"], arguments["num_local_experts"]
        experts = max(offset + local, int(ids.max()) + 1)
        mask = torch.zeros(experts, dtype=torch.int32)
        mask[offset : offset + local] = 1
        prepared = moe_sorting(ids, weights, num_experts=experts, block_size=block_size, expert_mask=mask)
        metadata = {name: value for name, value in prepared._asdict().items() if name != "output_buffer"}
        by_metadata = {"expert_ids": None, "expert_weights": None, "expert_offset": 0, "top_k": ids.shape[1]}
        yield from judged(
            context, arguments | metadata | by_metadata | {"block_size": block_size}, f"In blocks of {block_size}"
        )


SHIFT = 3


def scales_move(context: LawContext) -> Iterator[str]:
    """Route weights doubled and down scales raised by three: sixteen times the result, bit for bit."""
    arguments = context.arguments()
    name = "sorted_weights" if arguments["expert_weights"] is None else "expert_weights"
    raised = arguments | {name: arguments[name] * 2, "w2_scale": arguments["w2_scale"] + SHIFT}
    usual, after = context.call(context.arguments()), context.call(raised)
    yield from differences({"out": usual["out"] * 2.0 ** (SHIFT + 1)}, after, "with weights and scales raised")


def interleaved(context: LawContext) -> Iterator[str]:
    """The rows of w13 in the other layout, and the word for it."""
    arguments = context.arguments()
    relaid = in_turn if arguments["w13_layout"] == "separated" else in_halves
    other = {"separated": "interleaved", "interleaved": "separated"}[arguments["w13_layout"]]
    after = arguments | {name: relaid(arguments[name]) for name in ("w13", "w13_scale")} | {"w13_layout": other}
    yield from judged(context, after, f"With w13 {other}")


def in_turn(rows: Tensor) -> Tensor:
    """A gate and an up row in turn, of gates before ups."""
    gate, up = rows.chunk(2, dim=1)
    return torch.stack([gate, up], dim=2).flatten(1, 2)


def in_halves(rows: Tensor) -> Tensor:
    """Gates before ups, of the two in turn."""
    return torch.cat([rows[:, 0::2], rows[:, 1::2]], dim=1)
