"""The array of instructions: field by field the structures of machine.h."""

from __future__ import annotations

import numpy as np

OPERAND = np.dtype([("where", "u1"), ("modifiers", "u1"), ("select", "u1"), ("width", "u1"), ("reg", "u4"),
                    ("value", "u8")])  # fmt: skip
INSTRUCTION = np.dtype([
    ("handler", "u4"), ("clamp", "u1"), ("multiply", "u1"), ("result_select", "u1"), ("result_unused", "u1"),
    ("flush", "u1"), ("op_sel", "u1"), ("op_sel_hi", "u1"), ("packed_neg_lo", "u1"), ("packed_neg_hi", "u1"),
    ("cross", "u1"), ("cross_zero", "u1"), ("returns", "u1"), ("lanes", "i4"), ("immediate", "i8"),
    ("extra", "i4", 8), ("write_mask", "u8"), ("result", OPERAND, 2), ("source", OPERAND, 5),
], align=True)  # fmt: skip

DWORD, BYTE_0, BYTE_1, BYTE_2, BYTE_3, WORD_0, WORD_1 = range(7)
"""Which part of a register is read (`select`) or written (`result_select`)."""

PAD, SIGN_EXTEND, PRESERVE = range(3)
"""What becomes of the rest of the result's register (`result_unused`)."""
