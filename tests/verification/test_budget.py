"""Budgets come from the inputs alone, pass every right evaluation and fail what is off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache

import pytest
import torch

from reference.numerics import perturbed, round_to_nearest, rounded, ulp
from verification.budget import RUNS, _error, derive, output_dtypes
from verification.comparison import Observed, compare, compare_numbers
from verification.operator import find_operator, operators, parse_case
from verification.transport import DTYPE_NAMES

SMALL = 60_000
SPREAD = 6
SEEDS = (0, 11)

WITH_NUMBERS = [o for o in operators().values() if any(out.kind == "number" for out in o.outputs)]
VARIANTS = [(o.name, v.name) for o in WITH_NUMBERS for v in o.variants]

BF16_CASES = (
    "rms_norm/hidden=2048/bf16/normal/3",
    "rms_norm/hidden=2048/bf16/near_eps/4",
    "attention_residual/hidden=1024,blocks=3/bf16/normal/3",
    "attention_residual/hidden=1024,blocks=5,norm=no/bf16/normal/4",
)
FP32_CASES = (
    "route/rows=20,experts=60,top_k=6/fp32/normal/3",
    "route_sort/rows=20,experts=60,top_k=6/fp32/normal/4",
)
CASES = BF16_CASES + FP32_CASES


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Over tensors this small, threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def derived(text, variant="official"):
    """The operator, arguments and golden of a case."""
    case = parse_case(text)
    operator = find_operator(case.operator)
    arguments = operator.make(case)
    return operator, arguments, derive(operator, arguments, operator.variant(variant))


@cache
def small_cases(name):
    """A few of the operator's smoke cases, spread over its groups."""
    operator = find_operator(name)
    sizes = {
        case: sum(torch.numel(a) for a in operator.make(case).values() if isinstance(a, torch.Tensor))
        for _, case in operator.cases("smoke")
    }
    small = [case for case, size in sizes.items() if 0 < size < SMALL]
    return small[:: max(1, len(small) // SPREAD)][: SPREAD + 2]


def observed(operator, outputs):
    returned = [outputs[o.name] for o in operator.outputs if o.argument is None]
    in_place = {o.argument: outputs[o.name] for o in operator.outputs if o.argument and o.name in outputs}
    return Observed(returned, ["cpu"] * len(returned), [DTYPE_NAMES[r.dtype] for r in returned], in_place)


def judged(text, change):
    """Kinds of findings about the exact results of a case, changed and then stored."""
    _, _, golden = derived(text)
    kinds = set()
    for name, budget in golden.budgets.items():
        dtype, exact = golden.dtypes[name], golden.exact[name]
        got = change(exact, dtype).to(dtype)
        kinds |= {finding.check for finding in compare_numbers(name, got, exact, budget)[1]}
    return kinds


def at_random(like):
    return torch.where(torch.rand(like.shape, generator=torch.Generator().manual_seed(5)) < 0.5, -1.0, 1.0)


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_nearest_rounding_of_every_variant_passes_its_own_budget(name, variant):
    operator = find_operator(name)
    chosen = operator.variant(variant)
    assert small_cases(name)
    for case in small_cases(name):
        for seed in SEEDS:
            arguments = operator.make(replace(case, seed=seed))
            golden = derive(operator, arguments, chosen)
            result = observed(operator, operator.evaluate(arguments, numerics=rounded(chosen)))
            assert compare(operator, arguments, result, golden, "cpu").findings == [], (case.id, seed)


@pytest.mark.parametrize("text", CASES)
def test_the_exact_result_rounded_once_passes(text):
    assert judged(text, round_to_nearest) == set()


@pytest.mark.parametrize(("text", "ulps"), [*((text, 4) for text in BF16_CASES), *((text, 16) for text in FP32_CASES)])
def test_a_result_off_by_a_few_ulps_everywhere_fails(text, ulps):
    def off(exact, dtype):
        return round_to_nearest(exact, dtype) + ulps * at_random(exact) * ulp(exact, dtype)

    assert judged(text, off) == {"budget"}


@pytest.mark.parametrize("text", BF16_CASES)
@pytest.mark.parametrize("towards", ["zero", "minus infinity"])
def test_a_result_truncated_instead_of_rounded_fails(text, towards):
    def truncated(exact, dtype):
        steps = exact / ulp(exact, dtype)
        return (steps.trunc() if towards == "zero" else steps.floor()) * ulp(exact, dtype)

    kinds = judged(text, truncated)
    assert kinds
    assert kinds <= {"budget", "bias"}


@pytest.mark.parametrize("text", CASES)
def test_one_element_off_by_a_hundredth_fails(text):
    def off(exact, dtype):
        moved = round_to_nearest(exact, dtype)
        moved.view(-1)[exact.abs().argmax()] *= 1.02
        return moved

    assert judged(text, off) == {"budget"}


@pytest.mark.parametrize(
    ("text", "row"), [("rms_norm/hidden=256/bf16/zeros/0", 1), ("attention_residual/hidden=256/bf16/zeros/0", 2)]
)
def test_rows_of_zeros_need_exact_zeros(text, row):
    operator, _, golden = derived(text)
    output = operator.outputs[0].name
    exact, budget = golden.exact[output], golden.budgets[output]
    assert (exact == 0).all()
    zeros = torch.zeros(exact.shape, dtype=torch.bfloat16)
    assert compare_numbers(output, zeros, exact, budget)[1] == []
    zeros.view(torch.int16)[row, 7] = 1  # the least subnormal
    (finding,) = compare_numbers(output, zeros, exact, budget)[1]
    assert finding.check == "budget"
    assert f"at [{row}, 7]" in finding.message


@pytest.mark.parametrize("text", CASES)
def test_nan_never_passes(text):
    operator, arguments, golden = derived(text)
    for output in (o for o in operator.outputs if o.kind == "number"):
        outputs = {n: v.clone() for n, v in operator.evaluate(arguments).items()}
        assert compare(operator, arguments, observed(operator, outputs), golden, "cpu").held
        outputs[output.name].view(-1)[-1] = torch.nan
        findings = compare(operator, arguments, observed(operator, outputs), golden, "cpu").findings
        assert [finding.check for finding in findings] == ["special_value"]


@pytest.mark.parametrize("text", CASES)
def test_the_perturbed_runs_all_differ_and_repeat(text):
    operator, arguments, golden = derived(text)
    conditions = operator.condition(arguments, golden.exact) if operator.condition else {}
    # An in-place sum of two bf16 values is exact in fp32: only what is returned must move.
    name = next(o.name for o in operator.outputs if o.kind == "number" and o.argument is None)
    runs = [operator.evaluate(arguments, numerics=perturbed(seed), **conditions)[name] for seed in range(RUNS)]
    assert len({run.numpy().tobytes() for run in runs}) == RUNS
    assert torch.equal(operator.evaluate(arguments, numerics=perturbed(3), **conditions)[name], runs[3])


@pytest.mark.parametrize("text", CASES)
def test_a_budget_is_a_function_of_the_inputs(text):
    operator, _, golden = derived(text)
    torch.manual_seed(1)  # no global generator has a part in it
    again = derive(operator, operator.make(parse_case(text)))
    for name, budget in golden.budgets.items():
        assert torch.equal(again.budgets[name].allowed, budget.allowed)
        assert torch.equal(again.budgets[name].row_limit, budget.row_limit)
        assert again.budgets[name].bias_limits == budget.bias_limits


@pytest.mark.parametrize("text", CASES)
def test_a_budget_holds_half_an_ulp_and_few_ulps(text):
    _, _, golden = derived(text)
    for name, budget in golden.budgets.items():
        spacing = ulp(golden.exact[name], golden.dtypes[name])
        assert (budget.allowed >= spacing / 2).all()
        assert (budget.allowed / spacing).median() < 16
        assert (budget.spread > 0).all()


def test_deriving_a_budget_imports_no_implementation():
    program = """
import json, sys
from verification.budget import derive
from verification.operator import find_operator, parse_case
for text in json.loads(sys.argv[1]):
    case = parse_case(text)
    operator = find_operator(case.operator)
    derive(operator, operator.make(case))
print(json.dumps(sorted(sys.modules)))
"""
    words = [sys.executable, "-c", program, json.dumps(BF16_CASES[::2])]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    loaded = json.loads(done.stdout)
    ours = {name for name in loaded if name.startswith(("verification.eager", "fused"))}
    assert ours <= {"fused", "fused.boundary"}


def test_variants_have_goldens_and_budgets_of_their_own():
    text = "attention_residual/hidden=1024,blocks=3/bf16/normal/3"
    _, _, official = derived(text)
    _, _, other = derived(text, "mix_unrounded")
    assert torch.equal(official.exact["hidden"], other.exact["hidden"])
    assert other.budgets["hidden"].allowed.mean() < official.budgets["hidden"].allowed.mean()
    assert other.variant.name == "mix_unrounded"


@pytest.mark.parametrize(("text", "output", "dtype"), [
    ("rms_norm/rows=1,hidden=8/bf16/normal/0", "y", torch.bfloat16),
    ("rms_norm/rows=1,hidden=8/fp16/normal/0", "y", torch.float16),
    ("route/rows=1,experts=4,top_k=2/bf16/normal/0", "expert_weights", torch.float32),
    ("moe_sorting/rows=2,experts=4,top_k=2,buffer=3/fp32/distinct/0", "output_buffer", torch.bfloat16),
])  # fmt: skip
def test_an_output_has_the_dtype_that_the_contract_gives_it(text, output, dtype):
    case = parse_case(text)
    operator = find_operator(case.operator)
    assert output_dtypes(operator, operator.make(case))[output] == dtype


def test_an_empty_case_has_empty_budgets_and_passes():
    operator, arguments, golden = derived("rms_norm/rows=0/bf16/normal/0")
    assert golden.budgets["y"].allowed.shape == (0, 7168)
    assert compare(operator, arguments, observed(operator, operator.evaluate(arguments)), golden, "cpu").held


def test_errors_of_one_scale_have_budgets_of_one_scale():
    """Sixteen runs that by chance left one element of a row nearly alone say nothing about that element."""
    exact = torch.tensor([[1.0, 1.5, 2.0**-10, 3.0]], dtype=torch.float64)
    signs = torch.where(torch.arange(RUNS) % 2 == 0, 1.0, -1.0).to(torch.float64)
    differences = signs[:, None, None] * torch.tensor([2e-3, 2e-3, 1e-5, 3e-3], dtype=torch.float64)
    _, own = _error(exact, differences, torch.bfloat16, 6.0)
    _, common = _error(exact, differences, torch.bfloat16, 6.0, common_scale=True)
    rms = differences[0].square().mean().sqrt().item()
    assert own[0, 2] < 1e-4
    assert common[0].tolist() == pytest.approx([rms, rms, rms, 3e-3])
