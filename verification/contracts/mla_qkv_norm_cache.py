from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from reference.checks import require
from reference.mla_cache import mla_qkv_norm_cache, valid_slots
from reference.numerics import OFFICIAL, Variant
from verification.budget import Golden
from verification.comparison import same_bits
from verification.contracts.mla_pages import PAGE_LAYOUTS, apart
from verification.contracts.rms_norm import DISTRIBUTIONS
from verification.inputs import TORCH_DTYPES, Inputs
from verification.laws import differences, equivalence, parameter_sensitivity, storage_order
from verification.localization import describe_failures
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
    "rows": 4, "query": 1536, "latent": 512, "position": 64, "page": 64, "pages": 3, "slots": "scattered",
    "eps": 1e-5, "weight": "bf16", "source": "separate", "layout": "contiguous",
}  # fmt: skip
"""`query` is the width of the compressed query."""

BF16 = torch.bfloat16
SOURCES = ("separate", "merged")


def case(distribution: str = "normal", seed: int = 0, **parameters: Any) -> Case:
    """A case of mla_qkv_norm_cache."""
    return make_case("mla_qkv_norm_cache", DEFAULTS, "bf16", distribution, seed, **parameters)


def small(distribution: str = "normal", **parameters: Any) -> Case:
    """The same with narrow rows and short pages."""
    sizes = {"query": 96, "latent": 40, "position": 12, "page": 16, "pages": 4}
    return case(distribution, **(sizes | parameters))


def make(case: Case) -> Arguments:
    """Rows of the named distribution; a pool that holds another time's rows, and NaN in its first page."""
    p = DEFAULTS | dict(case.parameters)
    inputs = Inputs(case.id)
    rows, width = p["rows"], p["latent"] + p["position"]
    require(p["source"] in SOURCES, case.operator, f"source is {p['source']!r}; expected one of {SOURCES}")
    require(p["layout"] in PAGE_LAYOUTS, case.operator, f"layout is {p['layout']!r}; expected one of {PAGE_LAYOUTS}")
    spread = pick(case.distribution, DISTRIBUTIONS, "distribution")
    q_a, latent = (spread(inputs.normal(n, (rows, p[n]))) for n in ("query", "latent"))
    parts = [x.to(BF16) for x in (q_a, latent, inputs.normal("position", (rows, p["position"])))]
    kv_a = torch.cat(parts[1:], 1)
    if p["source"] == "merged":  # both are slices of one projection, whose gate comes after them
        merged = torch.cat([parts[0], kv_a, torch.full((rows, 24), torch.nan, dtype=BF16)], 1)
        parts[0], kv_a = merged[:, : p["query"]], merged[:, p["query"] : p["query"] + width]
    pages = inputs.normal("pages", (p["pages"], p["page"], width)).to(BF16)
    pages[0, 1:] = torch.nan
    weights = {n: 1 + inputs.normal(f"{n} weight", (p[n],), 0.25) for n in ("query", "latent")}
    pool = p["pages"] * p["page"]
    return {
        "q_a": parts[0],
        "kv_a": kv_a,
        "q_norm_weight": weights["query"].to(TORCH_DTYPES[p["weight"]]),
        "kv_norm_weight": weights["latent"].to(TORCH_DTYPES[p["weight"]]),
        "kv_pages": apart(pages, p["layout"]),
        "slot_mapping": pick(p["slots"], SLOTS, "slots")(inputs.permutations("slots", 1, pool)[0], rows, pool),
        "eps": p["eps"],
    }


def skipping(order: Tensor, rows: int, pool: int) -> Tensor:
    """Every row but each third one outside the pool."""
    slots = order[:rows].clone()
    nowhere = torch.tensor([-1, pool, -(2**40), 2**31 + 5, -pool])
    outside = torch.arange(rows) % 3 != 2
    slots[outside] = nowhere[torch.arange(rows) % len(nowhere)][outside]
    return slots


