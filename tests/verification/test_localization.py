"""A failure says which row, column or tile its elements share."""

from __future__ import annotations

import pytest
import torch

from verification.localization import describe_failures

WHOLE = slice(None)

SHARED = [
    ((4, 64), (2, WHOLE), "they share index 2 of axis 0"),
    ((4, 64), (WHOLE, 63), "they share index 63 of axis 1"),
    ((4, 64), (1, 5), "they share index 1 of axis 0 and index 5 of axis 1"),
    ((4, 1000), (WHOLE, slice(992, None)), "they share the last 8 of axis 1 (from 992, a multiple of 32)"),
    ((4, 1000), (WHOLE, slice(512, None)), "they share the last 488 of axis 1 (from 512, a multiple of 512)"),
    ((4, 1000), (WHOLE, slice(997, None)), "they share the last 3 of axis 1 (from 997 of 1000)"),
    ((4, 1000), (WHOLE, slice(0, 128)), "they share the first 128 of axis 1"),
    ((4, 1000), (WHOLE, slice(513, 640)), "they share axis 1 513…639, inside the tile of 128 that begins at 512"),
    ((2, 2048), (WHOLE, slice(1030, 2040)), "they share axis 1 1030…2039, inside the tile of 1024 that begins at 1024"),
    ((4, 64), (WHOLE, slice(0, None, 2)), "they share even indices of axis 1"),
    ((4, 64), (WHOLE, slice(1, None, 2)), "they share odd indices of axis 1"),
    ((4, 64), (WHOLE, [3, 20, 49]), "they share indices 3, 20, 49 of axis 1"),
    ((3, 4, 5), (WHOLE, 2, slice(3, None)), "they share index 2 of axis 1 and the last 2 of axis 2 (from 3 of 5)"),
    ((4, 64), (WHOLE, [3, 20, 33, 48, 61]), "they are spread over every axis"),
    ((4, 64), (WHOLE, WHOLE), "they are spread over every axis"),
    ((7,), (3,), "they share index 3 of axis 0"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "where", "said"), SHARED, ids=[f"{s}: {t}" for s, _, t in SHARED])
def test_what_failures_share_is_said(shape, where, said):
    failed = torch.zeros(shape, dtype=torch.bool)
    failed[where] = True
    assert describe_failures(failed) == said


def test_failures_with_nothing_in_common_are_said_to_be_spread():
    failed = torch.rand(16, 96, generator=torch.Generator().manual_seed(0)) < 0.2
    assert describe_failures(failed) == "they are spread over every axis"


def test_a_scalar_is_a_single_value():
    assert describe_failures(torch.tensor(True)) == "a single value"
