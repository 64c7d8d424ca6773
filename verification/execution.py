"""What happens inside the child: find the implementation, guard it, run it, say what it did."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fused.boundary import Implementation, implementations_in, taken_by
from verification import tuning
from verification.conduct import Breach, Conduct
from verification.far_memory import FarMemory
from verification.guards import AllocationGuard, fill_poison
from verification.transport import DTYPE_NAMES, Blob, write_results
from verification.worker import named

if TYPE_CHECKING:  # a candidate's child does not even load what knows the right answers
    from verification.comparison import Observed
    from verification.operator import Operator

OBSERVER = "PARITY_CHILD_OBSERVER"
"""Environment variable that names a `module:function`: what the target saw of a call, for its record."""


OURS = ("builtin", "faults")
"""Sources that are this project's own; any other is a candidate file."""

PLAIN = (Tensor, torch.nn.Parameter)


class Refused(Exception):
    """The implementation cannot be run as asked; the kind says whose fault that is."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """Answer one request: `describe` a candidate file, or `call` an implementation."""
    try:
        if request["source"] not in OURS:
            _conduct(request["source"], request["borrows"])
        if request["do"] == "describe":
            return {"implementations": [_described(one) for one in declared(request["source"])]}
        return call(request)
    except Refused as refusal:
        return {"problem": refusal.kind, "message": str(refusal)}
    except Breach as breach:
        return {"problem": "conduct", "message": str(breach)}
    except BaseException as error:  # a candidate may raise anything, SystemExit included
        return {"problem": "raised", "message": _told(error)}


def call(request: dict[str, Any]) -> dict[str, Any]:
    """Run once on the blob's arguments, in the asked mode, and write the results."""
    implementation = find(request["source"], request["operator"], request["implementation"])
    device = request["device"]
    blob = Blob(Path(request["blob"]), request["header"])
    held = blob.bytes if device == "cpu" else torch.empty(blob.bytes.shape, dtype=torch.uint8, device=device)
    wanted = blob.bytes.clone()
    owner = os.getpid()
    first = find(request["source"], request["payload_of"], request["implementation"]) if request["payload_of"] else None
    run = Run(implementation, request["weights"], request["configuration"], device, first, request["gives_payload"])
    run.conduct = _watch.get(request["source"])
    earlier: list[Tensor] = []
    started = time.perf_counter()
    memory = FarMemory(blob.arguments(held), request["header"])

    def fill(data: Tensor) -> None:
        held.copy_(data)
        memory.load()

    if request["mode"] != "direct":
        fill(Blob(Path(request["changed"]), request["header"]).bytes)
    with run.tuned():
        if request["mode"] == "replay":
            results = run.replay(memory.arguments, partial(fill, wanted))
        else:
            if request["mode"] == "repeat":
                # Copied at once: the implementation may write its next result over this one.
                earlier = [x if x.is_meta else x.detach().cpu().clone() for x in run.direct(memory.arguments)]
                run.wait()
            fill(wanted)
            results = run.direct(memory.arguments)
    if os.getpid() != owner:
        os._exit(0)  # a fork that a candidate left behind must not write over the child's results
    # In the order of the current stream, as whoever calls next would: work elsewhere may not be done yet.
    described = write_results(Path(request["results"]), [*results, *earlier])
    memory.store()
    if device != "cpu":
        blob.bytes.copy_(held)
    run.wait()
    _overwrite(results, held)
    return {
        "results": described[: len(results)],
        "earlier": described[len(results) :],
        "operations": run.operations,
        "damages": [damage for guard in run.guards for damage in guard.damages()] + memory.damages(),
        "seconds": time.perf_counter() - started,
        "environment": environment(device),
        "observed": named(os.environ[OBSERVER])() if OBSERVER in os.environ else {},
    }


