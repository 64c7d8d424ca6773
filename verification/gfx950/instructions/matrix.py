"""Matrix instructions (MFMA, sparse SMFMAC); their C functions are in matrix.h and sparse.h.

`extra`: rows (= columns), K, element types of A and B, integer result, f8f6f4 form (sparse: B split
between the halves of K), scaled (sparse: bits of a set of places), blocks.
"""

from __future__ import annotations

from verification.gfx950.instructions.rows import Row

F32, F16, BF16, I8, FP8, BF8, FP4, FP6, BF6 = range(9)
"""Element types, as elements.h numbers them."""

FORMATS = {0: FP8, 1: BF8, 2: FP6, 3: BF6, 4: FP4}
"""What `cbsz` and `blgp` choose in the f8f6f4 forms."""

BITS = {F32: 32, F16: 16, BF16: 16, I8: 8, FP8: 8, BF8: 8, FP4: 4, FP6: 6, BF6: 6}
HALF = ((32, 4, 2), (16, 4, 4), (4, 4, 16), (32, 8, 1), (16, 16, 1), (32, 16, 1), (16, 32, 1))
SHAPES = {
    ("f32", "f32"): (F32, ((32, 1, 2), (16, 1, 4), (4, 1, 16), (32, 2, 1), (16, 4, 1))),
    ("f32", "f16"): (F16, HALF), ("f32", "bf16"): (BF16, HALF),
    ("i32", "i8"): (I8, ((32, 4, 2), (16, 4, 4), (4, 4, 16), (32, 16, 1), (16, 32, 1), (32, 32, 1), (16, 64, 1))),
}  # fmt: skip
"""Rows, K and blocks by the types of result and elements."""

SMALL = {"fp8": FP8, "bf8": BF8}
PAIRS = {f"{a}_{b}": (SMALL[a], SMALL[b]) for a in SMALL for b in SMALL}


def wide_registers(kind: int) -> str:
    """The registers of an operand of the f8f6f4 forms: 32 elements a lane."""
    return f"v{32 * BITS[kind]}"


def _dense(result: str, suffix: str, types: tuple[int, int], rows: int, size: int, blocks: int) -> Row:
    block = f"_{blocks}b" if blocks > 1 else ""
    operand, sum_ = rows * blocks * size * BITS[types[0]] // 64, rows * rows * blocks // 2
    return Row(f"v_mfma_{result}_{rows}x{rows}x{size}{block}_{suffix}", "matrix", (f"v{sum_}",),
               (f"v{operand}", f"v{operand}", f"c{sum_}"), "matrix_multiply", "matrix",
               (rows, size, *types, int(result == "i32"), 0, 0, blocks))  # fmt: skip


def _double(rows: int, size: int, blocks: int) -> Row:
    sum_ = rows * rows * blocks
    return Row(f"v_mfma_f64_{rows}x{rows}x{size}{f'_{blocks}b' if blocks > 1 else ''}_f64", "matrix", (f"v{sum_}",),
               ("v64", "v64", f"d{sum_}"), "matrix_multiply_doubles", "matrix_doubles",
               (rows, size, 0, 0, 0, 0, 0, blocks))  # fmt: skip


def _wide(rows: int, size: int, scaled: bool) -> Row:
    sum_ = rows * rows // 2
    sources = ("format_a", "format_b", f"c{sum_}") + (("v32", "v32") if scaled else ())
    return Row(f"v_mfma_{'scale_' if scaled else ''}f32_{rows}x{rows}x{size}_f8f6f4", "matrix", (f"v{sum_}",), sources,
               "matrix_multiply", "matrix_wide", (rows, size, FP8, FP8, 0, 1, int(scaled), 1))  # fmt: skip


def _sparse(result: str, suffix: str, types: tuple[int, int], rows: int, size: int) -> Row:
    operand, sum_ = rows * size * BITS[types[0]] // 64, rows * rows // 2
    return Row(f"v_smfmac_{result}_{rows}x{rows}x{size}_{suffix}", "matrix", (f"v{sum_}",),
               (f"v{operand // 2}", f"v{operand}", "v32"), "matrix_multiply_sparse", "matrix_sparse",
               (rows, size, *types, int(result == "i32"), int(operand == 256), rows * size // 64, 1))  # fmt: skip


DENSE = [
    _dense(result, suffix, (kind, kind), *shape)
    for (result, suffix), (kind, shapes) in SHAPES.items()
    for shape in shapes
] + [_dense("f32", suffix, types, *shape) for suffix, types in PAIRS.items() for shape in ((32, 16, 1), (16, 32, 1))]
DOUBLE = [_double(16, 4, 1), _double(4, 4, 4)]
WIDE = [_wide(rows, size, scaled) for rows, size in ((32, 64), (16, 128)) for scaled in (False, True)]
SPARSE = [
    _sparse(result, suffix, types, rows, size * 16 // BITS[types[0]])
    for result, suffix, types in (
        ("f32", "f16", (F16, F16)), ("f32", "bf16", (BF16, BF16)), ("i32", "i8", (I8, I8)),
        *(("f32", suffix, types) for suffix, types in PAIRS.items()),
    )
    for rows, size in ((16, 32), (32, 16), (16, 64), (32, 32))
]  # fmt: skip

TABLE = tuple(DENSE + DOUBLE + WIDE + SPARSE)
