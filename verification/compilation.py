"""Every fused kernel at every configuration, compiled for gfx950 and gfx942 without running it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from verification.execution import Refused, run_of
from verification.gfx950 import executor
from verification.gfx950.driver import LaunchRecord
from verification.gfx950.resources import Resources, resources_of
from verification.operator import Operator, operators
from verification.plan import Candidate, builtin

ARCHITECTURES = ("gfx950", "gfx942")


def compiled(names: tuple[str, ...] = ()) -> Iterator[tuple[str, Resources]]:
    """(implementation and configuration, resources) of each distinct program; names choose operators."""
    for label, architecture, launch in launches(names):
        yield label, resources_of(launch, architecture)


def launches(
    names: tuple[str, ...] = (), architectures: tuple[str, ...] = ARCHITECTURES
) -> Iterator[tuple[str, str, LaunchRecord]]:
    """(implementation and configuration, architecture, launch) of each distinct program; names choose operators."""
    for operator in operators().values():
        if names and operator.name not in names:
            continue
        for candidate in builtin(operator.name, "fused"):
            declared = candidate.declared
            for configuration in declared.configurations or (None,):
                label = f"{operator.name}: {declared.name}{'+' + configuration if configuration else ''}"
                for architecture in architectures:
                    for launch in _programs(operator, candidate, configuration, architecture):
                        yield label, architecture, launch


def _programs(
    operator: Operator, candidate: Candidate, configuration: str | None, architecture: str
) -> list[LaunchRecord]:
    """The distinct programs that the representative cases launch."""
    seen: dict[str, LaunchRecord] = {}
    for case in operator.representative():
        with executor(architecture=architecture, execute=False) as session, contextlib.suppress(Refused):
            run_of(operator, candidate.declared, configuration).direct(operator.arguments(case))
        for launch in session.launches:
            seen.setdefault(launch.assembly, launch)
    return list(seen.values())
