"""The KDA decode kernels of tokenspeed-kernel-amd, executed against the delta rule's equations."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from reference.numerics import EXACT, ROUNDED, Numerics, round_to_nearest
from verification.budget import derive
from verification.comparison import compare_numbers, same_bits
from verification.inputs import Inputs
from verification.operator import Operator, Output

production = pytest.importorskip(
    "tokenspeed_kernel_amd.ops.gfx950.attention.kda.decode", reason="tokenspeed-kernel-amd is not installed"
)

HEADS, WIDTH, TAPS = 12, 128, 4
LOWER_BOUND = -5.0
NORM_EPS, KEY_EPS = 1e-5, 1e-6
BF16 = torch.bfloat16


class Step(NamedTuple):
    """The output rows, and the recurrent state after the step."""

    y: Tensor
    state: Tensor


def log_decay(raw: Tensor, a_log: Tensor, bias: Tensor, bound: float | None, n: Numerics) -> Tensor:
    """bound · sigmoid(exp(A_log) · (raw + bias)), or −exp(A_log) · softplus(raw + bias) without a bound; [B, H, K]."""
    gate = n.computed("gate", raw + n.load(bias).view(raw.shape[1:]))
    rate = n.apply("rate", torch.exp, n.load(a_log))[:, None]
    if bound is None:
        return n.computed("log_decay", -rate * n.apply("softplus", torch.nn.functional.softplus, gate))
    return n.computed("log_decay", bound * n.apply("gate_sigmoid", torch.sigmoid, n.computed("scaled", rate * gate)))


def normalized(name: str, x: Tensor, scale: float, n: Numerics) -> Tensor:
    """x · rsqrt(Σx² + 1e-6) · scale."""
    square = n.sum(f"{name}_square", x.square(), -1, keepdim=True)
    inverse = n.apply(f"{name}_inverse", torch.rsqrt, n.computed(f"{name}_eps", square + KEY_EPS))
    return n.computed(f"{name}_normalized", x * n.computed(f"{name}_scale", inverse * scale))


def delta_rule(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, state: Tensor, n: Numerics) -> Step:
    """S ← S·diag(decay); S ← S + β(v − S·k)kᵀ; o = S·q, for S [B, H, V, K] and one token a row.

    o is taken as S·q before the update, plus β(v − S·k)·⟨k, q⟩: the fused form, which rounds more.
    """
    decayed = n.computed("decayed", state * decay[:, :, None])
    prediction = n.sum("prediction", decayed * k[:, :, None], -1)
    delta = n.computed("delta", beta[..., None] * n.computed("innovation", v - prediction))
    updated = n.computed("updated", decayed + n.computed("outer", delta[..., None] * k[:, :, None]))
    shared = n.computed("key_query", n.sum("key_query_sum", k * q, -1, keepdim=True))
    prior = n.sum("prior", decayed * q[:, :, None], -1)
    return Step(n.computed("o", prior + n.computed("correction", delta * shared)), updated)


def fused_step(
    window: Tensor,
    conv_weight: Tensor,
    low_rank_gate: Tensor,
    gate_weight: Tensor,
    beta_logits: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    output_gate: Tensor,
    norm_weight: Tensor,
    state: Tensor,
    lower_bound: float | None,
    gate_dtype: torch.dtype = BF16,
    numerics: Numerics = ROUNDED,
) -> Step:
    """Convolution over 4 taps and SiLU, decay gate, delta rule, gated RMSNorm: one decoded token a row.

    The raw gate is rounded in every reading: `fused_arguments` makes its sum exact, its rounding decided.

    Shapes: window [B, 3HD, 4] (oldest sample first), state [B, H, V, K].
    """
    n, rows = numerics, len(window)
    conv = n.sum("conv", n.load(window) * n.load(conv_weight), -1)
    silu = n.computed("silu", conv * n.apply("conv_sigmoid", torch.sigmoid, conv))
    q, k, v = silu.view(rows, 3, HEADS, WIDTH).unbind(1)
    raw = round_to_nearest(n.load(low_rank_gate) @ n.load(gate_weight).T, gate_dtype).view(rows, HEADS, WIDTH)
    decay = n.apply("decay", torch.exp, log_decay(raw, a_log, dt_bias, lower_bound, n))
    beta = n.apply("beta", torch.sigmoid, n.load(beta_logits))
    q, k = normalized("q", q, WIDTH**-0.5, n), normalized("k", k, 1.0, n)
    o, updated = delta_rule(q, k, v, decay, beta, n.load(state), n)
    square = n.sum("output_square", o.square(), -1, keepdim=True) / WIDTH
    inverse = n.apply("output_inverse", torch.rsqrt, n.computed("output_eps", square + NORM_EPS))
    gate = n.apply("output_sigmoid", torch.sigmoid, n.load(output_gate)).view_as(o)
    weighted = n.computed("weighted", n.computed("scale", inverse * n.load(norm_weight)) * gate)
    return Step(n.output("y", n.computed("gated", o * weighted), BF16), n.output("state", updated, torch.float32))


def recurrent_step(
    q: Tensor, k: Tensor, v: Tensor, raw_gate: Tensor, beta_logits: Tensor, a_log: Tensor, dt_bias: Tensor,
    state: Tensor, lower_bound: float | None, numerics: Numerics = ROUNDED,
) -> Step:  # fmt: skip
    """The split form: q, k, v and the raw gate come rounded, o leaves without a norm. Shapes: [B, H, D]."""
    n = numerics
    decay = n.apply("decay", torch.exp, log_decay(n.load(raw_gate), a_log, dt_bias, lower_bound, n))
    beta = n.apply("beta", torch.sigmoid, n.load(beta_logits))
    q, k = normalized("q", n.load(q), WIDTH**-0.5, n), normalized("k", n.load(k), 1.0, n)
    o, updated = delta_rule(q, k, n.load(v), decay, beta, n.load(state), n)
    return Step(n.output("y", o, BF16), n.output("state", updated, torch.float32))


def operator(reference):
    outputs = (Output("y", "number", "bf16"), Output("state", "number", "fp32"))
    return Operator(reference.__name__, reference, outputs, {}, make=dict, groups=(), law_cases=())


def gate_parameters(inputs, heads):
    """A_log and dt_bias in the checkpoint's range."""
    return {
        "a_log": inputs.normal("a_log", (heads,), 0.5).float(),
        "dt_bias": inputs.uniform("dt_bias", (heads * WIDTH,), -7.8, 1.0).float(),
    }


