from __future__ import annotations

import pytest

from verification.operator import find_operator

SMALL = "hidden=264,latent=96"
CONTROLS = {
    "logits_in_bf16": "router_logits/rows=4,hidden=520,experts=40/bf16/normal/0",
    "bf16_accumulator": "router_logits/rows=4,hidden=520,experts=40/bf16/normal/0",
    "no_tail_of_k": "router_logits/rows=5,hidden=520,experts=40/bf16/spiky_end/0",
    "up_before_gate": f"moe_preroute/rows=4,{SMALL},width=40/bf16/normal/0",
    "no_bound_on_up": f"moe_preroute/rows=5,{SMALL},width=40,scale=30.0/bf16/normal/0",
    "no_norm": f"latent_moe_tail/rows=4,{SMALL}/bf16/normal/0",
    "eps_forgotten": f"latent_moe_tail/rows=5,{SMALL},eps=0.001/bf16/near_eps/0",
    "prefix_forgotten": f"latent_moe_tail/rows=4,{SMALL}/bf16/normal/0",
}


@pytest.mark.parametrize("name", CONTROLS)
def test_a_wrong_part_exceeds_its_budget(judge, name):
    record = judge("wrong_moe_front.py", name, CONTROLS[name])
    assert (record.verdict, record.kind) == ("failed", "budget"), record.findings


UNLAWFUL = [
    ("router_logits", "dense_weight_assumed", "storage_order"),
    ("router_logits", "flat_for_few_experts", "expert_shards"),
    ("moe_preroute", "shared_bias", "shared_expert_shards"),
    ("latent_moe_tail", "no_eps_where_all_is_zero", "nothing_routed"),
    ("latent_moe_tail", "floor_of_shared", "scale_equivariance"),
]


@pytest.mark.parametrize(("operator", "name", "law"), UNLAWFUL)
def test_what_only_a_law_shows_is_shown_by_it(judge, operator, name, law):
    wanted = find_operator(operator)
    case = wanted.law_cases[0]
    assert judge("wrong_moe_front.py", name, case).verdict == "passed"
    record = judge("wrong_moe_front.py", name, case, law=next(one for one in wanted.laws if one.name == law))
    assert (record.verdict, record.kind) == ("failed", "law"), record.findings
