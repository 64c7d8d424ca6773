from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from reference.checks import require
from reference.mla import mla_prefill
from verification.budget import derive
from verification.comparison import compare_numbers
from verification.contracts.mla_decode import OPERATOR as DECODE
from verification.contracts.mla_pages import scale_of
from verification.inputs import Inputs, laid_out
from verification.laws import differences, equivalence, parameter_sensitivity, storage_order
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
    "rows": "65", "keys": "same", "heads": 12, "latent": 512, "position": 64, "qk_width": 192, "causal": True,
    "spare": 0, "layout": "contiguous",
}  # fmt: skip
"""`rows` and `keys` are the lengths of the sequences, as in 1+64+65; `spare` rows follow the last sequence."""

BF16 = torch.bfloat16
SCALES = {"normal": 1.0, "flat": 0.0, "peaked": 16.0, "extreme": 2.0**12, "nonfinite": 1.0}
"""Distributions, by the magnitude of their queries."""


def case(distribution: str = "normal", seed: int = 0, **parameters: Any) -> Case:
    """A case of mla_prefill."""
    return make_case("mla_prefill", DEFAULTS, "bf16", distribution, seed, **parameters)


def small(distribution: str = "normal", **parameters: Any) -> Case:
    """The same with few narrow heads."""
    return case(distribution, **({"heads": 3, "latent": 40, "position": 12, "qk_width": 20} | parameters))


