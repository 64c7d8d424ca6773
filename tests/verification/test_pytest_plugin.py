"""The plugin as a user of pytest meets it, in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from verification.pytest_plugin import pin, visible_gpus
from verification.records import read_records

ROOT = Path(__file__).resolve().parents[2]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", "tests/test_parity.py", "-q", "-p", "no:cacheprovider", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=240)


def test_importing_the_plugin_imports_no_torch():
    code = "import sys, verification.pytest_plugin; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_every_case_is_a_test_with_a_readable_id():
    listed = run("--collect-only", "--parity-target", "cpu").stdout
    assert "test_implementation_is_the_reference[rms_norm/rows=1/bf16/normal/0:eager@cpu]" in listed
    assert "route/rows=16/fp32/normal/0:eager@cpu:batch_invariance" in listed


def test_a_candidate_meets_the_cases_in_parallel_and_its_failures_name_the_command(candidates, tmp_path):
    words = [
        "--parity-candidate",
        str(candidates / "bad.py"),
        "--parity-implementation",
        "wrong_shape",
        "--parity-target",
        "cpu",
    ]
    done = run(*words, "-n", "2", "-k", "rms_norm and layout", "--parity-report", str(tmp_path))
    assert done.returncode == 1
    assert "repeat: parity verify --case rms_norm/rows=5,hidden=130,layout=" in done.stdout
    records = read_records(tmp_path / "records.jsonl")
    assert records
    assert {r.verdict for r in records} == {"failed"}
    assert "MAY NOT LAND" in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize("option", ["--require-target", "--parity-require-target", "--parity-target"])
def test_promised_hardware_that_is_absent_exits_3(option):
    import torch

    absent = "hip" if torch.version.hip is None else "cuda"
    done = run(option, absent)
    assert done.returncode == 3, done.stdout
    assert f"target {absent} is not here" in done.stdout + done.stderr


@pytest.mark.parametrize(("words", "message"), [
    (["--parity-suite", "smok"], "did you mean smoke"),
    (["--parity-target", "cuba"], "did you mean cuda"),
    (["--parity-candidate", "nowhere.py"], "there is no such file"),
])  # fmt: skip
def test_wrong_options_are_usage_errors(words, message):
    done = run(*words)
    assert done.returncode in (2, 4), done.stdout
    assert message in done.stdout + done.stderr


def test_everything_unsupported_exits_3(candidates):
    words = [
        "--parity-candidate",
        str(candidates / "bad.py"),
        "--parity-implementation",
        "refuses",
        "--parity-target",
        "cpu",
    ]
    done = run(*words, "-k", "rms_norm and layout")
    assert done.returncode == 3, done.stdout
    assert "only rows of 3 elements" in done.stdout


@pytest.mark.parametrize(("environment", "worker", "shown"), [
    ({"CUDA_VISIBLE_DEVICES": "4,5"}, "gw0", "4"),
    ({"CUDA_VISIBLE_DEVICES": "4,5"}, "gw3", "5"),
    ({"HIP_VISIBLE_DEVICES": "0,1,2"}, "gw2", "2"),
])  # fmt: skip
def test_worker_n_is_pinned_to_gpu_n_of_the_visible_ones(environment, worker, shown):
    assert pin(worker, environment) == shown
    assert environment["CUDA_VISIBLE_DEVICES"] == environment["HIP_VISIBLE_DEVICES"] == shown


def test_gpus_are_counted_from_device_files_and_from_the_rocm_topology(tmp_path):
    devices, topology = tmp_path / "dev", tmp_path / "nodes"
    devices.mkdir()
    assert visible_gpus(devices, topology) == 0
    for index, simds in enumerate(("0", "304", "304")):
        (topology / str(index)).mkdir(parents=True)
        (topology / str(index) / "simd_count").write_text(simds)
    assert visible_gpus(devices, topology) == 2
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (devices / name).touch()
    assert visible_gpus(devices, topology) == 3


def test_a_worker_without_gpus_is_left_alone():
    environment = {"CUDA_VISIBLE_DEVICES": ""}
    if visible_gpus() == 0:
        assert pin("gw1", environment) is None
        assert environment == {"CUDA_VISIBLE_DEVICES": ""}


def test_the_published_schema_is_the_records_own():
    published = json.loads((ROOT / "docs" / "record.schema.json").read_text())
    from verification.records import schema

    assert published == schema()
