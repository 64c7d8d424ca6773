from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from reference.attention_states import AttentionState, merge_attention_states
from reference.numerics import ROUNDED, Numerics
from verification.budget import derive
from verification.comparison import compare_numbers
from verification.inputs import TORCH_DTYPES, Inputs
from verification.laws import batch_invariance, differences, parameter_sensitivity, row_isolation
from verification.operator import (
    Arguments,
    Case,
    CaseGroup,
    Law,
    LawContext,
    Operator,
    Output,
    Outputs,
    make_case,
    pick,
)
from verification.shards import along, shards

DEFAULTS: dict[str, Any] = {"rows": 4, "heads": 12, "width": 512, "layout": "contiguous"}


def case(distribution: str = "normal", dtype: str = "bf16", seed: int = 0, **parameters: Any) -> Case:
    """A case of merge_attention_states."""
    return make_case("merge_attention_states", DEFAULTS, dtype, distribution, seed, **parameters)


def small(distribution: str = "normal", dtype: str = "bf16", **parameters: Any) -> Case:
    """The same, small."""
    return case(distribution, dtype, **({"heads": 3, "width": 20} | parameters))


def make(case: Case) -> Arguments:
    """Two states whose lses the distribution names; a side that holds no key has an out of NaN."""
    p = DEFAULTS | dict(case.parameters)
    inputs = Inputs(case.id)
    shape = (p["rows"], p["heads"])
    lse_a, lse_b = (inputs.uniform(name, shape, -4.0, 8.0) for name in ("lse_a", "lse_b"))
    lse_a, lse_b = pick(case.distribution, DISTRIBUTIONS, "distribution")(lse_a, lse_b)
    out_a, out_b = (inputs.normal(name, (*shape, p["width"])) for name in ("out_a", "out_b"))
    if case.distribution == "indicator":
        out_a, out_b = out_a * 0, out_b * 0 + 1
    out_a[lse_a == -torch.inf], out_b[lse_b == -torch.inf] = torch.nan, torch.nan
    dtype = TORCH_DTYPES[case.dtype]
    return {
        "out_a": heads_apart(out_a.to(dtype), p["layout"]),
        "lse_a": lse_a.to(torch.float32),
        "out_b": heads_apart(out_b.to(dtype), p["layout"]),
        "lse_b": lse_b.to(torch.float32),
    }


def heads_apart(out: Tensor, layout: str) -> Tensor:
    """The same values with eight elements of NaN after each head, as a slice of a wider head has."""
    if layout == "contiguous":
        return out
    wide = torch.full((*out.shape[:2], out.shape[2] + 8), torch.nan, dtype=out.dtype)
    return wide[..., :-8].copy_(out)


Pair = tuple[Tensor, Tensor]
PREFIX, SUFFIX = 3072, 64


def emptied(a: Tensor, b: Tensor, pattern: str) -> Pair:
    """Without keys where the pattern, repeated over rows and heads, names a side: a, b, 2 for both, − for neither."""
    letters = [pattern[i % len(pattern)] for i in range(a.numel())]
    for x, side in ((a, "a"), (b, "b")):
        gone = torch.tensor([letter in (side, "2") for letter in letters], dtype=torch.bool)
        x[gone.view(x.shape)] = -torch.inf
    return a, b


DISTRIBUTIONS: dict[str, Callable[[Tensor, Tensor], Pair]] = {
    "normal": lambda a, b: (a, b),
    "equal": lambda a, b: (a, a.clone()),
    "empty_a": lambda a, b: emptied(a, b, "a"),
    "empty_b": lambda a, b: emptied(a, b, "b"),
    "empty_both": lambda a, b: emptied(a, b, "2"),
    "mixed": lambda a, b: emptied(a, b, "-a2b-"),
    "far": lambda a, b: (a * 100, b * 100 + 40),
    "huge": lambda a, b: (a * 1e30, b * 1e30),
    # A long prefix of zeros and a short suffix of ones: the result is the suffix's weight, 0.0204,
    # and not its 0.0041 in a kernel that takes natural logarithms for those of base 2.
    "indicator": lambda a, b: (a * 0 + math.log(PREFIX), b * 0 + math.log(SUFFIX)),
}


def sides(arguments: Arguments, out: Tensor, lse: Tensor) -> tuple[Arguments, Arguments]:
    """The arguments with that state as their first side, and as their second."""
    return arguments | {"out_a": out, "lse_a": lse}, arguments | {"out_b": out, "lse_b": lse}


def identity(context: LawContext) -> Iterator[str]:
    """A state without keys, NaN in its out, beside each side of the case."""
    arguments = context.arguments()
    empty = torch.full_like(arguments["out_a"], torch.nan), torch.full_like(arguments["lse_a"], -torch.inf)
    before, after = sides(arguments, *empty)
    for what, merged, side in (("b after nothing", before, "b"), ("a before nothing", after, "a")):
        kept = {"out": arguments[f"out_{side}"], "lse": arguments[f"lse_{side}"]}
        yield from differences(plain(kept), plain(context.call(merged)), f"for {what}")


