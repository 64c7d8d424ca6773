"""Types of operands: how wide they are, how C reads and writes them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """An operand type: registers, the C type that statements see, sign bit, and conversions."""

    words: int
    c: str
    sign: int = 0
    """The bit that −x flips; 0 where the type takes no sign modifiers."""
    load: str = "({c}){x}"
    store: str = "(u32)({x})"
    finish: str = ""
    """The family of output modifiers: f32, f16, f64."""
    constant: str = "u32"
    """How an inline float is spelt in bits: u32 (as fp32), f16, bf16, f64, u64 (as fp64, literals whole)."""


KINDS: dict[str, Kind] = {
    "u32": Kind(1, "u32"), "i32": Kind(1, "i32"),
    "b32f": Kind(1, "u32", 0x80000000),
    "f16s": Kind(1, "u32", constant="f16"), "bf16s": Kind(1, "u32", constant="bf16"),
    "word": Kind(1, "u32"), "byte2": Kind(1, "u32"),
    "u16": Kind(1, "u16", load="(u16){x}", store="(u16)({x})"),
    "i16": Kind(1, "i16", load="(i16){x}", store="(u16)({x})"),
    "bf16": Kind(1, "u16", load="(u16){x}", constant="bf16"),
    "power16": Kind(1, "i16", load="(i16){x}", constant="f16"),
    "f32": Kind(1, "f32", 0x80000000, "as_f32({x})", "as_u32({x})", "f32"),
    "f16": Kind(1, "f32", 0x8000, "from_f16((u16){x})", "to_f16({x})", "f16", "f16"),
    "u64": Kind(2, "u64", store="(u64)({x})", constant="u64"),
    "i64": Kind(2, "i64", store="(u64)({x})", constant="u64"),
    "f64": Kind(2, "f64", 1 << 63, "as_f64({x})", "as_u64({x})", "f64", "f64"),
    "half16": Kind(1, "u32"), "byte8": Kind(1, "u32"),
    "mask": Kind(2, "u32"), "maskx": Kind(2, "u32"),
    "mixed": Kind(1, "u32", 0x80000000), "mixed16": Kind(1, "u32", 0x8000, constant="f16"),
    "k16": Kind(1, "i32"), "k16u": Kind(1, "u32"),
    "s32": Kind(1, "u32"), "s64": Kind(2, "u64"), "v32": Kind(1, "u32"), "offset": Kind(1, "u32"),
}  # fmt: skip


def kind_of(name: str) -> Kind:
    """A type by name; `v128`, `c512` and `d256` are that many bits of registers, c and d with constants (d: fp64)."""
    if name in KINDS:
        return KINDS[name]
    return Kind(int(name[1:]) // 32, "u32", constant="f64" if name[0] == "d" else "u32")
