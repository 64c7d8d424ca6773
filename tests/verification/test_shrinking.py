from __future__ import annotations

from verification.operator import find_operator, parse_case
from verification.plan import Selection, build
from verification.runner import Session
from verification.shrinking import shrink, smaller

WRONG_FROM_WIDTH_40 = """
from verification import candidate

@candidate("rms_norm", name="wide", batch_invariant=True)
def rms_norm(x, weight, eps):
    y = x.double() * (x.double().square().mean(-1, keepdim=True) + eps).rsqrt()
    y = (y.to(x.dtype).double() * weight.double()).to(x.dtype)
    if x.shape[1] >= 40 and x.shape[0] >= 2:
        y[1, 39] = 0
    return y
"""


def test_shrinking_finds_the_smallest_case_that_still_fails(tmp_path):
    file = tmp_path / "wide.py"
    file.write_text(WRONG_FROM_WIDTH_40)
    with Session() as session:
        selection = Selection(
            candidates=session.declared(file), case="rms_norm/rows=16/bf16/normal/0", target="cpu", law="none"
        )
        check = build(selection)[0]
        smallest, record, trials = shrink(session, check, session.run(check))
    parameters = smallest.operator.full_parameters(smallest.case)
    assert (parameters["rows"], parameters["hidden"]) == (2, 40)
    assert record.kind == "budget"
    assert trials < 200


def test_neighbours_differ_in_one_parameter_and_are_smaller():
    operator, case = find_operator("rms_norm"), parse_case("rms_norm/rows=9,hidden=100/bf16/normal/0")
    for neighbour in smaller(operator, case):
        before, after = operator.full_parameters(case), operator.full_parameters(neighbour)
        changed = [name for name in before if before[name] != after[name]]
        assert len(changed) == 1
        assert after[changed[0]] < before[changed[0]]
