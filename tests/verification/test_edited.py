"""A copy with an edit is another module; the original, and whoever imports it, stay as they were."""

from __future__ import annotations

import sys

import pytest
import torch

from verification.edited import EditError, edited

EAGER = "verification.eager.rms_norm"
NORM = ("functional.rms_norm(x.float(), (x.shape[-1],), eps=eps).to(x.dtype).float()", "x.float()")


def test_the_copy_has_the_edit_and_the_original_does_not():
    from verification.eager import rms_norm

    x, weight = torch.full((1, 4), 3.0, dtype=torch.bfloat16), torch.ones(4, dtype=torch.bfloat16)
    copy = edited(EAGER, [NORM], EAGER)
    assert copy.rms_norm(x, weight, 0.0).tolist() == [[3.0] * 4]
    assert rms_norm.rms_norm(x, weight, 0.0).tolist() == [[1.0] * 4]
    assert sys.modules[EAGER] is rms_norm


def test_a_module_that_imports_the_edited_one_is_copied_too():
    original = sys.modules.get("verification.eager.mla")
    copy = edited(EAGER, [NORM], "verification.eager.mla")
    x = torch.full((1, 4), 3.0, dtype=torch.bfloat16)
    assert copy.rms_norm(x, torch.ones(4, dtype=torch.bfloat16), 0.0).tolist() == [[3.0] * 4]
    assert original is None or sys.modules["verification.eager.mla"] is original


def test_a_module_far_up_the_chain_sees_an_edit_of_the_reference():
    copy = edited("reference.delta_rule", [], "reference.kda")
    from reference import kda

    assert copy is not kda
    assert copy.recurrence is not kda.recurrence


@pytest.mark.parametrize(("old", "count"), [("no such text", 0), ("torch", None)])
def test_an_edit_that_is_not_plain_is_refused_with_the_count(old, count):
    with pytest.raises(EditError, match=rf"rms_norm.py: '{old}' occurs {'0' if count == 0 else '[0-9]+'} times"):
        edited(EAGER, [(old, "")], EAGER)


def test_a_module_that_is_not_ours_is_refused():
    with pytest.raises(EditError, match=r"json is no module of reference, verification.eager, fused"):
        edited("json", [], "json")
