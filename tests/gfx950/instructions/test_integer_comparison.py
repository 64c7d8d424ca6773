"""Comparisons of integers of the vector unit alone."""

from __future__ import annotations

import operator

import pytest

from .formats import WIDTH

RELATIONS = {"lt": operator.lt, "eq": operator.eq, "le": operator.le, "gt": operator.gt, "ne": operator.ne,
             "ge": operator.ge}  # fmt: skip
KINDS = {"i32": "i", "u32": "u", "i64": "I", "u64": "U", "i16": "s", "u16": "h"}
COMPARISONS = [(f"{name}_{kind}", letter, function) for name, function in RELATIONS.items()
               for kind, letter in KINDS.items()]  # fmt: skip
OPCODES = {f"{form}_{name}" for name, _, _ in COMPARISONS for form in ("v_cmp", "v_cmpx")}


def close(letter):
    """Half of the pairs nearly equal, so that equality and order are both met."""

    def values(generator, bits):
        if generator.random() < 0.5:
            bits[1] = max(bits[0] + generator.randint(-1, 1), 0)
        return [one & (1 << WIDTH[letter]) - 1 for one in bits]

    return values


@pytest.mark.parametrize(("name", "letter", "relation"), COMPARISONS)
def test_comparison(lanes, name, letter, relation):
    lanes.check_vector(f"v_cmp_{name}", "m", 2 * letter, relation, values=close(letter))


@pytest.mark.parametrize(("name", "letter", "relation"), COMPARISONS)
def test_comparison_that_also_writes_exec(lanes, name, letter, relation):
    lanes.check_exec(f"v_cmpx_{name}", 2 * letter, relation, close(letter))
