"""Assembly lines of every opcode: each operand in each of its kinds, each modifier, one at a time."""

from __future__ import annotations

from itertools import product
from zlib import crc32

from verification.gfx950.instructions.rows import Row
from verification.gfx950.instructions.types import kind_of

from .instruction import register

INLINE = ("0", "1", "64", "-1", "-16", "0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0")
LITERALS = ("0x7b", "0xabcd1234", "0x41")
SELECTS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")
CONTROLS = (
    "quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf", "row_shl:1 row_mask:0xa bank_mask:0x3",
    "row_shr:15 row_mask:0xf bank_mask:0xf bound_ctrl:1", "row_ror:7 row_mask:0x1 bank_mask:0x8",
    "row_mirror row_mask:0xf bank_mask:0xf", "row_half_mirror row_mask:0xf bank_mask:0xf",
    "row_bcast:15 row_mask:0xa bank_mask:0xf", "row_bcast:31 row_mask:0xc bank_mask:0xf",
    "row_newbcast:3 row_mask:0xf bank_mask:0xf", "wave_shl:1 row_mask:0xf bank_mask:0xf",
    "wave_shr:1 row_mask:0xf bank_mask:0xf", "wave_rol:1 row_mask:0xf bank_mask:0xf",
    "wave_ror:1 row_mask:0xf bank_mask:0xf",
)  # fmt: skip
CACHE = ("", "sc0", "sc1", "nt", "sc0 sc1", "sc0 nt sc1")
MARKS = ("-{}", "|{}|", "-|{}|")
SWIZZLES = ("", "offset:0x8055", "offset:0x1f", "offset:swizzle(QUAD_PERM,0,1,2,3)", "offset:swizzle(SWAP,16)",
            'offset:swizzle(BITMASK_PERM,"01pi0")', "offset:swizzle(REVERSE,8)",
            "offset:swizzle(BROADCAST,8,3)")  # fmt: skip
WAITS = ("vmcnt(0)", "vmcnt(17)", "vmcnt(62)", "lgkmcnt(0)", "lgkmcnt(14)", "expcnt(6)", "vmcnt(3) lgkmcnt(2)",
         "vmcnt(0) expcnt(0) lgkmcnt(0)")  # fmt: skip
IMMEDIATES = {"s_trap": (1, 2), "s_sleep": (0, 127), "s_setprio": (0, 3), "s_nop": (0, 15)}
LABELLED = "start"
"""The label that branches go to."""


class Turns:
    """Choices that take turns, from opcode to opcode too."""

    def __init__(self, opcode: str) -> None:
        self.count = crc32(opcode.encode())

    def next(self, choices: tuple[str, ...]) -> str:
        self.count += 1
        return choices[self.count % len(choices)]


def lines(row: Row) -> list[str]:
    """Every line once; what the assembler refuses among them is no instruction."""
    form = row.form
    if form in ("plain", "function", "packed", "mixed", "matrix"):
        found = _computing(row)
    elif form == "matrix_wide":
        found = _small_formats(row)
    elif form.startswith(("global", "flat", "scratch")):
        found = _addressed(row)
    elif form.startswith("buffer"):
        found = _buffer(row)
    elif form.startswith("lds"):
        found = _lds(row)
    else:
        found = _others(row)
    return list(dict.fromkeys(" ".join(f"{row.name}{one}".split()) for one in found))


def _words(kind: str) -> int:
    return kind_of(kind).words


def _vector(number: int, kind: str, file: str = "v") -> str:
    return register(file, number, _words(kind))


# ── arithmetic ──────────────────────────────────────────────────────────────


def _computing(row: Row) -> list[str]:
    results, sources = row.results, row.written_sources
    if row.form == "packed":
        wide = "u64" if results[0] in ("f32", "u32") else "u32"
        results, sources = (wide,), (wide,) * len(sources)
    elif row.form == "mixed":
        results = ("u32",)
    scalar = row.family == "scalar"
    alternatives = [_alternatives(kind, k, scalar, row) for k, kind in enumerate(sources)]
    first = [_result(kind, k, scalar, row) for k, kind in enumerate(results)]
    plain = [one[0] for one in alternatives]
    found = [_line("", first + plain)]
    for k, choices in enumerate(alternatives):
        found += [_line("", [*first, *plain[:k], one, *plain[k + 1 :]]) for one in choices[1:]]
    if row.form == "matrix":
        return found + _accumulating(results, sources)
    if row.form in ("packed", "mixed") or "v_dot2_f32" in row.name:
        return found + _packed(row, first, plain)
    if scalar or row.form == "function" or "accvgpr" in row.name:
        return found
    found += _long(row, first, plain)
    return found if len(plain) > 2 and "mask" not in sources else found + _lane_forms(row, first, plain)


def _line(suffix: str, operands: list[str], modifiers: str = "") -> str:
    return f"{suffix} {', '.join(operands)} {modifiers}"


