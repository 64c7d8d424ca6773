"""Branches and the other instructions of control alone, and which opcodes no file here covers."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

from verification.gfx950.instructions import instructions
from verification.gfx950.machine import ExecutionError

ONE_WAVE = np.zeros((1, 1, 64))
BRANCHES = {
    "s_branch": ("", "s_nop 0"),
    "s_cbranch_scc0": ("s_cmp_eq_u32 0, 1", "s_cmp_eq_u32 1, 1"),
    "s_cbranch_scc1": ("s_cmp_eq_u32 1, 1", "s_cmp_eq_u32 0, 1"),
    "s_cbranch_vccz": ("s_mov_b64 vcc, 0", "s_mov_b64 vcc, 8"),
    "s_cbranch_vccnz": ("s_mov_b32 vcc_lo, 0\ns_mov_b32 vcc_hi, 1", "s_mov_b64 vcc, 0"),
    "s_cbranch_execz": ("s_mov_b64 exec, 0", "s_mov_b64 exec, 2"),
    "s_cbranch_execnz": ("s_mov_b32 exec_lo, 0\ns_mov_b32 exec_hi, 1", "s_mov_b64 exec, 0"),
}
"""What makes the branch taken, and what does not."""
NO_EFFECT = ("s_nop 3", "s_sleep 1", "s_setprio 2", "s_icache_inv", "s_dcache_wb", "s_dcache_inv", "v_nop",
             "buffer_wbl2 sc1", "buffer_inv sc1", "s_barrier", "s_waitcnt vmcnt(0)")  # fmt: skip
OPCODES = {
    *BRANCHES,
    *(text.partition(" ")[0] for text in NO_EFFECT),
    "s_trap", "s_memtime", "s_memrealtime", "s_getpc_b64", "s_setpc_b64", "s_setreg_imm32_b32", "s_endpgm",
}  # fmt: skip
UNTESTED = {
    "s_ttracedata": "for a tracer; it does nothing",
}


@pytest.mark.parametrize("opcode", BRANCHES)
def test_branch(lanes, opcode):
    for taken, head in enumerate(reversed(BRANCHES[opcode])):
        if opcode == "s_branch" and not taken:
            continue
        body = f"s_mov_b32 s50, 0\n{head}\n{opcode} there\ns_mov_b32 s50, 5\nthere:"
        assert lanes.execute(body, ONE_WAVE, None, ("s50",))[0, 0, 0] == (0 if taken else 5)


@pytest.mark.parametrize("text", NO_EFFECT)
def test_no_effect_on_registers(lanes, text):
    inputs = np.arange(64, dtype=np.uint32).reshape(1, 1, 64)
    body = f"s_mov_b32 s50, 7\ns_cmp_eq_u32 1, 1\n{text}"
    got = lanes.execute(body, inputs, None, ("v10", "s50", "s90", "s92", "s93"))[0]
    assert got[0].tolist() == list(range(64))
    assert got[1:, 0].tolist() == [7, 1, 0xFFFFFFFF, 0xFFFFFFFF]


def test_end_of_the_program_is_the_end(lanes):
    got = lanes.execute("s_cbranch_execnz there\ns_nop 0\nthere:\ns_endpgm", ONE_WAVE, None, ("v0",))
    assert not got.any()
    assert lanes.execute("", ONE_WAVE, None, ("v0",)).any()


def test_trap(lanes):
    with pytest.raises(ExecutionError) as caught:
        lanes.execute("s_trap 2", ONE_WAVE)
    assert caught.value.kind == "trap"


@pytest.mark.parametrize("opcode", ["s_memtime", "s_memrealtime"])
def test_clocks_go_on(lanes, opcode):
    got = lanes.execute(f"{opcode} s[50:51]\n{opcode} s[52:53]", ONE_WAVE, None, ("s50", "s51", "s52", "s53"))
    first, second = (int(got[0, k, 0]) | int(got[0, k + 1, 0]) << 32 for k in (0, 2))
    assert second > first


def test_jump_to_a_kept_address(lanes):
    body = """s_mov_b32 s52, 0
        s_getpc_b64 s[50:51]
        s_add_u32 s52, s52, 1
        s_cmp_ge_u32 s52, 3
        s_cbranch_scc1 out
        s_setpc_b64 s[50:51]
        out:"""
    assert lanes.execute(body, ONE_WAVE, None, ("s52",))[0, 0, 0] == 3


@pytest.mark.parametrize(("bit", "code"), [(0, 0x7F), (1, 0x7E)])
def test_mode_bit_of_overflow(lanes, bit, code):
    body = f"""s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), {bit}
        v_mov_b32 v10, 0x49742400
        v_mov_b32 v200, 0
        v_cvt_pk_fp8_f32 v200, v10, v10"""
    assert lanes.execute(body, ONE_WAVE, None, ("v200",))[0, 0, 0] == code << 8 | code


def test_nothing_of_an_earlier_launch_is_left(lanes):
    """Its memory is used again: registers and LDS begin as the NaN pattern all the same."""
    lanes.execute("v_mov_b32 v100, 7\ns_mov_b32 s60, 7\nds_write_b32 v1, v100", ONE_WAVE, lds=512)
    for lds in (512, 256):
        body = "s_mov_b32 s61, s60\nv_mov_b32 v101, v100\nds_read_b32 v102, v1\ns_waitcnt lgkmcnt(0)"
        got = lanes.execute(body, ONE_WAVE, None, ("v101", "v102", "s61"), lds=lds)[0]
        assert (got == 0x7FE5A5E5).all()


def test_every_opcode_has_a_test_or_a_reason():
    files = sorted(path.stem for path in Path(__file__).parent.glob("test_*.py"))
    modules = [importlib.import_module(f"{__package__}.{name}") for name in files]
    covered = set().union(*(getattr(module, "OPCODES", ()) for module in modules))
    assert covered <= instructions().keys(), sorted(covered - instructions().keys())
    assert instructions().keys() - covered == UNTESTED.keys()
