"""A text that is not that of the code is noticed, whatever field it differs in."""

from __future__ import annotations

import pytest

from verification.gfx950.assembly import read
from verification.gfx950.cross import CONTROLS
from verification.gfx950.instructions import instructions

pytest.importorskip("tinygrad.renderer.amd", reason="tinygrad is not installed; it is in the extra `test`")

from .assembler import KERNEL, assembled, kernel_of
from .comparison import compare
from .machine_code import code_of
from .variants import lines

CHANGES = [
    ("s_add_u32 s4, s5, s6", "s_sub_u32 s4, s5, s6", "opcode"),
    ("v_add_u32_e32 v1, v2, v3", "v_add_u32_e64 v1, v2, v3", "suffix"),
    ("s_nop 0", "s_nop 1", "operand 0"),
    ("s_mov_b32 s4, s5", "s_mov_b32 s6, s5", "operand 0"),
    ("v_mov_b32_e32 v1, v2", "v_mov_b32_e32 v1, s2", "operand 1"),
    ("v_mov_b32_e32 v1, v2", "v_mov_b32_e32 v1, 2", "operand 1"),
    ("v_accvgpr_mov_b32 a1, a2", "v_accvgpr_mov_b32 a1, a3", "operand 1"),
    ("ds_read_b32 v1, v2", "ds_read_b32 a1, v2", "operand 0"),
    ("v_add_co_u32_e64 v1, s[4:5], v2, v3", "v_add_co_u32_e64 v1, vcc, v2, v3", "operand 1"),
    ("v_cmp_eq_u32_sdwa vcc, v1, v2 src0_sel:DWORD src1_sel:DWORD",
     "v_cmp_eq_u32_sdwa s[4:5], v1, v2 src0_sel:DWORD src1_sel:DWORD", "operand 0"),
    ("v_add_f32_e32 v1, 1.0, v2", "v_add_f32_e32 v1, 2.0, v2", "operand 1"),
    ("v_add_f32_e32 v1, 0x40490fdb, v2", "v_add_f32_e32 v1, 0x40490fdc, v2", "operand 1"),
    ("v_fmamk_f32 v1, v2, 0x40490fdb, v3", "v_fmamk_f32 v1, v2, 0x40490fdc, v3", "operand 2"),
    ("v_fma_f64 v[0:1], v[2:3], 1.0, 0", "v_fma_f64 v[0:1], v[2:3], 0x3ff00001, 0", "operand 2"),
    ("s_movk_i32 s4, 0x8000", "s_movk_i32 s4, 0x7fff", "operand 1"),
    ("v_fma_f32 v1, -v2, v3, v4", "v_fma_f32 v1, v2, v3, v4", "operand 1"),
    ("v_fma_f32 v1, v2, |v3|, v4", "v_fma_f32 v1, v2, v3, v4", "operand 2"),
    ("v_cvt_f32_i32_sdwa v1, sext(v2) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1",
     "v_cvt_f32_i32_sdwa v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1", "operand 1"),
    ("v_add_f32_e64 v1, v2, v3 clamp", "v_add_f32_e64 v1, v2, v3", "clamp"),
    ("v_add_f32_e64 v1, v2, v3 mul:2", "v_add_f32_e64 v1, v2, v3 mul:4", "mul"),
    ("v_add_f32_e64 v1, v2, v3 div:2", "v_add_f32_e64 v1, v2, v3", "div"),
    ("v_fma_f16 v1, v2, v3, v4 op_sel:[1,0,0,0]", "v_fma_f16 v1, v2, v3, v4 op_sel:[0,1,0,0]", "op_sel"),
    ("v_cvt_scalef32_pk_fp4_f32 v1, v2, v3, v4 op_sel:[0,0,1,0]", "v_cvt_scalef32_pk_fp4_f32 v1, v2, v3, v4", "op_sel"),
    ("v_pk_add_f32 v[0:1], v[2:3], v[4:5] op_sel_hi:[1,0]", "v_pk_add_f32 v[0:1], v[2:3], v[4:5]", "op_sel_hi"),
    ("v_pk_add_f16 v1, v2, v3 neg_lo:[0,1]", "v_pk_add_f16 v1, v2, v3", "neg_lo"),
    ("v_pk_add_f16 v1, v2, v3 neg_hi:[0,1]", "v_pk_add_f16 v1, v2, v3 neg_hi:[1,0]", "neg_hi"),
    ("v_bitop3_b32 v1, v2, v3, v4 bitop3:0x6c", "v_bitop3_b32 v1, v2, v3, v4 bitop3:0x6d", "bitop3"),
    ("v_mov_b32_dpp v1, v2 row_shr:3 row_mask:0xf bank_mask:0xf",
     "v_mov_b32_dpp v1, v2 row_shl:3 row_mask:0xf bank_mask:0xf", "dpp"),
    ("v_mov_b32_dpp v1, v2 quad_perm:[0,1,2,3] row_mask:0xf bank_mask:0xf",
     "v_mov_b32_dpp v1, v2 quad_perm:[0,1,3,2] row_mask:0xf bank_mask:0xf", "dpp"),
    ("v_mov_b32_dpp v1, v2 row_mirror row_mask:0xf bank_mask:0xf",
     "v_mov_b32_dpp v1, v2 row_mirror row_mask:0xe bank_mask:0xf", "row_mask"),
    ("v_mov_b32_dpp v1, v2 row_mirror row_mask:0xf bank_mask:0xf",
     "v_mov_b32_dpp v1, v2 row_mirror row_mask:0xf bank_mask:0x7", "bank_mask"),
    ("v_mov_b32_dpp v1, v2 row_mirror row_mask:0xf bank_mask:0xf bound_ctrl:1",
     "v_mov_b32_dpp v1, v2 row_mirror row_mask:0xf bank_mask:0xf", "bound_ctrl"),
    ("v_add_u16_sdwa v1, v2, v3 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:BYTE_2",
     "v_add_u16_sdwa v1, v2, v3 dst_sel:WORD_0 dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:BYTE_2", "dst_sel"),
    ("v_add_u16_sdwa v1, v2, v3 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:BYTE_2",
     "v_add_u16_sdwa v1, v2, v3 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD src1_sel:BYTE_2",
     "dst_unused"),
    ("v_add_u16_sdwa v1, v2, v3 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:BYTE_2",
     "v_add_u16_sdwa v1, v2, v3 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:WORD_0 src1_sel:BYTE_2", "src0_sel"),
    ("v_add_u16_sdwa v1, v2, v3 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:BYTE_2",
     "v_add_u16_sdwa v1, v2, v3 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:BYTE_3", "src1_sel"),
    ("v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[8:15], v[16:23], 0",
     "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[8:15], v[16:23], 0 cbsz:1", "cbsz"),
    ("v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[8:15], v[16:23], 0 blgp:1",
     "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[8:15], v[16:23], 0", "blgp"),
    ("v_mfma_f32_16x16x16_f16 a[0:3], v[8:9], v[16:17], 0", "v_mfma_f32_16x16x16_f16 v[0:3], v[8:9], v[16:17], 0",
     "operand 0"),
    ("v_mfma_f32_16x16x16_f16 v[0:3], v[8:9], a[16:17], 0", "v_mfma_f32_16x16x16_f16 v[0:3], v[8:9], v[16:17], 0",
     "operand 2"),
    ("s_load_dword s4, s[0:1], 0x10", "s_load_dword s4, s[0:1], 0x14", "operand 2"),
    ("s_load_dword s4, s[0:1], s6 offset:0x10", "s_load_dword s4, s[0:1], s6 offset:0x14", "offset"),
    ("s_load_dword s4, s[0:1], 0x10 glc", "s_load_dword s4, s[0:1], 0x10", "glc"),
    ("global_load_dword v1, v2, s[4:5] offset:-8", "global_load_dword v1, v2, s[4:5] offset:8", "offset"),
    ("global_load_dword v1, v2, s[4:5] sc0", "global_load_dword v1, v2, s[4:5]", "sc0"),
    ("global_load_dword v1, v2, s[4:5] nt", "global_load_dword v1, v2, s[4:5]", "nt"),
    ("global_load_dword v1, v2, s[4:5] sc1", "global_load_dword v1, v2, s[4:5]", "sc1"),
    ("global_atomic_add v1, v2, v3, s[4:5] sc0", "global_atomic_add v2, v3, s[4:5]", "number of operands"),
    ("scratch_load_dword v1, off, s4", "scratch_load_dword v1, off, off", "operand 2"),
    ("buffer_load_dword v1, v2, s[4:7], 0 offen", "buffer_load_dword v1, v2, s[4:7], s9 offen", "operand 3"),
    ("buffer_load_dword v1, v2, s[4:7], 0 offen", "buffer_load_dword v1, off, s[4:7], 0", "offen"),
    ("buffer_load_dword v1, s[4:7], 0 offen lds", "buffer_load_dword v0, v1, s[4:7], 0 offen", "lds"),
    ("ds_read2_b32 v[0:1], v2 offset0:1 offset1:2", "ds_read2_b32 v[0:1], v2 offset0:3 offset1:2", "offset0"),
    ("ds_read2_b32 v[0:1], v2 offset0:1 offset1:2", "ds_read2_b32 v[0:1], v2 offset0:1 offset1:3", "offset1"),
    ("ds_write_b32 v1, v2 offset:300", "ds_write_b32 v1, v2 offset:44", "offset"),
    ("ds_swizzle_b32 v1, v2 offset:swizzle(SWAP,16)", "ds_swizzle_b32 v1, v2 offset:swizzle(SWAP,8)", "lanes"),
    ("s_waitcnt vmcnt(1)", "s_waitcnt vmcnt(2)", "wait vmcnt"),
    ("s_waitcnt lgkmcnt(0)", "s_waitcnt lgkmcnt(1)", "wait lgkmcnt"),
    ("s_waitcnt vmcnt(0) expcnt(0)", "s_waitcnt vmcnt(0)", "wait expcnt"),
    ("s_branch start", "s_branch behind", "target"),
    ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1", "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 0", "operand 1"),
]  # fmt: skip


