"""A plan holds what was asked for, each check under an id and a command that repeat it."""

from __future__ import annotations

import shlex
from dataclasses import replace
from itertools import combinations

import pytest

from fused.boundary import Implementation
from verification.operator import SUITES, UnknownNameError, find_operator, operators, parse_case
from verification.plan import Candidate, MissingTargetError, Selection, build, builtin, place, shard, usable
from verification.targets import targets

CASE = "rms_norm/rows=3,hidden=17/bf16/normal/0"
KERNEL = __file__


def candidate(operator="rms_norm", name="mine", **fields):
    def call(*_, **__):
        raise AssertionError("a plan runs nothing")

    return Candidate(Implementation(operator, name, call, **fields), KERNEL)


def select(**fields):
    return build(Selection(**{"target": "cpu"} | fields))


def every_case(operator):
    return [case for _, case in operator.cases("nightly")] + list(operator.law_cases)


@pytest.mark.parametrize("name", operators())
def test_a_case_is_what_its_id_says(name):
    for case in every_case(find_operator(name)):
        assert parse_case(case.id) == case, case.id


@pytest.mark.parametrize("name", operators())
def test_a_suite_holds_the_smaller_ones_and_each_case_once(name):
    operator = find_operator(name)
    ids = {suite: [case.id for _, case in operator.cases(suite)] for suite in SUITES}
    for suite in SUITES:
        assert len(set(ids[suite])) == len(ids[suite])
    for smaller, larger in combinations(SUITES, 2):
        assert set(ids[smaller]) <= set(ids[larger])


@pytest.mark.parametrize("name", operators())
def test_a_parameter_that_has_its_usual_value_is_not_part_of_an_id(name):
    operator = find_operator(name)
    for case in every_case(operator):
        assert not any(operator.defaults[key] == value for key, value in case.parameters)
        assert operator.full_parameters(case).keys() == operator.defaults.keys()
        assert not set(case.id) & set(" '\"$&;*?()[]{}<>|\\`!")


def test_a_group_for_some_targets_is_planned_there_and_elsewhere_when_asked_by_name():
    operator = find_operator("mla_decode")
    group = next(group for group in operator.groups if group.targets)
    planned = {check.case.id for check in select(operators=("mla_decode",), suite="nightly")}
    assert group.cases[0].id not in planned
    assert planned >= {case.id for g, case in operator.cases("nightly") if not g.targets}
    assert select(case=group.cases[0].id)


@pytest.mark.parametrize("suite", ["smoke", "full"])
def test_every_check_of_a_plan_has_an_id_of_its_own(suite):
    ids = [check.id for check in build(Selection(suite=suite))]
    assert len(set(ids)) == len(ids)


def test_a_check_is_named_by_case_implementation_target_configuration_and_law():
    (plain,) = select(case=CASE, implementation="eager", law="none")
    assert plain.id == f"{CASE}:eager@cpu"
    assert replace(plain, configuration="wide").id == f"{CASE}:eager@cpu+wide"
    (law,) = select(case=CASE, implementation="eager", law="row_isolation")
    assert law.id == f"{CASE}:eager@cpu:row_isolation"


@pytest.mark.parametrize("fields", [
    {"implementation": "eager", "law": "none"},
    {"implementation": "eager_one_rounding", "law": "storage_order"},
    {"candidates": (candidate(configurations=("wide",)),), "law": "none"},
    {"candidates": (candidate(configurations=("wide",)),), "configuration": "wide", "law": "none"},
])  # fmt: skip
def test_the_command_of_a_check_selects_that_check(fields):
    (check,) = select(case=CASE, **fields)
    program, command, *words = shlex.split(check.command)
    assert (program, command) == ("parity", "verify")
    asked = dict(zip(words[::2], words[1::2], strict=True))
    assert asked.pop("--candidate", "builtin") == check.candidate.source
    again = {key.removeprefix("--"): value for key, value in asked.items()}
    assert again.keys() >= {"case", "implementation", "target", "law"}
    assert [c.id for c in build(Selection(**again, candidates=fields.get("candidates", ())))] == [check.id]


def test_an_empty_selection_is_every_operator_with_its_laws():
    checks = select()
    assert {check.operator.name for check in checks} == set(operators())
    assert {check.law.name for check in checks if check.law} == {
        law.name for o in operators().values() for law in o.laws
    }
    assert {check.group for check in checks if check.law} == {"laws"}


@pytest.mark.parametrize(("fields", "held"), [
    ({"operators": ("route", "rms_norm")}, lambda c: c.operator.name in ("route", "rms_norm")),
    ({"implementation": "eager"}, lambda c: c.candidate.declared.name == "eager"),
    ({"operators": ("rms_norm",), "law": "row_isolation"}, lambda c: c.law.name == "row_isolation"),
    ({"law": "none"}, lambda c: c.law is None),
    ({"seed": 12}, lambda c: c.case.seed == 12),
    ({"case": CASE}, lambda c: c.case.id == CASE and c.law is None),
    ({"candidates": (candidate(),)}, lambda c: (c.candidate.source, c.operator.name) == (KERNEL, "rms_norm")),
    ({"suite": "full", "operators": ("rms_norm",)}, lambda c: c.suite in ("smoke", "full")),
])  # fmt: skip
def test_a_selection_holds_what_was_asked_for(fields, held):
    checks = select(**fields)
    assert checks
    assert all(held(check) for check in checks)


