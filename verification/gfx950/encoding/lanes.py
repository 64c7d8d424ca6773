"""The forms that read other lanes or parts of registers: DPP and SDWA."""

from __future__ import annotations

from verification.gfx950 import cross, operands
from verification.gfx950.encoding import layout
from verification.gfx950.encoding.entry import Entry
from verification.gfx950.operands import OperandError

PARTS = {name: getattr(layout, name) for name in ("DWORD", "BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1")}
UNUSED = {"UNUSED_PAD": layout.PAD, "UNUSED_SEXT": layout.SIGN_EXTEND, "UNUSED_PRESERVE": layout.PRESERVE}


def _sdwa(entry: Entry) -> None:
    rest, out = entry.rest, entry.out
    for k in range(2):
        if f"src{k}_sel" in rest:
            out["source"][k]["select"] = PARTS[rest.pop(f"src{k}_sel")]
    if "dst_sel" in rest:
        out["result_select"] = PARTS[rest.pop("dst_sel")]
        out["result_unused"] = UNUSED[rest.pop("dst_unused", "UNUSED_PAD")]


def _dpp(entry: Entry) -> None:
    out = entry.out
    control = next((name for name in cross.CONTROLS if name in entry.rest), None)
    if control is None:
        raise OperandError("no known DPP control")
    out["cross"] = 1
    out["lanes"] = entry.kernel.row_of(cross.dpp_lanes(control, entry.rest.pop(control)))
    out["cross_zero"] = entry.rest.pop("bound_ctrl", None) is not None
    out["write_mask"] = cross.dpp_mask(entry.number("row_mask", 0xF), entry.number("bank_mask", 0xF))
    out["source"][0]["modifiers"] |= operands.CROSS


SUFFIXES = {"_e32": None, "_e64": None, "_dpp": _dpp, "_sdwa": _sdwa, "_e64_dpp": _dpp}
"""What may stand behind an opcode, and what more is then read."""
