"""Arguments and results cross a shared file unchanged, and a write beside them is seen."""

from __future__ import annotations

import json
import math

import pytest
import torch

from verification.transport import DTYPE_NAMES, ZONE, Blob, read_results, write_results

BASE = torch.arange(24, dtype=torch.float32).reshape(4, 6)

TENSORS = {
    "contiguous": BASE,
    "strided": BASE[:, ::2],
    "offset": BASE[1:, 2:],
    "transposed": BASE.t(),
    "expanded": BASE[:1].expand(5, 6),
    "scalar": torch.tensor(3.5),
    "of no rows": BASE[:0],
    "of no memory": torch.empty(0, 6),
}


def crossed(folder, arguments):
    """What another process would rebuild from the file and the JSON header."""
    blob = Blob.create(folder / "blob", arguments)
    header = json.loads(json.dumps(blob.header))
    return Blob(blob.path, header).arguments()


@pytest.mark.parametrize("value", [None, True, False, 0, -3, 1e-6, 0.1, math.inf, -math.inf, "sigmoid"])
def test_a_plain_value_arrives_with_its_type(tmp_path, value):
    arrived = crossed(tmp_path, {"value": value})["value"]
    assert arrived == value
    assert type(arrived) is type(value)


def test_nan_arrives_as_nan(tmp_path):
    assert math.isnan(crossed(tmp_path, {"value": math.nan})["value"])


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_arrives_with_its_values_and_shape(tmp_path, name):
    x = TENSORS[name]
    arrived = crossed(tmp_path, {"eps": 1.0, "x": x})["x"]
    assert arrived.shape == x.shape
    assert arrived.dtype == x.dtype
    assert torch.equal(arrived, x)
    if x.numel():
        assert arrived.stride() == x.stride()


@pytest.mark.parametrize("dtype", DTYPE_NAMES, ids=str)
def test_every_dtype_arrives_with_its_bits(tmp_path, dtype):
    x = torch.tensor([0, 1, 1, 0, 1], dtype=dtype)
    arrived = crossed(tmp_path, {"before": torch.ones(1, dtype=torch.uint8), "x": x})["x"]
    assert arrived.dtype == dtype
    assert torch.equal(arrived, x)
    described = json.loads(json.dumps(write_results(tmp_path / "results", [x])))
    (result,) = read_results(tmp_path / "results", described)
    assert result.dtype == dtype
    assert torch.equal(result, x)


def test_nan_payloads_and_negative_zeros_arrive_bit_for_bit(tmp_path):
    bits = torch.tensor([0x7FE5A5E5, -0x80000000, 0x7FC00001], dtype=torch.int32)
    arrived = crossed(tmp_path, {"x": bits.view(torch.float32)})["x"]
    assert torch.equal(arrived.view(torch.int32), bits)


def test_two_views_of_one_storage_stay_aliases(tmp_path):
    pages = torch.zeros(3, 8)
    arrived = crossed(tmp_path, {"left": pages[:, :4], "right": pages[:, 2:], "other": torch.zeros(3, 8)})
    arrived["left"].fill_(7)
    assert arrived["right"][:, :2].eq(7).all()
    assert arrived["right"][:, 2:].eq(0).all()
    assert arrived["other"].eq(0).all()


def test_what_is_written_through_one_mapping_is_seen_through_another(tmp_path):
    blob = Blob.create(tmp_path / "blob", {"x": torch.zeros(4)})
    Blob(blob.path, blob.header).arguments()["x"].fill_(2)
    assert blob.arguments()["x"].eq(2).all()
    assert blob.storage_bytes(0).numel() == 16


def test_arguments_are_views_of_the_bytes_that_are_given(tmp_path):
    blob = Blob.create(tmp_path / "blob", {"x": torch.zeros(4)})
    copy = blob.bytes.clone()
    blob.arguments(copy)["x"].fill_(2)
    assert blob.arguments()["x"].eq(0).all()
    assert blob.arguments(copy)["x"].eq(2).all()


ARGUMENTS = {"first": torch.ones(3, 5, dtype=torch.bfloat16), "second": torch.ones(7), "last": torch.ones(1)}


@pytest.mark.parametrize(("name", "distance"), [(n, d) for n in ARGUMENTS for d in (-1, 0, 1)])
def test_a_write_beside_a_storage_is_found_there(tmp_path, name, distance):
    blob = Blob.create(tmp_path / "blob", ARGUMENTS)
    x = blob.arguments()[name]
    one = (1,) * x.ndim
    if distance < 0:
        x.as_strided(one, one, x.storage_offset() - 1).fill_(0)
    if distance > 0:
        x.as_strided(one, one, x.storage_offset() + x.numel()).fill_(0)
    index = list(ARGUMENTS).index(name)
    assert blob.broken_zones() == ({index: x.element_size()} if distance else {})


@pytest.mark.parametrize("offset", [-ZONE, 28 + ZONE - 1])
def test_the_far_ends_of_a_zone_are_watched(tmp_path, offset):
    blob = Blob.create(tmp_path / "blob", ARGUMENTS)
    start, _ = blob.header["storages"][1]
    blob.bytes[start + offset] = 0
    assert blob.broken_zones() == {1: 1}


def test_a_write_inside_is_no_broken_zone(tmp_path):
    blob = Blob.create(tmp_path / "blob", ARGUMENTS)
    for value in blob.arguments().values():
        value.fill_(-1)
    assert blob.broken_zones() == {}


def test_closing_removes_the_file_and_keeps_the_views(tmp_path):
    blob = Blob.create(tmp_path / "blob", {"x": torch.ones(2)})
    x = blob.arguments()["x"]
    blob.close()
    blob.close()
    assert not blob.path.exists()
    assert x.eq(1).all()


def test_results_arrive_in_order_whatever_their_layout(tmp_path):
    described = write_results(tmp_path / "results", list(TENSORS.values()))
    assert [entry["device"] for entry in described] == ["cpu"] * len(TENSORS)
    arrived = read_results(tmp_path / "results", described)
    assert len(arrived) == len(TENSORS)
    for got, x in zip(arrived, TENSORS.values(), strict=True):
        assert got.shape == x.shape
        assert torch.equal(got, x)


def test_no_result_is_no_file_that_is_missed(tmp_path):
    assert read_results(tmp_path / "never written", []) == []
    assert read_results(tmp_path / "results", write_results(tmp_path / "results", [])) == []


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float8_e4m3fn, torch.uint16], ids=str)
def test_a_dtype_outside_the_contract_arrives_as_bytes_under_its_name(tmp_path, dtype):
    x = torch.ones(2, 3).to(dtype)
    described = write_results(tmp_path / "results", [x, BASE])
    got, after = read_results(tmp_path / "results", described)
    assert described[0]["dtype"] == str(dtype)
    assert torch.equal(got, x.reshape(-1).view(torch.uint8))
    assert torch.equal(after, BASE)
