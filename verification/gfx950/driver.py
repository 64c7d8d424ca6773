"""A Triton driver whose device is the executor: unchanged host code launches on CPU tensors."""

from __future__ import annotations

import contextlib
import importlib
import os
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from verification.gfx950.assembly import read
from verification.gfx950.build import cache_folder
from verification.gfx950.encoding import Program, encode
from verification.gfx950.machine import LDS_LIMIT, Grid, Outcome, run
from verification.gfx950.memory import Reach, reach_of
from verification.gfx950.models import Models

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # later versions change the default

DEVICE = 950
"""A device id of its own, so that compile caches never mix with a real device's."""
ARCHITECTURE = "gfx950"

SCALARS = {"i1": "?", "u1": "?", "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q",
           "u64": "Q", "fp32": "f", "f32": "f", "fp64": "d", "f64": "d"}  # fmt: skip


@dataclass
class LaunchRecord:
    """One launch as it happened."""

    kernel: str
    grid: tuple[int, int, int]
    waves: int
    metadata: Any
    assembly: str
    ttgir: str
    folder: Path
    """Where Triton keeps what it compiled, the binary too."""
    outcome: Outcome | None = None
    seconds: float = 0.0
    """Time inside the machine, without Triton's host code."""


@dataclass
class Session:
    """An active executor: its models, and the launches so far."""

    models: Models
    triton: ModuleType
    launches: list[LaunchRecord] = field(default_factory=list)
    architecture: str = ARCHITECTURE
    execute: bool = True
    """False: kernels are compiled and recorded, nothing runs."""
    observe: Callable[[Grid], None] | None = None
    """Called before each launch; tests change the program here."""

    @property
    def executed(self) -> int:
        """Wave-instructions so far."""
        return sum(launch.outcome.executed for launch in self.launches if launch.outcome)


_open_sessions: list[Session] = []


@contextlib.contextmanager
def executor(
    models: Models | None = None,
    *,
    triton_module: ModuleType | None = None,
    architecture: str = ARCHITECTURE,
    execute: bool = True,
) -> Iterator[Session]:
    """Inside, any `@triton.jit` or Gluon kernel launched on CPU tensors compiles for gfx950 and runs here.

    Raises AssemblyError where the assembly holds what is not modelled, ExecutionError where the kernel
    does what it must not, NoCompilerError without a C compiler.
    """
    triton = triton_module or importlib.import_module("triton")
    session = Session(models or Models(), triton, architecture=architecture, execute=execute)
    config = importlib.import_module(f"{triton.__name__}.runtime.driver").driver
    knobs = importlib.import_module(f"{triton.__name__}.knobs")
    before, folder = config._active, knobs.cache.dir
    config.set_active(_driver_class(triton.__name__)(session))
    _open_sessions.append(session)
    knobs.cache.dir = str(cache_folder() / f"compiled-{triton.__name__}")
    try:
        with _answers(session):
            yield session
    finally:
        _open_sessions.remove(session)
        config._active = before
        knobs.cache.dir = folder


@contextlib.contextmanager
def _answers(session: Session) -> Iterator[None]:
    """What host wrappers ask of a GPU's tensors and runtime, answered for the duration."""
    properties = SimpleNamespace(multi_processor_count=session.models.compute_units, gcnArchName=ARCHITECTURE,
                                 name="gfx950 executor", warp_size=64, total_memory=1 << 38)  # fmt: skip
    asked: dict[str, Any] = {
        "get_device_properties": lambda *_: properties, "is_current_stream_capturing": lambda: False,
        "current_device": lambda: DEVICE, "current_stream": lambda *_: SimpleNamespace(cuda_stream=0),
        "get_device_capability": lambda *_: (9, 5), "synchronize": lambda *_: None,
    }  # fmt: skip
    kept = {name: getattr(torch.cuda, name) for name in asked}
    is_cuda = Tensor.is_cuda
    for name, answer in asked.items():
        setattr(torch.cuda, name, answer)
    Tensor.is_cuda = property(lambda tensor: tensor.device.type == "cpu")  # type: ignore[assignment]
    try:
        yield
    finally:
        Tensor.is_cuda = is_cuda
        for name, answer in kept.items():
            setattr(torch.cuda, name, answer)


