from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from reference.checks import require
from reference.config import KIMI_K3
from reference.sampling import greedy_sample
from verification.inputs import LAYOUTS, TORCH_DTYPES, Inputs, laid_out
from verification.laws import batch_invariance, equivalence, parameter_sensitivity, row_isolation, storage_order
from verification.operator import Arguments, Case, CaseGroup, Operator, Output, Outputs, make_case, pick

DEFAULTS: dict[str, Any] = {"rows": 4, "vocab": KIMI_K3.vocab_size, "layout": "contiguous"}

TILES = (127, 128, 129, 1023, 1024, 1025)


def case(distribution: str = "normal", dtype: str = "fp32", seed: int = 0, **parameters: Any) -> Case:
    """A case of greedy_sample."""
    return make_case("greedy_sample", DEFAULTS, dtype, distribution, seed, **parameters)


def make(case: Case) -> Arguments:
    """Logits whose ties and special values the distribution names."""
    p = DEFAULTS | dict(case.parameters)
    rows, vocab = p["rows"], p["vocab"]
    require(vocab >= 1, case.operator, f"vocab is {vocab}; expected 1 or more")
    inputs = Inputs(case.id)
    x = inputs.normal("logits", (rows, vocab), 3.0)
    x = pick(case.distribution, DISTRIBUTIONS, "distribution")(inputs, x)
    return {"logits": laid_out(x.to(TORCH_DTYPES[case.dtype]), p["layout"])}


def few_values(inputs: Inputs, x: Tensor) -> Tensor:
    """Whole numbers: most rows have several largest."""
    return x.round()


def close(inputs: Inputs, x: Tensor) -> Tensor:
    """The best two are one fp32 step apart, at random places: the larger is as often the later one."""
    best = 16.0 + inputs.integers("first", (len(x), 1), 0, 2).to(x.dtype) * 2.0**-19
    places = inputs.permutations("places", len(x), x.shape[1])[:, :2]
    return x.clamp(max=8.0).scatter(1, places, torch.cat([best, torch.full_like(best, 16.0 + 2.0**-20)], 1))


def at_the_end(inputs: Inputs, x: Tensor) -> Tensor:
    """The largest is the last entry, where a dropped tail would lose it."""
    x[:, -1:] = 64.0
    return x


def signed_zeros(inputs: Inputs, x: Tensor) -> Tensor:
    """Zeros of either sign are the largest."""
    zeros = torch.where(x > 0, 0.0, -0.0)
    return torch.where(x.abs() < 2, zeros, -x.abs())


def nonfinite(inputs: Inputs, x: Tensor) -> Tensor:
    """By row: NaN before the largest; all −Inf but a NaN ahead; two +Inf; all NaN; NaN in every other place."""
    kinds = torch.arange(len(x)) % 5
    x[kinds == 0, :1] = torch.nan
    x[kinds == 1] = -torch.inf
    x[kinds == 1, :1] = torch.nan
    x[kinds == 2, -2:] = torch.inf
    x[kinds == 3] = torch.nan
    x[kinds == 4, ::2] = torch.nan
    return x


def masked(inputs: Inputs, x: Tensor) -> Tensor:
    """Three of four tokens masked out with −Inf, as by a grammar, and every other logit below 0."""
    return torch.where(inputs.integers("mask", tuple(x.shape), 0, 4) > 0, -torch.inf, -1 - x.abs())


DISTRIBUTIONS: dict[str, Callable[[Inputs, Tensor], Tensor]] = {
    "normal": lambda inputs, x: x, "few_values": few_values, "close": close, "at_the_end": at_the_end,
    "constant": lambda inputs, x: torch.full_like(x, -7.0), "signed_zeros": signed_zeros, "nonfinite": nonfinite,
    "tiny": lambda inputs, x: x * 2.0**-140, "large": lambda inputs, x: x * 2.0**100,
    "masked": masked,
}  # fmt: skip

GROUPS = (
    CaseGroup("production sizes", "smoke", (case(rows=0), case(rows=1), case(rows=4), case(dtype="bf16", rows=2))),
    CaseGroup(
        "production sizes", "full", tuple(case(rows=r) for r in (2, 8, 16, 17, 64)) + (case(rows=257, vocab=20480),)
    ),
    CaseGroup("odd sizes", "smoke", tuple(case(rows=3, vocab=v) for v in (1, 2, 3, *TILES, 20481))),
    CaseGroup("masked vocabulary", "smoke", (case("masked", rows=5, vocab=5000),)),
    CaseGroup("ends", "smoke", tuple(case("at_the_end", rows=3, vocab=v) for v in (*TILES, 163840))),
    CaseGroup(
        "ties",
        "smoke",
        tuple(case(d, rows=9, vocab=5000) for d in ("few_values", "close", "constant", "signed_zeros"))
        + (case("few_values", "bf16", rows=9, vocab=5000), case("few_values"), case("close")),
    ),
    CaseGroup("magnitudes", "smoke", (case("tiny", rows=5, vocab=3000), case("large", rows=5, vocab=3000))),
    CaseGroup("NaN and Inf", "smoke", tuple(case("nonfinite", rows=10, vocab=v) for v in (2, 5, 1025, 20480))),
    CaseGroup("layouts", "smoke", tuple(case(rows=5, vocab=130, layout=layout) for layout in LAYOUTS)),
    CaseGroup("seeds", "nightly", tuple(case("few_values", seed=s, rows=17, vocab=9001) for s in range(1, 33))),
    # Offsets beyond 2³¹ elements: more than an index of 32 bits reaches.
    CaseGroup("far rows", "nightly", (case(rows=3, layout="far"),), targets=("cuda", "hip")),
)


def reversed_vocabulary(arguments: Arguments) -> Arguments:
    """The vocabulary backwards."""
    return {"logits": arguments["logits"].flip(1)}


def counted_from_the_end(arguments: Arguments, usual: Outputs) -> Outputs:
    """Where distinct logits go when the vocabulary is read backwards."""
    return {"ids": arguments["logits"].shape[1] - 1 - usual["ids"]}


def doubled(arguments: Arguments) -> Arguments:
    """The vocabulary twice over: every entry has an equal one behind it."""
    return {"logits": torch.cat([arguments["logits"]] * 2, 1)}


OPERATOR = Operator(
    name="greedy_sample",
    reference=greedy_sample,
    outputs=(Output("ids", "exact", "int32"),),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(case(rows=16, vocab=3001), case(rows=5)),
    laws=(
        batch_invariance(("logits",)),
        row_isolation(("logits",)),
        parameter_sensitivity({"logits": lambda a: a["logits"].roll(1, 1)}),
        storage_order("logits", {name: partial(laid_out, layout=name) for name in LAYOUTS if name != "contiguous"}),
        equivalence(
            "scale", "A positive factor changes no choice.",
            lambda a: {"logits": a["logits"] * 4}, lambda a, usual: usual,
        ),
        equivalence(
            "order", "Distinct logits are found wherever they stand.", reversed_vocabulary, counted_from_the_end
        ),
        equivalence("first_of_equals", "An equal entry further on changes nothing.", doubled, lambda a, usual: usual),
    ),
    special_values=(
        "NaN is less than −Inf: it is chosen only in a row of nothing else, which gives 0. The two zeros are equal, "
        "and of equal logits the first is chosen; +Inf is a logit like others. No rows launch nothing."
    ),
)  # fmt: skip
