from __future__ import annotations

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

TARGETS = (CPU,)
