"""Machine code, by tinygrad's tables of fields, formats and operand widths, which come from AMD's own description."""

from __future__ import annotations

import re
import struct
from functools import cache

from .instruction import Instruction, marked, register, signed

ORDER = {
    "SOP1": ("sdst", "ssrc0"), "SOP2": ("sdst", "ssrc0", "ssrc1"), "SOPC": ("ssrc0", "ssrc1"),
    "SOPK": ("sdst", "simm16"), "SOPP": ("simm16",), "SMEM": ("sdata", "sbase", "soffset"),
    "VOP1": ("vdst", "src0"), "VOP2": ("vdst", "src0", "vsrc1"), "VOPC": ("src0", "vsrc1"),
    "VOP3": ("vdst", "src0", "src1", "src2"), "VOP3SD": ("vdst", "sdst", "src0", "src1", "src2"),
    "VOP3P": ("vdst", "src0", "src1", "src2"),
    "VOP3PX2": ("vdst", "src0", "src1", "src2", "scale_src0", "scale_src1"),
    "DS": ("vdst", "addr", "data0", "data1"), "MUBUF": ("vdata", "vaddr", "srsrc", "soffset"),
    "FLAT": ("vdst", "addr", "data"), "GLOBAL": ("vdst", "addr", "data", "saddr"),
    "SCRATCH": ("vdst", "addr", "data", "saddr"),
}  # fmt: skip
"""Fields of an encoding in the order in which the assembly writes them."""

FLOATS = {240: 0.5, 241: -0.5, 242: 1.0, 243: -1.0, 244: 2.0, 245: -2.0, 246: 4.0, 247: -4.0}
TURN = {16: 0x3118, 32: 0x3E22F983, 64: 0x3FC45F306DC9C882}
"""1/2π, which is number 248, as the manual spells it in bits."""
VCC, LITERAL, FIRST_VGPR, NO_REGISTER = 106, 255, 256, 127
SELECTS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")
OUTPUT = ({}, {"mul": 2}, {"mul": 4}, {"div": 2})
ROWS = {0x10: "row_shl", 0x11: "row_shr", 0x12: "row_ror", 0x15: "row_newbcast"}
CONTROLS = {
    0x130: "wave_shl:1", 0x134: "wave_rol:1", 0x138: "wave_shr:1", 0x13C: "wave_ror:1", 0x140: "row_mirror",
    0x141: "row_half_mirror", 0x142: "row_bcast:15", 0x143: "row_bcast:31",
}  # fmt: skip
CARRY_OUT = re.compile(r"v_(add|sub|subrev|addc|subb|subbrev)_co_u32")
CARRY_IN = re.compile(r"v_(addc|subb|subbrev)_co_u32|v_cndmask_b32")
TWO_OFFSETS = re.compile(r"ds_(read|write)2")
SCALED = 0xD3AC
"""The upper half of the first word of a scaled matrix instruction."""


