"""Every allocation is poisoned and red-zoned; what is computed is never taken for poison."""

from __future__ import annotations

import ctypes
import math

import pytest
import torch

from verification.guards import AllocationGuard, fill_poison, poisoned
from verification.transport import ZONE

FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)

LIKE = torch.ones(3, 4)

EMPTY = {
    "empty": lambda dtype: torch.empty(3, 4, dtype=dtype),
    "empty_like": lambda dtype: torch.empty_like(LIKE, dtype=dtype),
    "new_empty": lambda dtype: LIKE.new_empty((3, 4), dtype=dtype),
    "empty_strided": lambda dtype: torch.empty_strided((3, 4), (1, 3), dtype=dtype),
    "new_empty_strided": lambda dtype: LIKE.new_empty_strided((3, 4), (5, 1), dtype=dtype),
}

FILLED = {
    "zeros": (lambda: torch.zeros(3, 4), 0),
    "ones": (lambda: torch.ones(3, 4), 1),
    "full": (lambda: torch.full((3, 4), 7.0), 7),
    "full of -inf": (lambda: torch.full((3, 4), -math.inf), -math.inf),
    "zeros_like": (lambda: torch.zeros_like(LIKE), 0),
    "ones_like": (lambda: torch.ones_like(LIKE), 1),
    "full_like": (lambda: torch.full_like(LIKE, 7), 7),
    "new_zeros": (lambda: LIKE.new_zeros(3, 4), 0),
    "new_ones": (lambda: LIKE.new_ones(3, 4), 1),
    "new_full": (lambda: LIKE.new_full((3, 4), 7), 7),
}


def guarded(make):
    guard = AllocationGuard()
    with guard:
        return guard, make()


@pytest.mark.parametrize("dtype", [*FLOATS, *SIGNED], ids=str)
@pytest.mark.parametrize("name", EMPTY)
def test_uninitialised_memory_is_poisoned_whole(name, dtype):
    guard, x = guarded(lambda: EMPTY[name](dtype))
    assert poisoned(x).all()
    assert x.dtype == dtype
    assert x.shape == (3, 4)
    assert guard.damages() == []


@pytest.mark.parametrize("name", EMPTY)
def test_a_guarded_allocation_has_the_strides_that_it_would_have_had(name):
    _, x = guarded(lambda: EMPTY[name](torch.float32))
    assert x.stride() == EMPTY[name](torch.float32).stride()


@pytest.mark.parametrize("name", FILLED)
def test_filled_memory_keeps_its_values_and_is_guarded(name):
    make, value = FILLED[name]
    guard, x = guarded(make)
    assert x.eq(value).all()
    assert len(guard.allocations) == 1
    assert guard.damages() == []


@pytest.mark.parametrize(("dtype", "value"), [
    *((dtype, torch.iinfo(dtype).min) for dtype in SIGNED), (torch.uint8, 255), (torch.bool, True),
], ids=str)  # fmt: skip
def test_poison_of_a_dtype_without_nan_is_an_end_of_its_range(dtype, value):
    assert fill_poison(torch.zeros(5, dtype=dtype)).eq(value).all()


@pytest.mark.parametrize("dtype", [*FLOATS, torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_poison_of_a_float_is_nan(dtype):
    assert fill_poison(torch.zeros(5, dtype=dtype)).to(torch.float32).isnan().all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_computed_nan_is_not_taken_for_poison(dtype):
    zero, infinite = torch.zeros(1, dtype=dtype), torch.full((1,), math.inf, dtype=dtype)
    computed = [zero / zero, infinite - infinite, infinite * 0, zero.new_full((1,), math.nan)]
    assert torch.cat(computed).isnan().all()
    assert not poisoned(torch.cat(computed)).any()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool], ids=str)
def test_no_value_of_a_dtype_without_room_for_poison_is_taken_for_it(dtype):
    assert not poisoned(fill_poison(torch.zeros(5, dtype=dtype))).any()


def test_poison_is_told_element_by_element_and_through_strides():
    _, x = guarded(lambda: torch.empty(4, 6))
    x[1] = 0
    x[2, 3] = math.nan
    kept = torch.ones(4, 6, dtype=torch.bool)
    kept[1], kept[2, 3] = False, False
    assert torch.equal(poisoned(x), kept)
    assert torch.equal(poisoned(x.t()), kept.t())


def beside(x, distance):
    return x.as_strided((1,), (1,), x.storage_offset() + distance)


@pytest.mark.parametrize(("shape", "dtype"), [((5,), torch.float32), ((3, 7), torch.bfloat16), ((1,), torch.uint8)])
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_write_one_element_beside_an_allocation_is_found(shape, dtype, side):
    guard, (x, other) = guarded(lambda: (torch.empty(shape, dtype=dtype), torch.zeros(shape)))
    beside(x, -1 if side == "before" else x.numel()).fill_(0)
    other.fill_(1)
    (damage,) = guard.damages()
    size = x.element_size()
    counts = (size, 0) if side == "before" else (0, size)
    assert (
        damage
        == f"{counts[0]} bytes before and {counts[1]} bytes after an allocation {list(shape)} {dtype} were written"
    )


@pytest.mark.parametrize("offset", [-ZONE, -1, 20, 20 + ZONE - 1])
def test_a_write_of_one_byte_through_a_bare_pointer_is_found(offset):
    guard, x = guarded(lambda: torch.zeros(5))
    ctypes.memset(x.data_ptr() + offset, guard.allocations[0].zone ^ 1, 1)
    assert len(guard.damages()) == 1


def test_a_write_into_the_gaps_of_a_strided_allocation_stays_inside():
    guard, x = guarded(lambda: torch.empty_strided((3, 4), (8, 1)))
    x.as_strided((20,), (1,)).fill_(0)
    assert guard.damages() == []


def test_nothing_is_found_on_a_clean_run():
    def clean():
        x = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
        out = torch.empty(16, 16)
        torch.mm(x, x.t(), out=out)
        rows = torch.zeros(16).scatter_add_(0, torch.arange(16), out.sum(1))
        return out, rows, x.softmax(-1), torch.empty(0, 4), torch.empty(2, 2, device="meta")

    guard, (out, rows, *_) = guarded(clean)
    assert guard.damages() == []
    assert len(guard.allocations) >= 2
    assert not poisoned(out).any()
    assert rows.isfinite().all()


def test_memory_allocated_outside_the_guard_is_left_alone():
    guard = AllocationGuard()
    before = torch.zeros(3)
    with guard:
        before.fill_(2)
    torch.empty(3)
    assert guard.allocations == []