@pytest.mark.parametrize(
    ("case", "group", "suite"), [(CASE, "odd widths", "smoke"), (CASE[:-1] + "9", "asked", "nightly")]
)
def test_a_listed_case_keeps_its_group_and_an_unlisted_one_is_asked(case, group, suite):
    assert {(check.group, check.suite) for check in select(case=case)} == {(group, suite)}


@pytest.mark.parametrize(("fields", "message"), [
    ({"operators": ("rms_nrom",)}, "unknown operator 'rms_nrom'; did you mean rms_norm?"),
    ({"operators": ("zzz",)}, "unknown operator 'zzz'; known: .*rms_norm"),
    ({"implementation": "eagre"}, "unknown implementation 'eagre'; did you mean eager"),
    ({"suite": "smok"}, "unknown suite 'smok'; did you mean smoke?"),
    ({"target": "cup"}, "unknown target 'cup'; did you mean cpu?"),
    ({"operators": ("route",), "law": "row_isolatoin"}, "unknown law 'row_isolatoin'; did you mean row_isolation"),
    ({"case": CASE, "configuration": "wide"}, "unknown configuration 'wide'"),
    ({"case": "rms_norm"}, "not a case id: 'rms_norm'; expected operator/key=value"),
    ({"case": "rms_nrom//bf16/normal/0"}, "did you mean rms_norm?"),
    ({"case": "rms_norm/rosw=3/bf16/normal/0"}, r"rms_norm has no parameter \['rosw'\]; it has .*'rows'"),
    ({"case": "rms_norm//bf61/normal/0"}, "unknown dtype 'bf61'; expected one of .*bf16"),
    ({"operators": ("route",), "candidates": (candidate(),)}, "nothing matches operators=.*candidates=.*test_plan.py"),
])  # fmt: skip
def test_a_name_that_matches_nothing_is_refused_with_the_nearest(fields, message):
    with pytest.raises(UnknownNameError, match=message):
        select(**fields)


def test_a_target_that_is_not_here_is_missing_and_says_why(monkeypatch):
    absent = replace(targets()["hip"], missing=lambda: "no such card")
    monkeypatch.setitem(targets(), "hip", absent)
    for ask in (usable, lambda name: build(Selection(target=name))):
        with pytest.raises(MissingTargetError, match="target hip is not here: no such card"):
            ask("hip")
    here = replace(absent, missing=lambda: None)
    monkeypatch.setitem(targets(), "hip", here)
    assert usable("hip") is here
    assert {check.target.name for check in build(Selection(target="hip"))} == {"hip"}


def test_without_a_target_each_implementation_runs_on_the_best_one_that_is_here(monkeypatch):
    for name, missing in (("cuda", "none"), ("hip", "none"), ("gfx950", "none"), ("interpreter", None), ("cpu", None)):
        monkeypatch.setitem(targets(), name, replace(targets()[name], missing=lambda missing=missing: missing))
    placed = {one.declared.name: place(one, None).name for one in builtin() if one.declared.operator == "rms_norm"}
    assert placed["eager"] == "cpu"
    assert placed["triton"] == "interpreter"
    assert place(candidate(targets=("hip",)), None) is None
    assert place(candidate(targets=("cpu",)), None).name == "cpu"
    assert place(candidate(targets=("cpu",)), "interpreter") is None


def test_the_batch_law_is_asked_of_those_that_promise_it():
    for promised in (True, False):
        checks = select(candidates=(candidate(batch_invariant=promised),))
        assert ("batch_invariance" in {check.law.name for check in checks if check.law}) == promised


def test_larger_suites_run_each_configuration_alone():
    tuned = (candidate(configurations=("wide", "narrow")),)
    smoke = select(candidates=tuned, law="none")
    full = select(candidates=tuned, law="none", suite="full")
    assert {check.configuration for check in smoke} == {None}
    counts = {name: sum(check.configuration == name for check in full) for name in (None, "wide", "narrow")}
    assert len(set(counts.values())) == 1


@pytest.mark.parametrize(("fields", "whole"), [
    ({}, True), ({"suite": "full"}, True), ({"target": "cpu"}, True),
    ({"operators": ("route",)}, False), ({"seed": 1}, False), ({"implementation": "eager"}, False),
    ({"case": CASE}, False), ({"law": "none"}, False), ({"configuration": "wide"}, False),
    ({"candidates": (candidate(),)}, False),
])  # fmt: skip
def test_only_an_unfiltered_selection_is_whole(fields, whole):
    assert Selection(**fields).whole == whole


def test_shards_share_the_checks_out():
    checks = select(operators=("rms_norm",))
    parts = [shard(checks, f"{i}/3") for i in (1, 2, 3)]
    assert sorted(check.id for part in parts for check in part) == sorted(check.id for check in checks)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert shard(checks, None) == checks


@pytest.mark.parametrize("part", ["0/3", "4/3", "1", "1/", "/3", "a/b", "-1/3", "1/0", ""])
def test_a_shard_that_is_none_is_refused(part):
    with pytest.raises(UnknownNameError, match="expected i/n with 1 ≤ i ≤ n"):
        shard([], part)
