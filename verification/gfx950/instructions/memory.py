"""Loads, stores and atomics; their C functions are in memory.h, lds.h and atomics.h.

`extra`: bytes a lane, sign extension, half of the register (1 low, 2 high), to LDS, then what the
form adds (offsets of the two-element LDS forms, their count, whether it compares and swaps).
"""

from __future__ import annotations

from verification.gfx950.instructions.rows import Row

LOADED = {
    "ubyte": (1, 0, 0), "sbyte": (1, 1, 0), "ushort": (2, 0, 0), "sshort": (2, 1, 0),
    "ubyte_d16": (1, 0, 1), "ubyte_d16_hi": (1, 0, 2), "sbyte_d16": (1, 1, 1), "sbyte_d16_hi": (1, 1, 2),
    "short_d16": (2, 0, 1), "short_d16_hi": (2, 0, 2),
    "dword": (4, 0, 0), "dwordx2": (8, 0, 0), "dwordx3": (12, 0, 0), "dwordx4": (16, 0, 0),
}  # fmt: skip
STORED = {
    "byte": (1, 0, 0), "byte_d16_hi": (1, 0, 2), "short": (2, 0, 0), "short_d16_hi": (2, 0, 2),
    "dword": (4, 0, 0), "dwordx2": (8, 0, 0), "dwordx3": (12, 0, 0), "dwordx4": (16, 0, 0),
}  # fmt: skip
SPACES = ("global", "buffer", "scratch", "flat")


def _register(bytes_: int) -> str:
    return f"v{max(32, 8 * bytes_)}"


def _space_rows() -> list[Row]:
    found = []
    for space in SPACES:
        through = "global" if space == "flat" else space
        for name, extra in LOADED.items():
            found.append(Row(f"{space}_load_{name}", "memory", (_register(extra[0]),), (), f"load_{through}",
                             f"{space}_load", extra))  # fmt: skip
        for name, extra in STORED.items():
            found.append(Row(f"{space}_store_{name}", "memory", (), (_register(extra[0]),), f"store_{through}",
                             f"{space}_store", extra))  # fmt: skip
    return found


DIRECT = [
    Row(f"global_load_lds_{name}", "memory", (), (), "load_global", "global_load_lds", (*LOADED[name], 1))
    for name in ("ubyte", "sbyte", "ushort", "sshort", "dword", "dwordx3", "dwordx4")
]

SCALAR = [
    Row(
        f"s_load_dword{suffix}",
        "memory",
        (f"s{32 * count}",),
        ("s64", "offset"),
        "load_scalar",
        "scalar_load",
        (count,),
    )
    for suffix, count in {"": 1, "x2": 2, "x4": 4, "x8": 8, "x16": 16}.items()
]

