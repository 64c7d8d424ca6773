"""What Triton 3.6 and 3.7 made of our kernels, executed and judged as what the installed Triton makes of them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from verification.gfx950 import executor
from verification.gfx950.conformance import programs
from verification.gfx950.driver import program_of
from verification.gfx950.recorded import (
    ARCHIVE,
    LAUNCHES,
    MANIFEST,
    RecordedLaunch,
    Recording,
    RecordingError,
    replayed,
    without_paths,
    write,
)
from verification.recording import subjects

RECORDINGS = {
    folder.name.removeprefix("triton-"): Recording(folder) for folder in sorted(Path(__file__).parent.glob("triton-*"))
}
NEGATED = "-x is 0 - x before Triton 3.9, which makes 0 of 0"
FAULTS = {
    version: {"elementwise/neg/fp32/specials/warps1": NEGATED, "elementwise/where/fp32/specials/warps1": NEGATED}
    for version in RECORDINGS
}
FAULTS["3.6.0"]["elementwise/sqrt_rn/fp32/specials/warps1"] = "Triton 3.6 refines v_rsq_f32, which flushes subnormals"
"""What a version compiles wrongly beside what the program itself says of Triton 3.9."""
REFUSED = {name: "could not find LLVM intrinsic" for name in programs() if name.startswith("atomics/exchange-returns/")}


@pytest.mark.parametrize(
    ("version", "program"),
    [(version, name) for version, one in RECORDINGS.items() for name in one.manifest["programs"]],
    ids=str,
)
def test_recorded_instructions_compute_what_the_source_says(version, program):
    with replayed(RECORDINGS[version].launches[program]):
        findings = subjects()[program]()
    if program in RECORDINGS[version].manifest["wrong"]:
        assert findings
    else:
        assert findings == []


@pytest.mark.parametrize("version", RECORDINGS)
def test_what_is_wrong_and_what_is_not_compiled_has_a_reason(version):
    manifest = RECORDINGS[version].manifest
    known = {name for name, program in programs().items() if program.compiler_fault}
    assert set(manifest["wrong"]) == known | FAULTS[version].keys()
    assert manifest["refused"].keys() == REFUSED.keys()
    assert all(REFUSED[name] in message for name, message in manifest["refused"].items())


@pytest.mark.parametrize("version", RECORDINGS)
def test_every_family_and_operator_is_recorded_and_every_text_is_read(version):
    recording = RECORDINGS[version]
    assert recording.manifest["triton"] == version
    assert recording.launches.keys() == set(recording.manifest["programs"])
    families = {name.partition("/")[0] for name in subjects()}
    assert {name.partition("/")[0] for name in recording.launches} == families
    assert len(recording.launches) > 420
    texts = {launch.assembly for launches in recording.launches.values() for launch in launches}
    assert texts == {text for name, text in recording.files.items() if name != LAUNCHES}
    assert sum(len(program_of(text).code) for text in texts) > 130_000


def test_both_versions_are_here():
    assert {version.rpartition(".")[0] for version in RECORDINGS} == {"3.6", "3.7"}


@pytest.mark.parametrize("version", RECORDINGS)
@pytest.mark.parametrize("program", [
    "pointers/descriptor-sums/i32/50x200/tile16x64/warps2", "dots/gemm/bf16/96x130x256/tile64x128x64/warps8/stages2",
    "sorting/topk16/i32/2x256/warps4", "route/rows=3/bf16/normal/0 triton+warps1",
])  # fmt: skip
def test_the_installed_triton_takes_the_same_for_granted(version, program):
    with executor(execute=False) as session:
        subjects()[program]()
    for launch, recorded in zip(session.launches, RECORDINGS[version].launches[program], strict=True):
        ours = RecordedLaunch.of(launch)
        assert replace(ours, shared=recorded.shared, assembly=recorded.assembly) == plain(recorded)


def plain(recorded):
    """As it is before JSON makes lists of its tuples."""
    return replace(recorded, constants=[tuple(one) for one in recorded.constants],
                   attributes=[tuple(one) for one in recorded.attributes])  # fmt: skip


# ── a recording that is not that of the launch ──────────────────────────────


@triton.jit
def scale_kernel(x_ptr, y_ptr, count, factor, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < count) * factor, mask=at < count)


def host(x, y, factor=3.0, tile=128, warps=2, grid=None):
    scale_kernel[grid or (triton.cdiv(x.numel(), tile),)](x, y, x.numel(), factor, TILE=tile, num_warps=warps)
    return y


def ones():
    return torch.ones(256), torch.zeros(256)


@pytest.fixture(scope="module")
def recorded():
    with executor() as session:
        assert host(*ones()).tolist() == [3.0] * 256
    return RecordedLaunch.of(session.launches[0])


def test_other_arguments_of_the_same_kind_are_used(recorded):
    with replayed([recorded, recorded]) as session:
        assert host(*ones()).tolist() == [3.0] * 256
        assert host(*ones(), factor=-0.5).tolist() == [-0.5] * 256
    assert session.executed > 0


def test_nothing_is_compiled(recorded, monkeypatch):
    monkeypatch.setattr(triton.runtime.jit.JITFunction, "_do_compile", lambda *_: pytest.fail("compiled"))
    scale_kernel.device_caches.clear()
    with replayed([recorded]):
        host(*ones())


@pytest.mark.parametrize(("change", "told"), [
    ({"tile": 256}, r"\(1, 1, 1\)"), ({"tile": 256, "grid": (2,)}, "TILE is 256; recorded with 128"),
    ({"warps": 4}, "a launch of"), ({"grid": (1,)}, "a launch of"),
])  # fmt: skip
def test_another_launch_than_the_recorded_one_is_named(recorded, change, told):
    with pytest.raises(RecordingError, match=told), replayed([recorded]):
        host(*ones(), **change)


def test_arguments_on_which_the_code_does_not_count_are_named(recorded):
    x, y = torch.ones(257), torch.zeros(256)
    with pytest.raises(RecordingError, match=r"x_ptr has no tt\.divisibility 16"), replayed([recorded]):
        host(x[1:], y)
    with pytest.raises(RecordingError, match=r"y_ptr is torch.bfloat16; recorded as \*fp32"), replayed([recorded]):
        host(torch.ones(256), y.bfloat16())
    unknown = replace(recorded, attributes=[([0], "tt.odd", 1)])
    with pytest.raises(RecordingError, match=r"tt\.odd is not known"), replayed([unknown]):
        host(*ones())


def test_a_launch_too_many_or_too_few_is_named(recorded):
    with pytest.raises(RecordingError, match="a launch of scale_kernel where no more"), replayed([]):
        host(*ones())
    with pytest.raises(RecordingError, match="no launch of scale_kernel, which was recorded"), replayed([recorded]):
        pass


def test_triton_compiles_again_afterwards(recorded):
    with replayed([recorded]):
        host(*ones())
    with executor() as session:
        host(*ones())
    assert session.launches[0].source is not None


def test_another_instruction_gives_another_result(recorded):
    changed = replace(recorded, assembly=recorded.assembly.replace("v_mul_f32", "v_add_f32"))
    assert changed != recorded
    with replayed([changed]):
        assert host(*ones()).tolist() == [4.0] * 256


def test_a_recording_is_written_as_it_is_read_and_the_same_again(recorded, tmp_path):
    for name in ("a", "b"):
        write(tmp_path / name, {"scale": [recorded]}, {"triton": "0"})
    assert plain(Recording(tmp_path / "a").launches["scale"][0]) == recorded
    for file in (ARCHIVE, MANIFEST):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_a_changed_text_is_found_by_its_digest(recorded, tmp_path):
    for name, text in (("a", recorded.assembly), ("b", recorded.assembly + "\n")):
        write(tmp_path / name, {"scale": [replace(recorded, assembly=text)]}, {})
    shutil.copy(tmp_path / "b" / ARCHIVE, tmp_path / "a" / ARCHIVE)
    with pytest.raises(RecordingError, match="are not those of its manifest"):
        Recording(tmp_path / "a").launches  # noqa: B018


def test_no_text_names_a_folder_of_the_machine_that_compiled(recorded):
    for text in [recorded.assembly, *(text for one in RECORDINGS.values() for text in one.files.values())]:
        assert '"/' not in text
    assert "test_recorded.py" in without_paths(recorded.assembly)
