"""KDA's eager implementations with one thing wrong, each as somebody's kernel once had it."""

from __future__ import annotations

from contextlib import ExitStack
from functools import wraps
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional

from verification import candidate
from verification.eager import causal_conv1d as convolution
from verification.eager import kda_decode as decode
from verification.eager import kda_prefill as prefill
from verification.eager import kda_rows as before
from verification.eager import kda_verify as verify

RIGHT = {
    "causal_conv1d": convolution.causal_conv1d,
    "kda_decode": decode.kda_decode,
    "kda_prefill": prefill.kda_prefill,
    "kda_verify": verify.kda_verify,
    "kda_commit": verify.kda_commit,
}


def wrong(operator: str, name: str, *patches: tuple[Any, str, Any], changes: Any = dict) -> None:
    """Declare the right implementation with some functions replaced, or some arguments."""
    right = RIGHT[operator]

    @wraps(right)
    def call(**arguments: Any) -> Any:
        with ExitStack() as stack:
            for module, attribute, replacement in patches:
                stack.enter_context(patch.object(module, attribute, replacement))
            return right(**arguments | changes(arguments))

    call.__module__ = __name__
    globals()[f"{operator}_{name}"] = candidate(operator, name=name)(call)


def transposed(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, state: Tensor) -> Any:
    o, updated = RIGHT_STEP(query, key, value, decay, beta, state.transpose(-1, -2))
    return o, updated.transpose(-1, -2)


def read_before_update(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, state: Tensor) -> Any:
    _, updated = RIGHT_STEP(query, key, value, decay, beta, state)
    return ((state * decay[:, :, None]) @ query[..., None])[..., 0], updated


def decay_after(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, state: Tensor) -> Any:
    o, updated = RIGHT_STEP(query, key, value, torch.ones_like(decay), beta, state)
    return o, updated * decay[:, :, None]


RIGHT_STEP = decode.delta_step


def rounded_beta(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"beta_logits": torch.logit(torch.sigmoid(arguments["beta_logits"].float()).bfloat16().float())}


def clamped_softplus(gate: Tensor, A_log: Tensor, dt_bias: Tensor, lower_bound: float | None) -> Tensor:
    return (-torch.exp(A_log)[:, None] * functional.softplus(gate + dt_bias)).clamp(min=lower_bound)


def floored(x: Tensor) -> Tensor:
    return functional.normalize(x, dim=-1, eps=1e-6)


def oldest_last(x: Tensor, weight: Tensor, history: Tensor, packed: Any) -> Tensor:
    return RIGHT_CONVOLVED(x, weight.flip(1), history, packed)


RIGHT_CONVOLVED = convolution.convolved


def unwritten(o: Tensor, live: Tensor, *rest: Any) -> Tensor:
    right = RIGHT_FINISHED(o, live, *rest)
    out = torch.empty_like(right)
    out[live] = right[live]
    return out


RIGHT_FINISHED = before.finished


def last_slot_for_padding(arguments: dict[str, Any]) -> dict[str, Any]:
    slots = len(arguments["state"])
    return {name: arguments[name] % slots for name in ("read_slots", "write_slots")}


