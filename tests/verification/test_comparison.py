"""Each check of a comparison decides in its turn, and says what, where, got, wanted and allowed."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
import torch

from reference.numerics import EXACT as EXACTLY
from verification.budget import Budget, Golden, derive
from verification.comparison import Observed, compare, compare_numbers, conditioned, same_bits
from verification.guards import fill_poison
from verification.operator import Finding, Operator, Output, find_operator, parse_case

EXACT = torch.tensor([[1.0, -2.0, 3.0, 0.0], [4.0, 5.0, -6.0, 7.0], [8.0, 9.0, 10.0, -11.0]], dtype=torch.float64)
IDS = torch.tensor([3, 1, 2], dtype=torch.int32)


def structure(arguments, outputs, golden):
    if (outputs["ids"] < 0).any():
        yield Finding("structure", f"ids: row {int((outputs['ids'] < 0).nonzero()[0])} is out of range")


def operator_of(**fields):
    outputs = (Output("y", "number", "fp32"), Output("ids", "exact", "int32"))
    plain = Operator("toy", lambda: None, outputs, {}, lambda case: {}, (), (), structure=structure)
    return replace(plain, **fields)


def budget_of(allowed=1.0, row_limit=10.0, bias_limits=None, exact=EXACT):
    rows = torch.full(exact.shape[:-1], row_limit, dtype=torch.float64)
    return Budget(torch.full_like(exact, allowed), torch.ones_like(exact), rows, bias_limits)


def golden_of(exact=EXACT, dtype=torch.float32, budget=None):
    return Golden(
        exact={"y": exact, "ids": IDS}, budgets={"y": budget or budget_of(exact=exact)}, trace={}, trace_error={},
        dtypes={"y": dtype, "ids": torch.int32},
    )  # fmt: skip


def right(exact=EXACT, dtype=torch.float32):
    return Observed([exact.to(dtype), IDS.clone()], ["cpu", "cpu"], ["fp32", "int32"], {})


def judge(observed, golden=None, operator=None):
    return compare(operator or operator_of(), {}, observed, golden or golden_of(), "cpu")


def set_y(o, change):
    o.results[0] = change(o.results[0].clone())


def at(row, column, value):
    def change(y):
        y[row, column] = value
        return y

    return change


def poison_row(y):
    fill_poison(y[0])
    return y


STAGES = {
    "count": (lambda o: o.results.append(IDS), "structure", r"returned 3 tensors; expected 2: y, ids"),
    "dtype": (lambda o: o.dtypes.__setitem__(0, "fp64"), "structure", r"y has dtype fp64; expected fp32"),
    "shape": (lambda o: set_y(o, lambda y: y.reshape(4, 3)), "structure", r"y has shape \[4, 3\]; expected \[3, 4\]"),
    "device": (lambda o: o.devices.__setitem__(1, "cuda"), "structure", r"ids is on cuda; expected cpu"),
    "input": (
        lambda o: o.changed_inputs.update(x=12), "guard",
        r"x was changed \(12 bytes of its memory\); it is not an in-place argument",
    ),
    "unwritten": (
        lambda o: set_y(o, poison_row), "guard",
        r"y: 4 of 12 elements still hold the allocation's poison.*index 0 of axis 0",
    ),
    "damage": (
        lambda o: o.damages.append("4 bytes after an allocation were written"), "guard",
        r"^4 bytes after an allocation were written$",
    ),
    "special": (
        lambda o: set_y(o, at(2, 1, math.inf)), "special_value",
        r"y: 1 of 12 elements differ in being NaN or Inf; at \[2, 1\] got inf, wanted 9; .*index 1 of axis 1",
    ),
    "structure": (lambda o: o.results[1].__setitem__(2, -1), "structure", r"ids: row 2 is out of range"),
    "budget": (
        lambda o: set_y(o, at(1, 3, 9.5)), "budget",
        r"y: 1 of 12 elements exceed their budget; at \[1, 3\] got 9.5, wanted 7 ± 1 \(2.5 × budget\); .* 1 of axis 0",
    ),
    "exact": (
        lambda o: o.results[1].__setitem__(0, 7), "structure",
        r"ids: 1 of 3 elements differ; at \[0\] got 7, wanted 3; .*index 0 of axis 0",
    ),
}  # fmt: skip


def broken(*stages):
    observed = right()
    # A reshape must come after what is set at an index.
    for stage in sorted(stages, key=lambda s: s == "shape"):
        STAGES[stage][0](observed)
    return observed


def test_a_right_result_passes_every_check():
    outcome = judge(right())
    assert outcome.held
    assert [m.output for m in outcome.metrics] == ["y"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_check_finds_what_is_wrong_where_all_else_is_right(stage):
    outcome = judge(broken(stage))
    _, kind, message = STAGES[stage]
    assert [finding.check for finding in outcome.findings] == [kind]
    assert re.search(message, outcome.findings[0].message)
    assert not outcome.held


@pytest.mark.parametrize("stage", STAGES)
def test_the_earliest_check_decides_where_all_later_ones_fail_too(stage):
    later = list(STAGES)[list(STAGES).index(stage) :]
    outcome = judge(broken(*later))
    _, kind, message = STAGES[stage]
    assert outcome.findings[0].check == kind
    assert re.search(message, outcome.findings[0].message)


SPECIALS = {
    "NaN wanted": (math.nan, 1.0),
    "NaN got": (1.0, math.nan),
    "Inf wanted": (math.inf, 1.0),
    "-Inf wanted": (-math.inf, torch.finfo(torch.float32).min),
    "Inf got": (1.0, math.inf),
    "Inf of the other sign": (math.inf, -math.inf),
    "NaN for Inf": (math.inf, math.nan),
    "Inf for NaN": (math.nan, math.inf),
}


def with_one(value):
    exact = EXACT.clone()
    exact[1, 2] = value
    return exact


@pytest.mark.parametrize("name", SPECIALS)
def test_special_values_must_be_where_the_exact_ones_are(name):
    wanted, got = SPECIALS[name]
    (finding,) = judge(right(with_one(got)), golden_of(with_one(wanted))).findings
    assert finding.check == "special_value"
    assert f"at [1, 2] got {got:.6g}, wanted {wanted:.6g}" in finding.message


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_equal_special_values_pass_and_leave_the_numbers_beside_them_judged(value):
    golden = golden_of(with_one(value))
    assert judge(right(with_one(value)), golden).held
    off = right(with_one(value))
    off.results[0][0, 0] = 3.5
    assert [finding.check for finding in judge(off, golden).findings] == ["budget"]


LARGEST = torch.finfo(torch.float32).max


@pytest.mark.parametrize(("got", "passes"), [(LARGEST, True), (math.inf, True), (-math.inf, False), (-LARGEST, False)])
def test_a_number_within_its_budget_of_overflow_may_be_inf_of_its_sign(got, passes):
    golden = golden_of(with_one(LARGEST), budget=budget_of(LARGEST * 1e-6))
    assert judge(right(with_one(got)), golden).held == passes


def test_a_number_far_beyond_the_range_must_overflow():
    golden = golden_of(with_one(1e40))
    assert judge(right(with_one(math.inf)), golden).held
    assert not judge(right(with_one(LARGEST)), golden).held


def test_a_row_is_limited_though_each_element_is_within_its_budget():
    observed, golden = right(), golden_of(budget=budget_of(row_limit=0.5))
    observed.results[0][2] += 0.75 * torch.tensor([1, -1, 1, -1])
    (finding,) = judge(observed, golden).findings
    assert finding.check == "budget"
    assert "row 2 of 3 is off as a whole: root mean square of error ÷ spread 0.75, limit 0.5" in finding.message


@pytest.mark.parametrize(("shift", "limits"), [(torch.ones(3, 4), (0.3, 9.0)), (EXACT.sign().float(), (9.0, 0.3))])
def test_a_bias_is_limited_though_rows_are_within_theirs(shift, limits):
    golden = golden_of(budget=budget_of(row_limit=1.0, bias_limits=limits))
    observed = right()
    observed.results[0] += 0.5 * shift
    (finding,) = judge(observed, golden).findings
    assert finding.check == "bias"
    assert re.search(r"y: errors lean one way: mean of error ÷ spread [+-]\d.*× the limit", finding.message)
    assert judge(right(), golden).held


def test_errors_that_cancel_are_no_bias():
    golden = golden_of(budget=budget_of(row_limit=1.0, bias_limits=(0.3, 0.3)))
    observed = right()
    observed.results[0] += 0.5 * torch.tensor([1, 1, -1, -1]) * torch.tensor([[1], [-1], [1]])
    assert judge(observed, golden).held


def test_a_row_whose_limit_is_0_allows_exact_results_alone():
    golden = golden_of(budget=budget_of(row_limit=0.0))
    assert judge(right(), golden).held
    observed = right()
    observed.results[0][0, 0] += 2.0**-20
    assert "row 0 of 3" in judge(observed, golden).findings[0].message


def test_a_negative_zero_is_no_numeric_failure():
    assert judge(right(with_one(-0.0)), golden_of(with_one(0.0), budget=budget_of(2.0**-149))).held
    assert judge(right(with_one(0.0)), golden_of(with_one(-0.0), budget=budget_of(2.0**-149))).held


def test_an_element_on_its_budget_passes_and_one_beyond_it_does_not():
    for error, passes in ((1.0, True), (-1.0, True), (1.0 + 2.0**-20, False)):
        observed = right()
        observed.results[0][0, 0] += error
        assert judge(observed).held == passes


def test_the_worst_elements_are_named_first():
    observed = right()
    observed.results[0] += torch.tensor([[2.0, 0, 0, 0], [0, 8, 0, 4], [0, 0, 0, 16]])
    (finding,) = judge(observed).findings
    named = re.findall(r"at (\[\d, \d\])", finding.message)
    assert named == ["[2, 3]", "[1, 1]", "[1, 3]"]
    assert "4 of 12 elements" in finding.message


def test_metrics_tell_the_worst_element_and_the_share_of_equal_bits():
    got = EXACT.to(torch.float32)
    got[1, 1] += 0.5
    metrics, findings = compare_numbers("y", got, EXACT, budget_of(bias_limits=(1.0, 1.0)))
    assert findings == []
    assert (metrics.worst_index, metrics.worst_error, metrics.ratio) == ((1, 1), 0.5, 0.5)
    assert metrics.bit_equal == 11 / 12
    assert metrics.worst_ulps == 0.5 / 2.0**-21  # 5 lies in [4, 8), where fp32 has steps of 2⁻²¹
    assert metrics.bias == metrics.bias_ratio == 0.5 / 12
    assert metrics.row_ratio == 0.25 / 10


def test_an_output_without_elements_has_nothing_to_compare():
    empty = torch.zeros(0, 4, dtype=torch.float64)
    assert compare_numbers("y", empty.float(), empty, budget_of(exact=empty)) == (None, [])


def test_elements_that_the_contract_leaves_open_are_not_compared():
    def first_two(name, arguments, outputs):
        return torch.arange(3) < 2 if name == "ids" else None

    observed = right()
    fill_poison(observed.results[1][2:])
    assert judge(observed).findings[0].check == "guard"
    free = operator_of(compared=first_two, structure=None)
    assert judge(observed, operator=free).held
    observed.results[1][1] = 9
    assert judge(observed, operator=free).findings[0].check == "structure"


def doubled(outputs):
    """Twice y."""
    return 2 * outputs["y"].double()


def test_an_output_is_compared_by_its_meaning_under_the_name_of_that():
    operator = operator_of(outputs=(Output("y", "number", "fp32", meaning=doubled), operator_of().outputs[1]))
    outcome = judge(right(EXACT / 2), operator=operator)
    assert (outcome.findings, outcome.metrics[0].output, outcome.metrics[0].dtype) == ([], "doubled", "fp32")
    (said,) = judge(right(EXACT), operator=operator).findings
    assert said.check == "budget"
    assert said.message.startswith("doubled: ")
    infinite = right(torch.full_like(EXACT, torch.inf))
    assert judge(infinite, operator=operator).findings[0].message.startswith("doubled: 12 of 12")


def test_an_exact_output_is_compared_by_its_meaning():
    outputs = (operator_of().outputs[0], Output("ids", "exact", "int32", meaning=lambda outputs: outputs["ids"] % 10))
    observed = right()
    observed.results[1] = IDS + 10
    assert judge(observed, operator=operator_of(outputs=outputs)).held
    observed.results[1] = IDS + 1
    assert not judge(observed, operator=operator_of(outputs=outputs)).held


def test_exact_results_and_budgets_are_those_of_the_meaning():
    operator = find_operator("attention_residual_partial")
    arguments = operator.arguments(parse_case("attention_residual_partial/rows=2,hidden=64,blocks=3/bf16/normal/0"))
    golden = derive(operator, arguments)
    maximum, total, accumulator = operator.reference(**arguments, numerics=EXACTLY)
    assert torch.equal(golden.exact["maximum"], maximum + total.log())
    assert torch.equal(golden.exact["accumulator"], accumulator / total[..., None])
    assert set(golden.budgets) == {"maximum", "accumulator"}


def test_an_in_place_result_is_judged_by_its_name_and_may_hold_what_looks_like_poison():
    outputs = (Output("y", "number", "fp32"), Output("ids", "exact", "int32", argument="table"))
    operator = operator_of(outputs=outputs, structure=None)
    golden = golden_of()
    golden.exact["ids"] = torch.full((3,), torch.iinfo(torch.int32).min, dtype=torch.int32)
    observed = Observed([EXACT.float()], ["cpu"], ["fp32"], {"table": golden.exact["ids"].clone()})
    assert judge(observed, golden, operator).held
    observed.in_place["table"][1] = 0
    assert "ids: 1 of 3 elements differ" in judge(observed, golden, operator).findings[0].message


def test_another_choice_within_the_margin_is_judged_by_the_weights_of_that_choice():
    operator = find_operator("route")
    arguments = operator.make(parse_case("route/rows=1,experts=4,top_k=2/fp32/normal/0"))
    arguments |= {
        "logits": torch.tensor([[0.5, 0.5 + 2.0**-24, -1.0, 0.25]]),
        "correction_bias": None,
        "renormalize": False,
    }
    golden = derive(operator, arguments)
    assert golden.exact["expert_ids"].tolist() == [[1, 0]]
    chosen = {"chosen": torch.tensor([[0, 1]])}
    outputs = operator.evaluate(arguments, **chosen)
    assert conditioned(operator, arguments, outputs, golden) is not golden
    observed = Observed(list(outputs.values()), ["cpu"] * 2, ["int32", "fp32"], {})
    assert compare(operator, arguments, observed, golden, "cpu").held
    observed.results[1] = observed.results[1] * 1.01
    assert compare(operator, arguments, observed, golden, "cpu").findings[0].check == "budget"


@pytest.mark.parametrize(("a", "b", "equal"), [
    (0.0, -0.0, False), (1, 1, True), (math.inf, math.inf, True), (-math.inf, math.inf, False), (math.nan, 1, False),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
def test_same_bits_tells_bits_and_not_values(a, b, equal, dtype):
    assert same_bits(torch.tensor([a], dtype=dtype), torch.tensor([b], dtype=dtype)).tolist() == [equal]


def test_same_bits_takes_every_nan_for_the_same():
    nans = torch.tensor([0x7FC00000, 0x7FE5A5E5, -0x400000, 0x7F800001], dtype=torch.int32).view(torch.float32)
    assert same_bits(nans, nans.flip(0)).all()


def test_same_bits_compares_integers_and_any_layout():
    x = torch.arange(12, dtype=torch.int32).reshape(3, 4)
    assert same_bits(x, x.t().contiguous().t()).all()
    assert same_bits(x, x + (x == 5)).sum() == 11
    assert same_bits(torch.tensor([True, False]), torch.tensor([True, True])).tolist() == [True, False]