def fused_arguments(key, rows, lower_bound):
    inputs, projection = Inputs(key), HEADS * WIDTH
    return gate_parameters(inputs, HEADS) | {
        "window": inputs.normal("window", (rows, 3 * projection, TAPS)).to(BF16),
        "conv_weight": inputs.normal("conv_weight", (3 * projection, TAPS), 0.5).to(BF16),
        # Multiples of 2⁻² and of 2⁻⁴: 128 products add up in fp32 without a rounding, in any order.
        "low_rank_gate": (inputs.integers("low_rank_gate", (rows, WIDTH), -8, 9) / 4).to(BF16),
        "gate_weight": (inputs.integers("gate_weight", (projection, WIDTH), -8, 9) / 16).to(BF16),
        "beta_logits": inputs.normal("beta_logits", (rows, HEADS), 2.0).to(BF16),
        "output_gate": inputs.normal("output_gate", (rows, projection)).to(BF16),
        "norm_weight": (1 + inputs.normal("norm_weight", (WIDTH,), 0.1)).to(BF16),
        "state": inputs.normal("state", (rows, HEADS, WIDTH, WIDTH), 0.3).float(),
        "lower_bound": lower_bound,
    }


def run_fused(execute, arguments, pages):
    """Output rows [B, H, D] and both pools, after a step that reads page pages[i][0] and writes pages[i][1]."""
    rows, slots = len(arguments["window"]), 2 * len(arguments["window"]) + 1
    state_pool = torch.full((slots, HEADS, WIDTH, WIDTH), torch.nan)
    conv_pool = torch.full((slots, 3 * HEADS * WIDTH, TAPS - 1), torch.nan, dtype=BF16)
    for row, (read, _) in enumerate(pages):
        if 0 <= read < slots:
            state_pool[read], conv_pool[read] = arguments["state"][row], arguments["window"][row, :, :-1]
    before = state_pool.clone(), conv_pool.clone()
    read, write = torch.tensor(pages, dtype=torch.int32).T.contiguous()
    y = execute(
        production.gluon_kda_fused_decode_gfx950, arguments["window"][:, :, -1].contiguous(),
        arguments["conv_weight"], conv_pool, arguments["low_rank_gate"], arguments["gate_weight"],
        arguments["beta_logits"], arguments["a_log"], arguments["dt_bias"], arguments["output_gate"],
        arguments["norm_weight"], NORM_EPS, state_pool=state_pool, read_indices=read, write_indices=write,
        num_heads=HEADS, head_dim=WIDTH, cu_seqlens=torch.arange(rows + 1, dtype=torch.int32),
        lower_bound=arguments["lower_bound"],
    )  # fmt: skip
    return y[0], (state_pool, conv_pool), before


def findings(golden, name, got):
    return compare_numbers(name, got, golden.exact[name], golden.budgets[name])[1]


