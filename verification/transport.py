"""Arguments and results as bytes in a shared file: no object of a candidate's process is ever unpickled.

Each tensor's storage lies between two red zones, so that the parent itself sees what a call wrote
outside its views: a changed input, a write past an end.
"""

from __future__ import annotations

import collections
import mmap
import os
import secrets
from math import prod
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor

from verification.inputs import TORCH_DTYPES

ZONE = 4096
"""Bytes of red zone before and after each storage: two of the widest rows' tiles in bf16."""


def zone_byte() -> int:
    """What red zones are filled with, drawn anew each time: nobody can write it beside their memory on purpose."""
    return 1 + secrets.randbelow(254)


ALIGNMENT = 256

ROOM = 2 << 30
"""Bytes that a folder in memory must have free to be used: containers often have 64 MiB."""

DTYPE_NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()} | {
    torch.int8: "int8",
    torch.bool: "bool",
    torch.float64: "fp64",
    torch.int16: "int16",
}
DTYPES_BY_NAME = {name: dtype for dtype, name in DTYPE_NAMES.items()}


class TensorHeader(TypedDict):
    """A view of a storage: where, and how it is laid out (elements)."""

    storage: int
    dtype: str
    shape: list[int]
    stride: list[int]
    offset: int
    far: tuple[int, int] | None
    """The axis along which its places lie far apart in the case, and the stride there; here they are side by side."""


class Header(TypedDict):
    """What lies where in a blob: storages as (offset, bytes), arguments by name."""

    storages: list[tuple[int, int]]
    tensors: dict[str, TensorHeader]
    values: dict[str, Any]
    nbytes: int


FAR = 1 << 30
"""Bytes of a storage from which on its places may lie far apart: most of it is never touched, nor does it travel."""

MOSTLY_GAP = 16


def side_by_side(x: Tensor) -> tuple[Tensor, tuple[int, int] | None]:
    """A copy of x without the gaps of its outermost axis, with that axis and its stride; x itself if it has none."""
    if x.untyped_storage().nbytes() < FAR or not x.numel() or not x.ndim:
        return x, None
    axis = max(range(x.ndim), key=x.stride)
    place = 1 + sum((size - 1) * step for one, (size, step) in enumerate(zip(x.shape, x.stride(), strict=True))
                    if one != axis)  # fmt: skip
    if x.shape[axis] == 1 or x.stride(axis) < MOSTLY_GAP * place:
        return x, None
    strides = [place if one == axis else step for one, step in enumerate(x.stride())]
    near = torch.zeros(x.shape[axis] * place, dtype=x.dtype).as_strided(x.shape, strides)
    return near.copy_(x), (axis, x.stride(axis))


