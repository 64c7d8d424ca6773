"""C functions made from the tables: one a row, one more for a row's integer clamp."""

from __future__ import annotations

import re

from verification.gfx950.instructions.rows import Row
from verification.gfx950.instructions.types import KINDS

NAMES = "abcf"
RESULTS = "de"


def handlers(table: dict[str, Row]) -> list[tuple[str, str]]:
    """(name, C text) of every handler, in the order of their numbers."""
    found = []
    for row in table.values():
        found.append((row.name, _function(row, row.code)))
        if row.saturated:
            found.append((f"{row.name}.clamp", _function(row, row.saturated)))
    return found


def c_name(name: str) -> str:
    """The C function of a handler."""
    return f"run_{name.replace('.', '_')}"


def _function(row: Row, code: str) -> str:
    family = "scalar" if row.family == "scalar" else row.form
    body = {"scalar": _scalar, "plain": _vector, "packed": _packed}.get(family, _direct)(row, code)
    name = c_name(row.name if code != row.saturated else f"{row.name}.clamp")
    return f"static void {name}(Wave *w, const Instruction *i)\n{{\n{body}\n}}\n"


def _direct(row: Row, code: str) -> str:
    if row.family == "control":
        return f"    {code};"
    function, _, update = code.partition(": ")
    if update:
        return f"    {function}(w, i, {c_name(row.name)}_update);"
    return f"    {function}(w, i);"


def update_function(row: Row) -> str:
    """What an atomic does to memory, as a C function of old value, operand and comparand."""
    expression = row.code.partition(": ")[2]
    return (
        f"static u64 {c_name(row.name)}_update(u64 old, u64 x, u64 compare)\n"
        f"{{\n    (void)old, (void)x, (void)compare;\n    return {expression};\n}}\n"
    )


def _scalar(row: Row, code: str) -> str:
    lines = ["    int scc = w->scc; (void)scc;"]
    written = 0
    for name, source in zip(NAMES, row.sources, strict=False):
        implied = source.startswith("(")
        kind = source.strip("()")
        if kind == "exec":
            lines.append(f"    u64 {name} = exec_of(w);")
        elif implied:
            read = "sgpr64(w, i->result[0].reg)" if KINDS[kind].words == 2 else "w->s[i->result[0].reg]"
            lines.append(f"    {KINDS[kind].c} {name} = ({KINDS[kind].c}){read};")
        else:
            read = f"scalar{32 * KINDS[kind].words}(w, &i->source[{written}])"
            lines.append(f"    {KINDS[kind].c} {name} = ({KINDS[kind].c}){read};")
            written += 1
    if row.results:
        lines.append(f"    {KINDS[row.results[0]].c} d;")
    lines.append(f"    {code};")
    lines.append("    w->scc = (u8)(scc != 0);")
    if row.results:
        wide = KINDS[row.results[0]].words == 2
        lines.append(f"    {'set_sgpr64(w, i->result[0].reg, (u64)d)' if wide else 'w->s[i->result[0].reg] = (u32)d'};")
    return "\n".join(lines)


def _vector(row: Row, code: str) -> str:
    head: list[str] = []
    load: list[str] = []
    written = 0
    for name, source in zip(NAMES, row.sources, strict=False):
        implied, kind = source.startswith("("), source.strip("()")
        head += _fetch(name, kind, implied, written)
        load.append(_loaded(name, kind))
        written += not implied
    tail, stores = [], []
    for position, result in enumerate(row.results):
        name = RESULTS[position]
        produced = KINDS[result]
        lane = f"{name.upper()}_[l]"
        if result in ("mask", "maskx"):
            head.append(f"    u32 {name.upper()}_[LANES];")
            load.append(f"        int {name};")
            stores.append(f"        {lane} = {name} ? 0xFFFFFFFFu : 0;")
            tail.append(f"    result_mask(w, i, {position}, {name.upper()}_);")
            if result == "maskx":
                tail.append(f"    set_sgpr64(w, EXEC, packed_mask({name.upper()}_) & exec_of(w));")
        else:
            wide = produced.words == 2
            head.append(f"    {'u64' if wide else 'u32'} {name.upper()}_[LANES];")
            load.append(f"        {produced.c} {name};")
            stores.append(f"        {lane} = {produced.store.format(x=name)};")
            if produced.finish:
                tail.append(f"    FINISH({produced.finish}, i, {name.upper()}_);")
            tail.append(f"    result{64 if wide else 32}(w, i, {name.upper()}_);")
    # A mask is written first: the result's register may be where it is read from, never the reverse.
    tail.sort(key=lambda line: "result_mask" not in line)
    loops = [
        f"    {when}for (int l = 0; l < LANES; l++) {{\n{body}\n    }}"
        for when, body in _by_model("\n".join([*load, f"        {code};", *stores]))
    ]
    return "\n".join(head + loops + tail)