def fields(text, code):
    return {one.field for one in compare(text, code)[1]}


@pytest.mark.parametrize(("line", "changed", "field"), CHANGES)
def test_a_change_of_the_text_is_noticed(line, changed, field):
    around = ["v_mov_b32_e32 v9, v8", line, "behind:"]
    text = kernel_of(around)
    code = code_of(assembled(text), KERNEL)
    assert fields(text, code) == set()
    assert field in fields(text.replace(line, changed), code)


def test_every_modifier_that_the_assembly_of_an_opcode_has_is_changed_above():
    text = "\n".join(line for row in instructions().values() for line in lines(row))
    names = {name for line in read(text).lines for name in line.modifiers}
    spelt = {f"wait {name}" if name.endswith("cnt") else "dpp" if name in CONTROLS else name for name in names}
    assert spelt - {field for _, _, field in CHANGES} == set()


def test_a_width_that_is_not_that_of_the_code_is_noticed():
    line, changed = (f"v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[8:{end}], v[16:23], 0 cbsz:{format_}"
                     for end, format_ in ((15, 0), (11, 4)))  # fmt: skip
    code = code_of(assembled(kernel_of([line])), KERNEL)
    assert fields(kernel_of([changed]), code) == {"cbsz", "operand 1"}


def test_a_missing_instruction_and_an_alignment_that_is_not_asked_for_are_noticed():
    text = kernel_of(["s_nop 1", "\t.p2align\t6", "s_nop 2", "s_nop 3"])
    code = code_of(assembled(text), KERNEL)
    assert fields(text, code) == set()
    for old in ("s_nop 3\n", "\t.p2align\t6\n"):
        with pytest.raises(AssertionError, match="instructions in the text"):
            compare(text.replace(old, ""), code)
    with pytest.raises(AssertionError, match="on the way to an alignment"):
        compare(text.replace("s_nop 1", "s_nop 1\ns_nop 0").replace("p2align\t6", "p2align\t7"), code)


def test_a_kernel_that_the_file_has_not_is_named():
    with pytest.raises(AssertionError, match="no symbol other"):
        code_of(assembled(kernel_of([])), "other")
