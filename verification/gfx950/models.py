"""What is chosen where the hardware is not exact, or where several orders are legal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Models:
    """How a launch is executed; every choice is a legal reading of the hardware's documents.

    transcendental: `rounded`, the exact value rounded once (denormals flushed), or `one_ulp`, the
    other of its two neighbours. matrix: `fused`, products and C summed exactly, rounded once, or `chained`,
    one rounding a product. completion: a load lands in its registers when it is waited for (`late`)
    or at once (`early`). seed: 0 for ascending orders; another shuffles workgroups, turns and the
    lanes of atomics.
    """

    transcendental: Literal["rounded", "one_ulp"] = "rounded"
    matrix: Literal["fused", "chained"] = "fused"
    completion: Literal["late", "early"] = "late"
    seed: int = 0
    instruction_limit: int = 2_000_000_000
    """Wave-instructions of one launch."""
    quantum: int = 100_000
    """Instructions of a wave before the next one has its turn; with a seed, the most of them."""
    compute_units: int = 8
    """What the driver tells host code; persistent kernels size their grids by it."""
    sample: int = 0
    """Workgroups to run of a larger grid, evenly spread; 0 for all."""


def models_from(text: str) -> Models:
    """Models spelt as `transcendental=one_ulp,matrix=chained,seed=3`; raises ValueError that names what is wrong."""
    chosen: dict[str, Any] = {}
    for word in filter(None, text.split(",")):
        name, _, value = word.partition("=")
        allowed = {"transcendental": ("rounded", "one_ulp"), "matrix": ("fused", "chained"),
                   "completion": ("late", "early")}  # fmt: skip
        if name in allowed and value in allowed[name]:
            chosen[name] = value
        elif name in ("seed", "instruction_limit", "quantum") and value.isdecimal():
            chosen[name] = int(value)
        else:
            raise ValueError(f"{word!r} chooses no model: {allowed}, seed, instruction_limit or quantum with a number")
    return Models(**chosen)


RESIDENT = 1024
"""Workgroups on the device at once: 256 compute units, four each."""
