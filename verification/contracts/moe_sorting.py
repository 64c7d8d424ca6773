from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from reference.moe_sorting import SLOT_SHIFT, moe_sorting
from verification.budget import Golden
from verification.inputs import Inputs
from verification.laws import differences, parameter_sensitivity
from verification.operator import (
    Arguments,
    Case,
    CaseGroup,
    Finding,
    Law,
    LawContext,
    Operator,
    Output,
    Outputs,
    make_case,
    pick,
)

DEFAULTS: dict[str, Any] = {
    "rows": 4,
    "experts": 896,
    "top_k": 16,
    "block_size": 32,
    "mask": "none",
    "local": "all",
    "buffer": 0,
}

ROWS = (0, 1, 2, 4, 7, 8, 16, 17, 33, 256)


def case(distribution: str = "distinct", seed: int = 0, **parameters: Any) -> Case:
    """A case of moe_sorting."""
    return make_case("moe_sorting", DEFAULTS, "fp32", distribution, seed, **parameters)


def make(case: Case) -> Arguments:
    """Ids of the named distribution, weights that tell every pair from every other."""
    p = DEFAULTS | dict(case.parameters)
    inputs = Inputs(case.id)
    rows, experts, top_k = p["rows"], p["experts"], p["top_k"]
    ids = pick(case.distribution, DISTRIBUTIONS, "distribution")(inputs, rows, experts, top_k)
    return {
        "expert_ids": ids.to(torch.int32),
        "expert_weights": inputs.uniform("weights", (rows, top_k), -2.5, 2.5).to(torch.float32),
        "num_experts": experts,
        "block_size": p["block_size"],
        **sorting_options(p, inputs),
    }


