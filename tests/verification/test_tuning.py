"""Autotuners: each configuration is a case of its own, the tuner's choice another, always from a cold cache."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from verification import tuning
from verification.execution import declared
from verification.plan import Selection, build
from verification.runner import Session

FILE = Path(__file__).parent / "candidates" / "autotuned.py"
NAMES = tuple(
    f"normalize(BLOCK={block},DROPPED={dropped},num_warps={warps},num_stages=3)"
    for block, dropped, warps in ((1024, 0, 4), (2048, 0, 8), (8192, 1, 4))
)


@pytest.fixture(scope="module")
def records():
    with Session() as session:
        selection = Selection(("rms_norm",), suite="full", target="gfx950", candidates=session.declared(FILE))
        checks = [c for c in build(selection) if c.case.id == "rms_norm/rows=3,hidden=1000/bf16/normal/0"]
        return {check.configuration: session.run(check) for check in checks if check.law is None}


def test_the_plan_has_the_tuners_choice_and_each_configuration_alone(records):
    assert set(records) == {None, *NAMES}


def test_the_faulty_configuration_fails_alone_though_the_tuner_never_chooses_it(records):
    verdicts = {name: record.verdict for name, record in records.items()}
    assert verdicts == {None: "passed", NAMES[0]: "passed", NAMES[1]: "passed", NAMES[2]: "failed"}
    assert f"--configuration '{NAMES[2]}'" in records[NAMES[2]].command


def test_tuning_runs_every_configuration_and_a_chosen_one_runs_alone(records):
    assert records[None].instructions > sum(records[name].instructions for name in NAMES[:2])
    assert records[NAMES[0]].instructions < records[NAMES[1]].instructions


def test_configurations_are_restored_and_caches_cleared():
    module = sys.modules[declared(str(FILE))[0].call.__module__]
    module.normalize.cache["old"] = module.normalize.configs[0]
    with tuning.chosen(module, NAMES[1]):
        assert [config.kwargs["BLOCK"] for config in module.normalize.configs] == [2048]
        assert not module.normalize.cache
    assert len(module.normalize.configs) == 3


def test_a_module_without_kernels_has_none():
    assert tuning.configurations(sys.modules["json"]) == ()
