"""The fused operators against one another and against a plain composition of their parts."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from reference.convolution import causal_conv1d
from reference.kda import kda_commit, kda_decode, kda_gate, kda_prefill, kda_verify
from reference.numerics import EXACT, ROUNDED, rounded
from verification.budget import derive
from verification.comparison import compare_numbers
from verification.contracts.kda_inputs import ROW_ARGUMENTS, VARIANTS
from verification.contracts.sequence_laws import cut_out
from verification.execution import run_of
from verification.inputs import Inputs
from verification.operator import find_operator, implementations

AGREEMENT = 1e-12

HEADS, DEPTH, WIDTH, SLOTS = 2, 6, 9, 9
CHANNELS = HEADS * (2 * DEPTH + WIDTH)


def arguments(lengths: list[int], **changes: Any) -> dict[str, Any]:
    """Sequence b goes on from slot 2b + 1 and is left in slot 2b."""
    inputs, rows, count = Inputs(f"kda {lengths}"), sum(lengths), len(lengths)
    return {
        "qkv": inputs.normal("qkv", (rows, CHANNELS)).bfloat16(),
        "conv_weight": inputs.normal("conv_weight", (CHANNELS, 4), 0.5).bfloat16(),
        "conv_state": inputs.normal("conv_state", (SLOTS, CHANNELS, 3)).bfloat16(),
        "raw_gate": inputs.normal("raw_gate", (rows, HEADS, DEPTH)).bfloat16(),
        "A_log": inputs.normal("A_log", (HEADS,), 0.5).float(),
        "dt_bias": inputs.normal("dt_bias", (HEADS, DEPTH)).float(),
        "lower_bound": -5.0,
        "beta_logits": inputs.normal("beta", (rows, HEADS), 2.0).bfloat16(),
        "state": inputs.normal("state", (SLOTS, HEADS, WIDTH, DEPTH)).float(),
        "read_slots": torch.arange(count) * 2 + 1,
        "write_slots": torch.arange(count) * 2,
        "cu_seqlens": torch.tensor([0, *lengths]).cumsum(0),
        "scale": DEPTH**-0.5,
        "output_gate": inputs.normal("output_gate", (rows, HEADS, WIDTH)).bfloat16(),
        "norm_weight": inputs.normal("norm_weight", (WIDTH,)).bfloat16(),
        "eps": 1e-5,
    } | changes


def window_of(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name != "write_slots"}


def pieces(given: dict[str, Any], low: int, high: int) -> dict[str, Any]:
    """Rows low…high of a single sequence."""
    names = ("qkv", "raw_gate", "beta_logits", "output_gate")
    return given | {name: given[name][low:high] for name in names} | {"cu_seqlens": torch.tensor([0, high - low])}


def by_loops(given: dict[str, Any], b: int) -> tuple[list[Tensor], Tensor]:
    """One sequence, head by head and token by token, every formula spelt out: o's rows and the state [N, V, K]."""
    low, high = given["cu_seqlens"][b : b + 2].tolist()
    history = torch.cat([given["conv_state"][given["read_slots"][b]].t(), given["qkv"][low:high]]).double()
    state = given["state"][given["read_slots"][b]].double()
    rate, bound = given["A_log"].double().exp(), given["lower_bound"]
    outputs = []
    for t in range(low, high):
        mixed = functional.silu((history[t - low : t - low + 4] * given["conv_weight"].double().t()).sum(0))
        q, k, v = mixed.split([HEADS * DEPTH, HEADS * DEPTH, HEADS * WIDTH])
        out = torch.zeros(HEADS, WIDTH, dtype=torch.float64)
        for n in range(HEADS):
            query, key = (x[n * DEPTH : (n + 1) * DEPTH] for x in (q, k))
            query, key = (x / math.sqrt(float(x @ x) + 1e-6) for x in (query, key))
            gate = given["raw_gate"][t, n].double() + given["dt_bias"][n].double()
            decay = bound / (1 + (-rate[n] * gate).exp()) if bound else -rate[n] * (1 + gate.exp()).log()
            beta = 1 / (1 + math.exp(-float(given["beta_logits"][t, n])))
            # S (I·diag(decay)) (I − β k kᵀ) + β v kᵀ, as a product of matrices.
            step = torch.eye(DEPTH, dtype=torch.float64) - beta * torch.outer(key, key)
            new = state[n] @ torch.diag(decay.exp()) @ step
            state[n] = new + beta * torch.outer(v[n * WIDTH : (n + 1) * WIDTH], key)
            o = state[n] @ query * given["scale"]
            o = o / math.sqrt(float(o @ o) / WIDTH + given["eps"]) * given["norm_weight"].double()
            out[n] = o / (1 + (-given["output_gate"][t, n].double()).exp())
        outputs.append(out)
    return outputs, state


