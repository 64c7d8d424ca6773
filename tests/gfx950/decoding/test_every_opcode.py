"""Every opcode of the tables, assembled by LLVM with each kind of operand and each modifier, and decoded."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

import pytest

from verification.gfx950.assembly import AssemblyError, read
from verification.gfx950.encoding import encode
from verification.gfx950.instructions import instructions

pytest.importorskip("tinygrad.renderer.amd", reason="tinygrad is not installed; it is in the extra `test`")

from .assembler import KERNEL, assembled, kernel_of, refused
from .comparison import RENAMED, compare, split
from .machine_code import code_of
from .variants import LABELLED, lines

NOT_ENCODED = {
    **{(f"{space}_atomic_{name}_f64", "sc1"): "the assembler drops it from fp64 atomics"
       for space in ("global", "flat") for name in ("add", "min", "max")},
    ("buffer_wbl2", "nt"): "the assembler drops it", ("buffer_inv", "nt"): "the assembler drops it",
}  # fmt: skip
MISREAD = {
    ("v_cmp_class_f16", "operand 2"): "tinygrad calls the set of classes an fp16; to the assembler 1.0 is 0x3f800000",
}
STRICTER = {
    r"\w+ has no integer clamp here": "the compiler saturates sums and differences, nothing else",
    r"modifier (mul|div) of \w+ is not known": "output modifiers of results that are no floats",
    r"op_sel of a source of type [iu]32": "a half of a whole register",
    r"op_sel of a result that is no half": "a half of a whole register",
    r"(cbsz|blgp):[23] \(a 6-bit format\) is not modelled": "the 6-bit formats",
    r"a sign modifier on a source of type b?f16s?": "signs of sources that are computed with as bits",
    r"modifier neg_(lo|hi) of \w+ is not known": "signs of the halves of a dot product",
}
"""What the assembler takes and the reader refuses: the message, and what it is about."""


@pytest.fixture(scope="module")
def accepted():
    """Lines that the assembler takes, and the reader's message for those among them that it does not."""
    # Branches first: their target lies within reach.
    rows = sorted(instructions().values(), key=lambda row: row.form != "branch")
    every = [line for row in rows for line in lines(row)]
    wrong = refused(every)
    taken, messages = [], {}
    for line in (line for k, line in enumerate(every) if k not in wrong):
        try:
            encode(read(f"{LABELLED}:\n{line}"))
            taken.append(line)
        except AssemblyError as error:
            messages[line] = re.sub(r"^line \d+: | in '.*$", "", str(error))
    return taken, messages


def test_every_opcode_is_read_as_it_is_encoded(accepted):
    taken, _ = accepted
    text = kernel_of(taken)
    ours, found = compare(text, code_of(assembled(text), KERNEL))
    renamed, others = split(found)
    counts = Counter(one.opcode for one in ours)
    assert renamed == {opcode: counts[opcode] for opcode in RENAMED}
    assert [one for one in others if (one.opcode, one.field) not in NOT_ENCODED | MISREAD] == []
    assert {(one.opcode, one.field) for one in others} == (NOT_ENCODED | MISREAD).keys()
    assert counts.keys() == instructions().keys()
    assert len(ours) > 35_000


def test_the_reader_refuses_only_what_is_listed(accepted):
    _, messages = accepted
    met = defaultdict(list)
    for line, message in messages.items():
        met[next((known for known in STRICTER if re.fullmatch(known, message)), message)].append(line)
    assert met.keys() == STRICTER.keys()


def test_an_opcode_that_gfx950_lacks_is_refused_by_the_assembler():
    assert "not supported" in refused(["s_nop 0", "v_fmac_f16 v0, v1, v2"])[1]