def describe(arguments: dict[str, Any]) -> tuple[Header, list[Tensor]]:
    """The header for these arguments and the byte tensors of their storages."""
    header: Header = {"storages": [], "tensors": {}, "values": {}, "nbytes": 0}
    seen: dict[int, int] = {}
    payloads: list[Tensor] = []
    position = 0
    owners = collections.Counter(x.untyped_storage().data_ptr() for x in arguments.values() if isinstance(x, Tensor))
    for name, value in arguments.items():
        if not isinstance(value, Tensor):
            header["values"][name] = value
            continue
        far = None
        if owners[value.untyped_storage().data_ptr()] == 1:
            value, far = side_by_side(value)
        storage = value.untyped_storage()
        key = storage.data_ptr() if storage.nbytes() else -id(value)
        if key not in seen:
            seen[key] = len(payloads)
            start = position + ZONE
            header["storages"].append((start, storage.nbytes()))
            payloads.append(
                torch.empty(0, dtype=torch.uint8).set_(storage)
                if storage.nbytes()
                else torch.empty(0, dtype=torch.uint8)
            )
            position = -(-(start + storage.nbytes() + ZONE) // ALIGNMENT) * ALIGNMENT
        header["tensors"][name] = {
            "storage": seen[key],
            "dtype": DTYPE_NAMES[value.dtype],
            "shape": list(value.shape),
            "stride": list(value.stride()),
            "offset": int(value.storage_offset()),
            "far": far,
        }
    header["nbytes"] = max(position, ALIGNMENT)
    return header, payloads


class Blob:
    """A file of arguments, mapped by parent and child alike."""

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self._zone: int | None = None
        self.header = header
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), header["nbytes"])
        self.bytes = torch.frombuffer(self._map, dtype=torch.uint8)

    @classmethod
    def create(cls, path: Path, arguments: dict[str, Any]) -> Blob:
        """Write the arguments to a new file, red zones around each storage."""
        header, payloads = describe(arguments)
        with path.open("wb") as file:
            # Reserved at once: a mapped file that outgrows its disk would end the process without a word.
            os.posix_fallocate(file.fileno(), 0, header["nbytes"])
        blob = cls(path, header)
        blob._zone = zone_byte()
        blob.bytes.fill_(blob._zone)
        for (start, nbytes), payload in zip(header["storages"], payloads, strict=True):
            blob.bytes[start : start + nbytes] = payload
        return blob

    def arguments(self, data: Tensor | None = None) -> dict[str, Any]:
        """The arguments as views of `data` (this file's bytes unless a device copy is given)."""
        data = self.bytes if data is None else data
        views = {name: self._view(data, spec) for name, spec in self.header["tensors"].items()}
        return {**self.header["values"], **views}

    def _view(self, data: Tensor, spec: TensorHeader) -> Tensor:
        start, nbytes = self.header["storages"][spec["storage"]]
        dtype = DTYPES_BY_NAME[spec["dtype"]]
        if nbytes == 0:
            return torch.empty(spec["shape"], dtype=dtype, device=data.device)
        flat = data[start : start + nbytes].view(dtype)
        return flat.as_strided(spec["shape"], spec["stride"], flat.storage_offset() + spec["offset"])

    def storage_bytes(self, index: int) -> Tensor:
        """Payload bytes of a storage."""
        start, nbytes = self.header["storages"][index]
        return self.bytes[start : start + nbytes]

    def broken_zones(self) -> dict[int, int]:
        """Storages beside which something was written, with the count of bytes changed there; its creator knows."""
        assert self._zone is not None
        broken: dict[int, int] = {}
        for index, (start, nbytes) in enumerate(self.header["storages"]):
            end = start + nbytes
            last = index + 1 == len(self.header["storages"])
            after_end = self.header["nbytes"] if last else self.header["storages"][index + 1][0] - ZONE
            zones = torch.cat([self.bytes[start - ZONE : start], self.bytes[end:after_end]])
            if changed := int((zones != self._zone).sum()):
                broken[index] = changed
        return broken

    def close(self) -> None:
        """Remove the file; views of it that are still held stay readable."""
        self.path.unlink(missing_ok=True)


def write_results(path: Path, tensors: list[Tensor]) -> list[dict[str, Any]]:
    """Write results one after another, contiguous, and say what each is."""
    described, position = [], 0
    with path.open("wb") as file:
        for tensor in tensors:
            # A tensor without data still has a shape and a device to be judged by.
            data = torch.empty(0) if tensor.is_meta else _dense(tensor)
            payload = data.reshape(-1).view(torch.uint8).numpy().tobytes() if data.numel() else b""
            file.write(payload)
            described.append({
                "dtype": DTYPE_NAMES.get(tensor.dtype, str(tensor.dtype)), "shape": list(tensor.shape),
                "device": tensor.device.type, "position": position, "nbytes": len(payload),
            })  # fmt: skip
            position += len(payload)
    return described


def _dense(tensor: Tensor) -> Tensor:
    return tensor.detach().resolve_conj().resolve_neg().contiguous().cpu()


def read_results(path: Path, described: list[dict[str, Any]]) -> list[Tensor]:
    """The tensors that `write_results` wrote; a dtype outside the contract's comes as bytes."""
    data = path.read_bytes() if path.exists() else b""
    tensors = []
    for entry in described:
        dtype = DTYPES_BY_NAME.get(entry["dtype"], torch.uint8)
        piece = bytearray(data[entry["position"] : entry["position"] + entry["nbytes"]])
        if len(piece) != entry["nbytes"]:
            raise ValueError(f"{len(piece)} bytes of a result of {entry['nbytes']}")
        if not piece:  # without data, and maybe of a shape that no memory would hold
            tensors.append(torch.zeros((), dtype=dtype).expand(entry["shape"]))
            continue
        flat = torch.frombuffer(piece, dtype=dtype)
        if entry["dtype"] in DTYPES_BY_NAME and flat.numel() != prod(entry["shape"]):
            raise ValueError(f"{flat.numel()} elements of a result of shape {entry['shape']}")
        tensors.append(flat.reshape(entry["shape"]) if entry["dtype"] in DTYPES_BY_NAME else flat)
    return tensors


def scratch_folder() -> str | None:
    """A folder in memory where the system has one with room, else None for the default."""
    shm = "/dev/shm"
    if not os.access(shm, os.W_OK):
        return None
    room = os.statvfs(shm)
    return shm if room.f_bavail * room.f_frsize >= ROOM else None
