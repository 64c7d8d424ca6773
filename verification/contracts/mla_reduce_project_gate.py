from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from reference.attention_states import mla_reduce_project_gate
from reference.numerics import OFFICIAL, Variant
from verification.inputs import TORCH_DTYPES, Inputs
from verification.laws import batch_invariance, differences, parameter_sensitivity, row_isolation
from verification.operator import Arguments, Case, CaseGroup, Law, LawContext, Operator, Output, make_case, pick
from verification.shards import along, shards

DEFAULTS: dict[str, Any] = {
    "rows": 4, "heads": 12, "latent": 512, "value": 128, "splits": 4, "live": "some", "partial": "fp32", "gate": True,
    "layout": "contiguous",
}  # fmt: skip
"""`live` names the splits that hold keys, `partial` the dtype of their latents."""


def case(distribution: str = "normal", seed: int = 0, **parameters: Any) -> Case:
    """A case of mla_reduce_project_gate."""
    return make_case("mla_reduce_project_gate", DEFAULTS, "bf16", distribution, seed, **parameters)


def small(distribution: str = "normal", **parameters: Any) -> Case:
    """The same with few narrow heads."""
    return case(distribution, **({"heads": 3, "latent": 40, "value": 20} | parameters))


def make(case: Case) -> Arguments:
    """Splits of unequal mass, NaN in those without keys; gates that the distribution names."""
    p = DEFAULTS | dict(case.parameters)
    inputs = Inputs(case.id)
    shape = (p["rows"], p["splits"], p["heads"])
    lses = inputs.uniform("lses", shape, -2.0, 8.0)
    gate = inputs.normal("gate", (p["rows"], p["heads"] * p["value"]), 2.0)
    lses, gate = pick(case.distribution, DISTRIBUTIONS, "distribution")(lses, gate)
    lses[~pick(p["live"], LIVE, "live")(p["rows"], p["splits"])] = -torch.inf
    latents = inputs.normal("latents", (*shape, p["latent"]))
    latents[lses == -torch.inf] = torch.nan
    latents = latents.to(TORCH_DTYPES[p["partial"]])
    weight = inputs.normal("weight", (p["heads"], p["value"], p["latent"]), p["latent"] ** -0.5)
    return {
        "split_latents": splits_first(latents) if p["layout"] == "splits_first" else latents,
        "split_lses": lses.to(torch.float32),
        "value_weight": weight.to(torch.bfloat16),
        "gate_logits": gate.to(torch.bfloat16) if p["gate"] else None,
    }


def splits_first(latents: Tensor) -> Tensor:
    """The same [T, S, N, L] values stored as [S, T, N, L]."""
    return latents.transpose(0, 1).contiguous().transpose(0, 1)


def leading(rows: int, splits: int) -> Tensor:
    """Row t has its first (t + 1) mod (S + 1) splits, as short and long sequences do."""
    return torch.arange(splits) < ((torch.arange(rows) + 1) % (splits + 1))[:, None]


LIVE: dict[str, Callable[[int, int], Tensor]] = {
    "all": lambda rows, splits: torch.ones(rows, splits, dtype=torch.bool),
    "some": leading,
    "last": lambda rows, splits: (torch.arange(splits) == splits - 1).expand(rows, -1),
    "none": lambda rows, splits: torch.zeros(rows, splits, dtype=torch.bool),
}


def nonfinite(lses: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    """NaN in one gate of row 0."""
    gate[:1, :1] = torch.nan
    return lses, gate


DISTRIBUTIONS: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "normal": lambda lses, gate: (lses, gate),
    "equal": lambda lses, gate: (lses * 0, gate),
    "far": lambda lses, gate: (lses * 60, gate),
    "closed": lambda lses, gate: (lses, gate * 0 - 120.0),
    "open": lambda lses, gate: (lses, gate * 0 + 120.0),
    "wide_gate": lambda lses, gate: (lses, gate * 20),
    "infinite_gate": lambda lses, gate: (lses, torch.where(gate < 0, -torch.inf, torch.inf)),
    "nonfinite": nonfinite,
}


def half_gate(context: LawContext) -> Iterator[str]:
    """Logits of zero against no gate at all."""
    arguments = context.arguments()
    width = arguments["value_weight"].shape[0] * arguments["value_weight"].shape[1]
    zeros = torch.zeros(len(arguments["split_lses"]), width, dtype=torch.bfloat16)
    ungated = context.call(arguments | {"gate_logits": None})
    gated = context.call(context.arguments() | {"gate_logits": zeros})
    yield from differences({n: v / 2 for n, v in ungated.items()}, gated, "when the gate is half open")


