from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from reference.numerics import OFFICIAL, Variant
from reference.routing import route
from verification.budget import Golden
from verification.inputs import LAYOUTS, TORCH_DTYPES, Inputs, laid_out
from verification.laws import Change, batch_invariance, equivalence, parameter_sensitivity, row_isolation, storage_order
from verification.operator import Arguments, Case, CaseGroup, Finding, Operator, Output, Outputs, make_case, pick
from verification.topk import check_choice

DEFAULTS: dict[str, Any] = {
    "rows": 4, "experts": 896, "top_k": 16, "groups": 1, "kept": 1, "score": "sigmoid", "renormalize": True,
    "scaling": 1.0, "bias": "normal", "mapped": False, "layout": "contiguous",
}  # fmt: skip

ROWS = (0, 1, 2, 4, 7, 8, 16, 17, 33, 256)
KIMI_K2: dict[str, Any] = {"experts": 384, "top_k": 8, "scaling": 2.827}
DEEPSEEK_V3: dict[str, Any] = {"experts": 256, "top_k": 8, "groups": 8, "kept": 4, "scaling": 2.5}
SMALL: dict[str, Any] = {"experts": 24, "top_k": 4}


def case(distribution: str = "normal", dtype: str = "fp32", seed: int = 0, **parameters: Any) -> Case:
    """A case of route."""
    return make_case("route", DEFAULTS, dtype, distribution, seed, **parameters)


def make(case: Case) -> Arguments:
    """Logits of the named distribution, a bias of the named kind."""
    return routing_arguments(DEFAULTS | dict(case.parameters), case)


def routing_arguments(p: dict[str, Any], case: Case) -> Arguments:
    """The router's arguments for these parameters; shared with `route_sort`."""
    inputs = Inputs(case.id)
    rows, experts = p["rows"], p["experts"]
    logits = pick(case.distribution, DISTRIBUTIONS, "distribution")(
        inputs.normal("logits", (rows, experts)), p["groups"]
    )
    bias = pick(p["bias"], BIASES, "bias")(inputs.normal("bias", (experts,)))
    if case.distribution == "near_tie" and bias is not None:
        bias = bias * 1e-5
    mapping = inputs.permutations("mapping", 1, experts)[0].to(torch.int32) if p["mapped"] else None
    return {
        "logits": laid_out(logits.to(TORCH_DTYPES[case.dtype]), p["layout"]),
        "correction_bias": None if bias is None else bias.to(torch.float32),
        "top_k": p["top_k"],
        "num_groups": p["groups"],
        "top_groups": p["kept"],
        "score_function": p["score"],
        "renormalize": p["renormalize"],
        "scaling_factor": p["scaling"],
        "logical_to_physical": mapping,
    }


def infinite(x: Tensor, groups: int) -> Tensor:
    """Rows in turn: +Inf twice, −Inf nearly everywhere, both, all +Inf, all −Inf."""
    x = x.clone()
    x[0::5, 3::7][:, :2] = torch.inf
    x[1::5, 2:] = -torch.inf
    x[2::5, 1::2], x[2::5, 4:6] = -torch.inf, torch.inf
    x[3::5], x[4::5] = torch.inf, -torch.inf
    return x


def with_nan(x: Tensor, groups: int) -> Tensor:
    """Rows in turn: one NaN, every odd logit NaN, all NaN but one, all NaN, none."""
    x = x.clone()
    x[0::5, 2], x[1::5, 1::2], x[2::5, 1:], x[3::5] = torch.nan, torch.nan, torch.nan, torch.nan
    return x


def all_nan(x: Tensor, groups: int) -> Tensor:
    """Every other row all NaN."""
    x = x.clone()
    x[0::2] = torch.nan
    return x


def skewed(x: Tensor, groups: int) -> Tensor:
    """A ramp from −8 to 8, rolled by 37 a row."""
    ramp = torch.arange(x.shape[1], dtype=torch.float64) * 16 / max(x.shape[1] - 1, 1) - 8
    return torch.stack([ramp.roll(37 * row) for row in range(x.shape[0])]) if x.shape[0] else x


def pair_of_groups(x: Tensor, groups: int) -> Tensor:
    """In group 0 one high score, in the others two of middle height: the maximum and the sum of two disagree."""
    x = x.clamp(-1, 1) - 4
    grouped = x.unflatten(1, (groups, -1))
    grouped[:, 0, 0] = 3.0
    grouped[:, 1:, :2] = 0.4 + 0.01 * torch.arange(groups - 1, dtype=torch.float64)[None, :, None]
    return x


