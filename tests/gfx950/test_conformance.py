"""Plain Triton kernels, compiled for gfx950 and executed, against float64 and exact integers."""

from __future__ import annotations

import pytest

from verification.gfx950 import Models, executor
from verification.gfx950.conformance import judge, programs

ALTERNATIVES = Models(transcendental="one_ulp", matrix="chained", completion="early", seed=7)


def outcome(name, models):
    program = programs()[name]
    with executor(models) as session:
        outputs = program.run(program.inputs())
    return judge(outputs, program.expected(program.inputs())), session


@pytest.mark.parametrize("name", programs())
def test_the_executed_instructions_compute_what_the_source_says(name):
    findings, session = outcome(name, Models())
    if programs()[name].compiler_fault:
        assert findings, f"{name} holds now: {programs()[name].compiler_fault} is mended in this Triton"
    else:
        assert findings == []
    spilled = any("private_segment_fixed_size 0\n" not in launch.assembly for launch in session.launches)
    assert spilled == programs()[name].spills


@pytest.mark.parametrize("name", [name for name in programs() if not programs()[name].compiler_fault][::3])
def test_no_verdict_depends_on_what_the_hardware_leaves_open(name):
    """Another transcendental unit, another order of matrix sums, early loads, another order of waves."""
    assert outcome(name, ALTERNATIVES)[0] == []


def test_a_sample_of_the_grid_runs_only_its_workgroups():
    name = "elementwise/add/fp32/4099/warps8"
    whole = outcome(name, Models())[1].executed
    sampled = outcome(name, Models(sample=2))[1].executed
    assert 0 < sampled < whole
