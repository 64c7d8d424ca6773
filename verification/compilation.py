"""Every fused kernel at every configuration, compiled for gfx950 and gfx942 without running it."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from fused.boundary import Implementation
from verification.gfx950 import executor
from verification.gfx950.driver import LaunchRecord
from verification.gfx950.resources import Resources, resources_of
from verification.operator import Case, Operator, operators
from verification.plan import builtin

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
        for implementation in _fused(operator.name):
            for configuration in implementation.configurations or (None,):
                label = f"{operator.name}: {implementation.name}{'+' + configuration if configuration else ''}"
                for architecture in architectures:
                    for launch in _programs(operator, implementation, configuration, architecture):
                        yield label, architecture, launch


def _fused(operator: str) -> list[Implementation]:
    return [one.declared for one in builtin() if one.family == "fused" and one.declared.operator == operator]


def _programs(
    operator: Operator, implementation: Implementation, configuration: str | None, architecture: str
) -> list[LaunchRecord]:
    """The distinct programs that the representative cases launch."""
    seen: dict[str, LaunchRecord] = {}
    for case in representative(operator):
        with executor(architecture=architecture, execute=False) as session, torch.no_grad():
            _launch(operator, implementation, configuration, case)
        for launch in session.launches:
            seen.setdefault(launch.assembly, launch)
    return list(seen.values())


def representative(operator: Operator) -> list[Case]:
    """The first and the last case of each of the operator's smoke groups: the first often has no rows."""
    groups = [group.cases for group in operator.groups if group.suite == "smoke" and group.cases]
    return list(dict.fromkeys(case for cases in groups for case in (cases[0], cases[-1])))


def _launch(operator: Operator, implementation: Implementation, configuration: str | None, case: Case) -> None:
    arguments = operator.arguments(case)
    extra = {} if configuration is None else {"configuration": configuration}
    if implementation.supports and implementation.supports(**arguments):
        return
    if implementation.prepare is None:
        implementation.call(**arguments, **extra)
        return
    weights = {name: arguments.pop(name) for name in operator.weights}
    implementation.call(implementation.prepare(**weights), **arguments, **extra)
