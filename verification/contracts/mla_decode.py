from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from reference.checks import require
from reference.mla import mla_decode
from reference.numerics import OFFICIAL, Variant
from verification.contracts.mla_pages import (
    LENGTHS,
    NOWHERE,
    PAGE_LAYOUTS,
    apart,
    lengths_of,
    logical_positions,
    page_table,
    scale_of,
)
from verification.inputs import Inputs
from verification.laws import batch_invariance, equivalence, parameter_sensitivity, row_isolation, storage_order
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

DEFAULTS: dict[str, Any] = {
    "rows": 4, "heads": 12, "latent": 512, "position": 64, "qk_width": 192, "page": 64,
    "lengths": "mixed", "longest": 130, "splits": 4, "table": "shuffled", "spare": 1, "layout": "contiguous",
}  # fmt: skip
"""`spare` are columns of the page table that no row uses."""

BF16 = torch.bfloat16


def case(distribution: str = "normal", seed: int = 0, **parameters: Any) -> Case:
    """A case of mla_decode."""
    return make_case("mla_decode", DEFAULTS, "bf16", distribution, seed, **parameters)


def small(distribution: str = "normal", **parameters: Any) -> Case:
    """The same with few narrow heads and short pages."""
    sizes = {"heads": 3, "latent": 40, "position": 12, "qk_width": 20, "page": 16, "longest": 70}
    return case(distribution, **(sizes | parameters))


