"""A child that crashes, hangs, prints or eats memory costs one answer, and never the run."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time

import pytest

from verification.worker import Worker, WorkerError, _answer, resident_bytes

SERVICE = """
import os, signal, subprocess, sys, threading

READY = []

def set_up():
    READY.append("set up")

def serve(request):
    do = request["do"]
    if do == "speak":
        print("to stdout " * request["times"], flush=True)
        print("to stderr " * request["times"], file=sys.stderr, flush=True)
        os.write(1, b"\\x00\\xff{not json\\n")
    if do == "fall":
        print("about to fall", flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    if do == "leave":
        print("about to leave", flush=True)
        os._exit(3)
    if do == "raise":
        raise ValueError("no such luck")
    if do == "unspeakable":
        return {"answer": object()}
    if do == "eat":
        held = b"1" * (256 << 20)
        threading.Event().wait()
    if do == "hang":
        print("about to hang", flush=True)
        threading.Event().wait()
    if do == "parent":
        text = "import sys, threading; open(sys.argv[1], 'w').write('x'); "
        text += "held = open(sys.argv[1], 'w'); print('up', flush=True); threading.Event().wait()"
        child = subprocess.Popen([sys.executable, "-c", text, request["fifo"]], stdout=subprocess.PIPE)
        child.stdout.readline()
    return {"pid": os.getpid(), "echo": request.get("text"), "ready": READY, "word": os.environ.get("WORD")}
"""

SECONDS = 2.0
MEMORY = 128 << 20


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Start a worker that serves by a function of the module above; every one is stopped."""
    (tmp_path / "small_service.py").write_text(SERVICE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    started = []

    def start(service="small_service:serve", **environment):
        started.append(Worker(service, environment, MEMORY))
        return started[-1]

    yield start
    for worker in started:
        worker.stop()


def ask(worker, do, **more):
    return worker.request({"do": do, **more}, SECONDS)


def test_one_child_answers_every_request(start):
    worker = start(WORD="given")
    first, second = ask(worker, "answer", text="μ ≤ σ"), ask(worker, "answer")
    assert first["echo"] == "μ ≤ σ"
    assert first["word"] == "given"
    assert first["pid"] == second["pid"] != os.getpid()


def test_a_long_request_and_answer_cross_whole(start):
    text = "x" * (5 << 20)
    assert ask(start(), "answer", text=text)["echo"] == text


def test_the_named_setup_runs_before_the_first_request(start):
    assert ask(start(PARITY_CHILD_SETUP="small_service:set_up"), "answer")["ready"] == ["set up"]
    assert ask(start(), "answer")["ready"] == []


@pytest.mark.parametrize("times", [1, 1 << 16])
def test_what_the_child_prints_does_not_disturb_its_answers(start, times):
    worker = start()
    first = ask(worker, "speak", times=times)
    assert ask(worker, "answer", text="still here") == first | {"echo": "still here"}


MISHAPS = {
    "fall": ("crash", r"signal SIGSEGV.*about to fall"),
    "leave": ("crash", r"exit status 3.*about to leave"),
    "raise": ("crash", r"exit status 1(?s:.*)ValueError: no such luck"),
    "unspeakable": ("crash", r"exit status 1(?s:.*)not JSON serializable"),
    "hang": ("timeout", r"no answer within 1 s; killed"),
    "eat": ("memory", r"used 0\.\d GiB; the limit is 0\.1 GiB; killed"),
}


@pytest.mark.parametrize("do", MISHAPS)
def test_a_mishap_is_told_and_the_next_request_starts_a_fresh_child(start, do):
    worker = start()
    before = ask(worker, "answer")["pid"]
    kind, message = MISHAPS[do]
    with pytest.raises(WorkerError, match=message) as told:
        worker.request({"do": do}, 1.0 if do == "hang" else SECONDS)
    assert told.value.kind == kind
    assert ask(worker, "answer")["pid"] != before


def test_a_hanging_child_is_killed_soon_after_its_limit(start):
    worker = start()
    pid = ask(worker, "answer")["pid"]
    started = time.monotonic()
    with pytest.raises(WorkerError):
        worker.request({"do": "hang"}, 1.0)
    assert 1.0 <= time.monotonic() - started < 1.0 + SECONDS
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_what_was_said_before_belongs_to_no_later_mishap(start):
    worker = start()
    ask(worker, "speak", times=1)
    with pytest.raises(WorkerError, match="about to leave") as told:
        ask(worker, "leave")
    assert "to stdout" not in str(told.value)


@pytest.mark.parametrize("end", ["stop", "hang", "fall"])
def test_the_child_of_a_child_dies_with_it(start, tmp_path, end):
    fifo = tmp_path / "held"
    os.mkfifo(fifo)
    descriptor = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    worker = start()
    try:
        ask(worker, "parent", fifo=str(fifo))
        assert os.read(descriptor, 1) == b"x"
        if end == "stop":
            worker.stop()
        else:
            with pytest.raises(WorkerError):
                worker.request({"do": end}, 1.0)
        # Only the grandchild held the other end: it is at an end when the grandchild is.
        assert select.select([descriptor], [], [], SECONDS)[0]
        assert os.read(descriptor, 1) == b""
    finally:
        os.close(descriptor)


def test_a_stopped_worker_serves_again_and_may_be_stopped_twice(start):
    worker = start()
    before = ask(worker, "answer")["pid"]
    worker.stop()
    worker.stop()
    assert ask(worker, "answer")["pid"] != before


@pytest.mark.parametrize(("service", "message"), [
    ("no_such_module:serve", "could not start.*No module named 'no_such_module'"),
    ("small_service:no_such_function", "could not start.*no_such_function"),
])  # fmt: skip
def test_a_service_that_cannot_be_found_is_named(start, service, message):
    with pytest.raises(WorkerError, match=f"(?s){message}") as told:
        ask(start(service), "answer")
    assert told.value.kind == "crash"


HOLDER = "import sys; held = b'1' * (int(sys.argv[1]) << 20); print('ready', flush=True); sys.stdin.read()"


def resident_while_holding(mebibytes):
    """In a session of its own: what other tests hold or free at the time does not count."""
    words = [sys.executable, "-c", HOLDER, str(mebibytes)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as child:
        child.stdout.readline()
        used = resident_bytes(child.pid)
        child.stdin.close()
    return used


def test_resident_memory_grows_by_what_is_held_and_is_0_for_no_session():
    assert resident_while_holding(64) - resident_while_holding(0) > 32 << 20
    assert resident_bytes(2**30) == 0


@pytest.mark.parametrize("frame", [b"{nope", b"[]", b"\xff\xfe"])
def test_a_frame_that_is_no_answer_is_a_crash_and_the_next_request_is_served(frame):
    with pytest.raises(WorkerError, match="which is no answer") as told:
        _answer(frame)
    assert told.value.kind == "crash"
