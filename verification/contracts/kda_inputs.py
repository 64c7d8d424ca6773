"""Cases and variants that KDA's operators share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from reference.numerics import OFFICIAL, Variant
from verification.contracts.pages import draw_pages, idle_rows, paged_arguments, read_lengths
from verification.inputs import TORCH_DTYPES, Inputs, far_apart
from verification.laws import Change
from verification.operator import Arguments, Output, pick

DEFAULTS: dict[str, Any] = {
    "lengths": "1x4", "heads": 12, "key": 128, "value": 128, "rank": 0, "lower_bound": -5.0, "slots": "apart",
    "padding": "none", "initial": "none", "past": 0, "output": "gated", "weights": "bf16", "index": "int32",
    "layout": "contiguous", "eps": 1e-5,
}  # fmt: skip
"""Without a rank the raw gate is given, else its two factors."""

SMALL: dict[str, Any] = {"heads": 2, "key": 16, "value": 24}
LINEAR: dict[str, Any] = {"heads": 4, "rank": 128, "lower_bound": None}
"""Kimi-Linear-48B-A3B on eight ranks."""

TINY = 2.0**-12
"""Magnitude of rows whose keys and queries are governed by the eps of their norm."""

ROW_ARGUMENTS = ("qkv", "raw_gate", "f_a", "beta_logits", "output_gate")
WEIGHTS = ("conv_weight", "f_b_weight", "A_log", "dt_bias", "norm_weight")

VARIANTS = (
    OFFICIAL,
    Variant("conv_rounded", "convolved rows rounded to bf16, as a convolution of its own gives them",
            adds=frozenset({"conv_output"})),
    Variant("output_rounded", "o rounded to bf16 before its norm, as a norm of its own reads it",
            adds=frozenset({"output"})),
    Variant("split", "both, as operators one by one have it (tokenspeed, split)",
            adds=frozenset({"conv_output", "output"})),
    Variant("gate_unrounded", "f_a · f_b kept in fp32 before dt_bias", drops=frozenset({"raw_gate"})),
)  # fmt: skip

OUTPUTS = (
    Output("out", "number", "=qkv"),
    Output("conv_state", "exact", "=conv_state", argument="conv_state"),
    Output("state", "number", "=state", argument="state"),
)

SENSITIVITY: dict[str, Change] = {
    "qkv": lambda a: a["qkv"].roll(1, 1),
    "conv_weight": lambda a: a["conv_weight"].flip(1),
    "conv_state": lambda a: a["conv_state"].flip(2),
    "raw_gate": lambda a: None if a["raw_gate"] is None else a["raw_gate"].roll(1, 2),
    "f_a": lambda a: None if a["f_a"] is None else a["f_a"].roll(1, 1),
    "f_b_weight": lambda a: None if a["f_b_weight"] is None else a["f_b_weight"].roll(1, 0),
    "A_log": lambda a: a["A_log"].flip(0),
    "dt_bias": lambda a: a["dt_bias"].roll(1, 1),
    "lower_bound": lambda a: None,
    "beta_logits": lambda a: a["beta_logits"].roll(1, 1),
    "state": lambda a: a["state"].flip(2),
    "read_slots": lambda a: a["read_slots"].flip(0),
    "write_slots": lambda a: a["write_slots"].flip(0),
    "padding_slot": lambda a: int(a["read_slots"][0]),
    "cu_seqlens": lambda a: torch.cat([a["cu_seqlens"][:-1], a["cu_seqlens"][-1:] - 1]),
    "scale": lambda a: a["scale"] * 2,
    "output_gate": lambda a: None,
    "norm_weight": lambda a: None if a["norm_weight"] is None else a["norm_weight"].roll(1),
    "eps": lambda a: a["eps"] if a["norm_weight"] is None else 10.0,
}
"""Another value of each argument; None of one that is absent."""

DISTRIBUTIONS = dict.fromkeys(("normal", "bounds", "parallel", "tiny", "large", "nonfinite"))
"""bounds: strong log-decays in most rows, then none and usual ones by turns.