def short_group(x: Tensor, groups: int) -> Tensor:
    """The last group has four high scores and otherwise NaN; the others are low and whole."""
    x = x.clamp(-1, 1) - 4
    last = x.unflatten(1, (groups, -1))[:, -1]
    last[:, 4:] = torch.nan
    last[:, :4] += 8
    return x


DISTRIBUTIONS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "normal": lambda x, g: x,
    "equal": lambda x, g: torch.zeros_like(x),
    "few_values": lambda x, g: torch.round(x),
    "near_tie": lambda x, g: x * 1e-4,
    "saturated": lambda x, g: 30 + x.abs() * 4,
    "underflow": lambda x, g: x - 120,
    "subnormal": lambda x, g: x * 8 - 70,
    "infinite": infinite,
    "nan": with_nan,
    "all_nan": all_nan,
    "skewed": skewed,
    "dead_group": lambda x, g: torch.cat(
        [x.unflatten(1, (g, -1))[:, :1].fill_(torch.nan), x.unflatten(1, (g, -1))[:, 1:]], 1
    ).flatten(1),
    "pair_of_groups": pair_of_groups,
    "short_group": short_group,
    "hot": lambda x, g: x * 0.2 + 120,
    "wide": lambda x, g: x * 17,
}


def with_extremes(bias: Tensor) -> Tensor:
    """−Inf at every third expert, +Inf at the fourth."""
    bias = bias * 0.1
    bias[::3], bias[4:5] = -torch.inf, torch.inf
    return bias


def with_nan_bias(bias: Tensor) -> Tensor:
    """NaN at every other expert, −Inf at the second of the rest."""
    bias = bias * 0.1
    bias[::2], bias[3:4] = torch.nan, -torch.inf
    return bias


BIASES: dict[str, Callable[[Tensor], Tensor | None]] = {
    "none": lambda b: None,
    "normal": lambda b: b * 0.1,
    "zero": torch.zeros_like,
    "negative": lambda b: b.abs() * 0.4 - 2,
    "positive": lambda b: b.abs() * 0.5,
    "large": lambda b: b * 1000,
    "infinite": with_extremes,
    "nan": with_nan_bias,
    "close": lambda b: 1 + torch.round(b * 8) * 2.0**-14,
}


def structure(arguments: Arguments, outputs: Outputs, golden: Golden) -> Iterator[Finding]:
    """Ids by scores and margins, tie rule, groups; weights that sum to the scale."""
    ids = outputs["expert_ids"].long()
    experts = arguments["logits"].shape[1]
    if ((ids < 0) | (ids >= experts)).any():
        bad = ((ids < 0) | (ids >= experts)).nonzero()[0]
        yield Finding(
            "structure",
            f"expert_ids: row {int(bad[0])}, slot {int(bad[1])} is {int(ids[tuple(bad)])}; expected 0…{experts - 1}",
        )
        return
    yield from check_choice(logical(arguments, ids), arguments, golden)


def logical(arguments: Arguments, ids: Tensor) -> Tensor:
    """Physical ids back to logical ones."""
    mapping = arguments["logical_to_physical"]
    return ids.long() if mapping is None else torch.argsort(mapping)[ids.long()]


def condition(arguments: Arguments, outputs: Outputs) -> Arguments:
    """Weigh the experts that were chosen."""
    return {"chosen": logical(arguments, outputs["expert_ids"])}


def relabelled(arguments: Arguments) -> Arguments:
    """Experts in reverse order."""
    bias = arguments["correction_bias"]
    return arguments | {
        "logits": arguments["logits"].flip(1),
        "correction_bias": None if bias is None else bias.flip(0),
    }


def relabelled_outputs(arguments: Arguments, usual: Outputs) -> Outputs:
    """What reversing the experts must give where no two choices are equal."""
    experts = arguments["logits"].shape[1]
    return {"expert_ids": experts - 1 - usual["expert_ids"], "expert_weights": usual["expert_weights"]}


SPECIAL = (
    "equal",
    "few_values",
    "near_tie",
    "saturated",
    "underflow",
    "subnormal",
    "infinite",
    "nan",
    "all_nan",
    "skewed",
)
OPTIONS: tuple[dict[str, Any], ...] = tuple(
    {"renormalize": renormalize, "scaling": scaling, "score": score, "bias": bias}
    for renormalize in (True, False)
    for scaling in (1.0, 2.5)
    for score in ("sigmoid", "softmax")
    for bias in ("none", "normal")
)

