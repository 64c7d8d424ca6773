"""Seeded inputs whose bits are the same on every machine and version.

Random bits are Philox's raw output; uniforms and normal-like values come from them by integer
arithmetic and single IEEE operations, so that no library's generator or libm has a part in them.
"""

from __future__ import annotations

import hashlib
import math
from functools import partial

import numpy as np
import torch
from torch import Tensor

TORCH_DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "int32": torch.int32,
    "int64": torch.int64,
    "uint8": torch.uint8,
}

SQRT_3 = 1.7320508075688772

EVEN_QUARTERS = np.uint64(0x0000FFFF0000FFFF)
"""Mask of the first and third 16 bits of a word."""


class Inputs:
    """Named random tensors of a case: each name draws from a stream of its own."""

    def __init__(self, key: str) -> None:
        self.key = key

    def raw(self, name: str, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        """`count` random 64-bit words."""
        digest = hashlib.blake2b(f"{self.key}|{name}".encode(), digest_size=16).digest()
        words: np.ndarray[tuple[int], np.dtype[np.uint64]] = np.random.Philox(
            key=int.from_bytes(digest, "little")
        ).random_raw(count)
        return words

    def uniform(self, name: str, shape: tuple[int, ...], low: float = 0.0, high: float = 1.0) -> Tensor:
        """Uniform on [low, high) in steps of 2⁻⁵³ of the width: float64."""
        unit = (self.raw(name, _count(shape)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return torch.from_numpy(low + unit * (high - low)).reshape(shape)

    def normal(self, name: str, shape: tuple[int, ...], scale: float = 1.0) -> Tensor:
        """Normal-like with mean 0 and standard deviation `scale`: four 16-bit uniforms summed, float64.

        Bounded at 3.46 standard deviations; outliers are put in where a case is about them.
        """
        words = self.raw(name, _count(shape))
        # Quarters are added in pairs, in place: weights have tens of millions.
        others = words & EVEN_QUARTERS
        words >>= np.uint64(16)
        words &= EVEN_QUARTERS
        words += others
        np.right_shift(words, np.uint64(32), out=others)
        words &= np.uint64(0xFFFFFFFF)
        words += others
        centred = words.astype(np.float64)
        centred -= 131070
        centred *= 2.0**-16 * SQRT_3 * scale
        return torch.from_numpy(centred).reshape(shape)

    def integers(self, name: str, shape: tuple[int, ...], low: int, high: int) -> Tensor:
        """Integers in [low, high): int64. The width is at most 2³², where the bias is below 2⁻³²."""
        words = self.raw(name, _count(shape)) >> np.uint64(32)
        drawn = (words * np.uint64(high - low)) >> np.uint64(32)
        return torch.from_numpy(drawn.astype(np.int64) + low).reshape(shape)

    def permutations(self, name: str, rows: int, size: int) -> Tensor:
        """A random order of range(size) in each row: int64."""
        keys = self.raw(name, rows * size).reshape(rows, size)
        return torch.from_numpy(np.argsort(keys, axis=1, kind="stable"))


def _count(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))


LAYOUTS = ("contiguous", "row_padded", "column_strided", "transposed", "offset")


def laid_out(x: Tensor, layout: str) -> Tensor:
    """The same values under another layout of memory; what lies between them is NaN or the least integer."""
    if layout == "contiguous":
        return x.contiguous()
    filler = torch.nan if x.is_floating_point() else torch.iinfo(x.dtype).min
    if x.ndim == 1:
        return laid_out(x[None], layout)[0]
    rows, columns = x.shape
    if layout == "row_padded":
        view = torch.full((rows, columns + 7), filler, dtype=x.dtype)[:, :columns]
    elif layout == "column_strided":
        view = torch.full((rows, 2 * columns), filler, dtype=x.dtype)[:, ::2]
    elif layout == "transposed":
        view = torch.full((columns, rows), filler, dtype=x.dtype).t()
    elif layout == "offset":
        view = torch.full((rows * columns + 1,), filler, dtype=x.dtype)[1:].view(rows, columns)
    elif layout == "far":
        return far_apart(x)
    else:
        raise ValueError(f"unknown layout {layout!r}; expected one of {LAYOUTS} or far")
    return view.copy_(x)


ALIGNED = 64
"""Elements of which the step between far places is a multiple, as that of a pool is."""


def far_apart(x: Tensor, axis: int = 0, reach: int = 2**31) -> Tensor:
    """The same values with the places of an axis so far apart that the last begins at `reach` elements.

    An index of 32 bits does not get there. Memory between the places is reserved and never touched.
    """
    places = x.movedim(axis, 0).contiguous()
    count, inner = places.shape[0], places[:1].numel()
    step = -(-max(math.ceil(reach / max(count - 1, 1)), inner) // ALIGNED) * ALIGNED
    storage = torch.empty(max(count - 1, 0) * step + inner, dtype=x.dtype)
    return storage.as_strided(places.shape, (step, *places.stride()[1:])).copy_(places).movedim(0, axis)


RELAID = {layout: partial(laid_out, layout=layout) for layout in LAYOUTS if layout != "contiguous"}
"""Every other layout, by name."""


def digest(arguments: dict[str, object]) -> str:
    """SHA-256 over names, dtypes, shapes, strides and value bits: what a case's inputs are."""
    total = hashlib.sha256()
    for name, value in sorted(arguments.items()):
        total.update(f"{name}|".encode())
        if isinstance(value, Tensor):
            total.update(f"{value.dtype}|{list(value.shape)}|{list(value.stride())}|".encode())
            total.update(value.contiguous().view(torch.uint8).numpy().tobytes() if value.numel() else b"")
        else:
            total.update(repr(value).encode())
    return total.hexdigest()