def accumulated(left: Tensor, key: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    """Decays as differences of logarithms accumulated over the chunk."""
    grown = decay.log().cumsum(-2)
    between = (grown[..., :, None, :] - grown[..., None, :, :]).clamp(max=0).exp()
    return torch.einsum("sbnik,bnijk,bnjk->sbnij", left, between, key), key * (grown[..., -1:, :] - grown).exp()


def serial_scores(left: Tensor, key: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    """Sums over the channels that add one channel after another."""
    between = prefill.pairs(decay)
    terms = left[..., None, :] * (between * key[..., None, :, :])
    total = torch.zeros_like(terms[..., 0])
    for term in terms.unbind(-1):
        total = total + term
    return total, key * between[..., -1, :, :]


def coarse_system(system: Tensor, right: Tensor, **options: Any) -> Tensor:
    return RIGHT_SOLVE(system.bfloat16().float(), right, **options)


RIGHT_SOLVE = torch.linalg.solve_triangular


def from_zero(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, state: Tensor) -> Any:
    return RIGHT_CHUNK(query, key, value, decay, beta, torch.zeros_like(state))


RIGHT_CHUNK = prefill.chunk


def looks_ahead(left: Tensor, key: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    scores, carried = RIGHT_SCORES(left, key, decay)
    return scores + functional.pad(key[..., 1:, :1], (0, 0, 0, 1)), carried


RIGHT_SCORES = prefill.weighted_scores


def writes_the_null_slot(arguments: dict[str, Any]) -> dict[str, Any]:
    read = arguments["read_slots"]
    return {"padding_slot": -1, "read_slots": torch.where(read == arguments["padding_slot"], -1, read)}


def all_rows(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"commit_rows": torch.full_like(arguments["commit_rows"], 1000)}


def one_row_more(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"commit_rows": arguments["commit_rows"] + 1}


def nothing_for_none(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"write_slots": torch.where(arguments["commit_rows"] > 0, arguments["write_slots"], -1)}


def writes_its_pool(arguments: dict[str, Any]) -> dict[str, Any]:
    arguments["state"][arguments["read_slots"].long()] *= 2
    return {}


def clears_first(arguments: dict[str, Any]) -> dict[str, Any]:
    pool = arguments["conv_state"]
    slots = arguments["write_slots"].long()
    pool[slots[(slots >= 0) & (slots < len(pool))]] = 0
    return {}


def shared_mean(o: Tensor, live: Tensor, *rest: Any) -> Tensor:
    return RIGHT_FINISHED(o + o.mean(0), live, *rest)


def slot_as_scale(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"scale": arguments["scale"] * (1 + int(arguments["read_slots"][0]))}


for _operator in ("kda_decode", "kda_prefill", "kda_verify"):
    wrong(_operator, "rounded_beta", changes=rounded_beta)
    wrong(_operator, "clamped_softplus", (before, "log_decay", clamped_softplus))
    wrong(_operator, "floored_norm", (before, "normalized", floored))
    wrong(_operator, "oldest_last", (before, "convolved", oldest_last))
for _operator, _module in (("kda_decode", decode), ("kda_verify", verify)):
    wrong(_operator, "transposed_state", (_module, "delta_step", transposed))
    wrong(_operator, "read_before_update", (_module, "delta_step", read_before_update))
    wrong(_operator, "decay_after", (_module, "delta_step", decay_after))
    wrong(_operator, "unwritten_padding", (_module, "finished", unwritten))
wrong("kda_decode", "shared_mean", (decode, "finished", shared_mean))
wrong("kda_decode", "slot_as_scale", changes=slot_as_scale)
for _operator in ("causal_conv1d", "kda_decode", "kda_prefill"):
    wrong(_operator, "writes_the_null_slot", changes=writes_the_null_slot)
wrong("kda_decode", "clears_first", changes=clears_first)
wrong("kda_decode", "reads_what_it_writes", changes=lambda a: {"read_slots": a["write_slots"]})
wrong("kda_decode", "last_slot_for_padding", changes=last_slot_for_padding)
wrong("kda_prefill", "chunks_of_32", (prefill, "CHUNK", 32))
wrong("kda_prefill", "accumulated_logarithms", (prefill, "CHUNK", 64), (prefill, "weighted_scores", accumulated))
wrong("kda_prefill", "serial_scores", (prefill, "weighted_scores", serial_scores))
wrong("kda_prefill", "coarse_system", (torch.linalg, "solve_triangular", coarse_system))
wrong("kda_prefill", "chunks_from_zero", (prefill, "chunk", from_zero))
wrong("kda_prefill", "looks_ahead", (prefill, "weighted_scores", looks_ahead))
wrong("kda_prefill", "always_continues", changes=lambda a: {"has_initial_state": None})
wrong("kda_verify", "writes_its_pool", changes=writes_its_pool)
wrong("kda_commit", "all_rows", changes=all_rows)
wrong("kda_commit", "one_row_more", changes=one_row_more)
wrong("kda_commit", "nothing_for_none", changes=nothing_for_none)
wrong("causal_conv1d", "oldest_last", (convolution, "convolved", oldest_last))
wrong("causal_conv1d", "always_continues", changes=lambda a: {"has_initial_state": None})
wrong("causal_conv1d", "writes_what_it_reads", changes=lambda a: {"write_slots": a["read_slots"]})

# What a commit needs of the same file: the verification that makes its payload.
for _name in ("all_rows", "one_row_more", "nothing_for_none"):
    wrong("kda_verify", _name)
