from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from verification.budget import derive
from verification.comparison import Comparison, Observed, compare
from verification.guards import AllocationGuard
from verification.operator import Arguments, Operator
from verification.transport import DTYPE_NAMES


@pytest.fixture(scope="session")
def execute() -> Callable[..., Any]:
    """Call production host code; what it launches is executed from its gfx950 instructions."""
    triton = pytest.importorskip("tokenspeed_triton", reason="tokenspeed-triton is not installed")
    from verification.gfx950 import executor

    def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        guard = AllocationGuard()
        with executor(triton_module=triton), guard, torch.no_grad():
            result = function(*args, **kwargs)
        assert guard.damages() == []
        return result

    return call


@pytest.fixture(scope="session")
def judge() -> Callable[..., Comparison]:
    """Compare results with an operator's reference, within budgets derived for these arguments."""

    def run(
        operator: Operator,
        arguments: Arguments,
        results: Sequence[Tensor],
        in_place: Mapping[str, Tensor] | None = None,
        variant: str = "official",
    ) -> Comparison:
        observed = Observed(
            results=list(results),
            devices=["cpu"] * len(results),
            dtypes=[DTYPE_NAMES[result.dtype] for result in results],
            in_place=dict(in_place or {}),
        )
        return compare(operator, arguments, observed, derive(operator, arguments, operator.variant(variant)), "cpu")

    return run