def _result(kind: str, k: int, scalar: bool, row: Row) -> str:
    if "accvgpr" in row.name and "read" not in row.name:
        return "a4"
    if scalar or kind in ("mask", "maskx", "s32", "s64"):
        return register("s", 4 + 8 * k, _words(kind))
    return _vector(4, kind)


def _alternatives(kind: str, k: int, scalar: bool, row: Row) -> list[str]:
    """Texts of a source, a plain register first."""
    words, number = _words(kind), 10 + 4 * k
    vector, scalars = register("v", number, words), register("s", number, words)
    if "accvgpr" in row.name and "write" not in row.name:
        return ["a7"]
    if kind == "mask":
        return [scalars, "vcc"]
    if kind == "s32":
        return [scalars, "m0", "5"]
    if kind in ("k16", "k16u"):
        return ["0x7b", "0x8000" if kind == "k16" else "0xffff"]
    if kind == "v32":
        return [vector]
    if kind[1:].isdigit() and kind[0] in "vc" and row.form == "matrix":
        low = 32 * (k + 1)
        return [register(file, low, words) for file in "va"] + (["0", "1.0", "-16"] if kind[0] == "c" else [])
    turn = "0.15915494309189532" if words == 2 and row.form != "packed" else "0.15915494"
    named = ["vcc", "exec", "flat_scratch"] if words == 2 else ["vcc_lo", "exec_hi", "m0"]
    found = [scalars] if scalar else [vector, scalars]
    found += [*named, *INLINE, turn, *LITERALS]
    # A VOP3SD encoding has no bits for absolute values; the assembler drops them silently.
    if kind_of(kind).sign and not scalar and "div_scale" not in row.name:
        found += [mark.format(one) for one in (vector, scalars) for mark in MARKS]
    return found


def _accumulating(results: tuple[str, ...], sources: tuple[str, ...]) -> list[str]:
    found = []
    for a, b, c in product("va", repeat=3):
        result = _vector(0, results[0], c)
        found.append(_line("", [result, _vector(64, sources[0], a), _vector(80, sources[1], b), result]))
    return found


def _packed(row: Row, first: list[str], plain: list[str]) -> list[str]:
    count = len(plain)
    found = [_line("", first + plain, "clamp")]
    for name in ("op_sel", "op_sel_hi", "neg_lo", "neg_hi"):
        found += [_line("", first + plain, f"{name}:{_list(bits, count)}") for bits in range(1 << count)]
    if row.form == "mixed":
        for k in range(count):
            found += [_line("", [*first, *plain[:k], one, *plain[k + 1 :]], "op_sel_hi:[1,1,1]")
                      for one in ("1.0", "-4.0", "0.15915494", "3", f"-|{plain[k]}|")]  # fmt: skip
    return found


def _list(bits: int, count: int) -> str:
    return f"[{','.join(str(bits >> k & 1) for k in range(count))}]"


def _long(row: Row, first: list[str], plain: list[str]) -> list[str]:
    """Both lengths by name, output modifiers, halves."""
    both = first + plain
    found = [_line(suffix, both) for suffix in ("_e32", "_e64")] + [_line("_e32", _with_vcc(row, first, plain))]
    found += [_line("_e64", both, modifiers) for modifiers in ("clamp", "mul:2", "mul:4", "div:2", "clamp mul:2")]
    if "bitop3" in row.name:
        found += [_line("", both, f"bitop3:{bits:#x}") for bits in (1, 2, 4, 8, 16, 32, 64, 128, 0xCA, 0xFF)]
    widths = (4,) if row.results[:1] == ("byte8",) else (len(plain), len(plain) + 1)
    for width in widths:
        found += [_line("", both, f"op_sel:{_list(bits, width)}") for bits in range(1, 1 << width)]
    return found


def _with_vcc(row: Row, first: list[str], plain: list[str]) -> list[str]:
    """The operands of the short forms, whose masks are vcc."""
    results = ["vcc" if kind in ("mask", "maskx") else one for kind, one in zip(row.results, first, strict=True)]
    sources = ["vcc" if kind == "mask" else one for kind, one in zip(row.written_sources, plain, strict=True)]
    return results + sources


def _lane_forms(row: Row, first: list[str], plain: list[str]) -> list[str]:
    """DPP and SDWA: the choices take turns from opcode to opcode."""
    short, count = _with_vcc(row, first, plain), sum(kind != "mask" for kind in row.written_sources)
    at = len(first)
    turns = Turns(row.name)
    found = [_line("_dpp", short, turns.next(CONTROLS)) for _ in range(3)]
    result_mask = row.results[:1] in (("mask",), ("maskx",))

    def selects() -> str:
        chosen = "" if result_mask else f"dst_sel:{turns.next(SELECTS)} dst_unused:{turns.next(UNUSED)} "
        return chosen + " ".join(f"src{k}_sel:{turns.next(SELECTS)}" for k in range(count))

    found += [_line("_sdwa", short, selects()) for _ in range(3)]
    if result_mask:
        found.append(_line("_sdwa", [*first, *short[at:]], selects()))
    found += [_line("_sdwa", short, f"{modifiers} {selects()}") for modifiers in ("clamp", "mul:2")]
    for k in range(count):

        def changed(text: str, k: int = k) -> list[str]:
            return [*short[: at + k], text.format(short[at + k]), *short[at + k + 1 :]]

        found += [_line("_dpp", changed(mark), CONTROLS[0]) for mark in MARKS[:2]]
        found += [_line("_sdwa", changed(mark), selects()) for mark in (*MARKS[:2], "sext({})", "s7")]
    return found