parallel: nearly one key, β near 1, hardly a decay.
"""


def kda_arguments(key: str, distribution: str, p: dict[str, Any]) -> Arguments:
    """Everything that an operator of the family takes; each contract picks its own."""
    inputs = Inputs(key)
    pick(distribution, DISTRIBUTIONS, "distribution")
    lengths = read_lengths(p["lengths"])
    rows, heads, depth, width = sum(lengths) + p["past"], p["heads"], p["key"], p["value"]
    sizes = {"qkv": heads * (2 * depth + width), "output_gate": heads * width, "beta_logits": heads}
    sizes |= {"f_a": p["rank"]} if p["rank"] else {"raw_gate": heads * depth}
    projected = row_values(inputs, distribution, rows, sizes, p)
    pages = draw_pages(inputs, len(lengths), p)
    if distribution == "nonfinite" and rows:
        projected["qkv"][0, -1] = torch.nan
    idle = idle_rows(pages, lengths, rows)
    for x in projected.values():
        x[idle] = torch.nan
    samples = TINY if distribution == "tiny" else 1.0
    conv_state = inputs.normal("conv_state", (pages.slots, sizes["qkv"], 3), samples).to(torch.bfloat16)
    state = inputs.normal("state", (pages.slots, heads, width, depth), 1e4 if distribution == "large" else 0.3).float()
    conv_state[pages.fresh], state[pages.fresh] = torch.nan, torch.nan
    if distribution == "nonfinite" and len(lengths) > 1:
        state[pages.read[1].clamp(0, pages.slots - 1), 0, 0, 0] = torch.nan
    weights_dtype = TORCH_DTYPES[p["weights"]]
    pool_layouts = pick(p["layout"], POOLS, "layout")
    return merged(projected, rows, heads, p) | paged_arguments(pages, lengths, p) | {
        "conv_state": pool_layouts["conv_state"](conv_state),
        "state": pool_layouts["state"](state),
        "conv_weight": inputs.normal("conv_weight", (sizes["qkv"], 4), 0.5).to(weights_dtype),
        "f_b_weight": inputs.normal("f_b", (heads * depth, p["rank"]), 0.1).bfloat16() if p["rank"] else None,
        "A_log": inputs.normal("A_log", (heads,), 0.5).float(),
        "dt_bias": inputs.uniform("dt_bias", (heads, depth), -7.8, 1.0).float(),
        "lower_bound": p["lower_bound"],
        "scale": depth**-0.5,
        "norm_weight": (1 + inputs.normal("norm_weight", (width,), 0.1)).to(weights_dtype)
        if p["output"] != "plain" else None,
        "eps": p["eps"],
    }  # fmt: skip


def row_values(
    inputs: Inputs, distribution: str, rows: int, sizes: dict[str, int], p: dict[str, Any]
) -> dict[str, Tensor]:
    """What the projections give of each row, bf16."""
    values = {name: inputs.normal(name, (rows, size)) for name, size in sizes.items()}
    values["beta_logits"] *= 2
    gate = "f_a" if p["rank"] else "raw_gate"
    if distribution == "bounds":
        strong = (torch.arange(rows) % 16 < 12)[:, None] ^ (inputs.integers("flips", (rows, sizes[gate]), 0, 8) == 0)
        ends = torch.where(torch.arange(rows)[:, None] % 2 == 0, -40.0, values[gate])
        values[gate] = torch.where(strong, 40.0, ends)
    if distribution == "parallel":
        keys = slice(p["heads"] * p["key"], 2 * p["heads"] * p["key"])
        values["qkv"][:, keys] = 1 + values["qkv"][:, keys] / 128
        values["beta_logits"] = 6 + values["beta_logits"] / 4
        values[gate] -= 12
    if distribution == "tiny":
        values["qkv"] *= TINY
    if distribution == "large":
        values["qkv"] *= 64
        values[gate] -= 12
    return {name: x.to(torch.bfloat16) for name, x in values.items()}


def merged(projected: dict[str, Tensor], rows: int, heads: int, p: dict[str, Any]) -> Arguments:
    """The rows by argument; under the layout `strided` they are columns of one wide tensor, as one product gives."""
    if p["layout"] == "strided":
        wide = torch.cat([*projected.values(), torch.full((rows, 5), torch.nan, dtype=torch.bfloat16)], dim=1)
        parts = wide.split([*(x.shape[1] for x in projected.values()), 5], dim=1)
        projected = dict(zip(projected, parts, strict=False))
    found: Arguments = {name: projected.get(name) for name in ROW_ARGUMENTS}
    for name in ("raw_gate", "output_gate"):
        found[name] = None if found[name] is None else found[name].unflatten(1, (heads, -1))
    return found if p["output"] == "gated" else found | {"output_gate": None}


def channels_last(conv_state: Tensor) -> Tensor:
    """The same [slots, C, 3] stored as [slots, 3, C]."""
    return conv_state.transpose(1, 2).contiguous().transpose(1, 2)


def page_padded(state: Tensor) -> Tensor:
    """The same pool with NaN before its pages and between them."""
    wide = torch.full((len(state), state[0].numel() + 24), torch.nan)
    pool: Tensor = wide[:, 8:-16].unflatten(1, state.shape[1:])
    return pool.copy_(state)


POOLS: dict[str, dict[str, Callable[[Tensor], Tensor]]] = {
    "contiguous": dict.fromkeys(("conv_state", "state"), torch.Tensor.contiguous),
    "strided": {"conv_state": channels_last, "state": page_padded},
    "far": dict.fromkeys(("conv_state", "state"), far_apart),
}
"""How the pools lie, by layout."""