@cache
def program_of(assembly: str) -> Program:
    """The encoded program of an assembly text."""
    return encode(read(assembly))


@cache
def _driver_class(package: str) -> Any:
    base = importlib.import_module(f"{package}.backends.driver").DriverBase
    target = importlib.import_module(f"{package}.backends.compiler").GPUTarget

    class ExecutorDriver(base):  # type: ignore[misc,valid-type]
        """Triton's view of the executor."""

        def __init__(self, session: Session) -> None:
            self.session = session
            self.launcher_cls = lambda source, metadata: Launcher(package, source, metadata)
            self.utils = SimpleNamespace(
                # No module: a kernel that outlives the executor must not ask a driver to unload it.
                load_binary=lambda name, binary, shared, device: (None, name, 0, 0, 1024),
                unload_module=lambda module: None,
                get_device_properties=lambda device: {
                    "max_shared_mem": LDS_LIMIT, "multiprocessor_count": session.models.compute_units,
                    "multi_processor_count": session.models.compute_units, "warpSize": 64, "arch": ARCHITECTURE,
                    "sm_clock_rate": 2_400_000, "mem_clock_rate": 2_000_000, "mem_bus_width": 8192,
                    "max_num_regs": 65536, "max_threads_per_sm": 2048,
                },
            )  # fmt: skip

        @classmethod
        def is_active(cls) -> bool:
            return False

        def map_python_to_cpp_type(self, ty: str) -> str:
            return ty

        def get_current_target(self) -> Any:
            return target("hip", self.session.architecture, 64)

        def get_current_device(self) -> int:
            return DEVICE

        def set_current_device(self, device: int) -> None:
            pass

        def get_current_stream(self, device: int | None = None) -> int:
            return 0

        def get_active_torch_device(self) -> torch.device:
            return torch.device("cpu")

        def get_device_interface(self) -> Any:
            return torch.cuda

        def get_empty_cache_for_benchmark(self) -> Tensor:
            return torch.empty(16, dtype=torch.int32)

        def clear_cache(self, cache: Tensor) -> None:
            cache.zero_()

        def get_benchmarker(self) -> Callable[..., Any]:
            return self._instructions

        def _instructions(self, call: Callable[[], Any], quantiles: Any = None, **_: Any) -> Any:
            """A configuration's cost in wave-instructions: the same on every machine."""
            before = self.session.executed
            call()
            cost = float(self.session.executed - before)
            return [cost] * len(quantiles) if quantiles else cost

    return ExecutorDriver


class Launcher:
    """What Triton calls to launch a compiled kernel."""

    def __init__(self, package: str, source: Any, metadata: Any) -> None:
        self.package = package
        self.metadata = metadata
        self.signature = dict(source.signature)
        self.names = list(source.fn.arg_names) if hasattr(source, "fn") else list(map(str, self.signature))
        self._assembly: str | None = None

    @property
    def assembly(self) -> str:
        """The amdgcn text that the compiler left in its cache."""
        if self._assembly is None:
            self._assembly = self._text("amdgcn")
        return self._assembly

    @property
    def folder(self) -> Path:
        """Triton's cache of this kernel."""
        manager = importlib.import_module(f"{self.package}.runtime.cache").get_cache_manager
        return Path(manager(self.metadata.hash).cache_dir)

    def _text(self, stage: str) -> str:
        (found,) = self.folder.glob(f"*.{stage}")
        return found.read_text()

    def __call__(self, x: Any, y: Any, z: Any, *rest: Any) -> None:
        """Triton's launch: grid, stream, function, packed metadata, launch metadata, two hooks, arguments."""
        # A compiled kernel, and this with it, lives on in Triton's caches: the session is whichever is open.
        session = _open_sessions[-1]
        grid = (int(_plain(x)), int(_plain(y)), int(_plain(z)))
        _, _, _, launch_metadata, enter, leave, *arguments = rest
        if enter is not None:
            enter(launch_metadata)
        record = LaunchRecord(
            self.metadata.name, grid, self.metadata.num_warps, self.metadata, self.assembly, self._text("ttgir"),
            self.folder,
        )  # fmt: skip
        session.launches.append(record)
        if all(grid) and session.execute:
            program = program_of(self.assembly)
            flat = _flatten(self.names, list(self.signature.values()), arguments)
            launch = Grid(program, grid, self.metadata.num_warps, self.metadata.shared,
                          _kernarg(program, flat, grid, self.metadata.num_warps * 64), _reaches(flat),
                          any(_may_point(value) for _, _, value in flat))  # fmt: skip
            if session.observe:
                session.observe(launch)
            began = time.perf_counter()
            record.outcome = run(launch, session.models)
            record.seconds = time.perf_counter() - began
        if leave is not None:
            leave(launch_metadata)


