"""The speed of the executor: which class a kernel is of, and who decides a goal."""

from __future__ import annotations

from types import SimpleNamespace

from verification import bench


def launches(*shapes):
    return [SimpleNamespace(waves=waves, grid=grid) for waves, grid in shapes]


def class_of(*shapes):
    found = launches(*shapes)
    return bench._class([one.waves * one.grid[0] * one.grid[1] * one.grid[2] for one in found], found)


def test_a_kernel_is_of_a_class_by_each_of_its_launches():
    large, small = bench.GOALS
    assert class_of((8, (4, 2, 1))) == large
    assert class_of((8, (4, 2, 1)), (4, (1, 1, 1))) == "other"
    assert class_of((4, (1, 1, 1))) == small
    assert class_of((4, (1, 1, 1)), (4, (1, 1, 1))) == "other"
    assert class_of((1, (4, 1, 1))) == "other"
    assert class_of((8, (1, 1, 1))) == "other"


def test_the_slowest_kernel_of_a_class_decides():
    rows = [{"class": name, "kernel": f"{name} {ratio}", "ratio": ratio} for name in (*bench.GOALS, "other")
            for ratio in (3.0, 0.5, 1.0)]  # fmt: skip
    large, small = (bench._goal(name, wanted, rows) for name, wanted in bench.GOALS.items())
    assert (large["kernels"], large["least_ratio"], large["held"]) == (3, 0.5, False)
    assert large["kernel"] == "64 waves and more 0.5"
    assert small["held"]
