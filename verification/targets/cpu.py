from __future__ import annotations

import importlib.util

from verification.targets import Target

HIDDEN_GPUS = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}

CPU = Target(
    name="cpu",
    device="cpu",
    describes="plain torch on the CPU",
    missing=lambda: None,
    runs=("eager", "candidate"),
    environment=HIDDEN_GPUS,
    rank=1,
)

INTERPRETER = Target(
    name="interpreter",
    device="cpu",
    describes="Triton's interpreter on the CPU: the source, not a compiled kernel",
    missing=lambda: None if importlib.util.find_spec("triton") else "triton is not installed",
    runs=("fused", "candidate"),
    environment={**HIDDEN_GPUS, "TRITON_INTERPRET": "1"},
    seconds=300.0,
    rank=2,
)

TARGETS = (CPU, INTERPRETER)
