"""Launches that another Triton compiled: the same host code executes them again, and nothing is compiled."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import json
import re
import tarfile
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from verification.gfx950.driver import LaunchRecord, Session, executor, perform
from verification.gfx950.models import Models

ARCHIVE, LAUNCHES, MANIFEST = "assembly.tar.xz", "launches.json", "manifest.json"
DEBUGGING = re.compile(r"\t\.section\t\.debug_.*?(?=\t\.amdgpu_metadata\n)", re.DOTALL)
"""What follows the code for debuggers; it names folders of the machine that compiled."""
SOURCE_FILE = re.compile(r'^(\t\.file\t\d+) "[^"]*" ("[^"]*").*$', re.MULTILINE)
POINTERS = {
    "float64": "fp64", "float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5", "bool": "i1", "int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16",
    "int32": "i32", "uint32": "u32", "int64": "i64", "uint64": "u64",
}  # fmt: skip
"""What Triton calls a pointer's target, by the tensor's format."""


class RecordingError(RuntimeError):
    """A launch is not the one that was recorded, or a file is not; the message says in what."""


@dataclass(frozen=True)
class RecordedLaunch:
    """A launch but for its arguments, and what the compiled code takes for granted about them."""

    kernel: str
    grid: tuple[int, int, int]
    waves: int
    shared: int
    signature: dict[str, Any]
    """Triton's kind of each parameter, in order; `constexpr` where the code holds the value."""
    constants: list[tuple[list[int], Any]]
    """Position, within tuples too, and value of each argument that the code holds."""
    attributes: list[tuple[list[int], str, int]]
    """Position of an argument, and what the code relies on: its divisibility, the range of a pointer."""
    assembly: str

    @classmethod
    def of(cls, launch: LaunchRecord) -> RecordedLaunch:
        """What the driver saw of a launch."""
        source = launch.source
        attributes = [
            (list(path), name, value) for path, pairs in sorted(source.attrs.items()) for name, value in pairs
        ]
        constants = [(list(path), _plain(value)) for path, value in sorted(source.constants.items())]
        return cls(launch.kernel, launch.grid, launch.waves, launch.metadata.shared, dict(source.signature), constants,
                   attributes, without_paths(launch.assembly))  # fmt: skip

    def check(self, function: Any, grid: tuple[int, int, int], values: dict[str, Any], waves: int) -> None:
        """Compare with the launch that is asked for; raises RecordingError."""
        asked = (function.__name__, grid, waves, list(values))
        recorded = (self.kernel, self.grid, self.waves, list(self.signature))
        if asked != recorded:
            raise RecordingError(f"a launch of {asked} where {recorded} was recorded")
        arguments = list(values.values())
        for path, value in self.constants:
            if _plain(_at(arguments, path)) != value:
                raise RecordingError(f"{self._named(path)} is {_at(arguments, path)}; recorded with {value!r}")
        for path, name, value in self.attributes:
            if not _holds(name, value, _at(arguments, path)):
                raise RecordingError(f"{self._named(path)} has no {name} {value}, on which the recorded code relies")
        for name, kind in self.signature.items():
            found = values[name]
            if isinstance(found, Tensor) and kind != f"*{POINTERS[str(found.dtype).removeprefix('torch.')]}":
                raise RecordingError(f"{self.kernel}: {name} is {found.dtype}; recorded as {kind}")

    def _named(self, path: list[int]) -> str:
        return f"{self.kernel}: {list(self.signature)[path[0]]}{''.join(f'[{k}]' for k in path[1:])}"


@dataclass(frozen=True)
class Recording:
    """A folder of recorded programs: an archive of launches and assembly texts, and a manifest."""

    folder: Path

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Version, date, names of the programs, what the compiler refused, digests of the archive's files."""
        found: dict[str, Any] = json.loads((self.folder / MANIFEST).read_text())
        return found

    @cached_property
    def files(self) -> dict[str, str]:
        """Texts by name; raises RecordingError where one is not that of the manifest."""
        with tarfile.open(self.folder / ARCHIVE) as archive:
            opened = {one.name: archive.extractfile(one) for one in archive}
            found = {name: file.read() for name, file in opened.items() if file is not None}
        if {name: _digest(text) for name, text in found.items()} != self.manifest["files"]:
            raise RecordingError(f"the files in {self.folder / ARCHIVE} are not those of its manifest")
        return {name: text.decode() for name, text in found.items()}

    @cached_property
    def launches(self) -> dict[str, list[RecordedLaunch]]:
        """The launches of each program, in order."""
        rows: dict[str, list[dict[str, Any]]] = json.loads(self.files[LAUNCHES])
        return {program: [self._launch(row) for row in launches] for program, launches in rows.items()}

    def _launch(self, row: dict[str, Any]) -> RecordedLaunch:
        x, y, z = row["grid"]
        return RecordedLaunch(**row | {"grid": (x, y, z), "assembly": self.files[row["assembly"]]})