def make(case: Case) -> Arguments:
    """Queries and keys whose scores the distribution names; rows of pages that hold no key are NaN."""
    p = DEFAULTS | dict(case.parameters)
    inputs = Inputs(case.id)
    pick(p["lengths"], LENGTHS, "lengths")
    require(p["table"] in TABLES, case.operator, f"table is {p['table']!r}; expected one of {TABLES}")
    require(p["layout"] in PAGE_LAYOUTS, case.operator, f"layout is {p['layout']!r}; expected one of {PAGE_LAYOUTS}")
    lengths = lengths_of(p["lengths"], p["longest"], p["rows"])
    table, pool = page_table(inputs, p["table"], [-(-n // p["page"]) for n in lengths], p["spare"])
    positions = logical_positions(table, lengths, pool, p["page"])
    width = p["latent"] + p["position"]
    query = inputs.normal("query", (p["rows"], p["heads"], width))
    keys = inputs.normal("keys", (pool, p["page"], width))
    query, keys = pick(case.distribution, DISTRIBUTIONS, "distribution")(query, keys, positions)
    keys[positions < 0] = torch.nan
    query = query.to(BF16)
    return {
        "q_latent": query[..., : p["latent"]],
        "q_pe": query[..., p["latent"] :],
        "kv_pages": apart(keys.to(BF16), p["layout"]),
        "page_table": table,
        "seq_lens": torch.tensor(lengths, dtype=torch.int32),
        "num_splits": p["splits"],
        "softmax_scale": scale_of(p),
    }


Drawn = tuple[Tensor, Tensor]
TABLES = ("shuffled", "in_order", "shared", "invalid")


def sloped(query: Tensor, keys: Tensor, positions: Tensor, slope: float) -> Drawn:
    """Scores that rise or fall with the position: the largest is met last, or first."""
    query[..., 0], keys[..., 0] = 8.0, slope * positions
    return query, keys


def shifted(query: Tensor, keys: Tensor, positions: Tensor, sign: float) -> Drawn:
    """Scores some hundreds away from zero, all on one side."""
    query[..., -1], keys[..., -1] = 80.0, sign * 80.0
    return query, keys


def nonfinite(query: Tensor, keys: Tensor, positions: Tensor) -> Drawn:
    """NaN in the query of one head of row 0, and in every key at position 5."""
    query[:1, -1, 0] = torch.nan
    keys[positions == 5] = torch.nan
    return query, keys


DISTRIBUTIONS: dict[str, Callable[[Tensor, Tensor, Tensor], Drawn]] = {
    "normal": lambda q, k, _: (q, k),
    "flat": lambda q, k, _: (q * 0, k),
    "peaked": lambda q, k, _: (q * 16, k),
    "extreme": lambda q, k, _: (q * 2.0**12, k),
    "rising": partial(sloped, slope=0.125),
    "falling": partial(sloped, slope=-0.125),
    "low": partial(shifted, sign=-1.0),
    "high": partial(shifted, sign=1.0),
    "nonfinite": nonfinite,
}


def compared(name: str, arguments: Arguments, outputs: Outputs) -> Tensor | None:
    """Not the rows whose page table names a page outside the pool within their length."""
    table, pages = arguments["page_table"], arguments["kv_pages"]
    needed = torch.arange(table.shape[1]) * pages.shape[1] < arguments["seq_lens"][:, None]
    bad = (needed & ((table < 0) | (table >= pages.shape[0]))).any(1)
    return (~bad).view(-1, *[1] * (outputs[name].ndim - 1)).expand_as(outputs[name]) if bad.any() else None


def held(arguments: Arguments) -> Tensor:
    """Mask [pages, page size] of the rows that some sequence has."""
    table, pages = arguments["page_table"], arguments["kv_pages"]
    return logical_positions(table, arguments["seq_lens"].tolist(), pages.shape[0], pages.shape[1]) >= 0


def renumbered(arguments: Arguments) -> Arguments:
    """Every page elsewhere in the pool, and the table changed to say so."""
    pages, table = arguments["kv_pages"], arguments["page_table"]
    count = pages.shape[0]
    inside = (table >= 0) & (table < count)
    moved = torch.where(inside, (count - 1 - table.clamp(0, count - 1) + 2) % count, table)
    places = (count - 1 - torch.arange(count) + 2) % count
    return arguments | {"kv_pages": torch.empty_like(pages).index_copy_(0, places, pages), "page_table": moved}


def other_garbage(arguments: Arguments) -> Arguments:
    """Large numbers instead of NaN where no key is, and other page ids past the lengths."""
    pages, table = arguments["kv_pages"].clone(), arguments["page_table"].clone()
    pages[~held(arguments)] = 3.0e4
    needed = torch.arange(table.shape[1]) * pages.shape[1] < arguments["seq_lens"][:, None]
    table[~needed] = torch.tensor(NOWHERE[:1] + (0, 1, 2), dtype=table.dtype).repeat(table.numel())[: (~needed).sum()]
    return arguments | {"kv_pages": pages, "page_table": table}


def every_second_padding(arguments: Arguments) -> Arguments:
    """Odd rows become padding: no length, no page, a query of NaN."""
    changed = {n: arguments[n].clone() for n in ("q_latent", "q_pe", "page_table", "seq_lens")}
    changed["seq_lens"][1::2], changed["page_table"][1::2] = 0, -1
    changed["q_latent"][1::2], changed["q_pe"][1::2] = torch.nan, torch.nan
    return arguments | changed


def odd_rows_empty(arguments: Arguments, usual: Outputs) -> Outputs:
    """The usual outputs with zeros and −inf in the odd rows."""
    latent, lse = usual["latent"].clone(), usual["lse"].clone()
    latent[1::2], lse[1::2] = 0.0, -torch.inf
    return {"latent": latent, "lse": lse}


def split_whole(context: LawContext) -> Iterator[str]:
    """Any number of splits, more than there are pages included."""
    for splits in (1, 2, 3, 5, 32):
        arguments = context.arguments() | {"num_splits": splits}
        yield from (f"With {splits} splits: {finding}" for finding in context.judge(arguments))


def unchanged(arguments: Arguments, usual: Outputs) -> Outputs:
    """The usual outputs."""
    return usual


EDGES = (1, 63, 64, 65)
GROUPS = (
    CaseGroup(
        "production sizes",
        "smoke",
        (case(rows=0), case(rows=1, lengths="equal", longest=65), case(rows=2, longest=129)),
    ),
    CaseGroup(
        "production sizes",
        "full",
        (
            case(rows=2, lengths="one_long", longest=4096, splits=16),
            case(rows=1, heads=96, lengths="equal", longest=300, splits=8),
            case(rows=2, heads=32, longest=200),
            case(rows=8, heads=4, lengths="edges"),
            case(rows=1, heads=16, lengths="equal", longest=2049, splits=8),
            case(rows=16, lengths="edges"),
            case(rows=17, lengths="edges", splits=1),
        ),
    ),
    CaseGroup(
        "lengths",
        "smoke",
        tuple(small(rows=2, page=64, lengths="equal", longest=n) for n in EDGES)
        + (small(rows=9, page=64, lengths="edges"), small(rows=3, lengths="none"), small(rows=7, lengths="short")),
    ),
    CaseGroup(
        "splits",
        "smoke",
        tuple(small(rows=3, splits=s) for s in (1, 2, 3, 5, 32))
        + (small(rows=7, lengths="short", splits=8), small(rows=3, lengths="none", splits=16)),
    ),
    CaseGroup(
        "splits", "full", tuple(small(rows=6, splits=s, longest=400) for s in (1, 2, 3, 4, 7, 8, 16, 25, 26, 32))
    ),
    CaseGroup(
        "page tables",
        "smoke",
        (
            small(table="in_order", spare=0),
            small(table="shared", lengths="mixed", spare=3),
            small(rows=3, table="invalid", lengths="equal"),
            small(rows=6, spare=40, splits=5),
        ),
    ),
    CaseGroup(
        "odd sizes",
        "smoke",
        (
            small(heads=1, latent=1, position=1, page=1, longest=9, splits=2),
            small(heads=5, latent=33, position=7, page=17, longest=35),
            small(rows=2, heads=17, latent=96, position=16, page=32),
            small(rows=17, heads=2),
        ),
    ),
    CaseGroup("scores", "smoke", tuple(small(d, rows=4) for d in DISTRIBUTIONS if d not in ("normal", "nonfinite"))),
    CaseGroup("scores", "full", tuple(case(d, rows=3, longest=100) for d in ("rising", "falling", "peaked", "high"))),
    CaseGroup("NaN", "smoke", (small("nonfinite", rows=4),)),
    CaseGroup("layouts", "smoke", tuple(small(layout=layout) for layout in ("row_padded", "page_padded", "offset"))),
    CaseGroup("row counts", "full", tuple(small(rows=r) for r in (8, 16, 64, 257))),
    CaseGroup(
        "seeds",
        "nightly",
        tuple(small(seed=s, rows=s % 17, splits=1 + s % 9, longest=20 * s) for s in range(1, 33))
        + (case(rows=4, lengths="equal", longest=4096, splits=32), case(rows=8, heads=96, longest=1000)),
    ),
    # A pool whose last page begins at 2³¹ elements: 4 GiB, more than an index of 32 bits reaches.
    CaseGroup("far pages", "nightly", (small(rows=2, layout="far"),), targets=("cuda", "hip")),
)

OPERATOR = Operator(
    name="mla_decode",
    reference=mla_decode,
    outputs=(Output("latent", "number", "=q_latent", common_scale=True), Output("lse", "number", "fp32")),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(small(rows=9, splits=3), case(rows=16, heads=2, longest=66, splits=2)),
    variants=(
        OFFICIAL,
        Variant(
            "partial_bf16", "each split's latent rounded to bf16 before the merge", adds=frozenset({"partial_latent"})
        ),
    ),
    compared=compared,
    laws=(
        batch_invariance(("q_latent", "q_pe", "page_table", "seq_lens")),
        row_isolation(("q_latent", "q_pe")),
        # num_splits is left out: it may change nothing.
        parameter_sensitivity(
            {
                "q_latent": lambda a: a["q_latent"].roll(1, 0),
                "q_pe": lambda a: a["q_pe"].roll(1, 0),
                "kv_pages": lambda a: a["kv_pages"].roll(1, 2),
                "page_table": lambda a: a["page_table"].flip(0),
                "seq_lens": lambda a: (a["seq_lens"] - 1).clamp(min=0),
                "softmax_scale": lambda a: a["softmax_scale"] * 2,
            }
        ),
        storage_order("kv_pages", {name: partial(apart, layout=name) for name in ("row_padded", "page_padded")}),
        shards(
            "head_shards",
            "Shards of the heads side by side are the whole.",
            along({"q_latent": 1, "q_pe": 1}),
            {"latent": 1, "lse": 1},
            counts=(2,),
        ),
        Law(
            "split_whole",
            "The number of splits changes no value.",
            split_whole,
            lambda case: dict(case.parameters).get("page", DEFAULTS["page"]) < DEFAULTS["page"],
        ),
        equivalence("page_permutation", "Pages elsewhere in the pool give the same bits.", renumbered, unchanged),
        equivalence(
            "past_the_length", "What lies past the length, in pages and table, is not read.", other_garbage, unchanged
        ),
        equivalence(
            "padding_rows", "Rows of length 0 are zeros and change no other row.", every_second_padding, odd_rows_empty
        ),
        equivalence(
            "scale_equivariance",
            "Twice the query under half the scale gives the same bits.",
            lambda a: (
                a | {"q_latent": a["q_latent"] * 2, "q_pe": a["q_pe"] * 2, "softmax_scale": a["softmax_scale"] / 2}
            ),
            unchanged,
        ),
    ),
    special_values=(
        "Length 0 gives zeros and −Inf. Entries of the page table past the length are never read; an invalid page "
        "within it is never dereferenced, and its row is not compared. NaN in a key that is visible spoils its row; "
        "keys past the length may hold anything."
    ),
)
