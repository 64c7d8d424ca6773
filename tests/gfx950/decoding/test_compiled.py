"""Compiled kernels: what our reader makes of the text, against what tinygrad's decoder makes of the binary."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from verification.compilation import launches
from verification.gfx950 import executor
from verification.gfx950.conformance import programs

pytest.importorskip("tinygrad.renderer.amd", reason="tinygrad is not installed; it is in the extra `test`")

from .comparison import RENAMED, compare, split
from .machine_code import code_of

CHOSEN = (Path(__file__).parent / "programs.txt").read_text().split()
"""Of the conformance set, what has an opcode, a modifier or a kind of operand that no fused kernel has."""


def conformance():
    for name in CHOSEN:
        program = programs()[name]
        with executor(execute=False) as session:
            program.run(program.inputs())
        for launch in session.launches:
            yield name, launch


def fused():
    for label, _, launch in launches(architectures=("gfx950",)):
        yield label, launch


@pytest.mark.parametrize(("kernels", "instructions", "opcodes"), [(conformance, 35_000, 320), (fused, 60_000, 155)])
def test_every_instruction_is_read_as_it_is_encoded(kernels, instructions, opcodes):
    count, seen, renamed = 0, Counter(), Counter()
    for name, launch in kernels():
        (binary,) = launch.folder.glob("*.hsaco")
        ours, found = compare(launch.assembly, code_of(binary.read_bytes(), launch.kernel))
        names, others = split(found)
        assert others == [], name
        count += len(ours)
        seen.update(one.opcode for one in ours)
        renamed.update(names)
    assert renamed == {opcode: seen[opcode] for opcode in RENAMED if seen[opcode]}
    assert count > instructions
    assert len(seen) > opcodes
