"""From a listing to the array of instructions that the native executor runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from verification.gfx950 import cross, operands
from verification.gfx950.assembly import AssemblyError, Line, Listing
from verification.gfx950.build import handler_numbers
from verification.gfx950.instructions import instructions
from verification.gfx950.instructions.matrix import F32, FORMATS, wide_registers
from verification.gfx950.instructions.rows import Row
from verification.gfx950.instructions.types import kind_of
from verification.gfx950.operands import Operand, OperandError

OPERAND = np.dtype([("where", "u1"), ("modifiers", "u1"), ("select", "u1"), ("width", "u1"), ("reg", "u4"),
                    ("value", "u8")])  # fmt: skip
INSTRUCTION = np.dtype([
    ("handler", "u4"), ("clamp", "u1"), ("multiply", "u1"), ("result_select", "u1"), ("result_unused", "u1"),
    ("flush", "u1"), ("op_sel", "u1"), ("op_sel_hi", "u1"), ("packed_neg_lo", "u1"), ("packed_neg_hi", "u1"),
    ("cross", "u1"), ("cross_zero", "u1"), ("returns", "u1"), ("lanes", "i4"), ("immediate", "i8"),
    ("extra", "i4", 8), ("write_mask", "u8"), ("result", OPERAND, 2), ("source", OPERAND, 5),
], align=True)  # fmt: skip

SELECTS = {"DWORD": 0, "BYTE_0": 1, "BYTE_1": 2, "BYTE_2": 3, "BYTE_3": 4, "WORD_0": 5, "WORD_1": 6}
UNUSED = {"UNUSED_PAD": 0, "UNUSED_SEXT": 1, "UNUSED_PRESERVE": 2}
SUFFIXES = ("_e32", "_e64", "_dpp", "_sdwa", "_e64_dpp")
CACHE_HINTS = frozenset({"sc0", "sc1", "nt", "glc", "slc", "dlc"})
FLOATS = frozenset({"f32", "f16", "f64"})


@dataclass
class Program:
    """A kernel ready to run: code, the lane tables it refers to, its listing, its register count."""

    code: Any
    lanes: Any
    listing: Listing
    vgprs: int
    _known: tuple[Any, Any, int, int] = (None, None, 0, 0)

    @property
    def addresses(self) -> tuple[int, int]:
        """Where code and lane tables are in memory; asking numpy costs as much as a short launch."""
        if self._known[0] is not self.code or self._known[1] is not self.lanes:
            self._known = (self.code, self.lanes, self.code.ctypes.data, self.lanes.ctypes.data)
        return self._known[2:]


def encode(listing: Listing) -> Program:
    """Encode every instruction; raises AssemblyError that names the line and what is not known."""
    code = np.zeros(len(listing.lines), INSTRUCTION)
    encoder = _Encoder(listing)
    for index, line in enumerate(listing.lines):
        try:
            encoder.encode(line, code[index])
        except (OperandError, KeyError, IndexError, ValueError) as error:
            what = f"unknown {error}" if isinstance(error, KeyError) else str(error)
            raise AssemblyError(f"line {line.number}: {what} in {line.text!r}") from error
    return Program(code, encoder.lane_rows(), listing, encoder.place_accumulators(code))


class _Encoder:
    def __init__(self, listing: Listing) -> None:
        self.listing = listing
        self._rows: dict[tuple[int, ...], int] = {}
        denormals = listing.directives.get("float_denorm_mode_32", 3)
        rounding = {listing.directives.get(f"float_round_mode_{bits}", 0) for bits in ("32", "16_64")}
        if denormals not in (0, 3) or listing.directives.get("float_denorm_mode_16_64", 3) != 3 or rounding != {0}:
            raise AssemblyError(
                f"float modes of {listing.name} are not modelled: denorm_mode_32 {denormals}, round modes {rounding}"
            )
        self.flush = denormals == 0

    def lane_rows(self) -> Any:
        return np.array(list(self._rows) or [(0,) * 64], dtype=np.int8)

    def place_accumulators(self, code: Any) -> int:
        """Put the accumulation registers right behind the others, and count them all."""
        sides = [code["result"].reshape(-1), code["source"].reshape(-1)]
        used, accumulated = 1, 0
        for side in sides:
            vector = side[side["where"] == operands.IN_VGPR]
            last = vector["reg"].astype(int) + np.maximum(vector["width"], 1)
            plain = vector["reg"] < operands.ACCUMULATORS
            used = max(used, int(last[plain].max(initial=0)))
            accumulated = max(accumulated, int(last[~plain].max(initial=0)) - operands.ACCUMULATORS)
        for name in ("result", "source"):
            moved = (code[name]["where"] == operands.IN_VGPR) & (code[name]["reg"] >= operands.ACCUMULATORS)
            code[name]["reg"] = np.where(moved, code[name]["reg"] - operands.ACCUMULATORS + used, code[name]["reg"])
        return used + max(accumulated, 0)

    def encode(self, line: Line, out: Any) -> None:
        name, form = line.opcode, ""
        table = instructions()
        for suffix in SUFFIXES:
            if line.opcode not in table and line.opcode.endswith(suffix):
                name, form = line.opcode.removesuffix(suffix), suffix
        if name not in table:
            raise OperandError(f"unknown opcode {line.opcode}")
        row, rest = table[name], dict(line.modifiers)
        number = handler_numbers()[name]
        if "clamp" in rest and row.form in ("plain", "packed") and not self._clamps_float(row):
            if row.saturated is None:
                raise OperandError(f"{name} has no integer clamp here")
            number = handler_numbers()[f"{name}.clamp"]
            del rest["clamp"]
        out["handler"] = number
        out["write_mask"] = (1 << 64) - 1
        out["extra"][: len(row.extra)] = row.extra
        getattr(self, f"_form_{row.form}")(row, line, rest, out)
        if form in ("_sdwa", "_dpp", "_e64_dpp"):
            self._lane_forms(row, form, rest, out)
        if rest:
            raise OperandError(f"modifier {', '.join(rest)} of {line.opcode} is not known")

    @staticmethod
    def _clamps_float(row: Row) -> bool:
        return bool(row.results) and row.results[0] in FLOATS

    # ── operands ────────────────────────────────────────────────────────────

    def _put(self, slot: Any, operand: Operand, kind_name: str, *, register_only: bool = False) -> None:
        kind = kind_of(kind_name)
        constants = kind_name[0] not in "v" and not register_only
        if operand.where == operands.CONSTANT:
            if not constants:
                raise OperandError(f"a constant where {kind_name} registers are expected")
            value = operands.constant_bits(operand, kind.constant, kind.words)
            if kind_name == "k16":  # printed as 16 bits, read as signed
                value = ((value & 0xFFFF) ^ 0x8000) - 0x8000 & 0xFFFFFFFF
            slot["value"] = self._signed(value, operand.modifiers, kind.sign) if operand.modifiers else value
            slot["where"] = operands.CONSTANT
            return
        if operand.where != operands.NOTHING and operand.words != kind.words:
            raise OperandError(f"{operand.words} registers where {kind_name} takes {kind.words}")
        if operand.where == operands.IN_SGPR and kind_name[0] in "vcd":
            raise OperandError(f"a scalar register where {kind_name} is expected")
        if operand.where == operands.IN_VGPR and kind_name in ("s32", "s64", "mask", "maskx"):
            raise OperandError(f"a vector register where {kind_name} is expected")
        if operand.modifiers & (operands.NEG | operands.ABS) and not kind.sign:
            raise OperandError(f"a sign modifier on a source of type {kind_name}")
        slot["where"], slot["reg"], slot["width"] = operand.where, operand.register, min(operand.words, 255)
        slot["modifiers"] = operand.modifiers | (operands.FLUSH if self.flush and kind_name == "f32" else 0)

    @staticmethod
    def _signed(value: int, modifiers: int, sign: int) -> int:
        if modifiers & operands.ABS:
            value &= ~sign
        return value ^ sign if modifiers & operands.NEG else value

    def _all(self, line: Line, kinds: tuple[str, ...]) -> list[Operand]:
        if len(line.operands) != len(kinds):
            raise OperandError(f"{len(line.operands)} operands where {len(kinds)} are expected")
        return [operands.parse(text) for text in line.operands]

    def _form_plain(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        kinds = (*row.results, *row.written_sources)
        parsed = self._all(line, kinds)
        for k, kind in enumerate(row.results):
            self._put(out["result"][k], parsed[k], kind, register_only=True)
        for k, kind in enumerate(row.written_sources):
            self._put(out["source"][k], parsed[len(row.results) + k], kind)
        if row.family == "scalar":
            if any(operand.where == operands.IN_VGPR for operand in parsed):
                raise OperandError("a vector register in a scalar instruction")
            return
        if row.results and row.results[0] not in ("mask", "maskx") and out["result"][0]["where"] != operands.IN_VGPR:
            raise OperandError("the result of a vector instruction is no vector register")
        self._output(row, rest, out)
        if "bitop3" in rest:
            out["extra"][0] = int(rest.pop("bitop3"), 0)
        self._half_selects(row, rest, out)

    def _output(self, row: Row, rest: dict[str, str], out: Any) -> None:
        if self._clamps_float(row) or row.form == "mixed":
            out["flush"] = self.flush and row.results[0] == "f32"
            if "clamp" in rest:
                del rest["clamp"]
                out["clamp"] = 1
            if "mul" in rest:
                out["multiply"] = {"2": 1, "4": 2}[rest.pop("mul")]
            if "div" in rest:
                out["multiply"] = {"2": 3}[rest.pop("div")]

    def _half_selects(self, row: Row, rest: dict[str, str], out: Any) -> None:
        """op_sel of a plain instruction: which half or byte is read, and which is written."""
        count = len(row.written_sources)
        chosen = _bits(rest.pop("op_sel", "")) if "op_sel" in rest else [0] * 4
        chosen += [0] * (4 - len(chosen))
        result = row.results[0] if row.results else ""
        if result == "half16":
            out["result_select"], out["result_unused"] = 5 + (chosen[3] or chosen[count]), 2
        elif result == "byte8":
            out["result_select"], out["result_unused"] = 1 + chosen[2] + 2 * chosen[3], 2
        elif chosen[count if count < 4 else 3]:
            if result not in ("f16", "u16", "i16"):
                raise OperandError("op_sel of a result that is no half")
            out["result_select"], out["result_unused"] = 6, 2
        for k, kind in enumerate(row.written_sources):
            if kind == "word":
                out["source"][k]["select"] = 5 + chosen[k]
            elif kind == "byte2":
                out["source"][k]["select"] = 1 + chosen[0] + 2 * chosen[1]
            elif chosen[k]:
                if kind not in ("f16", "u16", "i16"):
                    if result in ("half16", "byte8") or "byte2" in row.written_sources:
                        continue
                    raise OperandError(f"op_sel of a source of type {kind}")
                out["source"][k]["select"] = 6

    def _form_function(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        parsed = self._all(line, (*row.results, *row.sources))
        self._put(out["result"][0], parsed[0], row.results[0], register_only=True)
        for k, kind in enumerate(row.sources):
            self._put(out["source"][k], parsed[1 + k], kind)

    def _form_packed(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        single = row.results[0] in ("f32", "u32")
        parsed = self._all(line, (*row.results, *row.sources))
        kind = "u64" if single else "u32"
        self._put(out["result"][0], parsed[0], kind, register_only=True)
        for k, source in enumerate(row.sources):
            operand = parsed[1 + k]
            if operand.where == operands.CONSTANT:
                value = operands.constant_bits(operand, kind_of(source).constant, 1)
                out["source"][k]["where"], out["source"][k]["value"] = operands.CONSTANT, value
            else:
                self._put(out["source"][k], operand, kind)
        everything = (1 << len(row.sources)) - 1
        out["op_sel"] = _packed_bits(rest.pop("op_sel", None), 0)
        default = 0b10 if row.name == "v_pk_mov_b32" else everything
        out["op_sel_hi"] = _packed_bits(rest.pop("op_sel_hi", None), default)
        if row.name == "v_pk_mov_b32":
            out["op_sel"], out["op_sel_hi"] = out["op_sel"] & 1, out["op_sel"] & 2
        out["packed_neg_lo"] = _packed_bits(rest.pop("neg_lo", None), 0)
        out["packed_neg_hi"] = _packed_bits(rest.pop("neg_hi", None), 0)
        self._output(row, rest, out)

    def _form_mixed(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        parsed = self._all(line, (*row.results, *row.sources))
        self._put(out["result"][0], parsed[0], "u32", register_only=True)
        for k in range(3):
            self._put(out["source"][k], parsed[1 + k], "mixed")
        out["op_sel"] = _packed_bits(rest.pop("op_sel", None), 0)
        out["op_sel_hi"] = _packed_bits(rest.pop("op_sel_hi", None), 0)
        self._output(row, rest, out)

    # ── DPP and SDWA ────────────────────────────────────────────────────────

    def _lane_forms(self, row: Row, form: str, rest: dict[str, str], out: Any) -> None:
        if form == "_sdwa":
            for k in range(2):
                if f"src{k}_sel" in rest:
                    out["source"][k]["select"] = SELECTS[rest.pop(f"src{k}_sel")]
            if "dst_sel" in rest:
                out["result_select"] = SELECTS[rest.pop("dst_sel")]
                out["result_unused"] = UNUSED[rest.pop("dst_unused", "UNUSED_PAD")]
            return
        for control in cross.CONTROLS:
            if control in rest:
                row_of_lanes = tuple(cross.dpp_lanes(control, rest.pop(control)))
                break
        else:
            raise OperandError("no known DPP control")
        out["cross"] = 1
        out["lanes"] = self._rows.setdefault(row_of_lanes, len(self._rows))
        out["cross_zero"] = "bound_ctrl" in rest
        rest.pop("bound_ctrl", None)
        masks = (int(rest.pop(name, "0xf"), 0) for name in ("row_mask", "bank_mask"))
        out["write_mask"] = cross.dpp_mask(*masks)
        out["source"][0]["modifiers"] |= operands.CROSS

    # ── memory ──────────────────────────────────────────────────────────────

    def _cache(self, rest: dict[str, str]) -> None:
        for hint in CACHE_HINTS & rest.keys():
            del rest[hint]

    def _global(self, address: str, base: str, rest: dict[str, str], out: Any) -> None:
        scalar = operands.parse(base)
        self._put(out["source"][1], scalar, "s64")
        self._put(out["source"][0], operands.parse(address), "u32" if scalar.where == operands.IN_SGPR else "u64",
                  register_only=True)  # fmt: skip
        out["immediate"] = int(rest.pop("offset", "0"), 0)

    def _form_global_load(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        result, address, base = line.operands
        self._put(out["result"][0], operands.parse(result), row.results[0])
        self._global(address, base, rest, out)
        self._cache(rest)

    def _form_global_store(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        address, data, base = line.operands
        self._put(out["source"][3], operands.parse(data), row.sources[0])
        self._global(address, base, rest, out)
        self._cache(rest)

    def _form_global_load_lds(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        address, base = line.operands
        self._global(address, base, rest, out)
        self._cache(rest)

    def _form_global_atomic(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        texts = list(line.operands)
        if "sc0" in rest:
            self._put(out["result"][0], operands.parse(texts.pop(0)), row.results[0])
            out["returns"] = 1
        self._put(out["source"][3], operands.parse(texts[1]), row.sources[0])
        self._global(texts[0], texts[2], rest, out)
        self._cache(rest)

    def _form_flat_load(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        self._form_global_load(row, _with_off(line), rest, out)

    def _form_flat_store(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        self._form_global_store(row, _with_off(line), rest, out)

    def _form_flat_atomic(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        self._form_global_atomic(row, _with_off(line), rest, out)

    def _scratch(self, address: str, base: str, rest: dict[str, str], out: Any) -> None:
        self._put(out["source"][0], operands.parse(address), "u32")
        self._put(out["source"][1], operands.parse(base), "s32")
        out["immediate"] = int(rest.pop("offset", "0"), 0)
        self._cache(rest)

    def _form_scratch_load(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        result, address, base = line.operands
        self._put(out["result"][0], operands.parse(result), row.results[0])
        self._scratch(address, base, rest, out)

    def _form_scratch_store(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        address, data, base = line.operands
        self._put(out["source"][3], operands.parse(data), row.sources[0])
        self._scratch(address, base, rest, out)

    def _buffer(self, texts: list[str], rest: dict[str, str], out: Any) -> None:
        vector, resource, scalar = texts
        parsed = operands.parse(resource)
        if parsed.where != operands.IN_SGPR or parsed.words != 4:
            raise OperandError("the resource of a buffer instruction is four scalar registers")
        if "offen" in rest:
            del rest["offen"]
            self._put(out["source"][0], operands.parse(vector), "u32")
        elif vector != "off":
            raise OperandError("a buffer offset without offen")
        else:
            out["source"][0]["where"] = operands.CONSTANT
        out["source"][1]["where"], out["source"][1]["reg"] = operands.IN_SGPR, parsed.register
        self._put(out["source"][2], operands.parse(scalar), "s32")
        out["immediate"] = int(rest.pop("offset", "0"), 0)

    def _form_buffer_load(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        texts = list(line.operands)
        if "lds" in rest:
            del rest["lds"]
            out["extra"][3] = 1
        else:
            self._put(out["result"][0], operands.parse(texts.pop(0)), row.results[0])
        self._buffer(texts, rest, out)
        self._cache(rest)

    def _form_buffer_store(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        data, *texts = line.operands
        self._put(out["source"][3], operands.parse(data), row.sources[0])
        self._buffer(texts, rest, out)
        self._cache(rest)

    def _form_buffer_atomic(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        data, *texts = line.operands
        self._put(out["source"][3], operands.parse(data), row.sources[0])
        if "sc0" in rest:
            self._put(out["result"][0], operands.parse(data), row.sources[0])
            out["returns"] = 1
        self._buffer(texts, rest, out)
        self._cache(rest)

    def _form_scalar_load(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        result, base, offset = line.operands
        self._put(out["result"][0], operands.parse(result), row.results[0])
        self._put(out["source"][0], operands.parse(base), "s64")
        self._put(out["source"][1], operands.parse(offset), "s32")
        out["immediate"] = int(rest.pop("offset", "0"), 0)
        self._cache(rest)

    # ── LDS ─────────────────────────────────────────────────────────────────

    def _lds(self, row: Row, rest: dict[str, str], out: Any, count: int = 1) -> None:
        scale = (out["extra"][0] * (64 if "st64" in row.name else 1)) if count == 2 else 1
        names = ("offset0", "offset1") if count == 2 else ("offset",)
        for k, name in enumerate(names):
            out["extra"][4 + k] = int(rest.pop(name, "0"), 0) * scale
        out["extra"][6] = count

    def _form_lds_load(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        result, address = self._all(line, (*row.results, *row.sources))
        self._put(out["result"][0], result, row.results[0])
        self._put(out["source"][0], address, "u32", register_only=True)
        self._lds(row, rest, out, 2 if "read2" in row.name else 1)

    _form_lds_load2 = _form_lds_load

    def _form_lds_load_data(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        result, address, data = self._all(line, (*row.results, *row.sources))
        self._put(out["result"][0], result, row.results[0])
        self._put(out["source"][0], address, "u32", register_only=True)
        self._put(out["source"][3], data, "v32")
        out["extra"][0] = 4
        self._lds(row, rest, out)

    def _form_lds_store(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        address, *data = self._all(line, row.sources)
        self._put(out["source"][0], address, "u32", register_only=True)
        for k, operand in enumerate(data):
            self._put(out["source"][3 + k], operand, row.sources[1 + k])
        self._lds(row, rest, out, 2 if "write2" in row.name else 1)

    _form_lds_store2 = _form_lds_store

    def _form_lds_atomic(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        parsed = self._all(line, (*row.results, *row.sources))
        if row.results:
            self._put(out["result"][0], parsed.pop(0), row.results[0])
            out["returns"] = 1
        self._put(out["source"][0], parsed[0], "u32", register_only=True)
        for k, operand in enumerate(parsed[1:]):
            self._put(out["source"][3 + k], operand, row.sources[1 + k])
        self._lds(row, rest, out)

    def _form_swizzle(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        result, data = self._all(line, (*row.results, *row.sources))
        self._put(out["result"][0], result, "u32")
        self._put(out["source"][0], data, "v32")
        out["extra"][0] = 4
        lanes = tuple(cross.swizzle_lanes(rest.pop("offset", "0")))
        out["lanes"] = self._rows.setdefault(lanes, len(self._rows))

    # ── matrix ──────────────────────────────────────────────────────────────

    def _matrix(self, kinds: tuple[str, ...], line: Line, out: Any) -> None:
        parsed = self._all(line, kinds)
        self._put(out["result"][0], parsed[0], kinds[0], register_only=True)
        for k, kind in enumerate(kinds[1:]):
            self._put(out["source"][k], parsed[1 + k], kind)

    def _form_matrix(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        self._matrix((*row.results, *row.sources), line, out)
        cbsz, abid, blgp = (int(rest.pop(name, "0"), 0) for name in ("cbsz", "abid", "blgp"))
        if 1 << cbsz > row.extra[7] or abid >= 1 << cbsz or blgp > 7:
            raise OperandError(f"cbsz:{cbsz} abid:{abid} blgp:{blgp} with {row.extra[7]} blocks")
        out["immediate"] = cbsz | abid << 4 | blgp << 8
        out["flush"] = self.flush and row.extra[2] == F32

    def _form_matrix_doubles(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        self._matrix((*row.results, *row.sources), line, out)
        out["packed_neg_lo"] = _packed_bits(rest.pop("neg", None), 0)

    def _form_matrix_sparse(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        self._matrix((*row.results, *row.sources), line, out)
        cbsz, abid = (int(rest.pop(name, "0"), 0) for name in ("cbsz", "abid"))
        out["immediate"] = cbsz | abid << 4

    def _form_matrix_wide(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        formats = []
        for name in ("cbsz", "blgp"):
            code = int(rest.pop(name, "0"), 0)
            if code not in FORMATS:
                raise OperandError(f"{name}:{code} is no format")
            formats.append(FORMATS[code])
        out["extra"][2], out["extra"][3] = formats
        self._matrix((row.results[0], *map(wide_registers, formats), *row.sources[2:]), line, out)
        if row.extra[6]:
            out["op_sel"] = _packed_bits(rest.pop("op_sel", None), 0)
            out["op_sel_hi"] = _packed_bits(rest.pop("op_sel_hi", None), 0)

    # ── control ─────────────────────────────────────────────────────────────

    def _form_branch(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        (label,) = line.operands
        if label not in self.listing.labels:
            raise OperandError(f"unknown label {label}")
        out["immediate"] = self.listing.labels[label]

    def _form_wait(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        out["extra"][0] = int(rest.pop("vmcnt", "64"))
        out["extra"][1] = int(rest.pop("lgkmcnt", "64"))
        rest.pop("expcnt", None)
        if line.operands:
            raise OperandError("s_waitcnt by a number is not read")

    def _form_overflow_mode(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        register, value = line.operands
        if not re.fullmatch(r"hwreg\(HW_REG_MODE,\s*23,\s*1\)", register):
            raise OperandError(f"{register} is not modelled: only the mode bit FP16_OVFL is")
        out["immediate"] = int(value, 0)

    def _form_none(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        if line.operands:
            raise OperandError("operands of an instruction that takes none")

    def _form_immediate(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        int(line.operands[0], 0)

    def _form_cache(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        self._cache(rest)

    def _form_result(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        self._put(out["result"][0], operands.parse(line.operands[0]), row.results[0], register_only=True)

    def _form_source(self, row: Row, line: Line, rest: dict[str, str], out: Any) -> None:
        self._put(out["source"][0], operands.parse(line.operands[0]), row.sources[0])


def _with_off(line: Line) -> Line:
    return Line(line.number, line.opcode, (*line.operands, "off"), line.modifiers, line.source, line.text)


def _bits(text: str) -> list[int]:
    return [int(part) for part in text.strip("[]").split(",")] if text else []


def _packed_bits(text: str | None, default: int) -> int:
    return default if text is None else sum(bit << k for k, bit in enumerate(_bits(text)))