def make(case: Case) -> Arguments:
    """Packed queries and keys; NaN in the spare rows, as a padded bucket may hold."""
    p = DEFAULTS | dict(case.parameters)
    inputs = Inputs(case.id)
    rows = offsets(p["rows"])
    keys = rows if p["keys"] == "same" else offsets(p["keys"])
    require(len(rows) == len(keys), case.operator, f"{p['rows']} and {p['keys']} are not as many sequences")
    width = p["latent"] + p["position"]
    scale = pick(case.distribution, SCALES, "distribution")
    query = inputs.normal("query", (rows[-1] + p["spare"], p["heads"], width), scale)
    kv = inputs.normal("kv", (keys[-1] + p["spare"], width))
    query[rows[-1] :], kv[keys[-1] :] = torch.nan, torch.nan
    if case.distribution == "nonfinite":  # in the middle of the first sequence, and in one head of its first row
        kv[keys[1] // 2, 0], query[:1, -1, 0] = torch.nan, torch.nan
    return {
        "query": query.to(BF16),
        "kv": laid_out(kv.to(BF16), p["layout"]),
        "cu_seqlens": torch.tensor(rows, dtype=torch.int32),
        "latent_width": p["latent"],
        "softmax_scale": scale_of(p),
        "causal": p["causal"],
        "kv_cu_seqlens": None if p["keys"] == "same" else torch.tensor(keys, dtype=torch.int32),
    }


def offsets(lengths: str) -> list[int]:
    """Running sums of the lengths, from 0."""
    return list(accumulate((int(n) for n in lengths.split("+")), initial=0))


def of_keys(arguments: Arguments) -> Tensor:
    """Offsets of the sequences' keys."""
    given = arguments["kv_cu_seqlens"]
    chosen: Tensor = arguments["cu_seqlens"] if given is None else given
    return chosen


def sequences(arguments: Arguments) -> list[tuple[slice, slice]]:
    """The rows and the keys of each sequence."""
    bounds = [zip(x[:-1].tolist(), x[1:].tolist(), strict=True) for x in (arguments["cu_seqlens"], of_keys(arguments))]
    return [(slice(*rows), slice(*keys)) for rows, keys in zip(*bounds, strict=True)]


def compared(name: str, arguments: Arguments, outputs: Outputs) -> Tensor | None:
    """Not the out of rows before the first key of their sequence that is no number: their 0 · NaN may be NaN."""
    if name != "out" or not arguments["causal"] or torch.isfinite(arguments["kv"]).all():
        return None
    mask = torch.ones_like(outputs["out"], dtype=torch.bool)
    for rows, keys in sequences(arguments):
        spoiled = (~torch.isfinite(arguments["kv"][keys])).any(1).nonzero().flatten().tolist()
        for first in spoiled[:1]:
            seen_from = rows.stop - (keys.stop - keys.start) + first
            mask[rows.start : max(seen_from, rows.start)] = False
    return mask


def causality(context: LawContext) -> Iterator[str]:
    """The second half of each sequence changed: no bit of the first half moves, and the last row does."""
    arguments, usual = context.arguments(), context.call(context.arguments())
    changed = context.arguments()
    for rows, keys in sequences(arguments):
        later = rows.start + (rows.stop - rows.start + 1) // 2
        offset = keys.stop - rows.stop
        changed["query"][later : rows.stop] *= -1
        changed["kv"][later + offset : keys.stop] = changed["kv"][later + offset : keys.stop].flip(-1)
    after = context.call(changed)
    for rows, _ in sequences(arguments):
        early = slice(rows.start, rows.start + (rows.stop - rows.start + 1) // 2)
        yield from differences(cut(usual, early), cut(after, early), "when what comes later changes")
        last = slice(early.stop, rows.stop)
        if last.start < last.stop and not any(differences(cut(usual, last), cut(after, last), "")):
            yield f"Nothing of rows {last.start}…{last.stop - 1} changed with their own queries and keys."


def cut(outputs: Outputs, rows: slice) -> Outputs:
    """Some rows of every output."""
    return {name: value[rows] for name, value in outputs.items()}


def sequence_isolation(context: LawContext) -> Iterator[str]:
    """NaN in every other sequence and past the last."""
    arguments, usual = context.arguments(), context.call(context.arguments())
    for rows, keys in sequences(arguments):
        poisoned = context.arguments()
        for name, kept in (("query", rows), ("kv", keys)):
            others = torch.ones(len(poisoned[name]), dtype=torch.bool)
            others[kept] = False
            poisoned[name][others] = torch.nan
        yield from differences(cut(usual, rows), cut(context.call(poisoned), rows), "when other sequences are NaN")


def last_row_is_decode(context: LawContext) -> Iterator[str]:
    """The last row of each sequence against the golden and budgets of mla_decode on the same keys in pages."""
    arguments, got = context.arguments(), context.call(context.arguments())
    found = [(rows, keys) for rows, keys in sequences(arguments) if rows.stop > rows.start and keys.stop > keys.start]
    last = torch.tensor([rows.stop - 1 for rows, _ in found])
    golden = derive(DECODE, as_decode(arguments, last, [keys for _, keys in found]))
    for name, output in (("latent", "out"), ("lse", "lse")):
        exact, budget = golden.exact[name], golden.budgets[name]
        yield from (f.message for f in compare_numbers(output, got[output][last], exact, budget)[1])


def later_chunk(context: LawContext) -> Iterator[str]:
    """The second half of each sequence by itself, over all keys, within the budgets of the whole."""
    arguments = context.arguments()
    pieces = [range((rows.start + rows.stop + 1) // 2, rows.stop) for rows, _ in sequences(arguments)]
    chosen = torch.tensor([row for piece in pieces for row in piece])
    ends = list(accumulate((len(piece) for piece in pieces), initial=0))
    got = context.call(
        arguments
        | {
            "query": arguments["query"][chosen].clone(),
            "cu_seqlens": torch.tensor(ends, dtype=torch.int32),
            "kv_cu_seqlens": of_keys(arguments).clone(),
        }
    )
    golden = derive(context.operator, arguments)
    for name, exact in golden.exact.items():
        whole = exact.to(golden.dtypes[name])
        whole[chosen] = got[name]
        yield from (f.message for f in compare_numbers(name, whole, exact, golden.budgets[name])[1])


PAGE = 16


def as_decode(arguments: Arguments, rows: Tensor, keys: list[slice]) -> Arguments:
    """mla_decode's arguments for these rows over these keys, laid into pages one after the other."""
    kv, width = arguments["kv"], arguments["latent_width"]
    columns = max(-(-(k.stop - k.start) // PAGE) for k in keys)
    pages = torch.zeros(len(keys), columns * PAGE, kv.shape[1], dtype=kv.dtype)
    for row, own in enumerate(keys):
        pages[row, : own.stop - own.start] = kv[own]
    return {
        "q_latent": arguments["query"][rows][..., :width],
        "q_pe": arguments["query"][rows][..., width:],
        "kv_pages": pages.view(len(keys) * columns, PAGE, -1),
        "page_table": torch.arange(len(keys) * columns, dtype=torch.int32).view(len(keys), columns),
        "seq_lens": torch.tensor([k.stop - k.start for k in keys], dtype=torch.int32),
        "num_splits": 1,
        "softmax_scale": arguments["softmax_scale"],
    }


def keys_named(arguments: Arguments) -> Arguments:
    """The offsets of the keys given, though they are those of the rows."""
    return arguments | {"kv_cu_seqlens": of_keys(arguments).clone()}


def causal(case: Case) -> bool:
    """Whether the case masks what comes later."""
    return bool(dict(case.parameters).get("causal", True))


GROUPS = (
    CaseGroup(
        "production sizes", "smoke", (case(rows="0"), case(rows="1"), case(rows="17+20"), case(rows="8", keys="70"))
    ),
    CaseGroup(
        "production sizes",
        "full",
        (
            case(rows="1+63+64+65", spare=3),
            case(rows="129", heads=6),
            case(rows="20", heads=96),
            case(rows="200", heads=2),
            case(rows="70", heads=4),
            case(rows="7+7", keys="71+135", heads=8, causal=False),
        ),
    ),
    CaseGroup(
        "lengths", "smoke", tuple(small(rows=str(n)) for n in (2, 48, 63, 64, 65)) + (small(rows="0+0+5+0+7+0"),)
    ),
    CaseGroup("lengths", "full", (small(rows="257+1+128"), small(rows="0+300"), small(rows="16+17+8+4+2", spare=9))),
    CaseGroup(
        "prefixes",
        "smoke",
        (
            small(rows="8+1+16", keys="40+33+16"),
            small(rows="7+5+3", keys="30+0+64", causal=False),
            small(rows="6+4", keys="3+4"),
            small(rows="9+2", causal=False, spare=2),
        ),
    ),
    CaseGroup(
        "odd sizes",
        "smoke",
        (small(rows="5+3", heads=1, latent=1, position=0), small(rows="19", heads=5, latent=33, position=7, spare=5)),
    ),
    CaseGroup("scores", "smoke", tuple(small(d, rows="30+9") for d in SCALES if d not in ("normal", "nonfinite"))),
    CaseGroup(
        "NaN",
        "smoke",
        tuple(small("nonfinite", rows="30+9", causal=c) for c in (True, False))
        + (small("nonfinite", rows="8+3", keys="40+3", spare=2),),
    ),
    CaseGroup("layouts", "smoke", tuple(small(rows="12+9", layout=x) for x in ("row_padded", "transposed", "offset"))),
    CaseGroup("seeds", "nightly", tuple(small(seed=s, rows=f"{s}+{3 * s}", spare=s % 3) for s in range(1, 33))),
    CaseGroup("long", "nightly", (case(rows="1024"), case(rows="64", keys="2048"))),
    # Offsets beyond 2³¹ elements: more than an index of 32 bits reaches.
    CaseGroup("far keys", "nightly", (small(rows="12+9", layout="far"),), targets=("cuda", "hip")),
)

OPERATOR = Operator(
    name="mla_prefill",
    reference=mla_prefill,
    outputs=(Output("out", "number", "=query", common_scale=True), Output("lse", "number", "fp32")),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(small(rows="33+1+18", spare=2), small(rows="8+5", keys="30+21"), small(rows="6+17", causal=False)),
    compared=compared,
    laws=(
        Law("causality", "A row does not depend on what comes after it.", causality, causal),
        Law("sequence_isolation", "A sequence depends on no other.", sequence_isolation),
        Law("later_chunk", "The rest of a sequence over all its keys gives what the whole gives.", later_chunk),
        Law("last_row_is_decode", "The last row of a sequence is a decode step over its keys.", last_row_is_decode),
        parameter_sensitivity(
            {
                "query": lambda a: a["query"].roll(1, 0),
                "kv": lambda a: a["kv"].roll(1, 0),
                "cu_seqlens": lambda a: torch.cat([a["cu_seqlens"][:1], a["cu_seqlens"][1:] - 1]),
                "softmax_scale": lambda a: a["softmax_scale"] * 2,
                "causal": lambda a: not a["causal"],
                "kv_cu_seqlens": lambda a: torch.cat([of_keys(a)[:1], of_keys(a)[1:] - 1]),
            }
        ),
        storage_order("kv", {name: partial(laid_out, layout=name) for name in ("row_padded", "transposed")}),
        shards(
            "head_shards",
            "Shards of the heads side by side are the whole.",
            along({"query": 1}),
            {"out": 1, "lse": 1},
            counts=(2,),
        ),
        equivalence(
            "keys_of_the_rows",
            "Offsets of the keys that are those of the rows change no bit.",
            keys_named,
            lambda arguments, usual: usual,
        ),
    ),
    special_values=(
        "Rows without a key, and rows past cu_seqlens[-1], give zeros and −Inf. NaN in a key spoils the rows that "
        "see it, and no other sequence. The out of earlier rows of its own may be NaN too, as a product with their "
        "weight of 0 is, and is not compared; their lse is right."
    ),
)
