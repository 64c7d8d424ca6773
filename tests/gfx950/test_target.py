"""The executor as a target of `parity verify`, and its commands."""

from __future__ import annotations

import json

import pytest

from verification import cli
from verification.gfx950.models import Models, models_from
from verification.plan import Selection, build, builtin
from verification.runner import Session

ALTERNATIVES = "transcendental=one_ulp,matrix=chained,completion=early,seed=5"


@pytest.mark.parametrize("operator", sorted({one.declared.operator for one in builtin(family="fused")}))
def test_no_verdict_of_the_smoke_suite_depends_on_the_models_of_the_hardware(monkeypatch, operator):
    monkeypatch.setenv("PARITY_GFX950_MODELS", ALTERNATIVES)
    with Session() as session:
        records = [session.run(check) for check in build(Selection((operator,), suite="smoke", target="gfx950"))]
    assert records
    assert {record.verdict for record in records} == {"passed"}
    assert {record.claim for record in records} == {
        "gfx950 executor: compiled instructions executed on a CPU, not hardware"
    }
    assert {record.environment.architecture for record in records} == {"gfx950 (executed on a CPU)"}
    assert any(record.instructions for record in records)


def test_models_are_spelt_as_text():
    assert models_from("") == Models()
    assert models_from("matrix=chained,seed=3") == Models(matrix="chained", seed=3)
    for wrong in ("matrix=exact", "speed=3", "seed=-1"):
        with pytest.raises(ValueError, match="chooses no model"):
            models_from(wrong)


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    return ended.value.code


def test_compile_writes_a_resource_record_of_each_kernel(tmp_path):
    file = tmp_path / "resources.json"
    assert run("gfx950", "compile", "rms_norm", "--json", str(file)) == 0
    kernels = json.loads(file.read_text())["kernels"]
    assert {kernel["architecture"] for kernel in kernels} == {"gfx950", "gfx942"}
    assert run("gfx950", "compile", "rms_nrom") == 2


def test_conformance_is_compared_with_another_machines_record(tmp_path, capsys):
    here, other = tmp_path / "here.json", tmp_path / "other.json"
    assert run("gfx950", "conformance", "elementwise/add", "--json", str(here)) == 0
    assert run("gfx950", "conformance", "elementwise/add", "--against", str(here)) == 0
    assert "0 differ" in capsys.readouterr().out.replace("\n", " ")
    changed = json.loads(here.read_text())
    changed["rows"][0]["digests"] = dict.fromkeys(changed["rows"][0]["digests"], "0" * 16)
    other.write_text(json.dumps(changed))
    assert run("gfx950", "conformance", "elementwise/add", "--against", str(other)) == 0
    assert "other bits than on gfx950 executor" in capsys.readouterr().out.replace("\n", " ")


def test_conformance_refuses_what_is_not_there(tmp_path):
    assert run("gfx950", "conformance", "no/such") == 2
    assert run("gfx950", "conformance", "--against", str(tmp_path / "none.json")) == 2
    assert run("gfx950", "conformance", "elementwise/add", "--device", "hardware") in (3, 0, 1)
    (tmp_path / "bad.json").write_text("{}")
    assert run("gfx950", "conformance", "elementwise/add", "--against", str(tmp_path / "bad.json")) == 2
