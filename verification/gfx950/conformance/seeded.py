"""Seeded CPU tensors: a stream a key."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import Tensor

NAMES = {
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float8_e4m3fn: "e4m3",
    torch.float8_e5m2: "e5m2",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
}


def generator(key: str) -> np.random.Generator:
    """Philox, seeded by the key."""
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
    return np.random.Generator(np.random.Philox(int.from_bytes(digest, "little")))


def normal(key: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Tensor:
    """Normal of the given standard deviation, rounded to the format."""
    return torch.from_numpy((generator(key).standard_normal(shape) * scale).astype(np.float32)).to(dtype)


def uniform(key: str, shape: tuple[int, ...], low: float, high: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """Uniform between the two, rounded to the format."""
    return torch.from_numpy(generator(key).uniform(low, high, shape).astype(np.float32)).to(dtype)


def integers(key: str, shape: tuple[int, ...], low: int, high: int, dtype: torch.dtype = torch.int32) -> Tensor:
    """Integers in [low, high)."""
    return torch.from_numpy(generator(key).integers(low, high, shape, dtype=np.int64)).to(dtype)


def words(key: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Integers with every bit random."""
    size = int(np.prod(shape)) * dtype.itemsize
    drawn = generator(key).integers(0, 256, size, dtype=np.uint8)
    return torch.from_numpy(drawn).view(dtype).reshape(shape)