def plain(outputs: Outputs) -> Outputs:
    """Without NaN of absent states, whose out is zero, and without the sign of zeros."""
    return {n: torch.where(torch.isnan(v), 0.0, v).to(v.dtype) + 0.0 for n, v in outputs.items()}


def commutative(context: LawContext) -> Iterator[str]:
    """A with b is b with a."""
    arguments = context.arguments()
    turned = {
        "out_a": arguments["out_b"], "lse_a": arguments["lse_b"],
        "out_b": arguments["out_a"], "lse_b": arguments["lse_a"],
    }  # fmt: skip
    yield from context.judge(turned)
    golden = derive(context.operator, arguments)
    got = context.call(turned)
    for name in golden.exact:
        yield from (f.message for f in compare_numbers(name, got[name], golden.exact[name], golden.budgets[name])[1])


def of_three(
    out_a: Tensor,
    lse_a: Tensor,
    out_b: Tensor,
    lse_b: Tensor,
    out_c: Tensor,
    lse_c: Tensor,
    last_first: bool,
    numerics: Numerics = ROUNDED,
) -> AttentionState:
    """(a with b) with c, or a with (b with c); what lies between is stored as an implementation stores it."""
    inner = (out_b, lse_b, out_c, lse_c) if last_first else (out_a, lse_a, out_b, lse_b)
    out, lse = merge_attention_states(*inner, numerics=numerics)
    out = numerics.round("inner_out", out.double(), out_a.dtype)
    lse = numerics.round("inner_lse", lse.double(), torch.float32)
    outer = (out_a.double(), lse_a, out, lse) if last_first else (out, lse, out_c.double(), lse_c)
    merged = merge_attention_states(*outer, numerics=numerics)
    return AttentionState(*merged)


def associative(context: LawContext) -> Iterator[str]:
    """Three states in both orders, each within the budgets of that order."""
    a = context.arguments()
    c = {"out_c": a["out_a"].roll(1, 0).flip(-1), "lse_c": a["lse_a"].roll(1, 0)}
    for last_first in (False, True):
        inner = context.call({
            "out_a": a["out_b"], "lse_a": a["lse_b"], "out_b": c["out_c"], "lse_b": c["lse_c"]
        } if last_first else a)  # fmt: skip
        first, second = sides({}, inner["out"], inner["lse"])
        outer = (
            {"out_a": a["out_a"], "lse_a": a["lse_a"]} | second
            if last_first
            else first | {"out_b": c["out_c"], "lse_b": c["lse_c"]}
        )
        got = context.call(outer)
        operator = replace(context.operator, reference=of_three)
        golden = derive(operator, a | c | {"last_first": last_first})
        for name, exact in golden.exact.items():
            yield from (f.message for f in compare_numbers(name, got[name], exact, golden.budgets[name])[1])


GROUPS = (
    CaseGroup(
        "production sizes",
        "smoke",
        tuple(case(rows=r) for r in (0, 1, 17))
        + (case(rows=3, width=128), case(rows=2, heads=96, width=128), case(dtype="fp32")),
    ),
    CaseGroup("production sizes", "full", tuple(case("mixed", rows=r, width=192) for r in (2, 8, 16, 64, 257))),
    CaseGroup("states", "smoke", tuple(small(d, rows=7) for d in DISTRIBUTIONS)),
    CaseGroup("states", "full", tuple(case(d, "fp32", rows=5) for d in DISTRIBUTIONS)),
    CaseGroup(
        "odd widths", "smoke", tuple(case("mixed", rows=5, heads=n, width=w) for n, w in ((1, 1), (3, 192), (5, 129)))
    ),
    CaseGroup("layouts", "smoke", (small(rows=5, layout="heads_apart"), small("mixed", rows=5, layout="heads_apart"))),
    CaseGroup("seeds", "nightly", tuple(case("mixed", seed=s, rows=s % 40, width=128) for s in range(1, 33))),
)

OPERATOR = Operator(
    name="merge_attention_states",
    reference=merge_attention_states,
    outputs=(Output("out", "number", "=out_a"), Output("lse", "number", "fp32")),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(small(rows=9), small("mixed", rows=9), case(rows=16, heads=3), small("far", "fp32", rows=9)),
    laws=(
        batch_invariance(("out_a", "lse_a", "out_b", "lse_b")),
        row_isolation(("out_a", "lse_a", "out_b", "lse_b")),
        parameter_sensitivity(
            {
                "out_a": lambda a: a["out_a"].roll(1, 0),
                "lse_a": lambda a: a["lse_a"] + 1,
                "out_b": lambda a: a["out_b"].roll(1, 0),
                "lse_b": lambda a: a["lse_b"] + 1,
            }
        ),
        shards(
            "head_shards",
            "Shards of the heads side by side are the whole.",
            along(dict.fromkeys(("out_a", "lse_a", "out_b", "lse_b"), 1)),
            {"out": 1, "lse": 1},
        ),
        Law("identity", "A state without keys changes no bit of the other.", identity),
        Law("commutative", "The order of two states does not matter.", commutative),
        Law("associative", "Three states merge to the same in either order.", associative),
    ),
    special_values=(
        "A side whose lse is −Inf is ignored, even if its out is NaN; both empty give zeros and −Inf. An lse of "
        "+Inf or NaN is never generated."
    ),
)
