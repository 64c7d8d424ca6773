"""Matrix instructions (MFMA); their C functions are in matrix.h.

`extra`: rows (= columns), K, element types of A and B, integer result, f8f6f4 form, scaled.
"""

from __future__ import annotations

from verification.gfx950.instructions.rows import Row

F32, F16, BF16, I8, FP8, BF8, FP4 = range(7)
"""Element types, as matrix.h numbers them."""

FORMATS = {0: FP8, 1: BF8, 4: FP4}
"""What `cbsz` and `blgp` choose in the f8f6f4 forms; 2 and 3 (the 6-bit formats) are not modelled."""

REGISTERS = {FP8: 8, BF8: 8, FP4: 4}
"""Registers of an operand of the f8f6f4 forms."""

SHAPES = {
    "f32": (F32, ((32, 2), (16, 4))), "f16": (F16, ((32, 8), (16, 16), (32, 16), (16, 32))),
    "bf16": (BF16, ((32, 16), (16, 32), (32, 8), (16, 16))),
}  # fmt: skip
BITS = {F32: 32, F16: 16, BF16: 16, I8: 8, FP8: 8, BF8: 8}


def _plain(result: str, rows: int, size: int, suffix: str, types: tuple[int, int]) -> Row:
    registers = size * rows * BITS[types[0]] // 32 // 64
    name = f"v_mfma_{result}_{rows}x{rows}x{size}{'' if suffix.startswith('_') else '_'}{suffix}"
    return Row(name, "matrix", (f"v{rows * rows // 2}",), (f"v{32 * registers}",) * 2 + (f"c{rows * rows // 2}",),
               "matrix_multiply", "matrix", (rows, size, *types, int(result == "i32"), 0, 0))  # fmt: skip


def _wide(rows: int, size: int, scaled: bool) -> Row:
    name = f"v_mfma_{'scale_' if scaled else ''}f32_{rows}x{rows}x{size}_f8f6f4"
    sources = ("format_a", "format_b", f"c{rows * rows // 2}") + (("u32", "u32") if scaled else ())
    return Row(name, "matrix", (f"v{rows * rows // 2}",), sources, "matrix_multiply", "matrix_wide",
               (rows, size, FP8, FP8, 0, 1, int(scaled)))  # fmt: skip


FLOATING = [
    _plain("f32", rows, size, suffix, (kind, kind))
    for suffix, (kind, shapes) in SHAPES.items()
    for rows, size in shapes
]
BYTES = [
    _plain("f32", rows, size, f"{a}_{b}", (types[a], types[b]))
    for types in ({"fp8": FP8, "bf8": BF8},)
    for a in types
    for b in types
    for rows, size in ((32, 16), (16, 32))
]
INTEGER = [
    _plain("i32", rows, size, suffix, (I8, I8))
    for rows, size, suffix in ((32, 16, "_i8"), (16, 32, "_i8"), (32, 32, "_i8"), (16, 64, "_i8"))
]
WIDE = [_wide(rows, size, scaled) for rows, size in ((32, 64), (16, 128)) for scaled in (False, True)]
TINY = [
    Row(f"v_mfma_f32_4x4x{k}_16b_{suffix}", "matrix", ("v128",), (f"v{32 * k * BITS[kind] // 32}",) * 2 + ("c128",),
        "matrix_multiply_4x4", "matrix", (4, k, kind, kind, 0, 0, 0))
    for k, suffix, kind in ((1, "f32", F32), (4, "f16", F16), (4, "bf16", BF16))
]  # fmt: skip

TABLE = tuple(FLOATING + BYTES + INTEGER + WIDE + TINY)
