"""Triton's own interpreter, in a child: it runs a kernel's source, not compiled code.

As shipped (3.6 to 3.9) it truncates fp32 to bf16 where every GPU rounds to nearest even, which
shows as a bias in each bf16 output. The child replaces that one conversion; a bf16 `tl.dot`, which
multiplies raw bit patterns, is refused by name.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from verification.targets import Target
from verification.targets.cpu import HIDDEN_GPUS


def repair() -> None:
    """Make the interpreter of this process round fp32 to bf16, and refuse bf16 dots."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def rounding(original: Any) -> Any:
        def convert(self: Any, src: Any, dst_type: Any, *mode: Any) -> Any:
            if src.dtype.scalar == tl.float32 and dst_type.scalar == tl.bfloat16:
                return TensorHandle(to_bf16_bits(src.data), dst_type.scalar)
            return original(self, src, dst_type, *mode)

        return convert

    def dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        if tl.bfloat16 in (a.dtype.scalar, b.dtype.scalar):
            raise NotImplementedError(
                "Triton's interpreter multiplies the bit patterns of bf16 in tl.dot: use another target"
            )
        return original_dot(self, a, b, *rest)

    original_dot = InterpreterBuilder.create_dot
    InterpreterBuilder.create_dot = dot
    InterpreterBuilder.cast_impl = rounding(InterpreterBuilder.cast_impl)
    InterpreterBuilder.create_fp_to_fp = rounding(InterpreterBuilder.create_fp_to_fp)


def to_bf16_bits(x: Any) -> Any:
    """fp32 array → the uint16 bits of the nearest bf16, ties to even; NaN stays NaN."""
    import numpy as np

    bits = np.ascontiguousarray(x).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), (bits >> 16) | 0x40, rounded).astype(np.uint16)


INTERPRETER = Target(
    name="interpreter",
    device="cpu",
    describes="Triton's interpreter on the CPU (its bf16 rounding repaired): the source, not a compiled kernel",
    missing=lambda: None if importlib.util.find_spec("triton") else "triton is not installed",
    runs=("fused", "candidate"),
    environment={**HIDDEN_GPUS, "TRITON_INTERPRET": "1", "PARITY_CHILD_SETUP": f"{__name__}:repair"},
    seconds=300.0,
    rank=2,
)

TARGETS = (INTERPRETER,)