LDS_LOADED = {
    "u8": (1, 0, 0), "i8": (1, 1, 0), "u16": (2, 0, 0), "i16": (2, 1, 0), "u8_d16": (1, 0, 1), "u8_d16_hi": (1, 0, 2),
    "i8_d16": (1, 1, 1), "i8_d16_hi": (1, 1, 2), "u16_d16": (2, 0, 1), "u16_d16_hi": (2, 0, 2),
    "b32": (4, 0, 0), "b64": (8, 0, 0), "b96": (12, 0, 0), "b128": (16, 0, 0),
}  # fmt: skip
LDS_STORED = {
    "b8": (1, 0, 0), "b8_d16_hi": (1, 0, 2), "b16": (2, 0, 0), "b16_d16_hi": (2, 0, 2),
    "b32": (4, 0, 0), "b64": (8, 0, 0), "b96": (12, 0, 0), "b128": (16, 0, 0),
}  # fmt: skip
LDS = (
    [Row(f"ds_read_{name}", "lds", (_register(extra[0]),), ("u32",), "load_lds", "lds_load", extra)
     for name, extra in LDS_LOADED.items()]
    + [Row(f"ds_write_{name}", "lds", (), ("u32", _register(extra[0])), "store_lds", "lds_store", extra)
       for name, extra in LDS_STORED.items()]
    + [Row(f"ds_read2{stride}_b{bits}", "lds", (f"v{2 * bits}",), ("u32",), "load_lds", "lds_load2", (bits // 8, 0, 0))
       for stride in ("", "st64") for bits in (32, 64)]
    + [Row(f"ds_write2{stride}_b{bits}", "lds", (), ("u32", f"v{bits}", f"v{bits}"), "store_lds", "lds_store2",
           (bits // 8, 0, 0)) for stride in ("", "st64") for bits in (32, 64)]
    + [Row(f"ds_read_b{total}_tr_b{bits}", "lds", (f"v{total}",), ("u32",), "load_lds_transposed", "lds_load",
           (total // 8, bits)) for total, bits in ((64, 16), (64, 8), (64, 4), (96, 6))]
)  # fmt: skip

UPDATES = {
    "swap": "x", "add": "old + x", "sub": "old - x", "and": "old & x", "or": "old | x", "xor": "old ^ x",
    "smin": "(u64)SMALLER((INT)old, (INT)x)", "smax": "(u64)LARGER((INT)old, (INT)x)",
    "umin": "SMALLER(old, x)", "umax": "LARGER(old, x)",
    "inc": "old >= x ? 0 : old + 1", "dec": "old == 0 || old > x ? x : old - 1",
    "cmpswap": "old == compare ? x : old",
}  # fmt: skip
"""What an atomic leaves in memory, on values of the opcode's own width, zero-extended."""

FLOATS = {
    "add_f32": (4, "two_f32(old, x)"), "pk_add_f16": (4, "two_f16(old, x)"), "pk_add_bf16": (4, "two_bf16(old, x)"),
    "add_f64": (8, "as_u64(as_f64(old) + as_f64(x))"), "min_f64": (8, "as_u64(min_f64(as_f64(old), as_f64(x)))"),
    "max_f64": (8, "as_u64(max_f64(as_f64(old), as_f64(x)))"),
}  # fmt: skip

LDS_UPDATES = {
    "wrxchg": ("swap", "b"), "add": ("add", "u"), "sub": ("sub", "u"), "and": ("and", "b"), "or": ("or", "b"),
    "xor": ("xor", "b"), "min_i": ("smin", "i"), "max_i": ("smax", "i"), "min": ("umin", "u"), "max": ("umax", "u"),
    "inc": ("inc", "u"), "dec": ("dec", "u"), "cmpst": ("cmpswap", "b"),
}  # fmt: skip
LDS_FLOATS = {
    "add_f32": (4, "two_f32(old, x)"), "pk_add_f16": (4, "two_f16(old, x)"), "pk_add_bf16": (4, "two_bf16(old, x)"),
    "add_f64": (8, "as_u64(as_f64(old) + as_f64(x))"),
    "max_f32": (4, "as_u32(max_f32(as_f32((u32)old), as_f32((u32)x)))"),
    "min_f32": (4, "as_u32(min_f32(as_f32((u32)old), as_f32((u32)x)))"),
}  # fmt: skip


def _update(name: str, bytes_: int) -> str:
    return UPDATES[name].replace("INT", f"i{8 * bytes_}")


def _atomics() -> list[Row]:
    found = []
    for space in ("global", "buffer", "flat"):
        through = "global" if space == "flat" else space
        found += [
            _atomic(space, f"{name}{'_x2' if bytes_ == 8 else ''}", bytes_, _update(name, bytes_),
                    f"atomic_{through}", name == "cmpswap")
            for name in UPDATES for bytes_ in (4, 8)
        ]  # fmt: skip
        for name, (bytes_, code) in FLOATS.items():
            found.append(_atomic(space, name, bytes_, code, f"atomic_{through}", False))
    return found


def _atomic(space: str, name: str, bytes_: int, update: str, function: str, swaps: bool) -> Row:
    register = _register(bytes_)
    data = _register(2 * bytes_) if swaps else register
    extra = (bytes_, 0, 0, 0, 0, 0, 1, int(swaps))
    return Row(f"{space}_atomic_{name}", "atomics", (register,), (data,), f"{function}: {update}", f"{space}_atomic",
               extra)  # fmt: skip


def _lds_atomics() -> list[Row]:
    found = []
    for name, (update, kind) in LDS_UPDATES.items():
        for bits in (32, 64):
            # An exchange that returns nothing is a store: there is no such opcode.
            for returns in (True,) if update == "swap" else (False, True):
                spelt = f"ds_{name.partition('_')[0]}{'_rtn' if returns else ''}_{kind}{bits}"
                found.append(_lds_atomic(spelt, bits // 8, _update(update, bits // 8), returns, update == "cmpswap"))
    for name, (bytes_, code) in LDS_FLOATS.items():
        operation, _, kind = name.rpartition("_")
        found.append(_lds_atomic(f"ds_{name}", bytes_, code, False, False))
        found.append(_lds_atomic(f"ds_{operation}_rtn_{kind}", bytes_, code, True, False))
    return found


def _lds_atomic(spelt: str, bytes_: int, update: str, returns: bool, swaps: bool) -> Row:
    register = _register(bytes_)
    return Row(spelt, "atomics", (register,) if returns else (), ("u32", register, *([register] if swaps else [])),
               f"atomic_lds: {update}", "lds_atomic", (bytes_, 0, 0, 0, 0, 0, 1, int(swaps)))  # fmt: skip


TABLE = tuple(_space_rows() + DIRECT + SCALAR + LDS + _atomics() + _lds_atomics())
