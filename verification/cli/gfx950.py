"""`parity gfx950 …`: kernels compiled for gfx950, without the GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from verification.cli.common import (
    CandidateFile,
    ImplementationName,
    Json,
    UsageError,
    out,
    require_writable,
    write_json,
)
from verification.cli.kernels import show_differences, show_runs

app = typer.Typer(no_args_is_help=True, help="Kernels compiled for gfx950, without the GPU.")


KernelName = Annotated[str, typer.Argument(metavar="KERNEL", help="An operator, or the id of one case.")]
Configuration = Annotated[str | None, typer.Option(help="Force one tuning configuration.")]
ListingFolder = Annotated[
    Path | None, typer.Option("--listing", metavar="DIR", help="Write each launch's instructions there, with counts.")
]


@app.command("compile")
def compile(operators: Annotated[list[str] | None, typer.Argument()] = None, json: Json = None) -> int:
    """Compile every fused kernel at every configuration for gfx950 and gfx942; judge spills, scratch, LDS, MFMA."""
    from verification.compilation import compiled
    from verification.operator import find_operator

    require_writable(json)
    chosen = tuple(find_operator(name).name for name in operators or ())
    table = Table("implementation", "kernel", "arch", "VGPR", "AGPR", "SGPR", "spills", "scratch", "LDS", "waves",
                  "code", "MFMA")  # fmt: skip
    rows, broken = [], []
    for label, one in compiled(chosen):
        spills = one.vgpr_spills + one.sgpr_spills
        numbers = (
            one.vgprs,
            one.agprs,
            one.sgprs,
            spills,
            one.scratch_bytes,
            one.lds_bytes,
            one.occupancy,
            one.code_bytes,
        )
        table.add_row(label, one.kernel, one.architecture, *map(str, numbers), " ".join(one.matrix) or "–")
        broken += [f"{label}: {text}" for text in one.broken_limits()]
        rows.append({"implementation": label, **one.row()})
    out.print(table)
    for text in broken:
        out.print(f"[red]{text}[/red]", soft_wrap=True)
    write_json(json, {"command": "gfx950 compile", "exit_code": int(bool(broken)), "broken": broken, "kernels": rows})
    return int(bool(broken))


@app.command("conformance")
def conformance(
    names: Annotated[list[str] | None, typer.Argument(help="Prefixes of program names.")] = None,
    device: Annotated[str, typer.Option(help="`executor`, or `hardware`: this machine's GPU.")] = "executor",
    against: Annotated[Path | None, typer.Option(metavar="FILE", help="An earlier --json to compare with.")] = None,
    json: Json = None,
) -> int:
    """Run the conformance set here and write digests; with --against, list where two machines differ.

    On an MI350X or MI355X: `parity gfx950 conformance --device hardware --against executor.json --json hardware.json`.
    """
    from verification import protocol

    require_writable(json)
    if against and not against.exists():
        raise UsageError(f"--against {against}: no such file")
    outcome = protocol.conform(tuple(names or ()), device)
    if not outcome.rows:
        raise UsageError(f"no conformance program begins with {', '.join(names or ())}")
    for row in outcome.rows:
        if row.findings:
            out.print(f"[red]{row.name}[/red]: {row.findings[0]}", soft_wrap=True)
    differences = protocol.differences(outcome, against) if against else []
    for text in differences:
        out.print(text, soft_wrap=True)
    out.print(f"{len(outcome.rows)} programs on {outcome.machine}; {outcome.wrong} do not hold"
                  + (f"; {len(differences)} differ from {against}" if against else ""), soft_wrap=True)  # fmt: skip
    write_json(json, {"command": "gfx950 conformance", "exit_code": int(outcome.wrong > 0), **outcome.row()})
    return int(outcome.wrong > 0)


@app.command("mutants")
def mutants(
    operators: Annotated[list[str] | None, typer.Argument()] = None,
    count: Annotated[int, typer.Option(min=1, help="Mutants a kernel.")] = 200,
    seed: Annotated[int, typer.Option(min=0)] = 1,
    json: Json = None,
) -> None:
    """Delete or change one compiled instruction at a time: how many of the mutants the comparison notices."""
    from dataclasses import asdict

    from verification.mutants import CASES, mutate, summary
    from verification.operator import pick
    from verification.records import now

    require_writable(json)
    chosen = [pick(name, {one: one for one in CASES}, "mutated kernel") for name in operators or CASES]
    table = Table("kernel", "mutants", "noticed", "only waits", "same bits", "within budget")
    kernels = {}
    for name in chosen:
        found = mutate(name, count, seed)
        counts = summary(found)
        table.add_row(name, str(len(found)), *(str(counts[kind]) for kind in ("noticed", "order", "equal", "within")))
        kernels[name] = {"case": CASES[name], "counts": dict(counts), "mutants": [asdict(one) for one in found]}
    out.print(table)
    write_json(json, {"command": "gfx950 mutants", "exit_code": 0, "date": now(), "seed": seed, "kernels": kernels})


@app.command("run", context_settings={"ignore_unknown_options": True})
def run_kernel(
    kernel: Annotated[str, typer.Argument(metavar="KERNEL", help="An operator, a case's id, or a Python FILE.py.")],
    words: Annotated[list[str] | None, typer.Argument(metavar="WORDS", help="Arguments of FILE.py.")] = None,
    implementation: ImplementationName = None,
    candidate: CandidateFile = None,
    configuration: Configuration = None,
    models: Annotated[str, typer.Option(help="Models of the hardware, as matrix=chained,seed=3.")] = "",
    listing: ListingFolder = None,
    json: Json = None,
) -> int:
    """Execute one kernel's compiled instructions: launches, wave-instructions, resources, and the verdict.

    FILE.py runs as `python FILE.py` would, with every Triton launch on CPU tensors executed here.
    """
    from verification.gfx950.models import models_from
    from verification.kernel_runs import Side

    _require_models(models, models_from)
    if kernel.endswith(".py"):
        return _run_file(Path(kernel), words or [], models)
    if words:
        raise UsageError(f"{' '.join(words)}: only FILE.py takes further words")
    require_writable(json)
    return show_runs(kernel, implementation, candidate, configuration, Side(models=models), listing, json)


@app.command("diff")
def diff(
    kernel: KernelName,
    triton: Annotated[
        list[Path] | None,
        typer.Option(
            "--triton", metavar="DIR", help="A folder with another triton; twice: from the first to the second."
        ),
    ] = None,
    commit: Annotated[
        list[str] | None,
        typer.Option("--commit", help="Kernels of this commit; twice: from the first to the second."),
    ] = None,
    implementation: ImplementationName = None,
    configuration: Configuration = None,
    listing: ListingFolder = None,
    json: Json = None,
) -> int:
    """Compare one kernel's code, resources and results under two Tritons, or from two commits.

    With one --triton or --commit the other side is what is here. `pip install --target DIR triton==3.7.1` makes a DIR.
    """
    from verification.kernel_runs import Side

    if bool(triton) == bool(commit) or len(triton or commit or ()) > 2:
        raise UsageError("name one or two of --triton DIR, or one or two of --commit")
    require_writable(json)
    sides = [Side(triton=folder) for folder in triton or ()] + [Side(commit=name) for name in commit or ()]
    before, after = sides if len(sides) == 2 else (sides[0], Side())
    return show_differences(kernel, implementation, configuration, before, after, listing, json)


def _require_models(text: str, read: Callable[[str], object]) -> None:
    try:
        read(text)
    except ValueError as error:
        raise UsageError(f"--models: {error}") from None


def _run_file(file: Path, words: list[str], models: str) -> int:
    if not file.is_file():
        raise UsageError(f"{file}: there is no such file")
    environment = os.environ | {"PARITY_GFX950_MODELS": models}
    return subprocess.run([sys.executable, "-m", "verification.gfx950", str(file), *words], env=environment).returncode
