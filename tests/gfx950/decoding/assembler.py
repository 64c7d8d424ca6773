"""LLVM's assembler, as Triton calls it, for lines that no kernel has."""

from __future__ import annotations

import os
import re
import tempfile
from types import SimpleNamespace

from triton.backends.amd.compiler import HIPBackend

KERNEL = "k"
HEAD = f"\t.text\n\t.globl {KERNEL}\n\t.type {KERNEL},@function\n{KERNEL}:\nstart:\n"
TAIL = f"\n\ts_endpgm\n.Lend:\n\t.size {KERNEL}, .Lend-{KERNEL}\n"
REFUSED = re.compile(r":(\d+):\d+: error: (.*)")


def kernel_of(lines: list[str]) -> str:
    """The text of a kernel that consists of these lines behind the label `start`."""
    return HEAD + "\n".join(lines) + TAIL


def assembled(text: str) -> bytes:
    """The binary; raises RuntimeError."""
    return HIPBackend.make_hsaco(text, {}, SimpleNamespace(arch="gfx950"))


def refused(lines: list[str]) -> dict[int, str]:
    """Why the assembler refuses a line, by its index; its messages go to the file of stderr itself."""
    with tempfile.TemporaryFile() as messages:
        stderr = os.dup(2)
        os.dup2(messages.fileno(), 2)
        try:
            assembled(kernel_of(lines))
        except RuntimeError:
            pass
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        messages.seek(0)
        text = messages.read().decode()
    first = HEAD.count("\n") + 1
    return {int(line) - first: why for line, why in REFUSED.findall(text)}
