"""Candidates that are no kernels: each misbehaves in one way, for rms_norm."""

from __future__ import annotations

import ctypes
import os
import threading

import torch
from torch import Tensor

from verification import candidate


@candidate("rms_norm", name="takes_other_arguments")
def takes_other_arguments(x: Tensor, gamma: Tensor) -> Tensor:
    return x


@candidate("rms_norm", name="returns_two")
def returns_two(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return x, x


@candidate("rms_norm", name="returns_a_dict")
def returns_a_dict(x: Tensor, weight: Tensor, eps: float) -> dict[str, Tensor]:
    return {"y": x}


@candidate("rms_norm", name="returns_nothing")
def returns_nothing(x: Tensor, weight: Tensor, eps: float) -> None:
    return None


@candidate("rms_norm", name="wrong_shape")
def wrong_shape(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x.t().contiguous()


@candidate("rms_norm", name="wrong_dtype")
def wrong_dtype(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x.float()


@candidate("rms_norm", name="wrong_device")
def wrong_device(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device="meta")


@candidate("rms_norm", name="raises")
def raises(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    raise RuntimeError("the kernel met something")


@candidate("rms_norm", name="hangs")
def hangs(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    threading.Event().wait()
    return x


@candidate("rms_norm", name="eats_memory")
def eats_memory(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    held = []
    while True:
        held.append(torch.ones(1 << 24))


@candidate("rms_norm", name="segfaults")
def segfaults(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    ctypes.string_at(0)
    return x


@candidate("rms_norm", name="exits_python")
def exits_python(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    raise SystemExit(0)


@candidate("rms_norm", name="exits_process")
def exits_process(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    print("about to leave", flush=True)
    os._exit(0)


@candidate("rms_norm", name="refuses", supports=lambda x, weight, eps: "only rows of 3 elements")
def refuses(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@candidate("rms_norm", name="raises_unprintable")
def raises_unprintable(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    raise Unprintable


@candidate("rms_norm", name="raises_odd_text")
def raises_odd_text(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    raise ValueError("\ud800 \x1b[31m")


@candidate("rms_norm", name="returns_sparse")
def returns_sparse(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x.to_sparse()


@candidate("rms_norm", name="forks")
def forks(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Two processes come back from the call; only the first may answer."""
    os.fork()
    return chatters(x, weight, eps)


@candidate("rms_norm", name="chatters")
def chatters(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Right, and noisy: what it prints must not disturb the harness."""
    print("x" * 200_000)
    y = x.double() * torch.rsqrt(x.double().square().mean(-1, keepdim=True) + eps)
    return (y.to(x.dtype).double() * weight.double()).to(x.dtype)