def _small_formats(row: Row) -> list[str]:
    registers, kind = {0: 8, 1: 8, 2: 6, 3: 6, 4: 4}, row.results[0]
    scaled = "scale" in row.name
    result, scales = _vector(0, kind), ["v70", "v71"] if scaled else []
    found = []
    for a, b in product(registers, repeat=2):
        operands = [result, register("v", 32, registers[a]), register("v", 48, registers[b])]
        found += [_line("", [*operands, c, *scales], f"cbsz:{a} blgp:{b}") for c in (result, "0")]
    operands = [result, register("v", 32, 8), register("v", 48, 8), result]
    found += [
        _line("", [_vector(0, kind, c), register(a, 32, 8), register(b, 48, 8), _vector(0, kind, c), *scales])
        for a, b, c in product("va", repeat=3)
    ]
    if scaled:
        found += [_line("", operands + scales, f"op_sel:[{a},{b},0] op_sel_hi:[{c},{d},0]")
                  for a, b, c, d in product((0, 1), repeat=4)]  # fmt: skip
        found += [_line("", operands + list(pair), "op_sel_hi:[0,0,0]")
                  for pair in (("s3", "v71"), ("v71", "1.0"), ("5", "s3"))]  # fmt: skip
    return found


# ── memory ──────────────────────────────────────────────────────────────────


def _addressed(row: Row) -> list[str]:
    space, _, action = row.form.partition("_")
    pairs = {"global": [["v[2:3]", "off"], ["v2", "s[6:7]"]], "flat": [["v[2:3]"]],
             "scratch": [["off", "off"], ["v2", "off"], ["off", "s6"], ["v2", "s6"]]}[space]  # fmt: skip
    found, turns = [], Turns(row.name)
    for (address, *base), offset, file in product(pairs, ("", "16", "4095", "-4096", "-1"), "va"):
        for cache in (*CACHE[:2], turns.next(CACHE)):
            result = [_vector(30, kind, file) for kind in row.results]
            data = [_vector(40, kind, file) for kind in row.sources]
            if action == "atomic" and "sc0" not in cache:
                result = []
            modifiers = f"offset:{offset} {cache}" if offset else cache
            found.append(_line("", [*result, address, *data, *base], modifiers))
    return found


def _buffer(row: Row) -> list[str]:
    found, turns = [], Turns(row.name)
    for address, scalar, offset in product(("off", "v2"), ("0", "s7", "m0", "64", "-1"), ("", "offset:4095")):
        for cache in (*CACHE[:2], turns.next(CACHE)):
            modifiers = f"{'' if address == 'off' else 'offen'} {offset} {cache}"
            rest = [address, "s[8:11]", scalar]
            found += [
                _line("", [_vector(40, (row.results + row.sources)[-1], file), *rest], modifiers) for file in "va"
            ]
            if row.form == "buffer_load":
                found.append(_line("", rest, f"{modifiers} lds"))
    return found


def _lds(row: Row) -> list[str]:
    found = []
    for offset, file in product(("", "offset:65535", "offset0:1", "offset1:255", "offset0:3 offset1:7"), "va"):
        result = [_vector(20, kind, file) for kind in row.results]
        data = [_vector(30 + 8 * k, kind, file) for k, kind in enumerate(row.sources[1:])]
        found.append(_line("", [*result, "v2", *data], offset))
    return found


def _others(row: Row) -> list[str]:
    """Scalar loads, and what has an operand or none."""
    if row.form == "scalar_load":
        offsets = ("0x0", "0xfffff", "-0x4", "-0x100000", "s5", "m0", "s5 offset:0x10")
        return [_line("", [register("s", 16, _words(row.results[0])), "s[4:5]", one], hint)
                for one in offsets for hint in ("", "glc")]  # fmt: skip
    return {
        "swizzle": [_line("", ["v1", "v2"], one) for one in SWIZZLES],
        "branch": [_line("", [LABELLED])],
        "wait": [_line("", [one]) for one in WAITS],
        "overflow_mode": [_line("", ["hwreg(HW_REG_MODE, 23, 1)", one]) for one in "01"],
        "none": [""],
        "immediate": [_line("", [str(one)]) for one in IMMEDIATES.get(row.name, (0,))],
        "cache": [f" {one}" for one in CACHE],
        "result": [_line("", [one]) for one in ("s[4:5]", "vcc")],
        "source": [_line("", [one]) for one in ("s[4:5]", "vcc")],
    }[row.form]
