"""From a listing to the array of instructions that the native executor runs: one file a kind of instruction."""

from __future__ import annotations

from verification.gfx950.encoding.layout import INSTRUCTION, OPERAND
from verification.gfx950.encoding.program import Program, encode

__all__ = ["INSTRUCTION", "OPERAND", "Program", "encode"]
