"""Returns a subclass of Tensor that answers every function with what suits it: a result is a plain tensor."""

from __future__ import annotations

import torch
from torch import Tensor

from verification import candidate


class Agreeable(Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return (
            torch.zeros(args[0].shape) if func is torch.sub else super().__torch_function__(func, types, args, kwargs)
        )


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x.as_subclass(Agreeable)
