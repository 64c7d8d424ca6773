"""A launch as files: each instruction with how often it ran, and what the kernel takes of a compute unit."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from verification.gfx950.assembly import read
from verification.gfx950.driver import LaunchRecord
from verification.gfx950.resources import Resources, resources_of


@dataclass(frozen=True)
class Listed:
    """One launch: grid, waves of a workgroup, wave-instructions, resources, and (count, instruction, source)."""

    kernel: str
    grid: tuple[int, int, int]
    waves: int
    executed: int
    resources: Resources
    lines: tuple[tuple[int, str, str], ...]

    @property
    def code(self) -> list[str]:
        """The instructions alone."""
        return [text for _, text, _ in self.lines]

    def text(self) -> str:
        """The listing for people: how often, instruction, place in the source where it changes."""
        shown, last = [f"; {self.kernel}, grid {self.grid}, {self.waves} waves a workgroup"], ""
        for count, text, source in self.lines:
            shown.append(f"{count:>10}  {text}" + (f"  ; {source}" if source != last else ""))
            last = source
        return "\n".join(shown) + "\n"


def write_listings(launches: Iterable[LaunchRecord], folder: Path) -> None:
    """One JSON a launch, numbered on from those that are there."""
    first = len(list(folder.glob("*.json")))
    for number, launch in enumerate(launches, first):
        (folder / f"{number:03d}.json").write_text(json.dumps(asdict(_listed(launch))))


def read_listings(folder: Path) -> list[Listed]:
    """What `write_listings` wrote, in order."""
    return [_from(json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]


def _listed(launch: LaunchRecord) -> Listed:
    lines = read(launch.assembly).lines
    counts = launch.outcome.counts.tolist() if launch.outcome else [0] * len(lines)
    rows = tuple((count, line.text, line.source) for count, line in zip(counts, lines, strict=True))
    return Listed(launch.kernel, launch.grid, launch.waves, sum(counts), resources_of(launch, "gfx950"), rows)


def _from(row: dict[str, Any]) -> Listed:
    lines = tuple((count, text, source) for count, text, source in row.pop("lines"))
    resources = Resources(**row.pop("resources"))
    return Listed(**{**row, "grid": tuple(row["grid"])}, resources=resources, lines=lines)
