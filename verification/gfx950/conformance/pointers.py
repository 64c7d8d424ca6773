# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from verification.gfx950.conformance import Expected, Program
from verification.gfx950.conformance.seeded import NAMES, generator, integers, normal, words

TILE = 256


@triton.jit
def copy_kernel(
    x_ptr, y_ptr, rows, columns, x_row, x_column, y_row, y_column,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TRANSPOSED: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """A plane from any strides to any strides, or its transpose."""
    row = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
    column = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    if WIDE:
        row = row.to(tl.int64)
        column = column.to(tl.int64)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    x = tl.load(x_ptr + row[:, None] * x_row + column[None, :] * x_column, mask=inside)
    if TRANSPOSED:
        flipped = (column[:, None] < columns) & (row[None, :] < rows)
        tl.store(y_ptr + column[:, None] * y_row + row[None, :] * y_column, tl.trans(x), mask=flipped)
    else:
        tl.store(y_ptr + row[:, None] * y_row + column[None, :] * y_column, x, mask=inside)


@triton.jit
def modifiers_kernel(
    x_ptr, y_ptr, count, FILL: tl.constexpr, LOAD: tl.constexpr, EVICT: tl.constexpr, STORE: tl.constexpr,
    VOLATILE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Every third element replaced by the mask's other value; cache hints must change nothing."""
    index = tl.program_id(0) * TILE + tl.arange(0, TILE)
    wanted = (index < count) & (index % 3 != 0)
    x = tl.load(x_ptr + index, mask=wanted, other=FILL, cache_modifier=LOAD, eviction_policy=EVICT, volatile=VOLATILE)
    tl.store(y_ptr + index, x, mask=index < count, cache_modifier=STORE, eviction_policy=EVICT)


@triton.jit
def table_kernel(table_ptr, y_ptr, width, N: tl.constexpr):
    """Row i from the address that a table holds for it."""
    row, column = tl.program_id(0), tl.arange(0, N)
    x_ptr = tl.load(table_ptr + row).to(tl.pointer_type(tl.float32))
    x = tl.load(x_ptr + column, mask=column < width)
    tl.store(y_ptr + row * width + column, x, mask=column < width)


@triton.jit
def lookup_kernel(x_ptr, index_ptr, y_ptr, width, SCATTER: tl.constexpr, N: tl.constexpr):
    """Rows gathered from, or scattered to, where an index says; negative ones are left alone."""
    row, column = tl.program_id(0), tl.arange(0, N)
    to = tl.load(index_ptr + row).to(tl.int64)
    inside = column < tl.where(to >= 0, width, 0)
    if SCATTER:
        tl.store(y_ptr + to * width + column, tl.load(x_ptr + row * width + column, mask=inside), mask=inside)
    else:
        tl.store(y_ptr + row * width + column, tl.load(x_ptr + to * width + column, mask=inside), mask=inside)


@triton.jit
def permutation_kernel(x_ptr, index_ptr, y_ptr, count, TILE: tl.constexpr):
    """Each element to its own place."""
    index = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = index < count
    to = tl.load(index_ptr + index, mask=inside, other=0)
    tl.store(y_ptr + to, tl.load(x_ptr + index, mask=inside), mask=inside)


@triton.jit
def row_sums_kernel(x_ptr, y_ptr, rows, columns, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    """Sums of rows through a descriptor that reads zeros beyond the edges."""
    start = tl.program_id(0) * TILE_M
    x = tl.make_tensor_descriptor(x_ptr, [rows, columns], [columns, 1], [TILE_M, TILE_N])
    total = tl.zeros((TILE_M,), dtype=tl.int32)
    for at in range(0, columns, TILE_N):
        total += tl.sum(x.load([start, at]), axis=1)
    row = start + tl.arange(0, TILE_M)
    tl.store(y_ptr + row, total, mask=row < rows)


@triton.jit
def descriptor_kernel(x_ptr, y_ptr, rows, columns, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    """A plane doubled through tensor descriptors, out of bounds read as zero and not written."""
    x = tl.make_tensor_descriptor(x_ptr, [rows, columns], [columns, 1], [TILE_M, TILE_N])
    y = tl.make_tensor_descriptor(y_ptr, [rows, columns], [columns, 1], [TILE_M, TILE_N])
    m, n = tl.program_id(0) * TILE_M, tl.program_id(1) * TILE_N
    y.store([m, n], x.load([m, n]) * 2)


def _copy(
    dtype: torch.dtype, shape: tuple[int, int], tile: tuple[int, int], warps: int, layout: str, wide: bool = False
) -> Program:
    name = f"pointers/{layout}/{NAMES[dtype]}/{shape[0]}x{shape[1]}/warps{warps}{'/int64' if wide else ''}"
    rows, columns = shape

    def draw() -> dict[str, Tensor]:
        whole = (2 * columns, 2 * rows) if layout == "columns-first" else (2 * rows, 2 * columns)
        return {"x": normal(name, whole, dtype) if dtype.is_floating_point else words(name, whole, dtype)}

    def view(x: Tensor) -> Tensor:
        return {
            "every-other": x[::2, ::2],
            "columns-first": x.t()[:rows, :columns],
            "backwards": x[:rows, :columns],
            "transpose": x[rows:, 1 : columns + 1],
        }[layout]

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = view(inputs["x"])
        transposed = layout == "transpose"
        y = torch.empty((columns, rows) if transposed else shape, dtype=dtype, device=x.device)
        start, y_row = (y.flatten()[columns * (rows - 1) :], -columns) if layout == "backwards" else (y, y.stride(0))
        copy_kernel[(triton.cdiv(rows, tile[0]), triton.cdiv(columns, tile[1]))](
            x, start, rows, columns, x.stride(0), x.stride(1), y_row, 1, TILE_M=tile[0], TILE_N=tile[1],
            TRANSPOSED=transposed, WIDE=wide, num_warps=warps,
        )  # fmt: skip
        return {"y": y}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        x = view(inputs["x"])
        return {"y": Expected(x.t() if layout == "transpose" else x.flip(0) if layout == "backwards" else x)}

    fault = "its buffer operations read negative offsets as large ones, out of range" if layout == "backwards" else ""
    return Program(name, (copy_kernel,), draw, run, expected, compiler_fault=fault)


def _modifiers(
    dtype: torch.dtype, count: int, warps: int, load: str = "", evict: str = "", store: str = "", volatile: bool = False
) -> Program:
    label = "-".join(filter(None, (load, evict, store, "volatile" if volatile else ""))) or "plain"
    name = f"pointers/masked-{label}/{NAMES[dtype]}/{count}/warps{warps}"

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = inputs["x"]
        y = torch.empty_like(x)
        modifiers_kernel[(triton.cdiv(count, TILE),)](
            x, y, count, FILL=-7, LOAD=load, EVICT=evict, STORE=store, VOLATILE=volatile, TILE=TILE, num_warps=warps
        )
        return {"y": y}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        x = inputs["x"]
        return {"y": Expected(torch.where(torch.arange(count) % 3 != 0, x, torch.full_like(x, -7)))}

    def draw() -> dict[str, Tensor]:
        return {"x": normal(name, (count,), dtype) if dtype.is_floating_point else words(name, (count,), dtype)}

    return Program(name, (modifiers_kernel,), draw, run, expected)


def _table(rows: int, width: int, warps: int) -> Program:
    """The rows of x, last first, by their addresses."""
    name = f"pointers/table/fp32/{rows}x{width}/warps{warps}"

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = inputs["x"]
        addresses = [x[row].data_ptr() for row in reversed(range(rows))]
        y = torch.empty_like(x)
        table = torch.tensor(addresses, dtype=torch.int64, device=x.device)
        table_kernel[(rows,)](table, y, width, N=triton.next_power_of_2(width), num_warps=warps)
        return {"y": y}

    draw = lambda: {"x": normal(name, (rows, width))}  # noqa: E731
    return Program(name, (table_kernel,), draw, run, lambda inputs: {"y": Expected(inputs["x"].flip(0))})


def _lookup(dtype: torch.dtype, rows: int, width: int, warps: int, scatter: bool) -> Program:
    name = f"pointers/{'scatter' if scatter else 'gather'}-rows/{NAMES[dtype]}/{rows}x{width}/warps{warps}"

    def draw() -> dict[str, Tensor]:
        index = torch.from_numpy(generator(name + "index").permutation(rows)).int()
        return {"x": normal(name, (rows, width), dtype), "index": torch.where(index % 4 == 1, -1, index)}

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = inputs["x"]
        y = torch.zeros_like(x)
        lookup_kernel[(rows,)](
            x, inputs["index"], y, width, SCATTER=scatter, N=triton.next_power_of_2(width), num_warps=warps
        )
        return {"y": y}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        x, index = inputs["x"], inputs["index"].long()
        y, valid = torch.zeros_like(x), index >= 0
        if scatter:
            y[index[valid]] = x[valid]
        else:
            y[valid] = x[index[valid]]
        return {"y": Expected(y)}

    return Program(name, (lookup_kernel,), draw, run, expected)


def _permutation(dtype: torch.dtype, count: int, warps: int) -> Program:
    name = f"pointers/permutation/{NAMES[dtype]}/{count}/warps{warps}"

    def draw() -> dict[str, Tensor]:
        return {"x": words(name, (count,), dtype), "index": torch.from_numpy(generator(name).permutation(count))}

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        y = torch.empty_like(inputs["x"])
        permutation_kernel[(triton.cdiv(count, TILE),)](
            inputs["x"], inputs["index"], y, count, TILE=TILE, num_warps=warps
        )
        return {"y": y}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        y = torch.empty_like(inputs["x"])
        y[inputs["index"]] = inputs["x"]
        return {"y": Expected(y)}

    return Program(name, (permutation_kernel,), draw, run, expected)


def _blocks(kind: str, shape: tuple[int, int], tile: tuple[int, int], warps: int) -> Program:
    name = f"pointers/{kind}/i32/{shape[0]}x{shape[1]}/tile{tile[0]}x{tile[1]}/warps{warps}"
    sums = kind == "descriptor-sums"
    kernel = row_sums_kernel if sums else descriptor_kernel
    grid = (
        (triton.cdiv(shape[0], tile[0]),) if sums else (triton.cdiv(shape[0], tile[0]), triton.cdiv(shape[1], tile[1]))
    )

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = inputs["x"]
        y = x.new_empty(shape[0]) if sums else torch.empty_like(x)
        kernel[grid](x, y, *shape, TILE_M=tile[0], TILE_N=tile[1], num_warps=warps)
        return {"y": y}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        return {"y": Expected(inputs["x"].sum(1) if sums else inputs["x"] * 2)}

    return Program(name, (kernel,), lambda: {"x": integers(name, shape, -999, 999)}, run, expected)


F32, B16, H16, I8, I16, I32, I64 = (
    torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.int16, torch.int32, torch.int64,
)  # fmt: skip
PROGRAMS = (
    _copy(F32, (60, 70), (16, 64), 2, "every-other"), _copy(B16, (33, 100), (32, 32), 4, "columns-first", True),
    _copy(I8, (50, 90), (16, 128), 1, "backwards"), _copy(I64, (40, 30), (32, 32), 8, "backwards", True),
    _copy(F32, (64, 96), (32, 32), 4, "transpose"), _copy(H16, (70, 130), (64, 64), 8, "transpose", True),
    _copy(I16, (100, 40), (64, 32), 2, "transpose"), _copy(I8, (64, 64), (64, 64), 4, "transpose"),
    _modifiers(F32, 1000, 1), _modifiers(B16, 999, 2, ".cg"), _modifiers(I32, 700, 4, ".ca", "evict_first", ".cs"),
    _modifiers(H16, 1500, 1, ".cg", "evict_last", ".wt"), _modifiers(I8, 2000, 4, store=".cg"),
    _modifiers(I64, 300, 1, volatile=True), _modifiers(F32, 500, 2, ".cv", store=".wb"),
    _table(12, 300, 1), _table(5, 1000, 4), _lookup(F32, 20, 130, 1, True), _lookup(B16, 30, 512, 4, False),
    _permutation(I32, 2000, 4), _permutation(I16, 777, 2), _permutation(I8, 500, 1),
    _blocks("descriptor-sums", (50, 200), (16, 64), 2), _blocks("descriptor", (70, 100), (32, 32), 4),
    _blocks("descriptor", (16, 300), (8, 128), 1),
)  # fmt: skip