def empty_splits(context: LawContext) -> Iterator[str]:
    """Three more splits that hold no key: NaN in their latents."""
    arguments = context.arguments()
    latents, lses = arguments["split_latents"], arguments["split_lses"]
    nothing = torch.full_like(latents[:, :1], torch.nan).expand(-1, 3, -1, -1)
    more = {
        "split_latents": torch.cat([nothing[:, :1], latents, nothing[:, 1:]], 1),
        "split_lses": torch.nn.functional.pad(lses, (0, 0, 1, 2), value=-torch.inf),
    }
    yield from context.judge(arguments | more)


def split_permutation(context: LawContext) -> Iterator[str]:
    """The splits in reverse."""
    arguments = context.arguments()
    yield from context.judge(arguments | {n: arguments[n].flip(1) for n in ("split_latents", "split_lses")})


HEADS = along({"split_latents": 2, "split_lses": 2, "value_weight": 0, "gate_logits": 1})


def heads_apart(arguments: Arguments, count: int) -> list[Arguments]:
    """Shards of the heads, each with its part of the gate: what tensor-parallel ranks hold."""
    gate = arguments["gate_logits"]
    by_head = None if gate is None else gate.unflatten(1, (len(arguments["value_weight"]), -1))
    parts = HEADS(arguments | {"gate_logits": by_head}, count)
    return [part | ({} if gate is None else {"gate_logits": part["gate_logits"].flatten(1)}) for part in parts]


ROW_ARGUMENTS = ("split_latents", "split_lses", "gate_logits")

GROUPS = (
    CaseGroup("production sizes", "smoke", (case(rows=0), case(rows=1, live="all"), case(rows=5))),
    CaseGroup(
        "production sizes",
        "full",
        tuple(case(rows=r) for r in (2, 8, 16, 17))
        + (
            case(rows=2, heads=96, splits=8),
            case(rows=2, heads=32, gate=False),
            case(rows=4, heads=4, gate=False),
            case(rows=4, splits=32),
        ),
    ),
    CaseGroup(
        "splits",
        "smoke",
        tuple(small(rows=s + 1, splits=s) for s in (1, 2, 3, 8))
        + (small(rows=5, splits=32, live="all"), small(splits=32, live="last"), small(live="none")),
    ),
    CaseGroup(
        "options",
        "smoke",
        tuple(small(rows=5, gate=g, partial=t) for g in (True, False) for t in ("fp32", "bf16"))
        + (small(rows=5, layout="splits_first"),),
    ),
    CaseGroup(
        "odd sizes",
        "smoke",
        (
            small(rows=3, heads=1, latent=1, value=1),
            small(rows=5, heads=5, latent=129, value=33),
            small(rows=17, heads=2),
            small(rows=65, heads=1),
        ),
    ),
    CaseGroup("magnitudes", "smoke", tuple(small(d, rows=5) for d in DISTRIBUTIONS if d != "normal")),
    CaseGroup("row counts", "full", tuple(small(rows=r) for r in (64, 257))),
    CaseGroup("seeds", "nightly", tuple(small(seed=s, rows=s, splits=1 + s % 9) for s in range(1, 33))),
)

OPERATOR = Operator(
    name="mla_reduce_project_gate",
    reference=mla_reduce_project_gate,
    outputs=(Output("attention", "number", "bf16"),),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(small(rows=9), case(rows=16, heads=2)),
    weights=("value_weight",),
    variants=(
        OFFICIAL,
        Variant(
            "gate_bf16", "the sigmoid rounded to bf16 before the product (official class)", adds=frozenset({"gate"})
        ),
    ),
    laws=(
        batch_invariance(ROW_ARGUMENTS),
        row_isolation(ROW_ARGUMENTS),
        parameter_sensitivity(
            {
                "split_latents": lambda a: a["split_latents"].roll(1, -1),
                "split_lses": lambda a: a["split_lses"].roll(1, 1),
                "value_weight": lambda a: a["value_weight"].roll(1, 0),
                "gate_logits": lambda a: a["gate_logits"].roll(1, 0),
            }
        ),
        shards(
            "head_shards", "Shards of the heads side by side are the whole.", heads_apart, {"attention": 1}, counts=(2,)
        ),
        Law("half_gate", "A gate of zeros halves the ungated result, bit for bit.", half_gate),
        Law("empty_splits", "Splits without keys change no value.", empty_splits),
        Law("split_permutation", "The order of the splits changes no value.", split_permutation),
    ),
    special_values=(
        "A split whose lse is −Inf is ignored, even if its latent is NaN; a row whose splits are all empty gives "
        "zeros. A gate of −Inf gives 0, of +Inf leaves the projection, of NaN gives NaN there and nowhere else."
    ),
)