class Run:
    """An implementation with its prepared state, called under guard."""

    def __init__(
        self,
        implementation: Implementation,
        weights: list[str],
        configuration: str | None,
        device: str,
        first: Implementation | None = None,
        gives_payload: bool = False,
    ) -> None:
        self.implementation = implementation
        self.first = first
        self.gives_payload = gives_payload
        self.weights = weights
        self._configuration = configuration
        self._module = sys.modules[implementation.call.__module__]
        declared = configuration is not None and configuration in implementation.configurations
        self.extra = {"configuration": configuration} if declared else {}
        self.device = device
        self.guards: list[AllocationGuard] = []
        self.operations: list[int] = []
        """How much each call computed, in operations of torch."""
        self.conduct: Conduct | None = None
        self._state: tuple[Any, ...] | None = None

    def tuned(self) -> AbstractContextManager[None]:
        """Inside, autotuned kernels have the asked configuration alone, or tune anew."""
        return tuning.chosen(self._module, self._configuration)

    def direct(self, arguments: dict[str, Any]) -> list[Tensor]:
        """Prepare (once) and call; the device may still be at work."""
        return self._call(self._prepare(arguments))

    def replay(self, arguments: dict[str, Any], restore: Callable[[], None]) -> list[Tensor]:
        """Capture a graph on what the arguments hold now, then replay it on what `restore` puts in their place."""
        inputs = self._prepare(arguments)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._call(inputs)  # compiles and loads; what it wrote is overwritten below
        torch.cuda.current_stream().wait_stream(side)
        self.guards.clear()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = self._call(inputs)
        restore()
        graph.replay()
        return results

    def _prepare(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if self.implementation.supports is not None:
            with self._watched():
                reason = _bind(self.implementation.supports, (), arguments)(**arguments)
            if reason:
                raise Refused("unsupported", f"{self.implementation.supports.__name__}: {reason}")
        if self.implementation.prepare is None:
            self._state = ()
            return arguments
        weights = {name: value for name, value in arguments.items() if name in self.weights}
        if self._state is None:
            with self._watched():
                self._state = (_bind(self.implementation.prepare, (), weights)(**weights),)
        return {name: value for name, value in arguments.items() if name not in weights}

    def _call(self, inputs: dict[str, Any]) -> list[Tensor]:
        assert self._state is not None
        guard = AllocationGuard()
        self.guards.append(guard)
        with self._watched(), guard, torch.no_grad():
            if self.first is not None:
                inputs = self._with_payload(inputs)
            function = _bind(self.implementation.call, self._state, {**inputs, **self.extra})
            returned = function(*self._state, **inputs, **self.extra)
        self.operations.append(guard.operations)
        values = [] if returned is None else list(returned) if isinstance(returned, tuple | list) else [returned]
        if self.gives_payload:
            values = values[:-1]
        for value in values:
            if not isinstance(value, Tensor):
                raise Refused("structure", f"returned a {type(value).__name__} where a tensor is expected")
            if type(value) not in PLAIN:
                raise Refused("structure", f"returned a {type(value).__name__}; expected a plain torch.Tensor")
            if value.layout != torch.strided:
                raise Refused("structure", f"returned a tensor of layout {value.layout}; expected a dense one")
        return values

    def _with_payload(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """What this implementation takes of the inputs, and what the first of the pair returned last on its part."""
        assert self.first is not None
        assert self._state is not None
        taken = taken_by(self.first.call, inputs)
        *_, payload = _bind(self.first.call, self._state, taken)(*self._state, **taken)
        return taken_by(self.implementation.call, inputs) | {"payload": payload}

    def _watched(self) -> AbstractContextManager[None]:
        return self.conduct.watched() if self.conduct else nullcontext()

    def wait(self) -> None:
        """Until the device has done everything."""
        if self.device != "cpu":
            torch.cuda.synchronize()


def run_of(operator: Operator, implementation: Implementation, configuration: str | None = None) -> Run:
    """A run in this process, on the CPU: for implementations of this project."""
    from verification.operator import implementations

    first = implementations()[operator.payload_of, implementation.name] if operator.payload_of else None
    return Run(implementation, list(operator.weights), configuration, "cpu", first, operator.gives_payload)


def observe(run: Run, operator: Operator, arguments: dict[str, Any]) -> Observed:
    """One direct call in this process on these very arguments, as a comparison sees it."""
    from verification.comparison import Observed

    results = run.direct(arguments)
    touched = {name: arguments[name] for name in operator.in_place if isinstance(arguments.get(name), Tensor)}
    return Observed(
        results, ["cpu"] * len(results), [DTYPE_NAMES[x.dtype] for x in results], touched,
        damages=[damage for guard in run.guards for damage in guard.damages()],
    )  # fmt: skip


def _bind(function: Any, state: tuple[Any, ...], arguments: dict[str, Any]) -> Any:
    """The function, once its signature is seen to take these arguments."""
    try:
        inspect.signature(function).bind(*state, **arguments)
    except TypeError as error:
        raise Refused(
            "signature",
            f"{function.__name__} does not take the operator's arguments: {error}; they are {', '.join(arguments)}",
        ) from None
    return function


def find(source: str, operator: str, name: str) -> Implementation:
    """A built-in implementation, a fault, or one of a candidate file."""
    if source == "builtin":
        from verification.operator import implementations

        if (operator, name) not in implementations():
            raise Refused("import", f"there is no {name} of {operator} in this package")
        return implementations()[operator, name]
    if source == "faults":
        from verification.fault import faulty

        try:
            return faulty(operator, name)
        except Exception as error:
            raise Refused("fault", f"the fault {operator}/{name} cannot be made: {_told(error)}") from None
    for one in declared(source):
        if (one.operator, one.name) == (operator, name):
            return one
    raise Refused("import", f"{source} declares no {name} of {operator}")


@cache
def declared(source: str) -> tuple[Implementation, ...]:
    """What a candidate file declares; it is imported, that is run, once a process."""
    try:
        spec = importlib.util.spec_from_file_location("parity_candidate", source)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["parity_candidate"] = module  # triton.jit looks its module up
        watch = _watch.get(source)
        with watch.watched() if watch else nullcontext():
            spec.loader.exec_module(module)
    except Breach:
        raise
    except BaseException as error:
        raise Refused("import", f"{source} does not import: {_told(error)}") from None
    found = implementations_in(module)
    names = [(one.operator, one.name) for one in found]
    for one in found:
        if names.count((one.operator, one.name)) > 1:
            raise Refused("import", f"{source} declares {one.name} of {one.operator} more than once")
        if not re.fullmatch(r"[\w.-]+", one.name):
            raise Refused("import", f"{source} names an implementation {one.name!r}; expected letters, digits, _ . -")
    if not found:
        raise Refused("import", f"{source} declares no implementation; decorate one with @candidate(operator, name=…)")
    return tuple(found)


_watch: dict[str, Conduct] = {}


def _conduct(source: str, borrows: bool) -> None:
    """Watch the file from now on."""
    if source not in _watch:
        _watch[source] = Conduct(source, borrows)


def _overwrite(results: list[Tensor], held: Tensor) -> None:
    """Fill what was returned, as its new owner may: whoever kept it to return it again gives this."""
    own = held.untyped_storage().data_ptr()
    for value in results:
        if value.numel() and not value.is_meta and value.untyped_storage().data_ptr() != own and _dense(value):
            fill_poison(value.detach())


def _dense(value: Tensor) -> bool:
    return value.is_contiguous() and not (value.is_inference() or value.is_conj() or value.is_neg())


def _described(one: Implementation) -> dict[str, Any]:
    return {
        "operator": one.operator, "name": one.name, "variant": one.variant, "targets": list(one.targets),
        "batch_invariant": one.batch_invariant, "deterministic": one.deterministic,
        "capturable": one.capturable,
        "configurations": [*one.configurations, *tuning.configurations(sys.modules[one.call.__module__])],
    }  # fmt: skip


def environment(device: str) -> dict[str, Any]:
    """Where it ran: device, architecture, versions, precision modes."""
    import triton

    gpu = torch.cuda.get_device_properties(0) if device != "cpu" else None
    return {
        "device": gpu.name if gpu else "cpu",
        "architecture": _architecture(gpu),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "triton": triton.__version__,
        "tf32": torch.backends.cuda.matmul.allow_tf32,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
    }


def _architecture(gpu: Any) -> str:
    """gfx950, sm_90, …; without a GPU what the target says of itself, or cpu."""
    if gpu is None:
        return os.environ.get("PARITY_ARCHITECTURE", "cpu")
    return str(gpu.gcnArchName) if torch.version.hip else f"sm_{gpu.major}{gpu.minor}"


def _told(error: BaseException) -> str:
    """The error, and the last line of the candidate's own code that it passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = Path(__file__).parent
    theirs = (f for f in reversed(frames) if ours not in Path(f.filename).parents)
    place = next((f" at {Path(f.filename).name}:{f.lineno}" for f in theirs), "")
    try:
        said = str(error)[:1500]
    except Exception:  # an exception of a candidate's own may not even be printable
        said = "(its text cannot be had)"
    said = said.encode(errors="backslashreplace").decode()
    said = "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in said)
    return f"{type(error).__name__}: {said}{place}"
