"""Faults that test harnesses of the field have had: ours has none of them, or says which check sees it.

Source: the T records of the collected field faults; `RECORDS` says which test answers which.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

import verification
from fused.boundary import Implementation
from verification.budget import derive
from verification.campaign import Outcome
from verification.comparison import Observed, compare, same_bits
from verification.inputs import digest
from verification.operator import find_operator, operators, parse_case
from verification.plan import Candidate, Check, Selection, build
from verification.runner import current_hash
from verification.targets import targets
from verification.transport import DTYPE_NAMES

RECORDS = (
    ("T01", "test_a_kernel_with_half_of_its_elements_replaced_fails_the_run"),
    ("T02", "test_what_is_no_computation_fails_however_small_the_outputs_are"),
    ("T04", "test_nan_on_both_sides_agrees_and_on_one_side_fails"),
    ("T05", "test_a_call_that_writes_its_arguments_leaves_the_next_ones_as_they_were_made"),
    ("T06", "test_every_term_of_the_delta_rule_is_felt"),
    ("T08", "test_a_choice_among_equals_is_judged_by_scores_and_by_distinct_ids"),
    ("T09", "test_a_choice_among_equals_is_judged_by_scores_and_by_distinct_ids"),
    ("T10", "tests/reference/test_routing.py::test_a_tie_at_the_cut_goes_to_the_lower_id"),
    ("T12", "test_experts_and_sorting_take_the_routing_as_an_argument"),
    ("T14", "test_right_results_of_many_seeds_raise_no_alarm_and_repeat"),
    ("T16", "test_every_implementation_meets_cases_of_its_operator"),
    ("T17", "test_a_fault_of_few_rows_or_columns_is_not_diluted"),
    ("T18", "test_an_error_of_a_tenth_fails_at_every_magnitude"),
    ("T20", "test_few_nan_among_right_numbers_fail"),
    ("T21", "tests/verification/test_campaign.py::test_a_whole_run_below_its_floor_fails"),
    ("T22", "test_few_nan_among_right_numbers_fail"),
    ("T24", "test_scales_under_the_wrong_address_fail"),
    ("T26", "test_a_kernel_with_half_of_its_elements_replaced_fails_the_run"),
    ("T28", "test_a_verdict_is_about_the_code_that_ran"),
    ("T29", "test_a_dropped_tail_of_the_sum_fails_and_its_error_is_told_as_it_is"),
    ("T30", "test_what_is_quantized_and_decoded_comes_back_in_its_place"),
    ("T32", "test_the_golden_is_the_same_under_every_precision_mode_of_torch"),
)

UNANSWERED = {"T25": "a model's tokens are compared by the tokens check, not by an operator's comparison"}

CPU_YES = frozenset(
    f"T{n:02}" for n in (1, 2, 4, 5, 6, 8, 9, 10, 12, 14, 16, 17, 18, 20, 21, 22, 24, 25, 26, 28, 29, 30, 32)
)


def setting(case):
    """The operator, a case's arguments, its golden, and the reference's own rounded results."""
    case = parse_case(case)
    operator = find_operator(case.operator)
    arguments = operator.arguments(case)
    return operator, arguments, derive(operator, arguments, operator.variant("official"))


def right(operator, arguments):
    """What the reference gives: each output, rounded as it is."""
    return operator.evaluate({k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in arguments.items()})


def judged(operator, arguments, golden, outputs):
    """The comparison of outputs by name."""
    results = [outputs[o.name] for o in operator.outputs if o.argument is None]
    in_place = {o.argument: outputs[o.name] for o in operator.outputs if o.argument and o.name in outputs}
    dtypes = [DTYPE_NAMES[x.dtype] for x in results]
    return compare(operator, arguments, Observed(results, ["cpu"] * len(results), dtypes, in_place), golden, "cpu")


NORM = "rms_norm/rows=256,hidden=512/bf16/normal/0"


@pytest.fixture(scope="module")
def norm():
    operator, arguments, golden = setting(NORM)
    y = right(operator, arguments)["y"]
    assert judged(operator, arguments, golden, {"y": y}).held
    return lambda change: judged(operator, arguments, golden, {"y": change(y.clone())})


def test_every_record_is_answered_by_a_test_that_exists_or_is_listed_with_a_reason():
    root = Path(verification.__file__).parent.parent
    assert {record for record, _ in RECORDS} | UNANSWERED.keys() == CPU_YES
    for _, place in RECORDS:
        file, _, name = place.rpartition("::")
        tree = ast.parse((root / file if file else Path(__file__)).read_text())
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, place


HALF = """
from verification import candidate

@candidate("rms_norm", name="half")
def rms_norm(x, weight, eps):
    y = x.double() * (x.double().square().mean(-1, keepdim=True) + eps).rsqrt()
    y = (y.to(x.dtype).double() * weight.double()).to(x.dtype)
    y[:, ::2] = 1
    return y
