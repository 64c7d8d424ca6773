from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from reference.moe_sorting import moe_sorting, route_sort
from verification.budget import Golden
from verification.comparison import same_bits
from verification.contracts import moe_sorting as sorting
from verification.contracts import route as routing
from verification.contracts.route import DEEPSEEK_V3, KIMI_K2, ROWS, SMALL
from verification.inputs import Inputs
from verification.laws import parameter_sensitivity
from verification.operator import Arguments, Case, CaseGroup, Finding, Operator, Output, Outputs, make_case

DEFAULTS: dict[str, Any] = routing.DEFAULTS | {"block_size": 32, "mask": "none", "local": "all", "buffer": 0}


def case(distribution: str = "normal", seed: int = 0, **parameters: Any) -> Case:
    """A case of route_sort."""
    return make_case("route_sort", DEFAULTS, "fp32", distribution, seed, **parameters)


def make(case: Case) -> Arguments:
    """The router's arguments and the sorter's options."""
    p = DEFAULTS | dict(case.parameters)
    return (
        routing.routing_arguments(p, case)
        | {"block_size": p["block_size"]}
        | sorting.sorting_options(p, Inputs(case.id))
    )


def structure(arguments: Arguments, outputs: Outputs, golden: Golden) -> Iterator[Finding]:
    """The choice as `route` has it; the metadata exactly those of the ids and weights returned."""
    findings = list(routing.structure(arguments, outputs, golden))
    if findings:
        yield from findings
        return
    ids, weights = outputs["expert_ids"], outputs["expert_weights"]
    if findings := list(sorting.check_metadata(arguments, outputs, ids)):
        yield from findings
        return
    options = {n: arguments[n] for n in ("block_size", "expert_mask", "num_local_tokens")}
    wanted = moe_sorting(ids, weights, num_experts=arguments["logits"].shape[1], **options)._asdict()
    for name in ("sorted_ids", "sorted_weights", "sorted_expert_ids", "num_valid_ids"):
        different = ~same_bits(outputs[name], wanted[name])
        mask = sorting.compared(name, arguments, outputs)
        different = different if mask is None else different & mask
        if different.any():
            at = int(different.nonzero()[0])
            yield Finding(
                "structure",
                f"{name}: {int(different.sum())} elements are not those of the ids and weights returned; at "
                f"{at} got {outputs[name][at].item()}, wanted {wanted[name][at].item()}",
            )


GROUPS = (
    CaseGroup(
        "production sizes",
        "smoke",
        (
            case(rows=0),
            case(rows=1),
            case(rows=4, block_size=64),
            case(rows=17),
            case(rows=8, **KIMI_K2),
            case(**DEEPSEEK_V3),
        ),
    ),
    CaseGroup(
        "production sizes",
        "full",
        tuple(
            case(rows=r, block_size=b, **m)
            for r in ROWS
            for m, b in (({}, 32), ({}, 64), (KIMI_K2, 32), (DEEPSEEK_V3, 64))
        ),
    ),
    CaseGroup(
        "special scores",
        "smoke",
        (
            case("all_nan"),
            case("equal", rows=9, **SMALL),
            case("nan", rows=5, **SMALL),
            case("infinite", rows=5, **SMALL),
            case("underflow", rows=5, **SMALL),
        ),
    ),
    CaseGroup("special scores", "full", tuple(case(d, rows=33) for d in routing.SPECIAL)),
    CaseGroup(
        "options and groups",
        "smoke",
        tuple(case(rows=2, **SMALL, **options) for options in routing.OPTIONS)
        + (
            case(rows=3, experts=8, top_k=2, groups=4, bias="negative"),
            case("equal", rows=3, experts=8, top_k=2, groups=4),
            case("pair_of_groups", rows=3, **DEEPSEEK_V3 | {"kept": 1}),
            case("pair_of_groups", rows=3, bias="none", **DEEPSEEK_V3 | {"kept": 1}),
            case("near_tie", rows=3),
            case("saturated", rows=3, score="softmax", **SMALL),
            case("subnormal", rows=5, **SMALL),
            case(rows=33, block_size=64, groups=3, mask="odd", **SMALL | {"experts": 24, "top_k": 4}),
            case(rows=40, experts=8, top_k=4, buffer=65),
        ),
    ),
    CaseGroup(
        "expert parallel",
        "smoke",
        (
            case(rows=9, mask="eighth"),
            case(rows=9, local="most", buffer=64, **SMALL),
            case(rows=5, mapped=True, mask="odd", **SMALL),
            case(rows=5, local="none", **SMALL),
        ),
    ),
    CaseGroup(
        "expert parallel",
        "full",
        tuple(
            case(rows=r, mask="eighth", local=local, buffer=3584, mapped=m)
            for r in (1, 16, 257)
            for local in ("all", "most")
            for m in (False, True)
        ),
    ),
    CaseGroup("seeds", "nightly", tuple(case(seed=s, rows=16 * s) for s in range(1, 17)) + (case(rows=2048),)),
)

OPERATOR = Operator(
    name="route_sort",
    reference=route_sort,
    outputs=(
        Output("expert_ids", "structural", "int32"),
        Output("expert_weights", "number", "fp32"),
        Output("sorted_ids", "structural", "int32"),
        Output("sorted_weights", "structural", "fp32"),
        Output("sorted_expert_ids", "structural", "int32"),
        Output("num_valid_ids", "structural", "int32"),
        Output("output_buffer", "structural", "=output_buffer", argument="output_buffer"),
    ),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(case(rows=9, **KIMI_K2), case(rows=16)),
    weights=("correction_bias", "logical_to_physical"),
    in_place=("output_buffer",),
    variants=routing.VARIANTS,
    structure=structure,
    compared=sorting.compared,
    condition=routing.condition,
    intermediates=("choice",),
    laws=(
        parameter_sensitivity(
            routing.SENSITIVITY
            | {
                "block_size": lambda a: a["block_size"] * 2,
                "expert_mask": lambda a: (torch.arange(a["logits"].shape[1]) % 3 == 0).to(torch.int32),
                "num_local_tokens": lambda a: torch.tensor([1], dtype=torch.int32),
            }
        ),
    ),
    special_values=(
        "As route and moe_sorting: a NaN logit still gives k distinct ids, and what is sorted is what was chosen."
    ),
)
