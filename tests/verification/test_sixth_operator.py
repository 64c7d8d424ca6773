"""Adding an operator touches five new files and no other; adding a kernel touches one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

FILES = {
    "reference/doubling.py": '''
from __future__ import annotations

from torch import Tensor

from reference.numerics import ROUNDED, Numerics


def doubling(x: Tensor, *, numerics: Numerics = ROUNDED) -> Tensor:
    """y = 2·x. Shapes: x [T, H] bf16 → y [T, H] bf16."""
    return numerics.output("y", 2 * numerics.load(x), x.dtype)
''',
    "verification/eager/doubling.py": '''
from __future__ import annotations

from torch import Tensor

from fused.boundary import implements


@implements("doubling", name="eager", batch_invariant=True)
def doubling(x: Tensor) -> Tensor:
    """Shapes: x [T, H] → y [T, H]."""
    return x + x
''',
    "fused/doubling.py": '''
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fused.boundary import implements


@triton.jit
def kernel(x_ptr, y_ptr, elements, TILE: tl.constexpr):
    offset = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.store(y_ptr + offset, 2 * tl.load(x_ptr + offset, mask=offset < elements), mask=offset < elements)


@implements("doubling", name="triton", batch_invariant=True, kernels=(kernel,))
def doubling(x: Tensor) -> Tensor:
    """Shapes: x [T, H] → y [T, H]."""
    y = torch.empty_like(x)
    if x.numel():
        kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), TILE=64)
    return y
''',
    "verification/contracts/doubling.py": '''
from __future__ import annotations

from typing import Any

from reference.doubling import doubling
from verification.inputs import TORCH_DTYPES, Inputs
from verification.laws import batch_invariance, row_isolation
from verification.operator import Arguments, Case, CaseGroup, Operator, Output, make_case

DEFAULTS: dict[str, Any] = {"rows": 4, "hidden": 32}


def make(case: Case) -> Arguments:
    """Normal rows."""
    p = DEFAULTS | dict(case.parameters)
    return {"x": Inputs(case.id).normal("x", (p["rows"], p["hidden"])).to(TORCH_DTYPES[case.dtype])}


CASES = tuple(make_case("doubling", DEFAULTS, rows=rows) for rows in (0, 1, 5))

OPERATOR = Operator(
    name="doubling",
    reference=doubling,
    outputs=(Output("y", "number", "=x"),),
    defaults=DEFAULTS,
    make=make,
    groups=(CaseGroup("rows", "smoke", CASES),),
    law_cases=(CASES[2],),
    laws=(batch_invariance(("x",)), row_isolation(("x",))),
)
''',
    "tests/reference/test_doubling.py": """
from __future__ import annotations

import torch

from reference.doubling import doubling


def test_doubling_is_a_sum_with_itself():
    x = torch.arange(6.0).reshape(2, 3).bfloat16()
    assert torch.equal(doubling(x), x + x)
""",
}


@pytest.fixture
def copy(tmp_path):
    """A copy of the project without its history."""
    kept = ["reference", "fused", "verification", "tests", "examples", "conftest.py", "pyproject.toml"]
    for name in kept:
        source, target = ROOT / name, tmp_path / "project" / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    return tmp_path / "project"


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "PYTHONPATH"))}
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, timeout=240, env=environment
    )


def test_five_new_files_add_an_operator_to_every_command(copy):
    for name, text in FILES.items():
        assert not (copy / name).exists()
        (copy / name).write_text(text.lstrip())
    listed = run(copy, "verification", "list")
    assert "doubling" in listed.stdout, listed.stderr
    checked = run(copy, "verification", "verify", "doubling", "--report", "report")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    report = (copy / "report" / "report.md").read_text()
    assert "MAY LAND.** 10 passed" in report
    tests = run(copy, "pytest", "-q", "-k", "doubling", "-p", "no:cacheprovider")
    assert tests.returncode == 0, tests.stdout


def test_one_new_file_adds_a_kernel(copy):
    text = (copy / "examples" / "attention_residual_two_pass.py").read_text()
    (copy / "fused" / "attention_residual_two_pass.py").write_text(text)
    words = [
        "attention_residual",
        "--implementation",
        "two_pass",
        "--case",
        "attention_residual/rows=2,hidden=64/bf16/normal/0",
    ]
    checked = run(copy, "verification", "verify", *words)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "two_pass@" in checked.stdout
