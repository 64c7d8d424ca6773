"""The loops over lanes in which vector and packed instructions are executed, as C text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from verification.gfx950.instructions.rows import RESULTS, Row, Source
from verification.gfx950.instructions.types import KINDS


@dataclass
class _Part:
    """What an operand adds: ahead of the loop over lanes, around the statements inside, and behind it."""

    head: list[str]
    load: list[str]
    store: list[str] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)
    mask: bool = False


def plain(row: Row, code: str) -> str:
    """C statements of a row that works lane by lane."""
    sources = [_Part(_fetched(source), [_loaded(source)]) for source in row.named_sources]
    results = [_result(kind, RESULTS[k], k) for k, kind in enumerate(row.results)]
    parts = [*sources, *results]
    # A mask is written first: the result's register may be where it is read from, never the reverse.
    written = sorted(results, key=lambda part: not part.mask)
    body = [*_all(part.load for part in parts), f"        {code};", *_all(part.store for part in results)]
    return "\n".join([
        *_all(part.head for part in parts), *_by_model("\n".join(body)), *_all(part.tail for part in written),
    ])  # fmt: skip


def _by_model(body: str) -> list[str]:
    """A loop for each model of the transcendental units: a constant inside, so that it becomes vector code."""
    loop = "for (int l = 0; l < LANES; l++) {{\n{}\n    }}"
    if "model" not in body:
        return [f"    {loop.format(body)}"]
    chosen = ((one, re.sub(r"\bmodel\b", one, body)) for one in "01")
    return [f"    if (w->group->launch->transcendental == {one}) {loop.format(text)}" for one, text in chosen]


def _all(blocks: Iterable[list[str]]) -> list[str]:
    return [line for block in blocks for line in block]


def _fetched(source: Source) -> list[str]:
    array, position = source.name.upper(), source.position
    if source.kind == "vcc":
        return [f"    u64 {array}m = sgpr64(w, VCC);"]
    if source.kind == "mask":
        return [f"    u64 {array}m = source_mask(w, i, {position});"]
    kind = KINDS[source.kind]
    if source.implied and kind.words == 2:
        return [
            f"    u64 {array}[LANES]; const u32 *{array}l = w->v[i->result[0].reg], *{array}h = w->v[i->result[0].reg + 1];",
            f"    for (int l = 0; l < LANES; l++) {array}[l] = {array}l[l] | (u64){array}h[l] << 32;",
        ]
    if source.implied:
        return [f"    const u32 *{array} = w->v[i->result[0].reg];"]
    if kind.words == 2:
        return [f"    u64 {array}[LANES]; source64(w, i, {position}, {array}, {kind.sign}ull);"]
    return [f"    u32 {array}b[LANES]; const u32 *{array} = source32(w, i, {position}, {array}b, {kind.sign}u);"]


def _loaded(source: Source) -> str:
    name = source.name
    if source.kind in ("mask", "vcc"):
        return f"        u32 {name} = (u32)({name.upper()}m >> l & 1);"
    kind = KINDS[source.kind]
    value = kind.load.format(c=kind.c, x=f"{name.upper()}[l]")
    return f"        {kind.c} {name} = {value};"


def _result(kind_name: str, name: str, position: int) -> _Part:
    array = f"{name.upper()}_"
    if kind_name in ("mask", "maskx"):
        return _mask_result(array, name, position, writes_exec=kind_name == "maskx")
    kind = KINDS[kind_name]
    bits = 32 * kind.words
    return _Part(
        head=[f"    u{bits} {array}[LANES];"],
        load=[f"        {kind.c} {name};"],
        store=[f"        {array}[l] = {kind.store.format(x=name)};"],
        tail=[*_finish(kind.finish, array), f"    result{bits}(w, i, {array});"],
    )


def _mask_result(array: str, name: str, position: int, writes_exec: bool) -> _Part:
    return _Part(
        head=[f"    u32 {array}[LANES];"],
        load=[f"        int {name};"],
        store=[f"        {array}[l] = {name} ? 0xFFFFFFFFu : 0;"],
        tail=[f"    result_mask(w, i, {position}, {array});"]
        + [f"    set_sgpr64(w, EXEC, packed_mask({array}) & exec_of(w));"] * writes_exec,
        mask=True,
    )


def _finish(family: str, array: str) -> list[str]:
    return [f"    FINISH({family}, i, {array});"] if family else []


PAIR = ["    blend(w, i->result[0].reg, D_[0]);", "    blend(w, i->result[0].reg + 1, D_[1]);"]
HALVES = ["    for (int l = 0; l < LANES; l++) D_[0][l] = (D_[0][l] & 0xFFFF) | D_[1][l] << 16;",
          "    blend(w, i->result[0].reg, D_[0]);"]  # fmt: skip
"""How the two results are written: to two registers, or to the halves of one."""


def packed(row: Row, code: str) -> str:
    """C statements of a packed row: both halves of each lane, `half` is 0, then 1."""
    kind, single = KINDS[row.results[0]], row.results[0] in ("f32", "u32")
    read = "packed_single" if single else "packed_half"
    return "\n".join([
        "    u32 D_[2][LANES];",
        *(f"    u32 {name.upper()}[LANES];" for name, *_ in row.named_sources),
        "    for (int half = 0; half < 2; half++) {",
        *(f"        {read}(w, i, {position}, half, {name.upper()}, {KINDS[kind_name].sign}u);"
          for name, kind_name, _, position in row.named_sources),
        "        for (int l = 0; l < LANES; l++) {",
        *(f"    {_loaded(source)}" for source in row.named_sources),
        f"            {kind.c} d;",
        f"            {code};",
        f"            D_[half][l] = {kind.store.format(x='d')};",
        "        }",
        *(f"    {line}" for line in _finish(kind.finish, "D_[half]")),
        "    }",
        *(PAIR if single else HALVES),
    ])  # fmt: skip
