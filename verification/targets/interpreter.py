"""Triton's own interpreter, in a child: it runs a kernel's source, not compiled code.

As shipped (3.6 to 3.9) it keeps bf16 as bare bit patterns: it truncates fp32 to bf16 where every GPU
rounds to nearest even, and adds, multiplies and compares the patterns as integers. The child makes
bf16 arithmetic what it is on a GPU (fp32, rounded after each operation); a bf16 `tl.dot` is refused
by name.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from verification.targets import Target
from verification.targets.cpu import HIDDEN_GPUS


def repair() -> None:
    """Make bf16 in the interpreter of this process what it is on a GPU, and refuse bf16 dots."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder as Builder
    from triton.runtime.interpreter import TensorHandle

    def is_bf16(handle: Any) -> bool:
        return bool(handle.dtype.scalar == tl.bfloat16)

    def wide(handle: Any) -> Any:
        return TensorHandle(from_bf16_bits(handle.data), tl.float32) if is_bf16(handle) else handle

    def cast(original: Any) -> Any:
        def convert(self: Any, src: Any, dst_type: Any, *mode: Any) -> Any:
            scalar = dst_type.scalar
            if is_bf16(src) and scalar != tl.bfloat16:
                src = wide(src)
                return src if scalar == tl.float32 else original(self, src, dst_type, *mode)
            if scalar == tl.bfloat16 and not is_bf16(src):
                return TensorHandle(to_bf16_bits(src.data), scalar)
            return original(self, src, dst_type, *mode)

        return convert

    def arithmetic(original: Any) -> Any:
        def compute(self: Any, *operands: Any) -> Any:
            *handles, operation = operands
            if not any(map(is_bf16, handles)):
                return original(self, *operands)
            data = operation(*(wide(handle).data for handle in handles))
            return TensorHandle(data if data.dtype == bool else to_bf16_bits(data), tl.bfloat16)

        return compute

    def dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        if is_bf16(a) or is_bf16(b):
            raise NotImplementedError(
                "Triton's interpreter multiplies the bit patterns of bf16 in tl.dot: use another target"
            )
        return original_dot(self, a, b, *rest)

    original_dot = Builder.create_dot
    Builder.create_dot = dot
    for name in ("cast_impl", "create_fp_to_fp"):
        setattr(Builder, name, cast(getattr(Builder, name)))
    for name in ("unary_op", "binary_op", "ternary_op"):
        setattr(Builder, name, arithmetic(getattr(Builder, name)))


def to_bf16_bits(x: Any) -> Any:
    """Array of numbers → the uint16 bits of the nearest bf16 to its fp32, ties to even; NaN stays NaN."""
    import numpy as np

    single = np.ascontiguousarray(x).astype(np.float32)
    bits = single.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(single), (bits >> 16) | 0x40, rounded).astype(np.uint16).reshape(np.shape(x))


def from_bf16_bits(bits: Any) -> Any:
    """The fp32 values of bf16 bits."""
    import numpy as np

    return (np.ascontiguousarray(bits).astype(np.uint32) << 16).view(np.float32).reshape(np.shape(bits))


INTERPRETER = Target(
    name="interpreter",
    device="cpu",
    describes="Triton's interpreter on the CPU (its bf16 arithmetic repaired): the source, not a compiled kernel",
    missing=lambda: None if importlib.util.find_spec("triton") else "triton is not installed",
    runs=("fused", "candidate"),
    environment={**HIDDEN_GPUS, "TRITON_INTERPRET": "1", "PARITY_CHILD_SETUP": f"{__name__}:repair"},
    seconds=300.0,
    rank=2,
)

TARGETS = (INTERPRETER,)