def sorting_options(p: dict[str, Any], inputs: Inputs) -> Arguments:
    """Mask, count of live rows and buffer for these parameters; shared with `route_sort`."""
    mask = pick(p["mask"], MASKS, "mask")(p["experts"])
    buffer = inputs.normal("buffer", (p["rows"], p["buffer"])).to(torch.bfloat16) if p["buffer"] else None
    if buffer is not None:  # a product with zero would leave these
        buffer[:, ::3], buffer[:, 1::3] = torch.nan, torch.inf
    local = {"all": None, "most": p["rows"] * 3 // 4, "none": 0, "given": p["rows"]}[p["local"]]
    return {
        "expert_mask": mask,
        "num_local_tokens": None if local is None else torch.tensor([local], dtype=torch.int32),
        "output_buffer": buffer,
    }


def distinct(inputs: Inputs, rows: int, experts: int, top_k: int) -> Tensor:
    """K different experts a row."""
    return inputs.permutations("ids", rows, experts)[:, :top_k]


def drawn(inputs: Inputs, rows: int, low: int, high: int, top_k: int) -> Tensor:
    """Ids in [low, high), repeats included."""
    return inputs.integers("ids", (rows, top_k), low, high)


def invalid(inputs: Inputs, rows: int, experts: int, top_k: int) -> Tensor:
    """Half the ids −1, E, E + 5 or far out."""
    ids = drawn(inputs, rows, 0, experts, top_k)
    bad = torch.tensor([-1, experts, experts + 5, 2**31 - 1])[inputs.integers("bad", (rows, top_k), 0, 4)]
    return torch.where(inputs.integers("which", (rows, top_k), 0, 2) == 1, bad, ids)


DISTRIBUTIONS: dict[str, Callable[[Inputs, int, int, int], Tensor]] = {
    "distinct": distinct,
    "repeated": lambda i, t, e, k: drawn(i, t, 0, min(e, 4), k),
    "one_expert": lambda i, t, e, k: torch.full((t, k), min(5, e - 1)),
    "last_expert": lambda i, t, e, k: torch.full((t, k), e - 1),
    "first_empty": lambda i, t, e, k: drawn(i, t, 1, e, k),
    "invalid": invalid,
    "all_invalid": lambda i, t, e, k: torch.full((t, k), -1),
}

MASKS: dict[str, Callable[[int], Tensor | None]] = {
    "none": lambda e: None,
    "odd": lambda e: (torch.arange(e) % 2).to(torch.int32),
    "eighth": lambda e: ((torch.arange(e) >= e // 8) & (torch.arange(e) < e // 4)).to(torch.int32),
    "empty": lambda e: torch.zeros(e, dtype=torch.int32),
    "full": lambda e: torch.ones(e, dtype=torch.int32),
}


def compared(name: str, arguments: Arguments, outputs: Outputs) -> Tensor | None:
    """Only what lies before num_valid_ids[0]; weights only where a pair is."""
    if name not in ("sorted_ids", "sorted_weights", "sorted_expert_ids"):
        return None
    size = outputs[name].shape[0]
    valid = int(outputs["num_valid_ids"][0].clamp(min=0)) if outputs["num_valid_ids"].numel() else 0
    place = torch.arange(size)
    if name == "sorted_expert_ids":
        return torch.lt(place * int(arguments["block_size"]), valid)
    inside = torch.lt(place, valid)
    if name == "sorted_weights" and outputs["sorted_ids"].shape == outputs[name].shape:
        top_k = arguments["expert_ids"].shape[1] if "expert_ids" in arguments else arguments["top_k"]
        inside &= (outputs["sorted_ids"] >> SLOT_SHIFT) < top_k
    return inside


def structure(arguments: Arguments, outputs: Outputs, golden: Golden) -> Iterator[Finding]:
    """Each live (token, slot) exactly once, each block one expert, the buffer zeroed."""
    ids = arguments["expert_ids"]
    yield from check_metadata(arguments, outputs, ids)


def check_metadata(arguments: Arguments, outputs: Outputs, ids: Tensor) -> Iterator[Finding]:
    """The same for sort metadata of these ids."""
    rows, top_k = ids.shape
    valid = int(outputs["num_valid_ids"][0])
    if not 0 <= valid <= outputs["sorted_ids"].shape[0] or valid % arguments["block_size"]:
        yield Finding(
            "structure",
            f"num_valid_ids[0] is {valid}; expected a multiple of {arguments['block_size']} "
            f"in 0…{outputs['sorted_ids'].shape[0]}",
        )
        return
    packed = outputs["sorted_ids"][:valid].long()
    token, slot = packed & ((1 << SLOT_SHIFT) - 1), packed >> SLOT_SHIFT
    pair = (slot < top_k) & (slot >= 0) & (token < rows)
    stray = ~pair & (packed != (top_k << SLOT_SHIFT | rows))
    if stray.any():
        yield Finding(
            "structure",
            f"sorted_ids: place {int(stray.nonzero()[0])} is {int(packed[stray][0])}: neither a (slot "
            f"<< 24) | token of this call nor the padding {top_k << SLOT_SHIFT | rows}",
        )
        return
    seen = torch.bincount(token[pair] * top_k + slot[pair], minlength=rows * top_k).reshape(rows, top_k)
    live = live_pairs(arguments, ids)
    wrong = seen != live.long()
    if wrong.any():
        t, s = (int(i) for i in wrong.nonzero()[0])
        yield Finding(
            "structure",
            f"sorted_ids: (token {t}, slot {s}) of expert {int(ids[t, s])} occurs {int(seen[t, s])} times; "
            f"expected {int(live[t, s])}; {int(wrong.sum())} such pairs",
        )
    if outputs.get("output_buffer") is not None and (outputs["output_buffer"] != 0).any():
        yield Finding(
            "structure",
            f"output_buffer: {int((outputs['output_buffer'] != 0).sum())} of {outputs['output_buffer'].numel()} "
            "elements are not zero",
        )


def live_pairs(arguments: Arguments, ids: Tensor) -> Tensor:
    """Mask [T, k] of the pairs that must be sorted."""
    experts = arguments.get("num_experts") or arguments["logits"].shape[1]
    live = torch.logical_and(ids >= 0, ids < experts)
    if arguments["expert_mask"] is not None:
        live &= arguments["expert_mask"].bool()[ids.long().clamp(0, experts - 1)]
    if arguments["num_local_tokens"] is not None:
        live &= torch.arange(ids.shape[0])[:, None] < arguments["num_local_tokens"]
    return live


def expert_permutation(context: LawContext) -> Iterator[str]:
    """Experts renamed in reverse keep the pairs of each run."""
    arguments = context.arguments()
    experts = arguments["num_experts"]
    usual, after = (
        context.call(context.arguments()),
        context.call(arguments | {"expert_ids": experts - 1 - arguments["expert_ids"]}),
    )
    if not torch.equal(usual["num_valid_ids"], after["num_valid_ids"]):
        yield (
            f"num_valid_ids is {usual['num_valid_ids'].tolist()} but {after['num_valid_ids'].tolist()} "
            "with the experts reversed."
        )
        return
    block = arguments["block_size"]
    for one, other, expert in _runs(usual, after, experts, block):
        if not torch.equal(one, other):
            yield f"The blocks of expert {expert} hold other pairs with the experts reversed."
            return


def _runs(usual: Outputs, after: Outputs, experts: int, block: int) -> Iterator[tuple[Tensor, Tensor, int]]:
    blocks = int(usual["num_valid_ids"][0]) // block
    owners, others = usual["sorted_expert_ids"][:blocks], after["sorted_expert_ids"][:blocks]
    ids, other_ids = (
        usual["sorted_ids"][: blocks * block].view(blocks, block),
        after["sorted_ids"][: blocks * block].view(blocks, block),
    )
    for expert in sorted(set(owners.tolist())):
        yield ids[owners == expert], other_ids[others == experts - 1 - expert], expert


def buffer_is_separate(context: LawContext) -> Iterator[str]:
    """The metadata are the same with and without a buffer to zero."""
    arguments = context.arguments()
    buffer = torch.ones(arguments["expert_ids"].shape[0], 24, dtype=torch.bfloat16)
    usual = context.call(arguments | {"output_buffer": None})
    after = context.call(context.arguments() | {"output_buffer": buffer})
    masked = [
        {n: v[m] if (m := compared(n, arguments, o)) is not None else v for n, v in o.items()} for o in (usual, after)
    ]
    yield from differences(masked[0], masked[1], "when a buffer is given")


GROUPS = (
    CaseGroup(
        "production sizes",
        "smoke",
        (case(rows=0), case(rows=1), case(rows=4, block_size=64), case(rows=17), case(rows=33, buffer=96)),
    ),
    CaseGroup(
        "production sizes",
        "full",
        tuple(case(rows=r, block_size=b, buffer=f) for r in ROWS for b in (32, 64) for f in (0, 3584)),
    ),
    CaseGroup("distributions", "smoke", tuple(case(d, rows=7, experts=24, top_k=4) for d in DISTRIBUTIONS)),
    CaseGroup("distributions", "full", tuple(case(d, rows=r) for d in DISTRIBUTIONS for r in (1, 33, 256))),
    CaseGroup(
        "expert parallel",
        "smoke",
        tuple(
            case(rows=9, experts=64, top_k=6, mask=m, local=local)
            for m in ("odd", "eighth", "empty", "full")
            for local in ("all", "most")
        )
        + (case("invalid", rows=9, mask="eighth"), case(rows=5, local="none"), case(rows=5, local="given")),
    ),
    CaseGroup(
        "expert parallel",
        "full",
        tuple(
            case(d, rows=33, mask=m, local=local)
            for d in ("distinct", "invalid", "one_expert")
            for m in MASKS
            for local in ("all", "most", "none", "given")
        ),
    ),
    CaseGroup(
        "long runs",
        "smoke",
        # Runs of several blocks, and runs that fill their blocks exactly.
        (
            case("one_expert", rows=40, experts=4, top_k=2),
            case(rows=32, experts=4, top_k=4),
            case("repeated", rows=70, experts=9, top_k=3, block_size=64, mask="odd"),
            case(rows=21, experts=20, top_k=17, block_size=48),
        ),
    ),
    CaseGroup(
        "combinations",
        "smoke",
        (
            case(rows=9, experts=64, top_k=6, local="most", buffer=64),
            case(rows=5, experts=24, top_k=4, mask="odd", local="most", buffer=3001),
            case("invalid", rows=9, experts=64, top_k=6, local="most"),
            case(rows=3, experts=512, top_k=8, block_size=128),
            case(rows=3, experts=2048, top_k=8),
        ),
    ),
    CaseGroup(
        "expert counts",
        "smoke",
        tuple(case("repeated", rows=3, experts=e, top_k=2) for e in (2, 3, 60))
        + tuple(case("last_expert", rows=3, experts=e, top_k=2) for e in (513, 1025)),
    ),
    CaseGroup(
        "expert counts",
        "full",
        tuple(
            case(d, rows=33, experts=e, top_k=8)
            for e in (8, 60, 72, 160, 256, 384, 512, 513, 896, 1024, 1025, 2048)
            for d in ("distinct", "last_expert")
        ),
    ),
    CaseGroup("row counts", "full", tuple(case(rows=r, experts=8, top_k=2) for r in range(1, 129))),
    CaseGroup(
        "seeds",
        "nightly",
        tuple(case("invalid", seed=s, rows=64 * s, mask="eighth") for s in range(1, 17))
        + (case(rows=4096), case("one_expert", rows=4096)),
    ),
)

OPERATOR = Operator(
    name="moe_sorting",
    reference=moe_sorting,
    outputs=(
        Output("sorted_ids", "exact", "int32"),
        Output("sorted_weights", "exact", "fp32"),
        Output("sorted_expert_ids", "exact", "int32"),
        Output("num_valid_ids", "exact", "int32"),
        Output("output_buffer", "structural", "=output_buffer", argument="output_buffer"),
    ),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(case(rows=9, experts=60, top_k=6), case(rows=16)),
    in_place=("output_buffer",),
    structure=structure,
    compared=compared,
    laws=(
        Law("expert_permutation", "Renaming the experts renames the blocks.", expert_permutation),
        Law("in_place_is_out_of_place", "Zeroing a buffer on the way changes no metadata.", buffer_is_separate),
        parameter_sensitivity(
            {
                "expert_ids": lambda a: a["expert_ids"].flip(0),
                "expert_weights": lambda a: a["expert_weights"] * 2,
                "block_size": lambda a: a["block_size"] * 2,
                "num_experts": lambda a: a["num_experts"] // 2,
                "expert_mask": lambda a: (torch.arange(a["num_experts"]) % 3 == 0).to(torch.int32),
                "num_local_tokens": lambda a: torch.tensor([1], dtype=torch.int32),
            }
        ),
    ),
    special_values=(
        "Ids outside [0, E) and experts that the mask switches off are skipped. No rows give two counts of 0 padded "
        "slots and a zeroed buffer. Past num_valid_ids[0], and in the weights of padding slots, nothing is "
        "compared."
    ),
)
