from __future__ import annotations

import torch

from verification.targets import Target


def _missing(vendor: str, built: str | None) -> str | None:
    """Why there is no GPU of this vendor, in the words that a user can act on."""
    if not built:
        return f"this torch ({torch.__version__}) is not built for {vendor}"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} is built for {vendor}, but no device answers"
    return None


CUDA = Target(
    name="cuda",
    device="cuda",
    describes="a real NVIDIA GPU",
    missing=lambda: _missing("CUDA", torch.version.cuda),
    runs=("eager", "fused", "candidate"),
    replays_graphs=True,
    memory_bytes=64 << 30,
    rank=10,
)

HIP = Target(
    name="hip",
    device="cuda",
    describes="a real AMD GPU",
    missing=lambda: _missing("ROCm", torch.version.hip),
    runs=("eager", "fused", "candidate"),
    replays_graphs=True,
    memory_bytes=64 << 30,
    rank=11,
)

TARGETS = (CUDA, HIP)
