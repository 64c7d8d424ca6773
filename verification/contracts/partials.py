"""What the contracts of partial attention residuals share: their inputs, what a partial means, when there is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from reference.numerics import OFFICIAL, Variant
from verification.budget import Golden
from verification.contracts.attention_residual import block_major, row_padded
from verification.inputs import Inputs
from verification.laws import Change, differences, equivalence, reassembly, storage_order
from verification.localization import describe_failures
from verification.operator import Arguments, Finding, Law, LawContext, Output, Outputs, pick

BF16 = torch.bfloat16

SCALES = {"normal": 1.0, "near_eps": 2.0**-10, "large": 2.0**10, "zeros": 0.0, "nonfinite": 1.0}
"""Distributions, by the magnitude of their rows."""

STORED = {"token_major": lambda blocks: blocks, "block_major": block_major, "row_padded": row_padded}


def snapshots(inputs: Inputs, p: dict[str, Any], distribution: str) -> Arguments:
    """Snapshots of growing magnitude, scores of a few units; unused blocks hold NaN, as fresh memory may."""
    rows, capacity, hidden = p["rows"], p["capacity"], p["hidden"]
    growth = (1 + torch.arange(capacity, dtype=torch.float64))[None, :, None] / 4
    scale = pick(distribution, SCALES, "distribution")
    blocks = (inputs.normal("blocks", (rows, capacity, hidden), scale) * growth).to(BF16)
    blocks[:, p["blocks"] :] = torch.nan
    if distribution == "nonfinite" and rows and p["blocks"]:
        blocks[0, 0, -1], blocks[-1, p["blocks"] - 1, 0] = torch.nan, torch.inf
    scorers = inputs.normal("score_weights", (p["scorers"], hidden), p["score_scale"] * hidden**-0.5)
    return {
        "blocks": pick(p["order"], STORED, "order")(blocks),
        "score_weights": scorers.to(torch.float32),
        "num_blocks": p["blocks"],
        "eps": p["eps"],
    }


def log_mass(outputs: Outputs) -> Tensor:
    """Log of the mass, maximum + log(sum): against which score the masses are taken is open."""
    return outputs["maximum"].double() + outputs["sum"].double().log()


def mean(outputs: Outputs) -> Tensor:
    """Weighted mean of the blocks, accumulator ÷ sum, where there is a mass."""
    total = outputs["sum"].double()[..., None]
    accumulator = outputs["accumulator"].double()
    return torch.where(total > 0, accumulator / total, accumulator)


OUTPUTS = (
    Output("maximum", "number", "fp32", meaning=log_mass),
    Output("sum", "structural", "fp32"),
    Output("accumulator", "number", "fp32", meaning=mean),
)

ROW_AXES = {"maximum": 1, "sum": 1, "accumulator": 1}
"""Beside the scorers' axis."""

EMPTY = {"maximum": -torch.inf, "sum": 0.0, "accumulator": 0.0}


def structure(arguments: Arguments, outputs: Outputs, golden: Golden) -> Iterator[Finding]:
    """Without a block exactly −Inf, 0, 0, every element written."""
    for name, value in EMPTY.items() if arguments["num_blocks"] == 0 else ():
        different = outputs[name] != value
        if different.any():
            yield Finding(
                "structure",
                f"{name}: {int(different.sum())} of {different.numel()} elements are not {value}, though there is "
                f"no block; {describe_failures(different)}",
            )


def merged(first: Outputs, second: Outputs) -> Outputs:
    """The partial of two groups of blocks, in float64."""
    a, b = ({name: first_or_second[name].double() for name in EMPTY} for first_or_second in (first, second))
    maximum = torch.maximum(a["maximum"], b["maximum"])
    kept = [torch.where(x["sum"] > 0, (x["maximum"] - maximum).exp(), 0.0) for x in (a, b)]
    total = kept[0] * a["sum"] + kept[1] * b["sum"]
    accumulator = kept[0][..., None] * a["accumulator"] + kept[1][..., None] * b["accumulator"]
    return {"maximum": maximum.float(), "sum": total.float(), "accumulator": accumulator.float()}


def blocks_between(arguments: Arguments, low: int, high: int) -> Arguments:
    """The arguments with these blocks alone."""
    return arguments | {"blocks": arguments["blocks"][:, low:high], "num_blocks": high - low}


