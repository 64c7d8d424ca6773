"""What a kernel must not do is an error that names it; what the executor does not know is one as well."""

from __future__ import annotations

import re

import pytest
import torch
import triton
import triton.language as tl

from verification.gfx950 import Models, executor
from verification.gfx950.assembly import AssemblyError, read
from verification.gfx950.driver import program_of
from verification.gfx950.encoding import encode
from verification.gfx950.machine import ExecutionError


@triton.jit
def shifted_copy_kernel(x_ptr, y_ptr, count, shift: tl.constexpr, TILE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    tl.store(y_ptr + at, tl.load(x_ptr + at + shift, mask=at < count), mask=at < count)


@triton.jit
def wait_for_ever_kernel(flag_ptr, y_ptr):
    while tl.atomic_add(flag_ptr, 0) == 0:
        pass
    tl.store(y_ptr, 1)


@triton.jit
def counting_kernel(y_ptr, steps):
    total = 0
    for step in range(steps):
        total += tl.load(y_ptr + step % 2)
    tl.store(y_ptr, total)


@triton.jit
def row_sum_kernel(x_ptr, y_ptr, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    tl.store(y_ptr + row, tl.sum(tl.load(x_ptr + row * WIDTH + tl.arange(0, WIDTH)), axis=0))


def launched(kernel, grid, *args, models=None, **options):
    with executor(models or Models()) as session:
        kernel[grid](*args, **options)
    return session


@pytest.fixture
def plain_addresses(monkeypatch):
    """Compile without buffer loads and stores: hardware itself drops those that are out of their range."""
    monkeypatch.setattr(triton.knobs.amd, "use_buffer_ops", False)
    shifted_copy_kernel.device_caches.clear()


def test_a_buffer_load_out_of_its_range_gives_zero_as_on_hardware():
    x, y = torch.ones(256), torch.full((256,), 7.0)
    launched(shifted_copy_kernel, (2,), x, y, 256, shift=-1, TILE=128, num_warps=2)
    assert y.tolist() == [0.0] + [1.0] * 255


@pytest.mark.parametrize(("shift", "side"), [(-1, r"4 bytes before x_ptr"), (1, r"0 bytes past the end of x_ptr")])
def test_a_load_outside_a_tensor_names_kernel_place_instruction_and_tensor(plain_addresses, shift, side):
    x, y = torch.zeros(300)[8:264], torch.zeros(256)
    with pytest.raises(ExecutionError) as caught:
        launched(shifted_copy_kernel, (2,), x, y, 256, shift=shift, TILE=128, num_warps=2)
    message = str(caught.value)
    assert re.search(r"shifted_copy_kernel, workgroup \(\d, 0, 0\), wave \d, lane \d+: a load of 4 bytes at", message)
    assert re.search(side + r" \[256\] \(index \[(-1|256)\]\) by '(global|buffer)_load_dword", message)
    assert "test_execution_faults.py:" in message


def test_a_view_is_what_a_kernel_may_touch_not_its_storage(plain_addresses):
    storage = torch.zeros(256)
    with pytest.raises(ExecutionError, match="past the end of y_ptr"):
        launched(shifted_copy_kernel, (2,), torch.zeros(256), storage[:200], 256, shift=0, TILE=128)


def test_a_spin_that_nothing_can_end_is_a_named_deadlock():
    with pytest.raises(ExecutionError) as caught:
        launched(wait_for_ever_kernel, (3,), torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32))
    assert caught.value.kind == "deadlock"
    assert "spins at" in str(caught.value)


def test_a_loop_without_end_meets_the_instruction_limit():
    y = torch.zeros(2, dtype=torch.int32)
    models = Models(instruction_limit=20_000)
    with pytest.raises(ExecutionError, match=r"more than 20000 wave-instructions; it was at '"):
        launched(counting_kernel, (1,), y, 1 << 30, models=models)
    assert launched(counting_kernel, (1,), y, 100, models=models).executed < 20_000


def test_a_fault_leaves_the_driver_as_it_was(plain_addresses):
    from triton.runtime.driver import driver

    before, is_cuda = driver._active, torch.Tensor.is_cuda
    with pytest.raises(ExecutionError):
        launched(shifted_copy_kernel, (2,), torch.zeros(256), torch.zeros(100), 256, shift=0, TILE=128)
    assert driver._active is before
    assert torch.Tensor.is_cuda is is_cuda


@pytest.fixture(scope="module")
def row_sum():
    """Assembly of a row sum, whose waves meet in LDS."""
    x, y = (torch.arange(3 * 1024) % 7 - 3).float().reshape(3, 1024), torch.zeros(3)
    session = launched(row_sum_kernel, (3,), x, y, WIDTH=1024, num_warps=4)
    assert torch.equal(y, x.sum(1))  # whole numbers: any order of sums is exact
    return session.launches[0].assembly


def run_edited(old: str, new: str):
    """Outputs of the row sum with part of its text replaced."""
    x, y = torch.ones(3, 1024), torch.zeros(3)
    with executor() as session:
        row_sum_kernel[(1,)](x, torch.zeros(3), WIDTH=1024, num_warps=4)
        assembly = session.launches[0].assembly
        assert old in assembly

        def observe(launch):
            launch.program = program_of(assembly.replace(old, new))

        session.observe = observe
        row_sum_kernel[(3,)](x, y, WIDTH=1024, num_warps=4)
    return y


def test_without_its_waits_a_kernel_reads_registers_before_their_loads_land():
    assert not (run_edited("s_waitcnt vmcnt(0)", "s_nop 0") == 1024).all()


def test_without_its_barrier_a_kernel_reads_what_no_wave_has_written():
    assert not (run_edited("s_barrier", "s_nop 0") == 1024).all()


def test_an_access_outside_lds_is_named(row_sum):
    write = re.search(r"ds_write_b32 v\d+, v\d+", row_sum).group()
    with pytest.raises(ExecutionError, match=r"a store of 4 bytes at LDS byte \d+ of \d+ by 'ds_write_b32"):
        run_edited(write, f"{write} offset:65000")


@pytest.mark.parametrize(("old", "new", "told"), [
    ("s_barrier", "s_barrel", "unknown opcode s_barrel"),
    ("s_endpgm", "s_endpgm sc7", "operands of an instruction that takes none"),
    ("s_waitcnt lgkmcnt(0)", "s_waitcnt lgkmcnt(0) xcnt(0)", "unknown modifier 'xcnt"),
    ("v_readlane_b32 s", "v_readlane_b32 z", "unknown operand 'z"),
    (".p2align", ".p3align", "unknown directive .p3align"),
    ("\ts_branch .LBB0_0", "\ts_branch .LBB0_77", "unknown label .LBB0_77"),
    (".amdhsa_float_round_mode_32 0", ".amdhsa_float_round_mode_32 1", "float modes"),
    ("v_mov_b32_e32 v", "v_mov_b32_e32 s", "the result of a vector instruction is no vector register"),
])  # fmt: skip
def test_what_is_not_known_is_named_with_its_line(row_sum, old, new, told):
    assert old in row_sum
    with pytest.raises(AssemblyError, match=re.escape(told)) as caught:
        encode(read(row_sum.replace(old, new, 1)))
    assert re.search(r"line \d+:|float modes", str(caught.value))


@triton.autotune([triton.Config({"TILE": tile}) for tile in (64, 256)], key=["count"])
@triton.jit
def tuned_kernel(x_ptr, count, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.store(x_ptr + at, at, mask=at < count)


def test_an_autotuner_tries_each_configuration_here_and_chooses_by_instructions():
    x = torch.zeros(500, dtype=torch.int32)
    session = launched(tuned_kernel, lambda meta: (triton.cdiv(500, meta["TILE"]),), x, 500)
    assert torch.equal(x, torch.arange(500, dtype=torch.int32))
    assert {launch.grid[0] for launch in session.launches} == {2, 8}