def _by_model(body: str) -> list[tuple[str, str]]:
    """A loop for each model of the transcendental units: a constant inside, so that the loop becomes vector code."""
    if "model" not in body:
        return [("", body)]
    return [(f"if (w->group->launch->transcendental == {one}) ", re.sub(r"\bmodel\b", one, body)) for one in "01"]


def _fetch(name: str, kind_name: str, implied: bool, position: int) -> list[str]:
    kind, array = KINDS.get(kind_name, KINDS["u32"]), name.upper()
    if kind_name == "vcc":
        return [f"    u64 {array}m = sgpr64(w, VCC);"]
    if kind_name == "mask":
        return [f"    u64 {array}m = source_mask(w, i, {position});"]
    if implied and kind.words == 2:
        return [
            f"    u64 {array}[LANES]; const u32 *{array}l = w->v[i->result[0].reg], *{array}h = w->v[i->result[0].reg + 1];",
            f"    for (int l = 0; l < LANES; l++) {array}[l] = {array}l[l] | (u64){array}h[l] << 32;",
        ]
    if implied:
        return [f"    const u32 *{array} = w->v[i->result[0].reg];"]
    if kind.words == 2:
        return [f"    u64 {array}[LANES]; source64(w, i, {position}, {array}, {kind.sign}ull);"]
    return [f"    u32 {array}b[LANES]; const u32 *{array} = source32(w, i, {position}, {array}b, {kind.sign}u);"]


def _loaded(name: str, kind_name: str) -> str:
    if kind_name in ("mask", "vcc"):
        return f"        u32 {name} = (u32)({name.upper()}m >> l & 1);"
    kind = KINDS[kind_name]
    value = kind.load.format(c=kind.c, x=f"{name.upper()}[l]")
    return f"        {kind.c} {name} = {value};"


def _packed(row: Row, code: str) -> str:
    """Both halves of a packed instruction; `half` is 0, then 1."""
    kind = KINDS[row.results[0]]
    single = row.results[0] in ("f32", "u32")
    read = "packed_single" if single else "packed_half"
    head = ["    u32 D_[2][LANES];"]
    head += [f"    u32 {name.upper()}[LANES];" for name, _ in zip(NAMES, row.sources, strict=False)]
    fetch = [
        f"        {read}(w, i, {position}, half, {name.upper()}, {KINDS[source].sign}u);"
        for position, (name, source) in enumerate(zip(NAMES, row.sources, strict=False))
    ]
    loads = [_loaded(name, source) for name, source in zip(NAMES, row.sources, strict=False)]
    loop = ["        for (int l = 0; l < LANES; l++) {", *(f"    {line}" for line in loads),
            f"            {kind.c} d;", f"            {code};", f"            D_[half][l] = {kind.store.format(x='d')};",
            "        }"]  # fmt: skip
    if kind.finish:
        loop.append(f"        FINISH({kind.finish}, i, D_[half]);")
    both = ["    for (int half = 0; half < 2; half++) {", *fetch, *loop, "    }"]
    if single:
        tail = ["    blend(w, i->result[0].reg, D_[0]);", "    blend(w, i->result[0].reg + 1, D_[1]);"]
    else:
        tail = ["    for (int l = 0; l < LANES; l++) D_[0][l] = (D_[0][l] & 0xFFFF) | D_[1][l] << 16;",
                "    blend(w, i->result[0].reg, D_[0]);"]  # fmt: skip
    return "\n".join(head + both + tail)
