"""gfx950 on any machine: Triton's AMD backend compiles, this package executes the instructions on the CPU."""

from verification.gfx950.driver import executor
from verification.gfx950.models import Models

__all__ = ["Models", "executor"]