SLOTS: dict[str, Callable[[Tensor, int, int], Tensor]] = {
    "scattered": lambda order, rows, pool: order[:rows],
    "in_order": lambda order, rows, pool: torch.arange(rows),
    "last": lambda order, rows, pool: torch.arange(pool - rows, pool),
    "some_skipped": skipping,
    "padding": lambda order, rows, pool: torch.where(torch.arange(rows) < (rows + 1) // 2, order[:rows], -1),
    "all_skipped": lambda order, rows, pool: torch.full((rows,), -1, dtype=torch.int64),
}


def structure(arguments: Arguments, outputs: Outputs, golden: Golden) -> Iterator[Finding]:
    """The stored key positions are kv_a's bits, and no row of the pool changes but those that slots name."""
    slots, before = arguments["slot_mapping"], arguments["kv_pages"]
    kept = valid_slots(slots, before.shape[0] * before.shape[1])
    latent_width = len(arguments["kv_norm_weight"])
    got, wanted = (x.flatten(0, 1).clone() for x in (outputs["kv_pages"], before))
    wanted[slots[kept], latent_width:] = arguments["kv_a"][kept, latent_width:]
    wanted[slots[kept], :latent_width] = got[slots[kept], :latent_width]
    different = ~same_bits(got, wanted).view(before.shape)
    if different.any():
        yield Finding(
            "structure",
            f"kv_pages: {int(different.sum())} elements are not as they must be: rows of the pool that no slot names "
            f"untouched, the position part of the others copied; {describe_failures(different)}",
        )


ROW_ARGUMENTS = ("q_a", "kv_a", "slot_mapping")


def of_rows(arguments: Arguments, outputs: Outputs, rows: Tensor) -> Outputs:
    """What the outputs say of some rows: the normed query, and what their slots hold."""
    slots, pages = arguments["slot_mapping"][rows], outputs["kv_pages"]
    slots = slots[valid_slots(slots, pages.shape[0] * pages.shape[1])]
    return {"normed_q_a": outputs["normed_q_a"][rows], "stored": pages.flatten(0, 1)[slots]}


def batch_invariance(context: LawContext) -> Iterator[str]:
    """Rows alone, in pairs and in eights."""
    arguments = context.arguments()
    whole, count = context.call(context.arguments()), len(arguments["q_a"])
    for low, high in [(t, t + 1) for t in range(min(count, 3))] + [(0, 2), (count - 1, count), (0, 8)]:
        rows = torch.arange(low, min(high, count))
        part = arguments | {n: arguments[n][rows].clone() for n in ROW_ARGUMENTS}
        alone = of_rows(part, context.call(part), torch.arange(len(rows)))
        yield from differences(of_rows(arguments, whole, rows), alone, f"for rows {low}…{int(rows[-1])} alone")


def row_isolation(context: LawContext) -> Iterator[str]:
    """Every other row NaN, with its slot kept or outside the pool."""
    whole, arguments = context.call(context.arguments()), context.arguments()
    for row in sorted({0, len(arguments["q_a"]) // 2, len(arguments["q_a"]) - 1}):
        others = torch.arange(len(arguments["q_a"])) != row
        for skipped in (False, True):
            changed = context.arguments()
            changed["q_a"][others], changed["kv_a"][others] = torch.nan, torch.nan
            if skipped:
                changed["slot_mapping"][others] = -1
            kept = torch.tensor([row])
            after = of_rows(changed, context.call(changed), kept)
            yield from differences(of_rows(arguments, whole, kept), after, f"for row {row} when every other is NaN")


def all_skipped(arguments: Arguments) -> Arguments:
    """No row has a slot."""
    return arguments | {"slot_mapping": torch.full_like(arguments["slot_mapping"], -1)}


def query_alone(arguments: Arguments, usual: Outputs) -> Outputs:
    """The usual query, and the pool as it was."""
    return {"normed_q_a": usual["normed_q_a"], "kv_pages": arguments["kv_pages"]}


def eps_is_read(context: LawContext) -> Iterator[str]:
    """Another eps changes both results, unless the variant is the one that fixes it."""
    arguments = context.arguments()
    rows = torch.arange(len(arguments["q_a"]))
    other = arguments | {"eps": 0.5}
    usual, after = (of_rows(a, context.call(a), rows) for a in (arguments, other))
    fixed = "fixed_eps" in context.variant.adds
    for name, value in usual.items():
        if bool(torch.equal(value, after[name])) != fixed:
            yield f"{name} {'changes' if fixed else 'does not change'} with eps."


GROUPS = (
    CaseGroup(
        "production sizes",
        "smoke",
        (case(rows=0), case(rows=1), case(rows=4), case(rows=17, slots="some_skipped")),
    ),
    CaseGroup(
        "production sizes",
        "full",
        tuple(case(rows=r, pages=2) for r in (2, 8, 16, 64)) + (case(rows=257, pages=5, source="merged"),),
    ),
    CaseGroup("slots", "smoke", tuple(small(rows=9, slots=s) for s in SLOTS)),
    CaseGroup(
        "odd sizes",
        "smoke",
        (
            small(rows=3, query=1, latent=1, position=1, page=1, pages=5),
            small(rows=5, query=1000, latent=129, position=7, page=17, pages=2),
            small(rows=16, query=48, latent=64, position=8),
            small(rows=2, position=0),
        ),
    ),
    CaseGroup("magnitudes", "smoke", tuple(small(d) for d in DISTRIBUTIONS if d not in ("normal", "nonfinite"))),
    CaseGroup("magnitudes", "full", (case("near_eps"), case("tiny", rows=3), case("spiky_end", rows=3))),
    CaseGroup(
        "eps",
        "smoke",
        tuple(small(d, eps=e) for d in ("tiny", "near_eps") for e in (1e-6, 1e-3)) + (case("near_eps", eps=1e-6),),
    ),
    CaseGroup("NaN and Inf", "smoke", (small("nonfinite"),)),
    CaseGroup(
        "layouts",
        "smoke",
        tuple(small(rows=5, layout=layout) for layout in ("row_padded", "page_padded", "offset"))
        + (small(rows=5, source="merged"), small(rows=5, source="merged", weight="fp32")),
    ),
    CaseGroup("seeds", "nightly", tuple(small(seed=s, rows=s, slots="some_skipped") for s in range(1, 33))),
    # A pool whose last page begins at 2³¹ elements: 4 GiB, more than an index of 32 bits reaches.
    CaseGroup("far pages", "nightly", (small(rows=5, slots="last", layout="far"),), targets=("cuda", "hip")),
)

OPERATOR = Operator(
    name="mla_qkv_norm_cache",
    reference=mla_qkv_norm_cache,
    outputs=(
        Output("normed_q_a", "number", "=q_a"),
        Output("kv_pages", "number", "=kv_pages", argument="kv_pages"),
    ),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(small(rows=9), case(rows=16, pages=1)),
    weights=("q_norm_weight", "kv_norm_weight"),
    in_place=("kv_pages",),
    variants=(
        OFFICIAL,
        Variant(
            "one_rounding",
            "each norm's weight multiplied in fp32, one rounding (production kernels)",
            drops=frozenset({"q_normalized", "kv_normalized"}),
        ),
        Variant(
            "fixed_eps",
            "both norms at 1e-6 whatever eps is (official class default, ATOM)",
            adds=frozenset({"fixed_eps"}),
        ),
    ),
    structure=structure,
    laws=(
        Law("batch_invariance", "A row has the same bits alone and in a batch.", batch_invariance),
        Law("row_isolation", "A row depends on no other row.", row_isolation),
        parameter_sensitivity(
            {
                "q_a": lambda a: a["q_a"].roll(1, 0),
                "kv_a": lambda a: a["kv_a"].roll(1, 0),
                "q_norm_weight": lambda a: a["q_norm_weight"] * 2,
                "kv_norm_weight": lambda a: a["kv_norm_weight"] * 2,
                "kv_pages": lambda a: a["kv_pages"].nan_to_num(nan=1.0),
                "slot_mapping": lambda a: a["slot_mapping"].roll(1),
            }
        ),
        Law("eps_is_read", "Both norms depend on eps, unless the variant fixes it.", eps_is_read),
        storage_order("kv_pages", {n: partial(apart, layout=n) for n in ("row_padded", "page_padded")}),
        equivalence("skipped_rows", "Rows without a slot store nothing.", all_skipped, query_alone),
    ),
    special_values=(
        "Slot −1, and every slot outside the pool, is skipped; slots that are not named keep their bits. NaN spoils "
        "its own row's norm, and what is cached of it."
    ),
)
