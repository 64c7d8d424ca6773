"""Copies of our own modules with their source edited, which nothing else sees."""

from __future__ import annotations

import ast
import atexit
import importlib
import importlib.util
import itertools
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

PACKAGES = ("reference", "verification.eager", "fused")
"""Whose modules may be edited, and are copied where they import one that is."""

ROOT = Path(__file__).resolve().parent.parent

_number = itertools.count()


class EditError(ValueError):
    """An edit that does not apply: the text it replaces is not there exactly once."""


def edited(module: str, edits: Sequence[tuple[str, str]], wanted: str) -> ModuleType:
    """A copy of `wanted` that sees `module` with each (old, new) replaced; both may be the same module.

    Raises EditError for an `old` that does not occur exactly once.
    """
    chain = [name for name in _dependents(module) if wanted in _dependents(name)]
    source = (path := _path(module)).read_text()
    for old, new in edits:
        if (count := source.count(old)) != 1:
            raise EditError(f"{path.name}: {old!r} occurs {count} times; expected once, so that the edit is plain")
        source = source.replace(old, new)
    label = f"_edited{next(_number)}"
    copies: dict[str, ModuleType] = {}
    for name in chain:
        text = source if name == module else _path(name).read_text()
        with _standing_in(copies):
            copies[name] = _loaded(name, label, text)
    return copies[wanted]


def _loaded(name: str, label: str, source: str) -> ModuleType:
    """The source as a module of its own name and file: Triton and tracebacks read it there."""
    path = Path(_folder()) / label / f"{name}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(f"{name}{label}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


@contextmanager
def _standing_in(copies: dict[str, ModuleType]) -> Iterator[None]:
    """Inside, an import of a copied module gives the copy."""
    before = {name: importlib.import_module(name) for name in copies}
    try:
        for name, copy in copies.items():
            _installed(name, copy)
        yield
    finally:
        for name, original in before.items():
            _installed(name, original)


def _installed(name: str, module: ModuleType) -> None:
    package, _, leaf = name.rpartition(".")
    sys.modules[name] = module
    setattr(sys.modules[package], leaf, module)


@cache
def _folder() -> str:
    folder = tempfile.mkdtemp(prefix="parity-edited-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _path(module: str) -> Path:
    return ROOT / Path(*module.split(".")).with_suffix(".py")


@cache
def _imports() -> dict[str, frozenset[str]]:
    """What each module of the packages imports of them."""
    paths = {
        f"{package}.{path.stem}": path
        for package in PACKAGES
        for path in (ROOT / Path(*package.split("."))).glob("*.py")
    }
    return {name: frozenset(_imported(ast.parse(path.read_text()))) & paths.keys() for name, path in paths.items()}


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@cache
def _dependents(module: str) -> tuple[str, ...]:
    """The module, and after it each that imports it in any number of steps, in an order of import."""
    if module not in _imports():
        raise EditError(f"{module} is no module of {', '.join(PACKAGES)}")
    found = [module]
    reached = {module}
    while grown := [name for name, uses in _imports().items() if name not in reached and uses & reached]:
        reached.update(grown)
    remaining = reached - {module}
    while remaining:
        ready = sorted(name for name in remaining if not _imports()[name] & remaining)
        found += ready
        remaining -= set(ready)
    return tuple(found)
