"""The recurrent delta rule against its chunked (WY) form, and against another project's."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from reference.delta_rule import DeltaRows, delta_rows, log_decay, recurrence
from reference.numerics import EXACT, Numerics
from reference.sequences import Sequence
from verification.budget import derive
from verification.comparison import compare_numbers
from verification.inputs import Inputs
from verification.operator import Operator, Output, find_operator

AGREEMENT = 1e-12
"""Difference of two float64 formulations, relative to the largest magnitude of a row."""

HEADS = 2


class Problem(NamedTuple):
    """Query, key, log-decay [T, N, K], value [T, N, V], beta [T, N], state [N, V, K]; float64, keys of unit length."""

    query: Tensor
    key: Tensor
    value: Tensor
    log_decay: Tensor
    beta: Tensor
    state: Tensor

    def rows(self) -> DeltaRows:
        return DeltaRows(self.query, self.key, self.value, self.log_decay.exp(), self.beta)


def problem(kind: str, length: int, depth: int, width: int) -> Problem:
    inputs = Inputs(f"{kind} {length} {depth} {width}")
    shape = (length, HEADS, depth)
    key = inputs.normal("key", shape)
    decay = -5 * inputs.uniform("decay", shape) ** 16
    beta = inputs.uniform("beta", (length, HEADS))
    if kind == "strongest":
        decay = torch.full(shape, -5.0, dtype=torch.float64)
    elif kind == "none":
        decay = torch.zeros(shape, dtype=torch.float64)
    elif kind == "strong then none":
        decay = torch.where(torch.arange(length)[:, None, None] % 64 < 60, -5.0, 0.0).double().expand(shape)
    elif kind == "parallel":
        key = 1 + key / 1000
        beta, decay = 1 - beta / 1000, decay / 1000
    key = key / key.norm(dim=-1, keepdim=True)
    return Problem(
        inputs.normal("query", shape, depth**-0.5), key, inputs.normal("value", (length, HEADS, width)), decay, beta,
        inputs.normal("state", (HEADS, width, depth)),
    )  # fmt: skip


def chunked(given: Problem, size: int) -> tuple[Tensor, Tensor]:
    """The WY form, chunk by chunk: o [T, N, V] and the state [N, V, K].

    With G the accumulated log-decay inside a chunk and A = β·tril(⟨kᵢ e^{Gᵢ−Gⱼ}, kⱼ⟩, −1):
    w = (I + A)⁻¹ (β k e^G), u = (I + A)⁻¹ (β v), δ = u − w Sᵀ, o = (q e^G) Sᵀ + tril(⟨qᵢ e^{Gᵢ−Gⱼ}, kⱼ⟩) δ.
    """
    state, outputs = given.state.transpose(-1, -2), []
    for begin in range(0, len(given.query), size):
        q, k, v, g, beta = (x[begin : begin + size].transpose(0, 1) for x in given[:5])
        grown = g.cumsum(-2)
        earlier = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool).tril()
        between = (grown[:, :, None] - grown[:, None]).masked_fill(~earlier[..., None], -torch.inf).exp()
        inner = beta[..., None] * torch.einsum("nik,nijk,njk->nij", k, between, k).tril(-1)
        inverse = torch.linalg.inv(torch.eye(q.shape[1], dtype=torch.float64) + inner)
        w = inverse @ (beta[..., None] * k * grown.exp())
        u = inverse @ (beta[..., None] * v)
        delta = u - w @ state
        scores = torch.einsum("nik,nijk,njk->nij", q, between, k)
        outputs.append(((q * grown.exp()) @ state + scores @ delta).transpose(0, 1))
        last = grown[:, -1:]
        state = last.transpose(-1, -2).exp() * state + (k * (last - grown).exp()).transpose(-1, -2) @ delta
    return torch.cat(outputs), state.transpose(-1, -2)


def recurrent(given: Problem, numerics: Numerics = EXACT) -> tuple[Tensor, Tensor]:
    sequence = Sequence(0, 0, len(given.query), 0, 0)
    o, states = recurrence(given.rows(), given.state[None], [sequence], numerics)
    return o, states[0]


def assert_agree(got: Tensor, wanted: Tensor) -> None:
    assert ((got - wanted).abs() <= AGREEMENT * wanted.abs().amax(-1, keepdim=True)).all()


KINDS = ("usual", "strongest", "none", "strong then none", "parallel")
LENGTHS = (1, 15, 16, 17, 63, 64, 65, 130)


@pytest.mark.parametrize("size", [1, 16, 64])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_the_chunked_form(kind: str, length: int, size: int) -> None:
    given = problem(kind, length, 12, 20)
    for got, wanted in zip(recurrent(given), chunked(given, size), strict=True):
        assert_agree(got, wanted)


@pytest.mark.parametrize(("depth", "width"), [(1, 3), (16, 16), (33, 17), (128, 128)])
def test_agrees_with_the_chunked_form_at_other_widths(depth: int, width: int) -> None:
    given = problem("usual", 70, depth, width)
    for got, wanted in zip(recurrent(given), chunked(given, 64), strict=True):
        assert_agree(got, wanted)


@pytest.mark.parametrize("field", Problem._fields)
def test_every_term_of_the_chunked_form_is_exercised(field: str) -> None:
    """Without this a formulation could drop a term that the inputs leave at zero."""
    given = problem("usual", 70, 12, 20)
    changed = given._replace(**{field: getattr(given, field).roll(1, -1)})
    (o, _), (other, _) = recurrent(given), chunked(changed, 64)
    assert ((o - other).abs() > o.abs().amax(-1, keepdim=True) / 100).any()


def test_a_full_step_reads_back_what_it_wrote() -> None:
    """β = 1: S·k is v whatever the state was, and a second step of the same row changes nothing."""
    given = problem("none", 1, 8, 5)._replace(beta=torch.ones(1, HEADS, dtype=torch.float64))
    _, state = recurrent(given)
    assert_agree((state @ given.key[0][..., None])[..., 0], given.value[0])
    assert_agree(recurrent(given._replace(state=state))[1], state)


def test_without_beta_the_state_only_decays() -> None:
    given = problem("usual", 9, 8, 5)._replace(beta=torch.zeros(9, HEADS, dtype=torch.float64))
    _, state = recurrent(given)
    assert_agree(state, given.state * given.log_decay.sum(0).exp()[:, None])


def test_queries_and_keys_are_normalised_by_an_eps_inside_the_root() -> None:
    """Not by a floor under the norm: a row of length 10⁻³ would differ by 1 − 1/√2."""
    rows = torch.tensor([[3e-3 / 5, 4e-3 / 5, 0.0, 0.0, 1.0]], dtype=torch.float64)
    decay = torch.zeros(1, 1, 2, dtype=torch.float64)
    got = delta_rows(rows, decay, torch.zeros(1, 1), 2.0, 1, EXACT)
    assert_agree(got.query, 2 * rows[:, None, :2] / 2e-6**0.5)
    assert_agree(got.key, torch.zeros(1, 1, 2, dtype=torch.float64))
    assert got.beta.tolist() == [[0.5]]


@pytest.mark.parametrize("x", [-80.0, -20.0, -1.0, 0.0, 1.0, 19.0, 21.0, 200.0])
def test_the_gate_without_a_bound_is_a_softplus(x: float) -> None:
    raw = torch.full((1, 1, 1), x, dtype=torch.float64)
    got = log_decay(raw, torch.full((1,), 0.5), torch.zeros(1, 1), None, EXACT)
    wanted = -torch.tensor(0.5, dtype=torch.float64).exp() * torch.logaddexp(raw, torch.zeros_like(raw))
    assert_agree(got, wanted)


def rule(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, state: Tensor, numerics: Numerics
) -> tuple[Tensor, Tensor]:
    log, loaded = numerics.load(decay), [numerics.load(x) for x in (query, key, value, beta, state)]
    given = Problem(*loaded[:3], log, *loaded[3:])
    rows = given.rows()._replace(decay=numerics.apply("decay", torch.exp, log))
    o, states = recurrence(rows, given.state[None], [Sequence(0, 0, len(query), 0, 0)], numerics)
    return numerics.output("o", o, torch.float32), numerics.output("state", states[0], torch.float32)


def test_agrees_with_the_naive_form_of_flash_linear_attention() -> None:
    naive = pytest.importorskip("fla.ops.kda.naive", reason="fla-core is not installed; it is in the extra `peers`")
    given = problem("usual", 40, 16, 24)
    names = ("query", "key", "value", "decay", "beta", "state")
    arguments = {name: x.float() for name, x in zip(names, given, strict=True)}
    outputs = (Output("o", "number", "fp32"), Output("state", "number", "fp32"))
    golden = derive(Operator("rule", rule, outputs, {}, make=dict, groups=(), law_cases=()), arguments)
    o, state = naive.naive_recurrent_kda(
        *(arguments[name][None] for name in names[:5]), scale=1.0,
        initial_state=arguments["state"][None].transpose(-1, -2), output_final_state=True,
    )  # fmt: skip
    for name, got in (("o", o[0]), ("state", state[0].transpose(-1, -2))):
        metrics, findings = compare_numbers(name, got, golden.exact[name], golden.budgets[name])
        assert metrics is not None
        assert not findings


@pytest.mark.parametrize("bound", [-5.0, None])
def test_the_gate_agrees_with_that_of_flash_linear_attention(bound: float | None) -> None:
    gates = pytest.importorskip("fla.ops.kda.gate", reason="fla-core is not installed; it is in the extra `peers`")
    operator = find_operator("kda_gate")
    arguments = operator.arguments(operator.case(rows=9, lower_bound=bound))
    golden = derive(operator, arguments)
    taken = (arguments["raw_gate"], arguments["A_log"], arguments["dt_bias"].flatten())
    got = gates.naive_kda_gate(*taken) if bound is None else gates.naive_kda_lowerbound_gate(*taken, bound)
    assert not compare_numbers("log_decay", got, golden.exact["log_decay"], golden.budgets["log_decay"])[1]
