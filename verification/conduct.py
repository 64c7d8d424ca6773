"""What a candidate may not do in its child, whatever its numbers: it is refused by name.

Python's audit events, which cannot be unsubscribed from, tell of imports, opened files, processes
and signals; functions that others call are compared with what they were. What native code does is
not seen: a candidate is not trusted to be right, but no sandbox stands against a hostile one.
"""

from __future__ import annotations

import builtins
import contextlib
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from importlib.util import cache_from_source
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils import _python_dispatch

from verification.worker import ROOT

OPEN_TO_ALL = ("", "conduct", "execution", "gfx950", "guards", "inputs", "targets", "transport", "tuning", "worker")
"""Modules of `verification` that a child itself runs on; the others know what is right."""

SCRATCH = re.compile(r"/parity-\d+-")
OTHER_PROCESS = re.compile(r"/proc/(\d+)/")
INTERPRETER = re.compile(r"(python|pypy)[\d.]*$")
LIBRARIES = (f"{Path(os.__file__).parent}{os.sep}", "<")
INSTALLED = ("site-packages", "dist-packages")

REACHES_FOR_GUARD = (
    (_python_dispatch, "_get_current_dispatch_mode"),
    (_python_dispatch, "_get_current_dispatch_mode_stack"),
    (_python_dispatch, "_disable_current_modes"),
    (_python_dispatch, "_pop_mode"),
    (_python_dispatch, "_pop_mode_temporarily"),
    (torch._C, "_get_dispatch_stack_at"),
    (torch._C, "_pop_torch_dispatch_stack"),
)


class Breach(PermissionError):
    """The candidate did what no kernel has to do; the message says what, and what to do instead."""


class Conduct:
    """Watches one candidate file in this process, from before its import until the process ends."""

    def __init__(self, source: str, borrows: bool) -> None:
        self.source = str(Path(source).resolve())
        self._compiled = cache_from_source(self.source)
        self.borrows = borrows
        """Whether it may use the reference and this project's implementations: a fault made on purpose."""
        self.breaches: list[str] = []
        self._watching = False
        for owner, name in REACHES_FOR_GUARD:
            if hasattr(owner, name):
                setattr(owner, name, self._sealed(getattr(owner, name)))
        self._before = dict(_functions())
        sys.addaudithook(self._heard)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """While the candidate's own code runs; Breach afterwards, even where it swallowed that."""
        self._watching = True
        try:
            yield
        finally:
            self._watching = False
            self._judge()

    def _judge(self) -> None:
        now = dict(_functions())
        for place, function in self._before.items():
            if now.get(place) is not function and not _of_torch(now.get(place)):
                self.breaches.append(f"replaces {place}, which others call as well: leave it as it is")
        if self.breaches:
            raise Breach(f"the candidate {self.breaches[0]}")

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._watching and event in REFUSALS and (said := REFUSALS[event](self, arguments)):
            self.breaches.append(said)
            raise Breach(f"the candidate {said}")

    def _sealed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def sealed(*arguments: Any, **named: Any) -> Any:
            if self._watching and self.calls():
                self.breaches.append(f"calls {function.__name__}, which leads to the harness's guard of memory")
                raise Breach(f"the candidate {self.breaches[-1]}")
            return function(*arguments, **named)

        return sealed

    def calls(self) -> bool:
        """Whether the candidate itself, not a library that it uses, is what runs."""
        frame: FrameType | None = _here()
        while frame is not None:
            name = frame.f_code.co_filename
            library = name.startswith(LIBRARIES) and not any(folder in name for folder in INSTALLED)
            if not library and name != __file__:
                return name == self.source
            frame = frame.f_back
        return False

    def opened(self, path: str) -> str | None:
        """Why this file may not be opened, or None."""
        full = os.path.realpath(path)
        if full == self.source or full.startswith(self._compiled):
            return None
        if SCRATCH.search(full):
            return f"opens {path}, a file of the harness's own: take the inputs from the arguments"
        if (other := OTHER_PROCESS.match(full)) and int(other[1]) != os.getpid():
            return f"opens {path}, which is another process's"
        if not full.startswith(f"{ROOT}{os.sep}"):
            return None
        parts = Path(full).relative_to(ROOT).parts
        module = [part.partition(".")[0] for part in parts if part != "__pycache__"]
        return self.imported(".".join(module).removesuffix(".__init__"))

    def imported(self, module: str) -> str | None:
        """Why this module may not be imported, or None."""
        package, _, rest = module.partition(".")
        known = rest.partition(".")[0]
        allowed = {"reference": ("", "config"), "verification": OPEN_TO_ALL}.get(package)
        if self.borrows or allowed is None or known in allowed:
            return None
        return f"uses {module}, which knows what is right: compute it in the file itself"