"""


def test_a_kernel_with_half_of_its_elements_replaced_fails_the_run(session, tmp_path):
    (tmp_path / "half.py").write_text(HALF)
    candidate = Candidate(Implementation("rms_norm", "half", call=print), str(tmp_path / "half.py"))
    selection = Selection(candidates=(candidate,), case="rms_norm/rows=4,hidden=16/bf16/normal/0", target="cpu")
    checks = build(selection)
    records = [session.run(check) for check in checks]
    assert [(r.verdict, r.kind) for r in records] == [("failed", "budget")]
    assert "32 of 64 elements exceed" in records[0].findings[0]
    assert Outcome(records, planned=len(checks)).exit_code == 1


@pytest.mark.parametrize("magnitude", [1.0, 2.0**-18, 2.0**-60])
def test_what_is_no_computation_fails_however_small_the_outputs_are(magnitude):
    operator, arguments, _ = setting(NORM)
    arguments["weight"] = arguments["weight"] * magnitude
    golden = derive(operator, arguments, operator.variant("official"))
    y = right(operator, arguments)["y"]
    earlier = right(operator, arguments | {"x": arguments["x"].roll(1, 0)})["y"]
    assert judged(operator, arguments, golden, {"y": y}).held
    for nothing in (torch.zeros_like(y), arguments["x"].clone(), earlier, y.flip(0), torch.full_like(y, torch.nan)):
        assert not judged(operator, arguments, golden, {"y": nothing}).held


def test_nan_on_both_sides_agrees_and_on_one_side_fails():
    operator, arguments, golden = setting("rms_norm/rows=5,hidden=16/bf16/nonfinite/0")
    y = right(operator, arguments)["y"]
    place = tuple(y.isnan().nonzero()[0])
    assert judged(operator, arguments, golden, {"y": y}).held
    for at, value in ((place, 0.0), ((4, 3), torch.nan)):
        wrong = y.clone()
        wrong[at] = value
        assert [f.check for f in judged(operator, arguments, golden, {"y": wrong}).findings] == ["special_value"]


def test_a_call_that_writes_its_arguments_leaves_the_next_ones_as_they_were_made(session):
    case = parse_case("kda_decode/heads=2,key=16,value=24,output=plain/bf16/normal/0")
    operator = find_operator("kda_decode")
    (check,) = build(Selection(case=case.id, implementation="eager", target="cpu", law="none"))
    arguments = operator.arguments(case)
    before = digest(arguments)
    first, _ = session.execute(check, arguments)
    second, _ = session.execute(check, arguments)
    assert digest(arguments) == before
    assert not same_bits(first.in_place["state"], arguments["state"]).all()
    assert same_bits(first.in_place["state"], second.in_place["state"]).all()


TERMS = ("qkv", "raw_gate", "beta_logits", "conv_state", "state", "conv_weight", "A_log", "dt_bias")


@pytest.fixture(scope="module")
def prefill():
    operator, arguments, golden = setting(
        "kda_prefill/lengths=5-18-3,heads=2,key=16,value=24,output=plain/bf16/normal/0"
    )
    assert judged(operator, arguments, golden, right(operator, arguments)).held
    return operator, arguments, golden


@pytest.mark.parametrize("term", TERMS)
def test_every_term_of_the_delta_rule_is_felt(prefill, term):
    operator, arguments, golden = prefill
    without = arguments | {term: torch.zeros_like(arguments[term])}
    assert not judged(operator, arguments, golden, right(operator, without)).held


def test_a_choice_among_equals_is_judged_by_scores_and_by_distinct_ids():
    operator, arguments, _ = setting("route/rows=3,experts=60,top_k=6/fp32/normal/0")
    logits = arguments["logits"]
    order = logits.add(arguments["correction_bias"] * 0).sigmoid().add(arguments["correction_bias"]).argsort(-1)
    sixth, seventh = order[:, -6], order[:, -7]
    logits[torch.arange(3), seventh] = logits[torch.arange(3), sixth]
    arguments["correction_bias"].zero_()
    golden = derive(operator, arguments, operator.variant("official"))
    outputs = right(operator, arguments)
    assert judged(operator, arguments, golden, outputs).held
    double = outputs["expert_ids"].clone()
    double[0, 1] = double[0, 0]
    worst = outputs["expert_ids"].clone()
    worst[0, -1] = logits[0].argmin()
    for wrong in (double, worst):
        assert not judged(operator, arguments, golden, outputs | {"expert_ids": wrong}).held


def test_experts_and_sorting_take_the_routing_as_an_argument():
    for name, ids in (("moe_experts", "expert_ids"), ("moe_sorting", "expert_ids")):
        operator = find_operator(name)
        assert ids in operator.arguments(operator.representative()[-1])


def test_right_results_of_many_seeds_raise_no_alarm_and_repeat():
    operator = find_operator("rms_norm")
    for seed in range(60):
        case = operator.case(rows=8, hidden=128, seed=seed)
        arguments = operator.arguments(case)
        golden = derive(operator, arguments, operator.variant("official"))
        assert digest(arguments) == digest(operator.arguments(case))
        assert judged(operator, arguments, golden, right(operator, arguments)).held, case.id


def test_every_implementation_meets_cases_of_its_operator():
    from verification.operator import implementations

    planned = {
        (check.operator.name, check.candidate.declared.name)
        for target in ("cpu", "gfx950")
        for check in build(Selection(suite="smoke", target=target))
    }
    assert planned == set(implementations())
    assert {operator for operator, name in planned if name == "eager"} == set(operators())


FEW = {
    "one row": lambda y: y[100].zero_(),
    "17 % of rows": lambda y: y[: int(0.17 * len(y))].zero_(),
    "one column": lambda y: y[:, 7].zero_(),
    "one element": lambda y: y[3, 5].mul_(1.05),
    "the last tile of columns": lambda y: y[:, -128:].zero_(),
}


@pytest.mark.parametrize("name", FEW)
def test_a_fault_of_few_rows_or_columns_is_not_diluted(norm, name):
    def change(y):
        FEW[name](y)
        return y

    assert [f.check for f in norm(change).findings] == ["budget"]


@pytest.mark.parametrize("exponent", [-40, 0, 10, 60])
def test_an_error_of_a_tenth_fails_at_every_magnitude(exponent):
    operator, arguments, _ = setting(NORM)
    arguments["weight"] = arguments["weight"] * 2.0**exponent
    golden = derive(operator, arguments, operator.variant("official"))
    y = right(operator, arguments)["y"]
    assert judged(operator, arguments, golden, {"y": y}).held
    assert not judged(operator, arguments, golden, {"y": y * 1.1}).held


@pytest.mark.parametrize("share", [1, 0.01, 0])
def test_few_nan_among_right_numbers_fail(norm, share):
    def change(y):
        y.view(-1)[: max(1, int(share * y.numel()))] = torch.nan
        return y

    found = norm(change)
    assert [f.check for f in found.findings] == ["special_value"]


@pytest.mark.parametrize(("case", "scales"), [
    ("dequantize_mx/rows=5,columns=128/bf16/normal/0", ("scales",)),
    ("moe_experts/rows=3,latent=96,inter=64,experts=8,local=8,top_k=2/bf16/distinct/0", ("w13_scale", "w2_scale")),
])  # fmt: skip
def test_scales_under_the_wrong_address_fail(case, scales):
    operator, arguments, golden = setting(case)
    assert judged(operator, arguments, golden, right(operator, arguments)).held
    for name in scales:
        for axis in (-1, -2):
            moved = arguments | {name: arguments[name].roll(1, axis)}
            assert not judged(operator, arguments, golden, right(operator, moved)).held, (name, axis)


@pytest.mark.parametrize("format", ["mxfp4", "mxfp8"])
def test_what_is_quantized_and_decoded_comes_back_in_its_place(format):
    # Every group has a scale of its own, and every element of it another value than its neighbours'.
    grid = torch.tensor([0.5, 1, 1.5, 2, 3, 4, 6, -0.5, -1, -1.5, -2, -3, -4, -6, 6, 1]).repeat(2)
    x = (grid * 2.0 ** torch.arange(20)[:, None]).reshape(5, 128).to(torch.bfloat16)
    packed = find_operator("quantize_mx").evaluate({"x": x, "format": format})
    back = find_operator("dequantize_mx").evaluate(packed | {"format": format})["x"]
    assert torch.equal(back.double(), x.double())


def test_a_verdict_is_about_the_code_that_ran(tmp_path):
    file = tmp_path / "kernel.py"
    hashes = set()
    case = parse_case(NORM)
    for text in (HALF, HALF + "\n"):
        file.write_text(text)
        candidate = Candidate(Implementation("rms_norm", "half", call=print), str(file))
        hashes.add(current_hash(Check(case, "t", "smoke", find_operator("rms_norm"), candidate, targets()["cpu"])))
    assert len(hashes) == 2


def test_a_dropped_tail_of_the_sum_fails_and_its_error_is_told_as_it_is():
    operator, arguments, golden = setting("router_logits/rows=5,hidden=520,experts=40/bf16/normal/0")
    cut = arguments | {"x": arguments["x"].clone()}
    cut["x"][:, 512:] = 0
    outputs = right(operator, cut)
    found = judged(operator, arguments, golden, outputs)
    assert [f.check for f in found.findings] == ["budget"]
    error = (outputs["logits"].double() - golden.exact["logits"]).abs().max()
    assert found.metrics[0].largest_error == float(error) > 0


def test_the_golden_is_the_same_under_every_precision_mode_of_torch():
    case = "router_logits/rows=5,hidden=520,experts=40/bf16/normal/0"
    usual = setting(case)[2].exact["logits"]
    assert usual.dtype == torch.float64
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert torch.equal(setting(case)[2].exact["logits"], usual)
    finally:
        torch.set_float32_matmul_precision(before)
