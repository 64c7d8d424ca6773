"""Detection: a fault that something notices, one that nothing does, and one that cannot be run."""

from __future__ import annotations

import json

import pytest
import torch

from verification import detection, fault, power
from verification.fault_forms import Corpus, cut_short, multiplied_in, summed_in, to
from verification.runner import Session

EAGER = "verification.eager.rms_norm"


@pytest.fixture
def corpus(monkeypatch):
    made = Corpus("rms_norm")
    monkeypatch.setattr(fault, "faults", lambda: {one.id: one for one in made})
    fault.faulty.cache_clear()
    yield made
    fault.faulty.cache_clear()


def only(corpus: Corpus) -> fault.Fault:
    (one,) = corpus
    return one


def call(corpus: Corpus, **arguments):
    return fault.faulty("rms_norm", only(corpus).name).call(**arguments)


@pytest.fixture
def ones():
    return {"x": torch.ones(2, 8, dtype=torch.bfloat16), "weight": torch.ones(8, dtype=torch.bfloat16), "eps": 0.0}


def test_an_edit_changes_the_source_of_the_base(corpus, ones):
    corpus.edit("doubled", "constant", "twice", EAGER, ("(normalized(x, eps) * weight.float())", "(2 * x)"))
    with pytest.raises(ValueError, match="occurs 2 times"):
        call(corpus, **ones)


def test_changed_arguments_reach_the_base(corpus, ones):
    corpus.arguments("eps", "constant", "a large eps", lambda a: {"eps": 3.0})
    assert call(corpus, **ones).tolist() == [[0.5] * 8] * 2


def test_changed_results_take_the_place_of_the_bases(corpus, ones):
    corpus.results("zero", "memory", "zeros", lambda c: {"y": torch.zeros_like(c.outputs["y"])})
    assert not call(corpus, **ones).any()


def test_a_changed_point_is_met_by_the_reference(corpus, ones):
    corpus.at("inverse", "rounding", "half the inverse", values={"inverse_rms": lambda x: x / 2})
    assert call(corpus, **ones).tolist() == [[0.5] * 8] * 2


def test_a_whole_fault_has_the_right_call_at_hand(corpus, ones):
    @corpus.whole("negative", "term", "the negative")
    def negative(right, **arguments):
        return -right(**arguments)

    assert call(corpus, **ones).tolist() == [[-1.0] * 8] * 2


def test_sums_and_products_of_fewer_bits_lose_what_fewer_bits_lose():
    terms = torch.ones(1, 1000, dtype=torch.float64)
    assert summed_in(torch.bfloat16)(terms, -1, False).item() == 256
    assert summed_in(torch.float32)(terms, -1, False).item() == 1000
    a, b = torch.ones(1, 1000, dtype=torch.float64), torch.ones(1000, 1, dtype=torch.float64)
    assert multiplied_in(torch.bfloat16, 1)(a, b).item() == 256
    assert cut_short(64)(a, b).item() == 960
    assert to(torch.bfloat16)(torch.tensor(257.0, dtype=torch.float64)).item() == 256


def detected(*names: str) -> dict[str, detection.Detection]:
    with Session() as session:
        tried = detection.trials([fault.find_fault("rms_norm", name) for name in names], "cpu")
        return {d.fault.partition("/")[2]: d for d in detection.detect(session, tried)}


def test_a_fault_is_noticed_with_the_check_the_finding_and_the_command():
    found = detected("one_plus_weight")["one_plus_weight"]
    assert found.noticed_by == "budget"
    assert "exceed" in found.finding
    assert found.command.startswith("parity faults --fault rms_norm/one_plus_weight --case rms_norm/")


@pytest.fixture
def tried(session):
    def run(name: str, case: str, law: str | None = None) -> detection.Trial:
        (trial,) = detection.trials([fault.find_fault("rms_norm", name)], "cpu")
        detection.attempt(session, detection.find_operator("rms_norm"), trial, detection.parse_case(case), law)
        return trial

    return run


def test_a_fault_on_a_case_that_does_not_show_it_stays_open(tried):
    trial = tried("eps_1e-6", "rms_norm/rows=3/bf16/normal/0")
    assert trial.open
    assert detection.told(trial).missed


def test_a_fault_that_cannot_be_made_is_broken_and_notices_nothing(monkeypatch, tmp_path):
    file = tmp_path / "noticed_by.json"
    monkeypatch.setattr(detection, "HINTS", file)
    monkeypatch.setattr(power, "HINTS", file)
    noticed = detection.Detection("a/x", "a", "term", "", (), "cpu", 1, "case:law", "law l")
    missed = detection.Detection("a/y", "a", "term", "", (), "cpu", 1)
    broken = detection.Detection("a/z", "a", "term", "", (), "cpu", 1, broken="EditError")
    told = power.Power([noticed, missed, broken])
    assert (told.missed, told.broken, told.held) == ([missed], [broken], False)
    power.remember(told)
    assert json.loads(file.read_text()) == {"a/x": "case:law"}
    assert power.Power([noticed]).held


def test_a_sample_is_drawn_by_its_seed():
    everything = list(fault.faults().values())
    drawn = [power.sampled(everything, 3, seed) for seed in (1, 1, 2, 3, 4)]
    assert drawn[0] == drawn[1]
    assert len({tuple(f.id for f in some) for some in drawn}) > 1
    assert power.sampled(everything, None, 0) == everything


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean rms_norm/one_plus_weight"):
        fault.chosen(name="rms_norm/one_plus_wait")
    with pytest.raises(ValueError, match="unknown kind of fault 'roundin'; did you mean rounding"):
        fault.chosen(kind="roundin")