def assert_agree(got: Tensor, wanted: Tensor) -> None:
    assert ((got - wanted).abs() <= AGREEMENT * wanted.abs().amax(-1, keepdim=True)).all()


@pytest.mark.parametrize("bound", [-5.0, None])
def test_prefill_agrees_with_loops(bound: float | None) -> None:
    given = arguments([1, 5, 2], lower_bound=bound)
    got = kda_prefill(**given, numerics=EXACT)
    for b, write in enumerate(given["write_slots"].tolist()):
        outputs, state = by_loops(given, b)
        assert_agree(got.out[slice(*given["cu_seqlens"][b : b + 2].tolist())], torch.stack(outputs))
        assert_agree(got.state[write], state)


@pytest.mark.parametrize("bound", [-5.0, -0.5, None])
def test_the_gate_agrees_with_its_formula(bound: float | None) -> None:
    given = arguments([4])
    taken = [given[name] for name in ("raw_gate", "A_log", "dt_bias")]
    raw, rate, bias = taken[0].double(), taken[1].double().exp()[:, None], taken[2].double()
    wanted = -rate * (1 + (raw + bias).exp()).log() if bound is None else bound / (1 + (-rate * (raw + bias)).exp())
    assert_agree(kda_gate(*taken, lower_bound=bound, numerics=EXACT), wanted)
    assert kda_gate(*taken, lower_bound=bound).dtype == torch.float32


def test_its_convolution_and_its_pool_are_those_of_the_operator() -> None:
    given = arguments([3, 1, 2])
    names = ("conv_state", "read_slots", "write_slots", "cu_seqlens")
    alone = causal_conv1d(given["qkv"], given["conv_weight"], **{name: given[name] for name in names})
    assert torch.equal(kda_prefill(**given).conv_state, alone.conv_state)


def test_decode_after_prefill_is_prefill() -> None:
    given = arguments([7])
    whole = kda_prefill(**given, numerics=EXACT)
    for cut in (1, 3, 6):
        first = kda_prefill(**pieces(given, 0, cut), numerics=EXACT)
        pools = {"conv_state": first.conv_state, "state": first.state}
        outputs = [first.out]
        for t in range(cut, 7):
            step = pieces(given, t, t + 1) | pools | {"read_slots": given["write_slots"]}
            out, pools["conv_state"], pools["state"] = kda_decode(**step, numerics=EXACT)
            outputs.append(out)
        assert_agree(torch.cat(outputs), whole.out)
        assert_agree(pools["state"][0], whole.state[0])
        assert torch.equal(pools["conv_state"][0], whole.conv_state[0])


@pytest.mark.parametrize("accepted", [-3, 0, 1, 2, 3, 4, 5])
def test_a_commit_is_as_many_steps(accepted: int) -> None:
    given = arguments([4])
    window = kda_verify(**window_of(given), numerics=EXACT)
    assert torch.equal(window.out, kda_prefill(**given, numerics=EXACT).out)
    got = kda_commit(
        window.payload, torch.tensor([accepted]),
        *(given[name] for name in ("read_slots", "write_slots", "conv_state", "state")), numerics=EXACT,
    )  # fmt: skip
    rows = min(max(accepted, 0), 4)
    if rows:
        wanted = kda_prefill(**pieces(given, 0, rows), numerics=EXACT)
        assert torch.equal(got.state, wanted.state)
        assert torch.equal(got.conv_state, wanted.conv_state)
    else:
        assert torch.equal(got.state[0], given["state"][1].double())
        assert torch.equal(got.conv_state[0], given["conv_state"][1])