def code_of(binary: bytes, kernel: str) -> bytes:
    """The bytes of a kernel in an ELF file of 64 bits."""
    assert binary[:6] == b"\x7fELF\x02\x01", "no little-endian ELF file of 64 bits"
    (offset,) = struct.unpack_from("<Q", binary, 0x28)
    size, count = struct.unpack_from("<HH", binary, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", binary, offset + k * size) for k in range(count)]
    for _, kind, _, _, start, length, link, *_ in sections:
        if kind not in (2, 11):  # a table of symbols
            continue
        names = sections[link][4]
        for at in range(start, start + length, 24):
            name, _, _, index, value, extent = struct.unpack_from("<IBBHQQ", binary, at)
            if binary[names + name : binary.index(b"\0", names + name)].decode() == kernel:
                first = sections[index][4] + value - sections[index][3]
                return binary[first : first + extent]
    raise AssertionError(f"the file has no symbol {kernel}")


def decode(code: bytes) -> list[Instruction]:
    """Every instruction from the first byte to the last."""
    from tinygrad.renderer.amd import decode_inst

    found, at = [], 0
    while at < len(code):
        inst = decode_inst(code[at : at + 16], "cdna")
        if type(inst).__name__ == "VOP3PX2" and inst.x2encoding != SCALED:
            # It looks for the second half of a scaled matrix instruction only, and takes what stands before
            # a plain one of the same shape for the first half: show it no more than eight bytes.
            inst = decode_inst(code[at : at + 8], "cdna")
        found.append(_Reader(inst, at).read())
        at += inst.size()
    assert at == len(code), "the last instruction reaches past the end of the kernel"
    return found


@cache
def _fields(encoding: type) -> dict[str, tuple[int, int]]:
    """Lowest bit and mask of every field."""
    return {name: (field.lo, field.mask) for name, field in encoding._fields}


@cache
def _first_numbers(encoding: type) -> dict[str, int]:
    """Where the numbering of a field begins among registers and constants: 256 where it names VGPRs only."""
    return {name: getattr(field, "_valid_range", (0,))[0] for name, field in encoding._fields}


class _Reader:
    def __init__(self, inst, address: int) -> None:
        self.inst, self.address = inst, address
        self.kind = type(inst).__name__
        self.encoding = self.kind.partition("_")[0]
        self.fields, self.first = _fields(type(inst)), _first_numbers(type(inst))
        self.types = {name: (form.name, bits, kind.name) for name, (form, bits, kind) in inst.operands.items()}
        self.name = inst.op_name.lower().removesuffix("_e32").removesuffix("_e64")
        self.matrix = self.kind == "VOP3P_MFMA" or self.encoding == "VOP3PX2"

    def raw(self, name: str) -> int:
        """A field's bits; 0 where the encoding has no such field."""
        low, mask = self.fields.get(name, (0, 0))
        return self.inst._raw >> low & mask

    def read(self) -> Instruction:
        target = None
        operands = self.operands()
        if self.types.get("simm16", ("", 0, ""))[2] == "OPR_LABEL":
            target = self.address + self.inst.size() + 4 * signed(self.raw("simm16"), 16)
            operands = []
        return Instruction(self.name, self.suffix(), tuple(operands), self.modifiers(), target, self.address,
                           self.inst.size())  # fmt: skip

    def suffix(self) -> str:
        if "SDWA" in self.kind:
            return "_sdwa"
        if "DPP" in self.kind:
            return "_dpp"
        return {"VOP1": "_e32", "VOP2": "_e32", "VOPC": "_e32", "VOP3": "_e64", "VOP3SD": "_e64"}.get(self.encoding, "")

    # ── operands ────────────────────────────────────────────────────────────

    def operands(self) -> list[str]:
        found = [self.operand(name) for name in ORDER[self.encoding] if self.present(name)]
        vcc = register("s", VCC, 2)
        if self.encoding == "VOPC":
            found.insert(0, register("s", self.raw("sdst"), 2) if self.raw("sd") else vcc)
        elif self.encoding == "VOP2":
            if CARRY_OUT.fullmatch(self.name):
                found.insert(1, vcc)
            if CARRY_IN.fullmatch(self.name):
                found.append(vcc)
            if self.name in ("v_fmamk_f32", "v_fmaak_f32"):
                found.insert(2 if "mk" in self.name else 3, f"{self.raw('literal'):#x}")
        elif self.name == "s_setreg_imm32_b32":
            found.append(f"{self.raw('literal'):#x}")
        return found

    def present(self, name: str) -> bool:
        """Whether the opcode has that operand, and the assembly writes it."""
        if name not in self.types or self.name == "s_waitcnt":
            return False
        if name == "vdst" and self.encoding in ("GLOBAL", "FLAT"):
            return "_lds_" not in self.name and ("_atomic_" not in self.name or bool(self.raw("sc0")))
        return not (name == "vdata" and self.raw("lds"))

    def operand(self, name: str) -> str:
        form, bits, kind = self.types[name]
        if name == "simm16":
            return self.immediate(form, kind)
        if self.encoding == "SMEM":
            return self.scalar_memory(name)
        if name == "srsrc":
            return register("s", 4 * self.raw(name), 4)
        words = self.inst.op_regs[name]
        if name == "vaddr" and not self.raw("offen") + self.raw("idxen"):
            return "off"
        if name == "saddr" and self.raw(name) == NO_REGISTER:
            return "off"
        if name == "addr" and self.encoding == "SCRATCH" and not self.raw("sve"):
            return "off"
        if name == "addr" and self.encoding in ("GLOBAL", "FLAT"):
            words = 1 if self.encoding == "GLOBAL" and self.raw("saddr") != NO_REGISTER else 2
        number = self.number(name, kind)
        if number == LITERAL or 128 <= number < 249:
            return f"{self.constant(name, number, form, bits):#x}"
        if number >= FIRST_VGPR:
            file = "a" if self.accumulates(name, kind) else "v"
            return marked(register(file, number - FIRST_VGPR, words), *self.marks(name))
        return marked(register("s", number, words), *self.marks(name))

    def number(self, name: str, kind: str) -> int:
        """A register or constant in the numbering of the sources: VGPRs from 256 on."""
        field = "vsrc0" if name == "src0" and "vsrc0" in self.fields else name
        number = self.raw(field) + self.first[field]
        scalar = self.raw({"src0": "s0", "vsrc1": "s1"}.get(name, ""))  # of an SDWA form
        return number - FIRST_VGPR if number >= FIRST_VGPR and (scalar or kind.startswith("OPR_SREG")) else number

    def immediate(self, form: str, kind: str) -> str:
        value = self.raw("simm16")
        if kind == "OPR_HWREG":
            return f"hwreg({value & 63}, {value >> 6 & 31}, {(value >> 11) + 1})"
        return f"{(signed(value, 16) & 0xFFFFFFFF if form.endswith('I16') and kind != 'OPR_LABEL' else value):#x}"

    def scalar_memory(self, name: str) -> str:
        words = self.inst.op_regs[name]
        if name == "sbase":
            return register("s", 2 * self.raw(name), words)
        if name == "sdata":
            return register("s", self.raw(name), words)
        if self.raw("soffset_en"):
            return register("s", self.raw("soffset"), 1)
        if self.raw("imm"):
            return f"{signed(self.raw('offset'), 21) & 0xFFFFFFFF:#x}"
        return register("s", self.raw("offset") & 127, 1)

    def constant(self, name: str, number: int, form: str, bits: int) -> int:
        """The bits that are read: a float is as wide as its operand, fp32 for integers of 16 bits."""
        wide = bits == 64 and "PK" not in form
        if number == LITERAL:
            value = self.raw("literal") << (32 if form.endswith("F64") else 0)
        elif number <= 208:
            value = (number - 128 if number <= 192 else 192 - number) & (1 << (64 if wide else 32)) - 1
        else:
            value = self.inline_float(name, number, form, wide)
        width = 64 if wide else 16 if form.endswith("F16") and "BF16" not in form else 32
        negative, absolute, _ = self.marks(name)
        value &= ~(1 << width - 1) if absolute else -1
        return value ^ (1 << width - 1 if negative else 0)

    def inline_float(self, name: str, number: int, form: str, wide: bool) -> int:
        brain = form.endswith("BF16")
        half = form.endswith("F16") and not brain and not self.encoding.startswith("SOP")
        if "_mix" in self.name:
            half = bool(self.halves() >> int(name[-1]) & 1)
        width = 64 if wide else 16 if half else 32
        if number == 248:
            value = TURN[width]
        else:
            packed = struct.pack({16: "<e", 32: "<f", 64: "<d"}[width], FLOATS[number])
            value = int.from_bytes(packed, "little")
        return value >> 16 if brain else value

    def accumulates(self, name: str, kind: str) -> bool:
        if kind in ("OPR_ACCVGPR", "OPR_SRC_ACCVGPR"):
            return True
        if self.matrix:
            chosen = {"src0": self.raw("acc") & 1, "src1": self.raw("acc") >> 1, "scale_src0": 0, "scale_src1": 0}
            return bool(chosen.get(name, self.raw("acc_cd")))
        return name in ("vdst", "vdata", "data", "data0", "data1") and bool(self.raw("acc"))

    def marks(self, name: str) -> tuple[bool, bool, bool]:
        """Whether a source is negated, taken absolute, sign-extended."""
        position = {"src0": 0, "src1": 1, "vsrc1": 1, "src2": 2}.get(name)
        if position is None or "bitop3" in self.name:
            return False, False, False
        if self.suffix() in ("_sdwa", "_dpp"):
            return tuple(bool(self.raw(f"src{position}_{mark}")) for mark in ("neg", "abs", "sext"))
        if self.encoding in ("VOP3", "VOP3SD") or "_mix" in self.name:
            absolute = self.raw("neg_hi" if "_mix" in self.name else "abs")
            return bool(self.raw("neg") >> position & 1), bool(absolute >> position & 1), False
        return False, False, False

    # ── modifiers ───────────────────────────────────────────────────────────

    def modifiers(self) -> dict[str, int | str]:
        found: dict[str, int | str] = {
            name: self.raw(name) for name in ("sc0", "sc1", "nt", "glc", "offen", "idxen", "lds", "gds", "cbsz", "blgp")
        }
        if not self.matrix:
            found["clamp"] = self.raw("clmp")  # the same bit is acc_cd there
        if "bitop3" in self.name:
            found["bitop3"] = self.raw("omod") << 6 | self.raw("abs") << 3 | self.raw("neg")
        else:
            found |= OUTPUT[self.raw("omod")]
        found |= self.waits() | self.offsets() | self.half_selects()
        found = {name: value for name, value in found.items() if value}
        return found | self.lane_form()

    def waits(self) -> dict[str, int]:
        """Counts that are waited for; the largest of a field waits for nothing."""
        if self.name != "s_waitcnt":
            return {}
        value = self.raw("simm16")
        counts = {"vmcnt": (value & 15 | value >> 14 << 4, 63), "lgkmcnt": (value >> 8 & 15, 15),
                  "expcnt": (value >> 4 & 7, 7)}  # fmt: skip
        return {f"wait {name}": count + 1 for name, (count, most) in counts.items() if count != most}

    def offsets(self) -> dict[str, int]:
        if self.encoding == "SMEM":
            return {"offset": signed(self.raw("offset"), 21) if self.raw("imm") and self.raw("soffset_en") else 0}
        if self.encoding in ("GLOBAL", "SCRATCH"):
            return {"offset": signed(self.raw("offset"), 13)}
        if self.encoding == "DS" and not TWO_OFFSETS.match(self.name):
            return {"offset": self.raw("offset0") | self.raw("offset1") << 8}
        return {name: self.raw(name) for name in ("offset", "offset0", "offset1")}

    def halves(self) -> int:
        return self.raw("opsel_hi") | self.raw("opsel_hi2") << 2

    def half_selects(self) -> dict[str, int]:
        """op_sel and its like as numbers, source k in bit k; bits of sources that there are not do not count."""
        if self.encoding == "VOP3":
            return {"op_sel": self.raw("opsel")}
        if self.kind not in ("VOP3P", "VOP3PX2") or "accvgpr" in self.name:
            return {}
        sources = 2 if self.matrix else sum(f"src{k}" in self.types for k in range(3))
        every = (1 << sources) - 1
        found = {"op_sel": self.raw("opsel") & every, "op_sel_hi": self.halves() & every}
        if "_mix" not in self.name:
            found |= {"neg_lo": self.raw("neg"), "neg_hi": self.raw("neg_hi")}
        return found

    def lane_form(self) -> dict[str, int | str]:
        if self.suffix() == "_dpp":
            found = {name: self.raw(name) for name in ("row_mask", "bank_mask")} | {"dpp": control(self.raw("dpp"))}
            return found | ({"bound_ctrl": 1} if self.raw("bc") else {})
        if self.suffix() != "_sdwa":
            return {}
        found = {"src0_sel": SELECTS[self.raw("src0_sel")]}
        if "vsrc1" in self.types:
            found["src1_sel"] = SELECTS[self.raw("src1_sel")]
        if "dst_sel" in self.fields:
            found |= {"dst_sel": SELECTS[self.raw("dst_sel")], "dst_unused": UNUSED[self.raw("dst_unused")]}
        return found


def control(value: int) -> str:
    """A DPP control as the assembly names it."""
    if value < 0x100:
        return f"quad_perm:[{','.join(str(value >> 2 * k & 3) for k in range(4))}]"
    return CONTROLS[value] if value in CONTROLS else f"{ROWS[value >> 4]}:{value & 15}"
