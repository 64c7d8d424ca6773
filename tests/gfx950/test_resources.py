"""The gate: what every fused kernel may take of a compute unit, on gfx950 and gfx942."""

from __future__ import annotations

import pytest

from verification.compilation import ARCHITECTURES, compiled
from verification.gfx950 import executor
from verification.gfx950.conformance import programs
from verification.gfx950.resources import resources_of
from verification.plan import builtin

FUSED = sorted({one.declared.operator for one in builtin() if one.declared.kernels})


@pytest.mark.parametrize("operator", FUSED)
def test_every_fused_kernel_keeps_the_limits_at_every_configuration(operator):
    found = list(compiled((operator,)))
    assert {one.architecture for _, one in found} == set(ARCHITECTURES)
    assert [text for _, one in found for text in one.broken_limits()] == []
    assert all(one.vgprs > 0 and one.code_bytes > 0 and one.occupancy > 0 for _, one in found)


def resources(name, execute=False):
    program = programs()[name]
    with executor(execute=execute) as session:
        program.run(program.inputs())
    return resources_of(session.launches[0], "gfx950")


def test_a_kernel_that_spills_names_the_number_and_the_limit():
    spilling = next(name for name, program in programs().items() if program.spills)
    broken = " ".join(resources(spilling).broken_limits())
    assert "vgpr spills" in broken
    assert "scratch bytes" in broken
    assert "the limit is 0" in broken
    assert resources(spilling).broken_limits(may_spill=True) == []


def test_a_dot_without_a_matrix_instruction_and_too_much_lds_break_the_gate():
    from dataclasses import replace

    dot = resources(next(name for name in programs() if name.startswith("dots/single/bf16")))
    assert dot.dots
    assert dot.matrix
    assert dot.broken_limits() == []
    assert "no matrix instruction" in replace(dot, matrix={}).broken_limits()[0]
    assert "200000 bytes of LDS; gfx950 has 163840" in replace(dot, lds_bytes=200_000).broken_limits()[0]