@pytest.mark.parametrize("lower_bound", [LOWER_BOUND, None], ids=["bounded", "softplus"])
def test_fused_step_is_within_its_budget(execute, lower_bound):
    arguments = fused_arguments("kda fused", 2, lower_bound)
    y, (state_pool, conv_pool), before = run_fused(execute, arguments, [(1, 3), (2, 2)])
    golden = derive(operator(fused_step), arguments)
    assert findings(golden, "y", y) == []
    assert findings(golden, "state", state_pool[[3, 2]]) == []
    assert same_bits(conv_pool[[3, 2]], arguments["window"][:, :, 1:]).all()
    for pool, old in zip((state_pool, conv_pool), before, strict=True):
        assert same_bits(pool[[0, 1, 4]], old[[0, 1, 4]]).all()


def test_padding_and_unknown_pages_give_zeros_or_keep_the_state(execute):
    arguments = fused_arguments("kda pages", 3, LOWER_BOUND)
    usual, _, _ = run_fused(execute, arguments, [(0, 1), (2, 3), (4, 5)])
    y, pools, before = run_fused(execute, arguments, [(-1, 1), (99, 3), (4, -1)])
    assert (y[:2] == 0).all()
    assert same_bits(y[2], usual[2]).all()
    assert all(same_bits(pool, old).all() for pool, old in zip(pools, before, strict=True))


def recurrent_arguments(key, rows, heads):
    inputs = Inputs(key)
    wide = {name: inputs.normal(name, (rows, heads, WIDTH)).to(BF16) for name in ("q", "k", "v", "raw_gate")}
    return wide | gate_parameters(inputs, heads) | {
        "beta_logits": inputs.normal("beta_logits", (rows, heads), 2.0).to(BF16),
        "state": inputs.normal("state", (rows, heads, WIDTH, WIDTH), 0.3).float(),
        "lower_bound": LOWER_BOUND,
    }  # fmt: skip


def test_recurrent_step_is_within_its_budget(execute):
    rows, heads = 2, 3
    arguments = recurrent_arguments("kda recurrent", rows, heads)
    pool = arguments["state"].clone()
    indices = torch.arange(rows, dtype=torch.int32)
    y = execute(
        production.gluon_kda_recurrent_decode_gfx950,
        *(arguments[name][None] for name in ("q", "k", "v", "raw_gate", "beta_logits")),
        arguments["a_log"], arguments["dt_bias"], state_pool=pool, read_indices=indices, write_indices=indices,
        cu_seqlens=torch.arange(rows + 1, dtype=torch.int32), lower_bound=LOWER_BOUND,
    )  # fmt: skip
    golden = derive(operator(recurrent_step), arguments)
    assert findings(golden, "y", y[0]) == []
    assert findings(golden, "state", pool) == []


def test_the_oracle_is_the_delta_rule_element_by_element():
    arguments = recurrent_arguments("kda oracle", 1, 1)
    step = recurrent_step(**arguments, numerics=EXACT)
    q, k, v, raw = (arguments[name][0, 0].double() for name in ("q", "k", "v", "raw_gate"))
    q, k = q / (q @ q + KEY_EPS).sqrt() / WIDTH**0.5, k / (k @ k + KEY_EPS).sqrt()
    rate = arguments["a_log"].double().exp() * (raw + arguments["dt_bias"].double())
    state = arguments["state"][0, 0].double().T * torch.exp(LOWER_BOUND / (1 + torch.exp(-rate)))[:, None]
    beta = 1 / (1 + torch.exp(-arguments["beta_logits"].double()))
    for value in range(WIDTH):
        state[:, value] += beta[0, 0] * (v[value] - k @ state[:, value]) * k
    torch.testing.assert_close(step.state[0, 0], state.T)
    torch.testing.assert_close(step.y[0, 0], q @ state)


FAULTS = {
    "state-transposed": lambda a: a | {"state": a["state"].mT.contiguous()},
    "taps-reversed": lambda a: a | {"conv_weight": a["conv_weight"].flip(-1)},
    "gate-bias-left-out": lambda a: a | {"dt_bias": torch.zeros_like(a["dt_bias"])},
    "softplus-for-the-bound": lambda a: a | {"lower_bound": None},
    "bound-of-4": lambda a: a | {"lower_bound": -4.0},
    "beta-of-the-next-head": lambda a: a | {"beta_logits": a["beta_logits"].roll(1, -1)},
    "gate-not-rounded": lambda a: a | {"gate_dtype": torch.float32},
    "norm-weight-left-out": lambda a: a | {"norm_weight": torch.ones_like(a["norm_weight"])},
    "decay-rate-of-one-head-off-by-2⁻¹⁶": lambda a: a | {"a_log": a["a_log"] + 2.0**-16 * (torch.arange(HEADS) == 3)},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_budgets_notice(fault):
    arguments = fused_arguments("kda faults", 1, LOWER_BOUND)
    golden = derive(operator(fused_step), arguments)
    right, wrong = (fused_step(**changed) for changed in (arguments, FAULTS[fault](arguments)))
    assert findings(golden, "y", right.y) + findings(golden, "state", right.state) == []
    assert findings(golden, "y", wrong.y) + findings(golden, "state", wrong.state) != []