GROUPS = (
    CaseGroup(
        "production sizes",
        "smoke",
        (case(rows=0), case(rows=1), case(rows=8), case(rows=17, bias="none"), case(**KIMI_K2), case(**DEEPSEEK_V3)),
    ),
    CaseGroup("production sizes", "full", tuple(case(rows=r, **m) for r in ROWS for m in ({}, KIMI_K2, DEEPSEEK_V3))),
    CaseGroup(
        "special scores",
        "smoke",
        tuple(case(d, rows=5, **SMALL) for d in SPECIAL)
        + (
            case("equal"),
            case("all_nan"),
            case("nan", score="softmax", rows=5, **SMALL),
            case("infinite", score="softmax", rows=5, **SMALL),
        ),
    ),
    CaseGroup(
        "special scores",
        "full",
        tuple(
            case(d, rows=10, bias=b, score=s)
            for d in SPECIAL
            for b in ("none", "normal", "negative")
            for s in ("sigmoid", "softmax")
        ),
    ),
    CaseGroup(
        "bias",
        "smoke",
        tuple(case(rows=3, bias=b, experts=60, top_k=6) for b in BIASES)
        + (case("few_values", rows=3, bias="close", experts=60, top_k=6),),
    ),
    CaseGroup("bias", "full", tuple(case(rows=17, bias=b, **m) for b in BIASES for m in ({}, DEEPSEEK_V3))),
    CaseGroup(
        "groups",
        "smoke",
        (
            case("pair_of_groups", **DEEPSEEK_V3 | {"kept": 1}),
            case("pair_of_groups", bias="none", **DEEPSEEK_V3 | {"kept": 1}),
            case(bias="negative", experts=8, top_k=2, groups=4),
            case("equal", bias="negative", experts=8, top_k=2, groups=4),
            case(experts=8, top_k=4, groups=8, kept=4),
            case("dead_group", rows=3, experts=72, top_k=6, groups=3, kept=2),
            case("nan", rows=5, experts=48, top_k=6, groups=2, kept=1),
            case("infinite", rows=5, experts=48, top_k=6, groups=2, kept=1),
        ),
    ),
    CaseGroup(
        "groups", "full", tuple(case(d, rows=17, bias=b, **DEEPSEEK_V3) for d in SPECIAL for b in ("none", "normal"))
    ),
    CaseGroup(
        "options",
        "smoke",
        tuple(case(rows=2, experts=128, top_k=8, **o) for o in OPTIONS) + (case(mapped=True, experts=60, top_k=6),),
    ),
    CaseGroup(
        "sizes",
        "smoke",
        tuple(case(rows=2, experts=e, top_k=k) for e, k in ((1, 1), (3, 2), (160, 6), (384, 1), (1025, 8), (128, 128))),
    ),
    CaseGroup(
        "sizes",
        "full",
        tuple(
            case(rows=3, experts=e, top_k=k) for e in (60, 128, 256, 512, 513, 896, 1024, 2048) for k in (1, 2, 8, 16)
        ),
    ),
    CaseGroup(
        "bf16 logits", "smoke", (case(dtype="bf16", rows=3), case("few_values", dtype="bf16", rows=3, **KIMI_K2))
    ),
    # Where a bf16 logit or bias shows: choices that lie closer than it can tell apart.
    CaseGroup(
        "logits and bias dtype",
        "smoke",
        (
            case(rows=17),
            case(rows=17, bias="large", **KIMI_K2),
            case("few_values", rows=9, bias="close", experts=60, top_k=6),
            case("equal", rows=2, bias="close", experts=60, top_k=6),
            case(rows=9, bias="close", **DEEPSEEK_V3),
            case("equal", rows=2, bias="close", **DEEPSEEK_V3),
        ),
    ),
    CaseGroup(
        "combinations",
        "smoke",
        (
            *(case("short_group", rows=3, experts=16, groups=2, top_k=6, bias=b) for b in ("none", "normal")),
            *(
                case(d, rows=3, score="softmax", renormalize=r, **SMALL)
                for d in ("underflow", "hot", "wide")
                for r in (True, False)
            ),
            case(rows=3, bias="nan", experts=8, top_k=7),
            case("near_tie", rows=3),
            case("near_tie", rows=3, **DEEPSEEK_V3),
            case(rows=11, **KIMI_K2),
            case(rows=33, **SMALL),
            case("skewed", rows=2, experts=2048, top_k=8),
            *(case("skewed", rows=2, experts=e, top_k=6) for e in (160, 256, 512, 1025)),
            case("equal", rows=2, experts=60, top_k=6, bias="none", mapped=True),
            case("nan", rows=5, mapped=True, experts=128, top_k=8),
            case(rows=3, mapped=True, **DEEPSEEK_V3),
            case(rows=3, score="softmax", renormalize=False, **DEEPSEEK_V3),
            case(rows=3, score="softmax"),
            case(rows=3, experts=128, top_k=16, groups=4, kept=2, bias="none"),
            case(dtype="bf16", rows=3, bias="none", **DEEPSEEK_V3),
            case(dtype="bf16", rows=3, score="softmax", experts=60, top_k=6),
            case(dtype="fp16", rows=3, experts=60, top_k=6),
            case("nan", rows=5, bias="infinite", **SMALL),
            case("nan", rows=5, bias="nan", **SMALL),
            case("dead_group", rows=3, experts=72, top_k=6, groups=3, kept=2, bias="negative"),
            case("dead_group", rows=3, experts=72, top_k=6, groups=3, kept=2, bias="none"),
            case("normal", rows=3, experts=48, top_k=6, groups=4, kept=2, bias="infinite"),
        ),
    ),
    CaseGroup("layouts", "smoke", tuple(case(rows=3, experts=60, top_k=6, layout=layout) for layout in LAYOUTS[1:])),
    CaseGroup(
        "seeds", "nightly", tuple(case(rows=64, seed=s, **m) for s in range(1, 17) for m in ({}, KIMI_K2, DEEPSEEK_V3))
    ),
    # Offsets beyond 2³¹ elements: more than an index of 32 bits reaches.
    CaseGroup("far rows", "nightly", (case(rows=3, layout="far"),), targets=("cuda", "hip")),
)

