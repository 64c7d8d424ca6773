"""A persistent child process with limits of time and memory, spoken to in JSON.

The child may crash, hang, print, eat memory or exit: the parent gets an answer that says so, and
the next request starts a fresh child. Nothing that comes back is executed.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import importlib
import itertools
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

POLL_SECONDS = 0.05
LONGEST_ANSWER = 64 << 20
"""Bytes; results travel in files."""
START_SECONDS = 180
POLLS_BETWEEN_READINGS = 4
"""Memory is read now and then: a reading walks over the machine's processes."""

MARK = "\x1e"
"""What a child writes to its output before each request, so that what it says is told apart."""

SETUP = "PARITY_CHILD_SETUP"
"""Environment variable that names a `module:function` to run in a child before it serves."""


class WorkerError(RuntimeError):
    """The child did not answer: it died, ran out of time or of memory."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Worker:
    """A child that serves requests by a function named `module:function`."""

    def __init__(self, service: str, environment: dict[str, str], memory_bytes: int) -> None:
        self.service = service
        self.environment = environment
        self.memory_bytes = memory_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._said: collections.deque[str] = collections.deque(maxlen=40)
        self._number = 0

    def request(self, message: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The service's answer, or WorkerError within about `seconds` (start-up not counted)."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        assert self._socket is not None
        self._number += 1
        try:
            _send(self._socket, {**message, "request": self._number})
            answer = self._receive(time.monotonic() + seconds, seconds)
        except (OSError, EOFError):
            said = self._death()
            self.stop()
            raise WorkerError("crash", said) from None
        except BaseException:
            self.stop()
            raise
        return answer

    def stop(self) -> None:
        """End the child and whatever it started."""
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = self._socket = None

    def _start(self) -> None:
        self.stop()
        self._number = 0
        ours, theirs = socket.socketpair()
        environment = {**os.environ, **self.environment}
        paths = [str(ROOT), *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "verification.worker", str(theirs.fileno()), self.service],
            pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, env=environment, start_new_session=True,
        )  # fmt: skip
        theirs.close()
        self._socket = ours
        self._reader = threading.Thread(target=_drain, args=(self._process, self._said), daemon=True)
        self._reader.start()
        # Importing torch is slow the first time on a machine; no candidate code runs before this answer.
        try:
            self._receive(time.monotonic() + START_SECONDS, START_SECONDS)
        except (OSError, EOFError):
            said = self._death()
            self.stop()
            raise WorkerError("crash", f"the worker could not start: {said}") from None
        except BaseException:
            self.stop()
            raise

    def _receive(self, deadline: float, seconds: float) -> dict[str, Any]:
        assert self._socket is not None
        assert self._process is not None
        buffer = b""
        self._socket.settimeout(POLL_SECONDS)
        for poll in itertools.count():
            with contextlib.suppress(TimeoutError):
                piece = self._socket.recv(1 << 20)
                if not piece:
                    raise EOFError
                buffer += piece
                if len(buffer) >= 4 and (size := struct.unpack("<I", buffer[:4])[0]) > LONGEST_ANSWER:
                    raise WorkerError("crash", f"the process announced an answer of {size} bytes; killed")
                while len(buffer) >= 4 and len(buffer) >= (end := 4 + struct.unpack("<I", buffer[:4])[0]):
                    answer, buffer = _answer(buffer[4:end]), buffer[end:]
                    if answer.pop("request", None) == self._number:
                        return answer  # one of another number is the late answer of a fork
                continue
            if time.monotonic() > deadline:
                raise WorkerError("timeout", f"no answer within {seconds:g} s; killed")
            if poll % POLLS_BETWEEN_READINGS == 0 and (used := resident_bytes(self._process.pid)) > self.memory_bytes:
                limit = self.memory_bytes / 2**30
                raise WorkerError("memory", f"used {used / 2**30:.1f} GiB; the limit is {limit:.1f} GiB; killed")
        raise AssertionError("unreachable")

    def _death(self) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "the process closed its connection"
        self._reader.join(timeout=2)
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        said = "".join(self._said).rpartition(MARK)[2].strip()
        return f"the process ended with {how}" + (f"; it last said: {said[-600:]}" if said else "")


def _answer(data: bytes) -> dict[str, Any]:
    """What the child sent, if it is an answer at all: the child may have written anything."""
    try:
        answer = json.loads(data)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise WorkerError("crash", f"the process answered with {data[:60]!r}, which is no answer; killed")
    return answer


def resident_bytes(session: int) -> int:
    """Private resident memory of a child and all that it started, shared mappings left out."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # After the command's name, which may hold anything: state, parent, group, session.
            if int(stat.read_text().rpartition(")")[2].split()[3]) == session:
                fields = stat.with_name("statm").read_text().split()
                total += (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")
    return total


def _drain(process: subprocess.Popen[bytes], said: collections.deque[str]) -> None:
    assert process.stdout is not None
    while piece := process.stdout.read1(65536):  # type: ignore[attr-defined]
        said.append(piece[-4096:].decode(errors="replace"))


def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode()
    connection.settimeout(30)
    connection.sendall(struct.pack("<I", len(data)) + data)


def _serve(descriptor: int, service: str) -> None:
    """Answer requests until the parent goes away."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # die with the parent (PR_SET_PDEATHSIG)
    connection = socket.socket(fileno=descriptor)
    if setup := os.environ.get(SETUP):
        named(setup)()
    serve = named(service)
    owner = os.getpid()
    _send(connection, {"ready": True, "request": 0})
    connection.settimeout(None)
    stream = connection.makefile("rb")
    while prefix := stream.read(4):
        request = json.loads(stream.read(struct.unpack("<I", prefix)[0]))
        with contextlib.suppress(OSError, ValueError):
            print(MARK, end="", flush=True)
        number = request.pop("request")
        answer = serve(request)
        if os.getpid() != owner:
            os._exit(0)  # a fork that a candidate left behind must not answer for the child
        _send(connection, {**answer, "request": number})
        connection.settimeout(None)


def named(path: str) -> Any:
    """The function that `module:function` names."""
    module, _, function = path.partition(":")
    return getattr(importlib.import_module(module), function)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2])