def write(folder: Path, programs: dict[str, list[RecordedLaunch]], about: dict[str, Any]) -> None:
    """Write a recording; its manifest says `about` as well."""
    files: dict[str, bytes] = {}
    rows: dict[str, list[dict[str, Any]]] = {}
    for program, launches in programs.items():
        rows[program] = []
        for launch in launches:
            text = launch.assembly.encode()
            name = f"{launch.kernel}-{_digest(text)[:12]}.s"
            files[name] = text
            rows[program].append(asdict(launch) | {"assembly": name})
    files[LAUNCHES] = json.dumps(rows, indent=1).encode()
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / ARCHIVE, "w:xz", preset=9) as archive:
        for name, text in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
    digests = {name: _digest(text) for name, text in sorted(files.items())}
    manifest = about | {"programs": list(programs), "files": digests}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


@contextlib.contextmanager
def replayed(launches: Sequence[RecordedLaunch], models: Models | None = None) -> Iterator[Session]:
    """An executor that compiles nothing: each launch inside runs the next recorded code on its own arguments.

    Raises RecordingError where a launch is not the recorded one, or one is missing, and as `executor` does.
    """
    waiting = deque(launches)
    jit = importlib.import_module("triton.runtime.jit").JITFunction
    compile_and_launch = jit.run
    with executor(models) as session:

        def launch(function: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> None:
            if not waiting:
                raise RecordingError(f"a launch of {function.__name__} where no more were recorded")
            _launch(session, waiting.popleft(), function, grid, args, kwargs)

        jit.run = launch
        try:
            yield session
        finally:
            jit.run = compile_and_launch
    if waiting:
        raise RecordingError(f"no launch of {waiting[0].kernel}, which was recorded")


def _launch(session: Session, one: RecordedLaunch, function: Any, grid: Any, args: Any, kwargs: dict[str, Any]) -> None:
    parameters = function.signature.parameters
    bound = function.signature.bind(*args, **{name: value for name, value in kwargs.items() if name in parameters})
    bound.apply_defaults()
    values = dict(bound.arguments)
    sizes = tuple(grid(values) if callable(grid) else grid)
    x, y, z = (int(_plain(size)) for size in (*sizes, 1, 1)[:3])
    one.check(function, (x, y, z), values, kwargs.get("num_warps", 4))
    metadata = SimpleNamespace(name=one.kernel, num_warps=one.waves, shared=one.shared)
    record = LaunchRecord(one.kernel, one.grid, one.waves, metadata, one.assembly)
    perform(session, record, list(one.signature), list(one.signature.values()), list(values.values()))


def without_paths(assembly: str) -> str:
    """The text without what only debuggers read, which names folders of the machine that compiled it."""
    return SOURCE_FILE.sub(r'\1 "" \2', DEBUGGING.sub("", assembly))


def _at(values: Any, path: list[int]) -> Any:
    for position in path:
        values = values[position]
    return values


def _plain(value: Any) -> Any:
    """A constant as JSON holds it: a number, a flag, a text or nothing; a type or a function by its name."""
    value = getattr(value, "value", value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return getattr(value, "__name__", str(value))


def _holds(name: str, wanted: int, value: Any) -> bool:
    """Whether an argument is what an attribute says."""
    if name == "tt.divisibility":
        return bool((value.data_ptr() if isinstance(value, Tensor) else value) % wanted == 0)
    if name == "tt.pointer_range":
        return isinstance(value, Tensor) and bool(value.untyped_storage().nbytes() < 1 << wanted - 1)
    raise RecordingError(f"the attribute {name} is not known")
