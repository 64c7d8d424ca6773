"""The text of a compiled kernel, read strictly: what is not known is an error that names its line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml


class AssemblyError(ValueError):
    """An opcode, modifier, operand or directive that is not known; the message names it and its line."""


@dataclass(frozen=True)
class Line:
    """One instruction as written: opcode, operands, the words and `key:value` modifiers after them."""

    number: int
    opcode: str
    operands: tuple[str, ...]
    modifiers: dict[str, str]
    source: str
    """`file:line` of the kernel's Python source, or empty."""
    text: str


@dataclass
class Listing:
    """A kernel's instructions, labels (index of the instruction that follows), and what it declares."""

    name: str
    lines: list[Line]
    labels: dict[str, int]
    directives: dict[str, int]
    arguments: list[dict[str, Any]] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)


IGNORED = frozenset({
    ".amdgcn_target", ".text", ".globl", ".p2align", ".p2alignl", ".type", ".size", ".set", ".section", ".file",
    ".ident", ".fill", ".byte", ".short", ".long", ".quad", ".ascii", ".asciz", ".string", ".cfi_sections",
    ".cfi_startproc", ".cfi_endproc", ".cfi_escape", ".cfi_undefined", ".cfi_def_cfa",
    ".amdhsa_code_object_version", ".protected", ".weak", ".hidden", ".addrsig", ".amdgpu_metadata",
    ".end_amdgpu_metadata", ".comm", ".zero", ".cfi_llvm_def_aspace_cfa", ".cfi_llvm_register_pair", ".local",
    ".align", ".balign", ".uleb128", ".sleb128",
})  # fmt: skip
"""Directives that say nothing about execution: symbols, sections, debugging data."""

LABEL = re.compile(r"^([.\w$]+):")
LOCATION = re.compile(r";\s*([^;:]+:\d+)(?::\d+)?")
WORDS = frozenset({
    "sc0", "sc1", "nt", "glc", "slc", "dlc", "offen", "idxen", "lds", "gds", "clamp", "off", "row_mirror",
    "row_half_mirror",
})  # fmt: skip
WAITS = re.compile(r"(vmcnt|lgkmcnt|expcnt)\((\d+)\)")


def read(text: str) -> Listing:
    """Read the `amdgcn` text of one kernel; raises AssemblyError."""
    body, _, rest = text.partition("\t.amdgpu_metadata\n")
    listing = Listing("", [], {}, {})
    source, declaring = "", False
    for number, raw in enumerate(body.splitlines(), start=1):
        code = raw.split(";", 1)[0].strip()
        if not code:
            continue
        if code.startswith("."):
            word, _, value = code.partition("\t") if "\t" in code else code.partition(" ")
            if word == ".loc":
                found = LOCATION.search(raw)
                source = found.group(1).strip() if found else source
                continue
            if word == ".amdhsa_kernel":
                listing.name, declaring = value.strip(), True
                continue
            if word == ".end_amdhsa_kernel":
                declaring = False
                continue
            if declaring and word.startswith(".amdhsa_"):
                listing.directives[word.removeprefix(".amdhsa_")] = int(value, 0)
                continue
            if word.startswith(".amdhsa_code") or word in IGNORED:
                continue
            if not LABEL.match(code):
                raise AssemblyError(f"line {number}: unknown directive {word}")
        if label := LABEL.match(code):
            listing.labels[label.group(1)] = len(listing.lines)
            continue
        listing.lines.append(_instruction(number, code, source))
    _read_metadata(listing, rest.partition("\t.end_amdgpu_metadata")[0])
    return listing


def _read_metadata(listing: Listing, text: str) -> None:
    kernels = (yaml.safe_load(text.replace("\n...", "")) or {}).get("amdhsa.kernels", [])
    for kernel in kernels:
        if not listing.name or kernel[".name"] == listing.name:
            listing.metadata = {key.removeprefix("."): value for key, value in kernel.items()}
            listing.arguments = [
                {key.removeprefix("."): value for key, value in argument.items()}
                for argument in listing.metadata.get("args", [])
            ]


def _instruction(number: int, code: str, source: str) -> Line:
    opcode, _, rest = code.replace("\t", " ").partition(" ")
    pieces = _split(rest, ",") if rest.strip() else []
    modifiers: dict[str, str] = {}
    if pieces:
        *head, last = pieces
        words = [word for word in _split(last, " ") if word]
        kept = []
        for position, word in enumerate(words):
            key, colon, value = word.partition(":")
            if (colon and re.fullmatch(r"[a-z][a-z0-9_]*", key) and (position or not head)) or word in WORDS - {"off"}:
                modifiers[key] = value
            elif waits := WAITS.fullmatch(word):
                modifiers[waits.group(1)] = waits.group(2)
            elif position == 0 or word == "off":
                kept.append(word)
            else:
                raise AssemblyError(f"line {number}: unknown modifier {word!r} in {code!r}")
        pieces = [*head, *kept[:1]]
    return Line(number, opcode, tuple(pieces), modifiers, source, code)


def _split(text: str, separator: str) -> list[str]:
    """What is between separators outside brackets and parentheses."""
    pieces, depth = [""], 0
    for sign in text:
        depth += (sign in "[(") - (sign in "])")
        if sign == separator and not depth:
            pieces.append("")
        else:
            pieces[-1] += sign
    return [piece.strip() for piece in pieces]