def splits(context: LawContext) -> Iterator[tuple[str, Outputs]]:
    """One block and the rest; two halves; none and all."""
    count = context.arguments()["num_blocks"]
    whole = context.call(context.arguments())
    for cut in sorted({0, 1, count // 2}):
        parts = [context.call(blocks_between(context.arguments(), *ends)) for ends in ((0, cut), (cut, count))]
        yield f"Blocks split at {cut}", whole | merged(*parts)


def orders(context: LawContext) -> Iterator[tuple[str, Outputs]]:
    """The blocks in use the other way round."""
    arguments = context.arguments()
    used = arguments["num_blocks"]
    arguments["blocks"] = torch.cat([arguments["blocks"][:, :used].flip(1), arguments["blocks"][:, used:]], 1)
    yield "Blocks in reverse", context.call(arguments)


def scorers_apart(context: LawContext) -> Iterator[tuple[str, Outputs]]:
    """Each scorer in a call of its own."""
    whole = context.call(context.arguments())
    scorers = context.arguments()["score_weights"]
    alone = [context.call(context.arguments() | {"score_weights": one[None]}) for one in scorers]
    yield "Scorers one by one", whole | {name: torch.cat([one[name] for one in alone]) for name in EMPTY}


def other_garbage(arguments: Arguments) -> Arguments:
    """Other values in the blocks that are not in use."""
    arguments["blocks"][:, arguments["num_blocks"] :] = 3e4
    return arguments


LAWS = (
    storage_order("blocks", {"block-major": block_major, "row-padded": row_padded}),
    reassembly("split_is_whole", "The partials of any split of the blocks merge into that of all.", splits),
    reassembly("block_order", "The order of the blocks does not matter.", orders),
    reassembly("scorers_apart", "A scorer's partial does not depend on the other scorers.", scorers_apart),
    equivalence(
        "unused_blocks",
        "What lies in the unused blocks changes no bit.",
        other_garbage,
        lambda arguments, usual: usual,
        lambda case: dict(case.parameters).get("capacity", 8) > dict(case.parameters).get("blocks", 8),
    ),
)

SENSITIVITY: dict[str, Change] = {
    "blocks": lambda a: a["blocks"].roll(1, 0),
    "num_blocks": lambda a: a["num_blocks"] - 1,
    "score_weights": lambda a: a["score_weights"].roll(1),
    "eps": lambda a: 10.0,
}

VARIANTS = (
    OFFICIAL,
    Variant(
        "score_weight_bf16",
        "scorers rounded to bf16 (tokenspeed, split and fused)",
        adds=frozenset({"score_weight"}),
    ),
)


STATES = SCALES | {"empty": 1.0, "empty_nan": 1.0, "some_empty": 1.0, "apart": 1.0}
"""Distributions of one scorer's partial: also of no block, with NaN in its place, in every other row, or far away."""


def partial_state(inputs: Inputs, p: dict[str, Any], distribution: str) -> tuple[Arguments, float]:
    """One scorer's partial as `blocks` snapshots may leave it, and the scale of the rows."""
    rows, hidden, blocks = p["rows"], p["hidden"], p["blocks"]
    scale = pick(distribution, STATES, "distribution")
    maximum = inputs.normal("maximum", (rows,), p["score_scale"])
    total = inputs.uniform("sum", (rows,), 1.0, max(blocks, 1))
    accumulator = inputs.normal("accumulator", (rows, hidden), scale) * total[:, None]
    if distribution == "apart":
        maximum[0::2] += 500
        maximum[1::2] -= 500
    if distribution == "nonfinite":
        accumulator[1:2, :1] = torch.inf
        maximum[2:3], total[2:3], accumulator[2:3] = torch.nan, torch.nan, torch.nan
    empty = torch.full((rows,), blocks == 0 or distribution in ("empty", "empty_nan"))
    empty[::2] |= distribution == "some_empty"
    maximum[empty], total[empty] = -torch.inf, 0.0
    accumulator[empty] = torch.nan if distribution in ("empty_nan", "some_empty") else 0.0
    return {"maximum": maximum.float(), "sum": total.float(), "accumulator": accumulator.float()}, scale


def no_blocks(arguments: Arguments, accumulator: float) -> Arguments:
    """The arguments with the partial of no block, its accumulator full of a value."""
    values = EMPTY | {"accumulator": accumulator}
    return arguments | {name: torch.full_like(arguments[name], value) for name, value in values.items()}


def no_block_is_ignored(context: LawContext) -> Iterator[str]:
    """What an empty partial's accumulator holds changes no bit; nor does one far below the prefix."""
    wanted = context.call(no_blocks(context.arguments(), 0.0))
    for value in (torch.nan, torch.inf, 1.0):
        outputs = context.call(no_blocks(context.arguments(), value))
        yield from differences(wanted, outputs, f"when the accumulator of no block holds {value}")
    below = context.arguments()
    below["maximum"] = torch.full_like(below["maximum"], -1e5)
    yield from differences(wanted, context.call(below), "between no block and blocks whose scores are far below")


def far_above(context: LawContext) -> Iterator[str]:
    """A partial far above is accumulator ÷ sum, whatever its masses are taken against."""
    above = {"maximum": torch.full_like(context.arguments()["maximum"], 1e5)}
    wanted = context.call(context.arguments() | above)
    doubled = context.arguments() | above
    doubled["sum"], doubled["accumulator"] = doubled["sum"] * 2, doubled["accumulator"] * 2
    yield from differences(wanted, context.call(doubled), "when sum and accumulator are doubled")


MERGE_LAWS = (
    Law("no_block_is_ignored", "A partial without mass leaves the prefix alone.", no_block_is_ignored),
    Law("far_above", "A partial with all the mass counts by its mean.", far_above),
)

MERGE_VARIANTS = (
    OFFICIAL,
    Variant(
        "one_rounding",
        "mix rounded to bf16, output norm rounded once",
        drops=frozenset({"output_normalized"}),
    ),
    Variant(
        "mix_unrounded",
        "no rounding between mix and output norm, one at the end",
        drops=frozenset({"mix", "output_normalized"}),
    ),
    Variant(
        "score_weight_bf16",
        "as one_rounding, with the scorer rounded to bf16 (tokenspeed, split and fused)",
        adds=frozenset({"score_weight"}),
        drops=frozenset({"output_normalized"}),
    ),
)

STATE_SENSITIVITY: dict[str, Change] = {
    "maximum": lambda a: a["maximum"] + 1,
    "sum": lambda a: a["sum"] * 2,
    "accumulator": lambda a: a["accumulator"] * 2,
    "score_weight": lambda a: a["score_weight"].roll(1),
}
