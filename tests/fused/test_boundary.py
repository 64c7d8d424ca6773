from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

from fused.boundary import candidate, implementations_in, implements

ROOT = Path(__file__).resolve().parents[2]


def test_the_decorator_leaves_the_function_as_it_is_and_the_module_tells_what_it_declares():
    def function(x):
        return x

    module = types.ModuleType(__name__)
    module.first = implements("rms_norm", name="first", variant="one_rounding", configurations=["warps4"])(function)
    assert module.first is function
    declared = implementations_in(module)
    assert [(d.operator, d.name, d.variant, d.configurations) for d in declared] == [
        ("rms_norm", "first", "one_rounding", ("warps4",))
    ]
    assert declared[0].call is function


def test_what_a_module_imports_is_declared_where_it_is_defined_and_found_there_alone():
    @implements("rms_norm", name="first")
    def function(x):
        return x

    modules = types.ModuleType(__name__), types.ModuleType("elsewhere")
    for module in modules:
        module.once = module.under_another_name = function
    assert [[one.name for one in implementations_in(module)] for module in modules] == [["first"], []]


def test_candidate_is_the_same_decorator():
    assert candidate is implements


def test_declaring_imports_nothing_but_the_standard_library():
    code = "import sys, fused.boundary, verification; sys.exit(bool({'torch', 'triton', 'numpy'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