VARIANTS = (
    OFFICIAL,
    Variant(
        "denominator_floor", "the sum of weights is floored at 1e-20 (aiter)", adds=frozenset({"denominator_floor"})
    ),
    Variant("denominator_guard", "a sum of weights of 0 becomes 1 (tokenspeed)", adds=frozenset({"denominator_guard"})),
    Variant("nan_weights", "a NaN score gives a NaN weight", adds=frozenset({"nan_weights"})),
    Variant("logits_bf16", "logits rounded to bf16, as a linear layer leaves them (fork)", adds=frozenset({"logits"})),
    Variant(
        "bias_bf16",
        "correction bias rounded to bf16: a bf16 parameter (fork, ATOM)",
        adds=frozenset({"correction_bias"}),
    ),
)

SENSITIVITY: dict[str, Change] = {
    "logits": lambda a: a["logits"].roll(1, 1),
    "correction_bias": lambda a: a["correction_bias"].roll(3),
    "top_k": lambda a: a["top_k"] - 1,
    "num_groups": lambda a: a["num_groups"] * 2,
    "score_function": lambda a: "softmax",
    "renormalize": lambda a: not a["renormalize"],
    "scaling_factor": lambda a: a["scaling_factor"] * 3,
    "logical_to_physical": lambda a: torch.arange(a["logits"].shape[1], dtype=torch.int32).flip(0),
}

OPERATOR = Operator(
    name="route",
    reference=route,
    outputs=(Output("expert_ids", "structural", "int32"), Output("expert_weights", "number", "fp32")),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(case(rows=9, **KIMI_K2), case(rows=16), case(rows=5, **DEEPSEEK_V3)),
    weights=("correction_bias", "logical_to_physical"),
    variants=VARIANTS,
    structure=structure,
    condition=condition,
    intermediates=("choice",),
    laws=(
        batch_invariance(("logits",)),
        row_isolation(("logits",)),
        parameter_sensitivity(SENSITIVITY),
        storage_order("logits", {name: partial(laid_out, layout=name) for name in LAYOUTS[1:]}),
        equivalence(
            "expert_permutation",
            "Renaming the experts renames the choice and keeps the weights.",
            relabelled,
            relabelled_outputs,
            lambda case: dict(case.parameters).get("groups", 1) == 1,
        ),
    ),
    special_values=(
        "Ids are always k distinct ones in range. NaN ranks below −Inf, −0 equals +0, equal choices go to the lower "
        "id, groups likewise. A NaN logit has weight 0 and, under softmax, no share of its row's sum; +Inf logits "
        "give sigmoid 1 and share a softmax equally. A row of NaN gives ids 0…k−1 with weights 0. An expert outside "
        "the kept groups is never chosen; weights that are all 0 stay 0."
    ),
)