Flat = list[tuple[str, str, Any]]


def _plain(value: Any) -> Any:
    return getattr(value, "value", value)


def _flatten(names: list[str], kinds: list[Any], values: list[Any]) -> Flat:
    """(name, type, value) of what the kernel receives: constants left out, tuples and descriptors opened."""
    found: Flat = []
    for name, kind, value in zip(names, kinds, values, strict=False):
        if kind == "constexpr":
            continue
        if isinstance(kind, tuple | list):
            inner = list(value)
            found += _flatten([f"{name}[{k}]" for k in range(len(inner))], list(kind), inner)
        elif isinstance(kind, str) and kind.startswith("tensordesc"):
            found += _descriptor(name, value)
        else:
            found.append((name, str(kind), value))
    return found


def _descriptor(name: str, value: Any) -> Flat:
    """A tensor descriptor as gfx950 takes it: base, shape, strides, padding, rounding, shape, strides."""
    rank = len(value.shape)
    integers = [("i64", n) for n in (*value.shape, *value.strides)]
    flags = [("i1", getattr(value, "padding", "zero") == "nan"), ("i1", getattr(value, "round_f32_to_tf32", False))]
    narrow = [("i32", n) for n in value.shape] + [("i64", n) for n in value.strides]
    assert len(narrow) == 2 * rank
    return [(name, "*", value.base), *((name, kind, number) for kind, number in integers + flags + narrow)]


def _reaches(flat: Flat) -> list[Reach]:
    found = (reach_of(name, value) for name, _, value in flat if isinstance(value, Tensor))
    return [reach for reach in found if reach]


def _may_point(value: Any) -> bool:
    return (isinstance(value, int) and value > 1 << 32) or (isinstance(value, Tensor) and value.dtype in (
        torch.int64, torch.uint64))  # fmt: skip


def _packed(kind: str, value: Any) -> tuple[bytes, int]:
    """Bytes of an argument, and their alignment."""
    value = _plain(value)
    if kind.startswith("*"):
        address = 0 if value is None else value if isinstance(value, int) else value.data_ptr()
        return struct.pack("<Q", address), 8
    if kind in ("fp16", "bf16", "f16"):
        dtype = torch.bfloat16 if kind == "bf16" else torch.float16
        bits = torch.tensor(float(value), dtype=dtype).view(torch.int16).item()
        return struct.pack("<h", bits), 2
    form = SCALARS[kind]
    data = struct.pack(f"<{form}", bool(value) if form == "?" else value)
    return data, len(data)


def _kernarg(program: Program, flat: Flat, grid: tuple[int, int, int], threads: int) -> bytes:
    """The kernel's argument segment: arguments at natural alignment, then what the metadata names."""
    listing = program.listing
    size = max(listing.metadata.get("kernarg_segment_size", 0), 64)
    data = bytearray(size)
    position = 0
    for _, kind, value in flat:
        piece, alignment = _packed(kind, value)
        position = -(-position // alignment) * alignment
        data[position : position + len(piece)] = piece
        position += len(piece)
    for argument in listing.arguments:
        kind = argument["value_kind"]
        hidden = {f"hidden_block_count_{axis}": n for axis, n in zip("xyz", grid, strict=True)}
        hidden |= {"hidden_group_size_x": threads, "hidden_group_size_y": 1, "hidden_group_size_z": 1,
                   "hidden_grid_dims": 1}  # fmt: skip
        if kind in hidden:
            width = argument["size"]
            data[argument["offset"] : argument["offset"] + width] = hidden[kind].to_bytes(width, "little")
    return bytes(data)
