"""The matrix instructions of the table against the assembler that Triton brings: names and widths of operands."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from verification.gfx950.instructions.matrix import TABLE

OPCODES: set[str] = set()
NOT_MODELLED = {"v_mfma_ld_scale_b32"}
"""The first half of a scaled instruction, which no compiler emits by itself."""
WIDTHS = (1, 2, 4, 8, 16, 32)


@pytest.fixture(scope="module")
def compiler():
    found = pytest.importorskip("triton.backends.amd.compiler", reason="this Triton has no AMD backend")
    if not hasattr(found, "assemble_amdgcn"):
        pytest.skip("this Triton keeps its assembler elsewhere")
    return found


def assembled(compiler, name, words):
    """The object file, or None where the assembler refuses."""
    texts = ["v0" if count == 1 else f"v[0:{count - 1}]" for count in words]
    try:
        return compiler.assemble_amdgcn(f"{name} {', '.join(texts)}\n", "gfx950", "")
    except RuntimeError:
        return None


def widths(row):
    """Registers of the operands; the f8f6f4 forms take FP8 where nothing else is said."""
    return [8 if kind.startswith("format") else int(kind[1:]) // 32 for kind in (*row.results, *row.sources)]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_the_assembler_takes_the_widths_of_every_row_alone(compiler, row, capfd):
    words = widths(row)
    assert assembled(compiler, row.name, words)
    for k in range(len(words)):
        other = [*words[:k], words[k] * 2, *words[k + 1 :]]
        assert not assembled(compiler, row.name, other), (k, other)


def test_no_matrix_instruction_of_the_assembler_is_missing(compiler, capfd):
    """Another name that it takes in some widths is an older spelling: the same code as a row's."""
    library = Path(compiler.get_amd_codegen_path()).read_bytes()
    names = {name.decode() for name in re.findall(rb"v_s?mfmac?_[a-z0-9_]+", library)}
    rows = {row.name: assembled(compiler, row.name, widths(row)) for row in TABLE}
    assert names >= rows.keys() | NOT_MODELLED
    older = set()
    for name in names - rows.keys() - NOT_MODELLED:
        for d, a in itertools.product(WIDTHS, WIDTHS):
            for words in ((d, a, a, d), (d, a, 2 * a, 1)):
                if code := assembled(compiler, name, words):
                    assert code in rows.values(), (name, words)
                    older.add(name)
    assert "v_mfma_f32_32x32x8bf16_1k" in older
    assert "v_mfma_f32_16x16x8_xf32" not in older
