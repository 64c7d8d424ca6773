"""What lies far apart travels side by side, arrives where the case has it, and the gaps are watched."""

from __future__ import annotations

import json

import pytest
import torch

from verification import transport
from verification.comparison import same_bits
from verification.far_memory import FarMemory
from verification.inputs import far_apart
from verification.operator import find_operator, parse_case
from verification.plan import Selection, build
from verification.transport import Blob

REACH = 1 << 16


@pytest.fixture(autouse=True)
def small_storages_are_far(monkeypatch):
    monkeypatch.setattr(transport, "FAR", REACH)


def crossed(folder, arguments):
    """What a child has of these arguments."""
    blob = Blob.create(folder / "blob", arguments)
    header = json.loads(json.dumps(blob.header))
    memory = FarMemory(Blob(blob.path, header).arguments(), header)
    memory.load()
    return blob, memory


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.uint8])
def test_places_that_lie_far_apart_arrive_there_and_travel_without_their_gaps(tmp_path, axis, dtype):
    x = far_apart(torch.arange(60).view(3, 4, 5).to(dtype), axis, REACH)
    assert (x.shape[axis] - 1) * x.stride(axis) >= REACH
    blob, memory = crossed(tmp_path, {"x": x, "eps": 1.0})
    arrived = memory.arguments["x"]
    assert memory.arguments["eps"] == 1.0
    assert arrived.stride() == x.stride()
    assert torch.equal(arrived, x)
    assert torch.equal(blob.arguments()["x"], x)
    assert blob.header["nbytes"] < REACH
    arrived.add_(1)
    memory.store()
    assert torch.equal(blob.arguments()["x"], x + 1)
    assert memory.damages() == []


@pytest.mark.parametrize("offset", [-1, 5, REACH // 2 - 1, REACH // 2 + 5, REACH + 5])
def test_a_write_into_a_gap_is_found(tmp_path, offset):
    _, memory = crossed(tmp_path, {"x": far_apart(torch.zeros(3, 5), 0, REACH)})
    x = memory.arguments["x"]
    x.as_strided((1,), (1,), x.storage_offset() + offset).fill_(0)
    assert memory.damages() == ["4 bytes between the places of x were written"]


@pytest.mark.parametrize("arguments", [
    {"x": torch.zeros(4, REACH)},
    {"x": torch.zeros(4, REACH)[:, ::2]},
    (lambda wide: {"left": wide[:, :4], "right": wide[:, 4:8]})(torch.zeros(4, REACH)),
    {"x": torch.zeros(1, REACH)[:, :5]},
    {"x": torch.zeros(REACH, dtype=torch.int32)[0]},
], ids=["dense", "every other column", "two views of one storage", "one row", "a scalar"])  # fmt: skip
def test_what_is_not_mostly_gaps_or_is_shared_travels_whole(tmp_path, arguments):
    blob, memory = crossed(tmp_path, arguments)
    assert all(spec["far"] is None for spec in blob.header["tensors"].values())
    assert all(torch.equal(memory.arguments[name], x) for name, x in arguments.items())


def test_an_implementation_is_judged_on_far_arguments_as_on_near_ones(session):
    case = parse_case("attention_residual/rows=3,hidden=128,blocks=2,capacity=3,write=yes/bf16/normal/0")
    (check,) = build(Selection(case=case.id, implementation="eager", target="cpu", law="none"))
    near = find_operator("attention_residual").arguments(case)
    far = near | {"prefix": far_apart(near["prefix"], 0, REACH), "blocks": far_apart(near["blocks"], 1, REACH)}
    for mode in ("direct", "repeat"):
        results = [session.execute(check, arguments, mode, arguments)[0] for arguments in (near, far)]
        assert same_bits(results[0].results[0], results[1].results[0]).all()
        for name, value in results[0].in_place.items():
            assert same_bits(value, results[1].in_place[name]).all(), name
        assert not any(one.damages or one.changed_inputs for one in results)


def test_a_write_into_a_gap_by_an_implementation_is_damage(session, tmp_path):
    file = tmp_path / "strays.py"
    file.write_text(
        "from verification import candidate\n"
        "@candidate('rms_norm', name='strays')\n"
        "def strays(x, weight, eps):\n"
        "    x.as_strided((1,), (1,), x.storage_offset() + 1000).fill_(0)\n"
        "    return x + 0\n"
    )
    case = "rms_norm/rows=3,hidden=17/bf16/normal/0"
    (check,) = build(Selection(case=case, candidates=session.declared(file), target="cpu", law="none"))
    arguments = check.operator.arguments(check.case)
    observed, _ = session.execute(check, arguments | {"x": far_apart(arguments["x"], 0, REACH)})
    assert observed.damages == ["2 bytes between the places of x were written"]