def _here() -> FrameType:
    """The frame of the caller, without the event that sys._getframe raises."""
    try:
        raise LookupError
    except LookupError as error:
        trace = error.__traceback__
    assert trace is not None
    assert trace.tb_frame.f_back is not None
    return trace.tb_frame.f_back


def _opens(conduct: Conduct, arguments: tuple[Any, ...]) -> str | None:
    path = arguments[0]
    return conduct.opened(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else None


def _imports(conduct: Conduct, arguments: tuple[Any, ...]) -> str | None:
    return conduct.imported(arguments[0])


def _inspects(conduct: Conduct, arguments: tuple[Any, ...]) -> str | None:
    return "looks through its callers or all objects: a kernel computes from its arguments" if conduct.calls() else None


def _starts(conduct: Conduct, arguments: tuple[Any, ...]) -> str | None:
    program = arguments[0] if isinstance(arguments[0], str | bytes | os.PathLike) else ""
    compiler = len(arguments) > 2 and not INTERPRETER.search(os.fsdecode(program))
    return None if compiler or not conduct.calls() else f"starts {program!r}: compute in this process"


def _signals(conduct: Conduct, arguments: tuple[Any, ...]) -> str | None:
    try:
        own = arguments[0] > 0 and os.getsid(arguments[0]) == os.getsid(0)
    except OSError:
        own = False
    return None if own else f"sends a signal to process {arguments[0]}, which is not its own"


REFUSALS: dict[str, Callable[[Conduct, tuple[Any, ...]], str | None]] = {
    "open": _opens, "import": _imports,
    "sys._getframe": _inspects, "gc.get_objects": _inspects, "gc.get_referrers": _inspects,
    "subprocess.Popen": _starts, "os.posix_spawn": _starts, "os.exec": _starts, "os.system": _starts,
    "os.kill": _signals, "os.killpg": _signals,
}  # fmt: skip


def _functions() -> Iterator[tuple[str, Any]]:
    """Functions and classes that the harness and its libraries are built on, by place."""
    for module in (builtins, os, json, inspect, torch, torch.nn.functional, *_harness()):
        for name, value in list(vars(module).items()):
            if callable(value):
                yield f"{module.__name__}.{name}", value
                if isinstance(value, type) and value.__module__ == module.__name__ and module in _harness():
                    yield from ((f"{value.__qualname__}.{n}", v) for n, v in list(vars(value).items()) if callable(v))
    for kind in reversed(torch.Tensor.__mro__[:-1]):
        yield from ((f"Tensor.{name}", value) for name, value in list(vars(kind).items()) if callable(value))
    yield from ((f"sys.modules[{name!r}]", module) for name, module in _loaded().items())


def _loaded() -> dict[str, Any]:
    names = ("builtins", "os", "torch", *(f"verification.{name}" for name in OPEN_TO_ALL if name))
    return {name: sys.modules[name] for name in names if name in sys.modules}


def _harness() -> list[Any]:
    own = [module for name, module in _loaded().items() if name.startswith("verification.")]
    return [*own, sys.modules["__main__"]]


def _of_torch(function: Any) -> bool:
    """Whether torch itself put it there, as it does when more of it is loaded."""
    code = getattr(function, "__code__", None)
    return code is not None and Path(torch.__file__).parent in Path(code.co_filename).parents
