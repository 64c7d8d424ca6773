"""The native executor: generated, compiled once with the system's C compiler, cached by content."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from verification.gfx950.instructions import instructions
from verification.gfx950.instructions.generate import c_name, handlers, update_function

NATIVE = Path(__file__).parent / "native"
FLAGS = ("-std=gnu11", "-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno",
         "-fno-trapping-math", "-fno-strict-aliasing", "-shared", "-fPIC", "-w")  # fmt: skip


class NoCompilerError(RuntimeError):
    """There is no C compiler, or it failed; the message says what to install."""


def compiler() -> list[str] | None:
    """The command of a C compiler: $CC, cc, gcc, clang, or the one in the ziglang wheel; None without one."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and shutil.which(name):
            return [name]
    return [sys.executable, "-m", "ziglang", "cc"] if importlib.util.find_spec("ziglang") else None


def cache_folder() -> Path:
    """Where compiled things are kept: $PARITY_CACHE, else the user's cache folder."""
    base = os.environ.get("PARITY_CACHE") or os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kimi-k3-parity"


def generated() -> str:
    """handlers.inc: a function for each row of the tables, and the table of them."""
    table = instructions()
    updates = [update_function(row) for row in table.values() if row.family == "atomics"]
    functions = handlers(table)
    names = ",\n    ".join(c_name(name) for name, _ in functions)
    return "\n".join(
        [*updates, *(text for _, text in functions), f"static const Handler handlers[] = {{\n    {names}\n}};\n"]
    )


@cache
def handler_numbers() -> dict[str, int]:
    """The number of each handler by opcode (`opcode.clamp` for the integer clamp)."""
    return {name: number for number, (name, _) in enumerate(handlers(instructions()))}


@cache
def library() -> ctypes.CDLL:
    """The compiled executor; raises NoCompilerError."""
    command = compiler()
    if command is None:
        raise NoCompilerError("the gfx950 executor needs a C compiler: install gcc or clang, or `pip install ziglang`")
    text = generated()
    sources = {path.name: path.read_bytes() for path in sorted(NATIVE.iterdir())}
    identity = repr((text, sources, command, FLAGS, platform.machine(), platform.node()))
    folder = cache_folder() / f"executor-{hashlib.sha256(identity.encode()).hexdigest()[:20]}"
    built = folder / "executor.so"
    if not built.exists():
        _compile(command, text, built)
    return ctypes.CDLL(str(built))


def _compile(command: list[str], text: str, built: Path) -> None:
    """Compile in a folder of its own and move the result into place whole."""
    built.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=built.parent) as place:
        (Path(place) / "handlers.inc").write_text(text)
        out = Path(place) / "executor.so"
        words = [*command, *FLAGS, f"-I{place}", f"-I{NATIVE}", str(NATIVE / "machine.c"), "-o", str(out), "-lm"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoCompilerError(f"{command[0]} could not compile the gfx950 executor: {done.stderr.strip()[-2000:]}")
        out.replace(built)
