"""What this machine has, what will run here, what cannot, and why."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from verification.plan import builtin, place
from verification.targets import targets
from verification.transport import scratch_folder

LIBRARIES = ("torch", "triton", "numpy", "scipy", "pydantic", "typer", "rich", "safetensors", "einops", "pytest")


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's: what, whether it is well, and what that means."""

    what: str
    well: bool
    says: str


def examine() -> list[Finding]:
    """Libraries, targets, implementations and folders of this machine."""
    found = [Finding("python", True, f"{platform.python_version()} on {platform.machine()}, {os.cpu_count()} cores")]
    found += [_library(name) for name in LIBRARIES]
    for target in targets().values():
        missing = target.missing()
        found.append(Finding(f"target {target.name}", missing is None, missing or target.describes))
    for candidate in builtin():
        home = place(candidate, None)
        name = f"{candidate.declared.operator}: {candidate.declared.name}"
        found.append(Finding(name, home is not None, f"runs on {home.name}" if home else "no target here runs it"))
    folder = Path(scratch_folder() or tempfile.gettempdir())
    free = shutil.disk_usage(folder).free
    found.append(Finding("scratch folder", free > 1 << 30, f"{folder}, {free >> 30} GiB free"))
    return found


def _library(name: str) -> Finding:
    try:
        return Finding(name, True, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        try:
            module = __import__(name)
        except ImportError:
            return Finding(
                name, name == "pytest", "not installed" + ("; only the tests need it" if name == "pytest" else "")
            )
        return Finding(name, True, getattr(module, "__version__", "of another distribution"))