def eager(operator: str, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """What the eager implementation returns, and its arguments as they are afterwards."""
    mine = {name: value.clone() if isinstance(value, Tensor) else value for name, value in given.items()}
    return implementations()[operator, "eager"].call(**mine), mine


def test_eager_decode_after_eager_prefill_is_within_the_budget_of_prefill() -> None:
    given, operator = arguments([18]), find_operator("kda_prefill")
    golden = derive(operator, given)
    head, after = eager("kda_prefill", pieces(given, 0, 17))
    pools = {name: after[name] for name in ("conv_state", "state")} | {"read_slots": given["write_slots"]}
    tail, after = eager("kda_decode", pieces(given, 17, 18) | pools)
    for name, got in (("out", torch.cat([head, tail])), ("state", after["state"])):
        assert not compare_numbers(name, got, golden.exact[name], golden.budgets[name])[1]
    assert torch.equal(after["conv_state"], golden.exact["conv_state"])


@pytest.mark.parametrize("accepted", [0, 1, 3, 4])
def test_eager_verify_and_commit_have_the_bits_of_eager_decode(accepted: int) -> None:
    given = arguments([4])
    (out, payload), after = eager("kda_verify", window_of(given))
    assert torch.equal(after["state"], given["state"])
    pools = {name: given[name].clone() for name in ("read_slots", "write_slots", "conv_state", "state")}
    implementations()["kda_commit", "eager"].call(payload, torch.tensor([accepted]), **pools)
    stepped = {name: given[name] for name in ("read_slots", "conv_state", "state")}
    for t in range(accepted):
        row, after = eager("kda_decode", pieces(given, t, t + 1) | stepped)
        assert torch.equal(row[0], out[t])
        stepped = {name: after[name] for name in ("conv_state", "state")} | {"read_slots": given["write_slots"]}
    page = int(stepped["read_slots"])
    for name in ("conv_state", "state"):
        assert torch.equal(pools[name][0], stepped[name][page])


def test_a_row_of_the_reference_has_the_same_bits_alone_and_in_a_batch() -> None:
    operator = find_operator("kda_decode")
    given = operator.arguments(operator.case(lengths="1x16", heads=2, key=16, value=24, rank=16))
    whole = kda_decode(**given)
    for b in range(16):
        part, _ = cut_out(given, ROW_ARGUMENTS, [(b, b, b + 1)])
        alone = kda_decode(**part)
        page = int(given["write_slots"][b])
        assert torch.equal(alone.out[0], whole.out[b])
        assert torch.equal(alone.state[page], whole.state[page])


def test_the_low_rank_gate_is_the_gate_of_its_product() -> None:
    given = arguments([3])
    f_a, f_b = Inputs("f").normal("f_a", (3, 4)), Inputs("f").normal("f_b", (HEADS * DEPTH, 4))
    product = {"raw_gate": (f_a @ f_b.t()).view(3, HEADS, DEPTH)}
    factors = {"raw_gate": None, "f_a": f_a, "f_b_weight": f_b}
    got, wanted = (kda_prefill(**given | change, numerics=EXACT) for change in (factors, product))
    assert_agree(got.out, wanted.out)
    assert_agree(got.state[0], wanted.state[0])


def test_without_a_gate_there_is_a_plain_norm_and_without_both_the_read_itself() -> None:
    given = arguments([3])
    plain = kda_prefill(**given | {"output_gate": None, "norm_weight": None}, numerics=EXACT).out
    normed = kda_prefill(**given | {"output_gate": None}, numerics=EXACT).out
    gated = kda_prefill(**given, numerics=EXACT).out
    assert_agree(normed, plain / (plain.square().mean(-1, keepdim=True) + 1e-5).sqrt() * given["norm_weight"].double())
    assert_agree(gated, normed * torch.sigmoid(given["output_gate"].double()))


def test_each_variant_rounds_where_it_says() -> None:
    given = arguments([3], raw_gate=None, f_a=torch.ones(3, 2).bfloat16() / 3,
                      f_b_weight=Inputs("f_b").normal("f_b", (HEADS * DEPTH, 2)).bfloat16())  # fmt: skip
    points = {"conv_output": "conv_output", "output": "output", "raw_gate": "raw_gate"}
    for variant in VARIANTS:
        numerics = rounded(variant)
        with numerics.trace() as trace:
            kda_prefill(**given, numerics=numerics)
        stored = {point for point, name in points.items() if torch.equal(trace[name], trace[name].bfloat16().double())}
        assert stored == ({"raw_gate"} | variant.adds) - variant.drops


def test_a_page_of_nan_is_never_read_by_a_fresh_sequence() -> None:
    given = arguments([3, 2], has_initial_state=torch.tensor([False, True]))
    wanted = kda_prefill(**given)
    given["state"][1], given["conv_state"][1] = torch.nan, torch.nan
    got = kda_prefill(**given)
    assert torch.equal(got.out, wanted.out)
    assert torch.equal(got.state[0], wanted.state[0])


@pytest.mark.parametrize("read", [-1, SLOTS, 2**31 - 1, 3])
def test_padding_gives_zeros_and_touches_nothing(read: int) -> None:
    given = arguments([2, 2], read_slots=torch.tensor([read, 5]), write_slots=torch.tensor([7, 8]), padding_slot=3)
    given["qkv"][:2] = torch.nan
    got = kda_prefill(**given)
    assert got.out[:2].abs().sum() == 0
    assert not got.out.isnan().any()
    for pool, before in ((got.conv_state, given["conv_state"]), (got.state, given["state"])):
        assert torch.equal(pool[:8], before[:8])
        assert not torch.equal(pool[8], before[8])


def without_sequences(rows: int) -> dict[str, Any]:
    """Rows of NaN that belong to nobody."""
    given = arguments([rows])
    given["qkv"] = torch.full_like(given["qkv"], torch.nan)
    nobody = torch.tensor([], dtype=torch.int64)
    return given | {"cu_seqlens": torch.tensor([0]), "read_slots": nobody, "write_slots": nobody}


def with_empty_sequences(rows: int) -> dict[str, Any]:
    """One sequence with so many rows between two that have none, each with slots to read and to write."""
    return arguments([0, rows, 0])


def without_pages() -> dict[str, Any]:
    """Sequences of one row, and pools in which there is no slot that they could read."""
    given = arguments([1, 1])
    return given | {name: given[name][:0] for name in ("conv_state", "state")}


def results(operator: str, given: dict[str, Any], by: str) -> tuple[Tensor, dict[str, Tensor]]:
    """The output rows and the pools afterwards, of the reference or of eager."""
    pools = ("conv_state", "state")
    if operator == "kda_commit":
        window, names = window_of(given), ("read_slots", "write_slots", *pools)
        kept = torch.zeros(len(given["read_slots"]), dtype=torch.int64)
        if by == "reference":
            verified = kda_verify(**window)
            return verified.out, kda_commit(verified.payload, kept, *(given[name] for name in names))._asdict()
        (out, payload), _ = eager("kda_verify", window)
        mine = {name: given[name].clone() for name in names}
        implementations()["kda_commit", "eager"].call(payload, kept, **mine)
        return out, mine
    if by == "reference":
        got = {"kda_prefill": kda_prefill, "kda_decode": kda_decode}[operator](**given)
        return got.out, got._asdict()
    return eager(operator, given)


@pytest.mark.parametrize("by", ["reference", "eager"])
@pytest.mark.parametrize("operator", ["kda_decode", "kda_prefill", "kda_commit"])
@pytest.mark.parametrize(
    "given", [without_sequences(0), without_sequences(3), with_empty_sequences(0), without_pages()]
)
def test_where_no_sequence_has_a_row_or_a_page_there_are_zeros_and_nothing_is_touched(
    given: dict[str, Any], operator: str, by: str
) -> None:
    out, after = results(operator, given, by)
    assert torch.equal(out, torch.zeros(len(given["qkv"]), HEADS, WIDTH, dtype=torch.bfloat16))
    for name in ("conv_state", "state"):
        assert torch.equal(after[name], given[name])


@pytest.mark.parametrize("by", ["reference", "eager"])
@pytest.mark.parametrize("operator", ["kda_decode", "kda_prefill", "kda_commit"])
def test_a_sequence_without_rows_copies_no_page(operator: str, by: str) -> None:
    given = with_empty_sequences(1)
    out, after = results(operator, given, by)
    assert out.isfinite().all()
    assert out.any()
    for name in ("conv_state", "state"):
        changed = [slot for slot in range(SLOTS) if not torch.equal(after[name][slot], given[name][slot])]
        assert changed == [2]


def test_inputs_are_left_alone() -> None:
    given = arguments([2, 3])
    before = {name: value.clone() for name, value in given.items() if isinstance(value, Tensor)}
    kda_prefill(**given)
    kda_verify(**window_of(given))
    assert all(torch.equal(given[name], value) for name, value in before.items())


def test_the_exact_results_are_differentiable() -> None:
    given = arguments([3])
    names = ("qkv", "conv_weight", "conv_state", "raw_gate", "A_log", "dt_bias", "beta_logits", "state", "norm_weight")

    def results(*values: Tensor) -> tuple[Tensor, Tensor]:
        got = kda_prefill(**given | dict(zip(names, values, strict=True)), numerics=EXACT)
        return got.out, got.state

    inputs = tuple(given[name].double().requires_grad_() for name in names)
    assert torch.autograd.gradcheck(results, inputs, fast_mode=True)


def test_a_payload_is_committed_by_the_implementation_that_made_it() -> None:
    """The harness calls kda_verify first; the operator's reference is evaluated the same way."""
    operator = find_operator("kda_commit")
    case = operator.case(lengths="4-3", heads=2, key=16, value=24)
    golden = derive(operator, operator.arguments(case))
    mine = operator.arguments(case)
    assert run_of(operator, implementations()["kda_commit", "eager"]).direct(mine) == []
    assert torch.equal(mine["conv_state"].nan_to_num(), golden.exact["conv_state"].nan_to_num())
    assert not compare_numbers("state", mine["state"], golden.exact["state"], golden.budgets["state"])[1]
    verify = find_operator("kda_verify")
    assert set(verify.evaluate(verify.arguments(verify.case(lengths="2", heads=2)), numerics=ROUNDED)) == {"out"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"qkv": torch.ones(2, 3, 4)}, r"qkv is \[2, 3, 4\]; expected \[T, C\]"),
        ({"qkv": torch.ones(5, 41)}, r"qkv is \[5, 41\]; expected \[T, 2·N·K \+ N·V\] = \[any, 42\]"),
        ({"conv_weight": torch.ones(4, 42)}, r"conv_weight is tap-first \[4, 42\]; expected \[C, 4\]"),
        ({"state": torch.ones(9, 2, 6, 9)}, r"state is K-first \[9, 2, 6, 9\]; expected V-first \[slots, N, V, K\]"),
        ({"state": torch.ones(9, 3, 9, 6)}, r"state is \[9, 3, 9, 6\]; expected \[slots, N, V, K\]"),
        ({"state": torch.ones(9, 2, 9, 6).bfloat16()}, r"state is torch.bfloat16; expected float32: it persists"),
        ({"state": torch.ones(8, 2, 9, 6)}, "conv_state has 9 slots and state 8; expected as many in both"),
        ({"A_log": torch.ones(128)}, r"A_log is \[128\]; expected \[N\] = \[2\], one entry for each head"),
        ({"dt_bias": torch.ones(12)}, r"dt_bias is \[12\]; expected \[N, K\]"),
        ({"lower_bound": 5.0}, "lower_bound is 5.0; expected a negative number, or None for the softplus gate"),
        ({"raw_gate": None}, "no gate given; expected raw_gate alone, or f_a and f_b_weight"),
        ({"f_a": torch.ones(5, 4)}, "raw_gate and f_a given; expected raw_gate alone"),
        ({"raw_gate": torch.ones(5, 12)}, r"raw_gate is \[5, 12\]; expected \[T, N, K\] = \[5, 2, 6\]"),
        ({"raw_gate": None, "f_a": torch.ones(5, 4), "f_b_weight": torch.ones(4, 12)}, r"f_b_weight is \[4, 12\]"),
        ({"beta_logits": torch.ones(2, 5)}, r"beta_logits is \[2, 5\]; expected \[T, N\] = \[5, 2\]"),
        ({"norm_weight": None}, "output_gate is given without norm_weight; expected both, or norm_weight alone"),
        ({"output_gate": torch.ones(5, 18)}, r"output_gate is \[5, 18\]; expected \[T, N, V\] = \[5, 2, 9\]"),
        ({"norm_weight": torch.ones(6)}, r"norm_weight is \[6\]; expected \[V\] = \[9\]"),
        ({"write_slots": torch.tensor([3, 4])}, "slot 3 is written by sequence 0 and read by sequence 1"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"kda_prefill: {message}"):
        kda_prefill(**arguments([2, 3]) | change)


def test_decode_refuses_longer_sequences_and_commit_refuses_what_does_not_fit() -> None:
    given = arguments([2, 1])
    with pytest.raises(ValueError, match="kda_decode: a sequence has 2 rows; expected 0 or 1"):
        kda_decode(**given)
    payload = kda_verify(**window_of(given)).payload
    pools = [given[name] for name in ("read_slots", "write_slots", "conv_state", "state")]
    with pytest.raises(ValueError, match=r"kda_commit: commit_rows is \[1\]; expected \[B\] = \[2\]"):
        kda_commit(payload, torch.tensor([1]), *pools)
    with pytest.raises(ValueError, match=r"kda_commit: commit_rows is \[2\] torch.float32; expected one axis of int"):
        kda_commit(payload, torch.tensor([1.0, 1.0]), *pools)
