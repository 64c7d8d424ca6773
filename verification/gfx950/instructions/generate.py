"""C functions made from the tables: one a row, one more for a row's integer clamp."""

from __future__ import annotations

from verification.gfx950.instructions.lane_loops import packed, plain
from verification.gfx950.instructions.rows import Row, Source
from verification.gfx950.instructions.types import KINDS


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


def update_function(row: Row) -> str:
    """What an atomic does to memory, as a C function of old value, operand and comparand."""
    expression = row.code.partition(": ")[2]
    return (
        f"static u64 {c_name(row.name)}_update(u64 old, u64 x, u64 compare)\n"
        f"{{\n    (void)old, (void)x, (void)compare;\n    return {expression};\n}}\n"
    )


def _function(row: Row, code: str) -> str:
    family = "scalar" if row.family == "scalar" else row.form
    body = {"scalar": _scalar, "plain": plain, "packed": packed}.get(family, _direct)(row, code)
    name = c_name(row.name if code != row.saturated else f"{row.name}.clamp")
    return f"static void {name}(Wave *w, const Instruction *i)\n{{\n{body}\n}}\n"


def _direct(row: Row, code: str) -> str:
    if row.family == "control":
        return f"    {code};"
    function, _, update = code.partition(": ")
    if update:
        return f"    {function}(w, i, {c_name(row.name)}_update);"
    return f"    {function}(w, i);"


def _scalar(row: Row, code: str) -> str:
    lines = ["    int scc = w->scc; (void)scc;"]
    lines += [f"    {_scalar_source(source)};" for source in row.named_sources]
    if row.results:
        lines.append(f"    {KINDS[row.results[0]].c} d;")
    lines += [f"    {code};", "    w->scc = (u8)(scc != 0);"]
    if row.results:
        wide = KINDS[row.results[0]].words == 2
        lines.append(f"    {'set_sgpr64(w, i->result[0].reg, (u64)d)' if wide else 'w->s[i->result[0].reg] = (u32)d'};")
    return "\n".join(lines)


def _scalar_source(source: Source) -> str:
    if source.kind == "exec":
        return f"u64 {source.name} = exec_of(w)"
    kind = KINDS[source.kind]
    if source.implied:
        read = "sgpr64(w, i->result[0].reg)" if kind.words == 2 else "w->s[i->result[0].reg]"
    else:
        read = f"scalar{32 * kind.words}(w, &i->source[{source.position}])"
    return f"{kind.c} {source.name} = ({kind.c}){read}"
