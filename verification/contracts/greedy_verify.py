from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from reference.config import KIMI_K3
from reference.sampling import greedy_verify
from verification.inputs import LAYOUTS, TORCH_DTYPES, Inputs, laid_out
from verification.laws import batch_invariance, equivalence, parameter_sensitivity, row_isolation, storage_order
from verification.operator import (
    Arguments,
    Case,
    CaseGroup,
    Law,
    LawContext,
    Operator,
    Output,
    Outputs,
    make_case,
    pick,
)  # fmt: skip

DEFAULTS: dict[str, Any] = {"batch": 4, "drafts": 7, "layout": "contiguous"}

VOCABULARY = KIMI_K3.vocab_size


def case(distribution: str = "normal", dtype: str = "int32", seed: int = 0, **parameters: Any) -> Case:
    """A case of greedy_verify."""
    return make_case("greedy_verify", DEFAULTS, dtype, distribution, seed, **parameters)


def make(case: Case) -> Arguments:
    """Drafts that agree with the target as far as the distribution says, and beyond it here and there."""
    p = DEFAULTS | dict(case.parameters)
    inputs = Inputs(case.id)
    batch, drafts = p["batch"], p["drafts"]
    target = inputs.integers("target", (batch, drafts + 1), 0, VOCABULARY)
    accepted = pick(case.distribution, DISTRIBUTIONS, "distribution")(inputs, batch, drafts)
    draft = target[:, :drafts].clone()
    beyond = torch.arange(drafts) > accepted[:, None]
    astray = beyond & (inputs.integers("astray", (batch, drafts), 0, 2) == 1)
    draft[astray | (torch.arange(drafts) == accepted[:, None])] += 1
    dtype = TORCH_DTYPES[case.dtype]
    return {"draft_ids": laid_out(draft.to(dtype), p["layout"]), "target_ids": laid_out(target.to(dtype), p["layout"])}


DISTRIBUTIONS: dict[str, Callable[[Inputs, int, int], Tensor]] = {
    "normal": lambda inputs, batch, drafts: inputs.integers("accepted", (batch,), 0, drafts + 1),
    "all_rejected": lambda inputs, batch, drafts: torch.zeros(batch, dtype=torch.int64),
    "all_accepted": lambda inputs, batch, drafts: torch.full((batch,), drafts),
    "last_rejected": lambda inputs, batch, drafts: torch.full((batch,), max(drafts - 1, 0)),
}

GROUPS = (
    CaseGroup("batches", "smoke", tuple(case(batch=b) for b in (0, 1, 2, 4, 8, 16, 17, 64))),
    CaseGroup("batches", "full", tuple(case(batch=b, drafts=n) for b in (257, 1024) for n in (1, 3, 7))),
    CaseGroup("windows", "smoke", tuple(case(batch=5, drafts=n) for n in (0, 1, 2, 3, 8, 31, 63, 64, 65))),
    CaseGroup(
        "how much agrees",
        "smoke",
        tuple(case(d, batch=6, drafts=n) for d in ("all_rejected", "all_accepted", "last_rejected") for n in (1, 7)),
    ),
    CaseGroup("64-bit ids", "smoke", (case(dtype="int64", batch=5), case("all_accepted", "int64", batch=3))),
    CaseGroup("layouts", "smoke", tuple(case(batch=5, layout=layout) for layout in LAYOUTS)),
    CaseGroup("seeds", "nightly", tuple(case(seed=s, batch=33) for s in range(1, 33))),
)


def nothing_drafted(arguments: Arguments) -> Arguments:
    """Drafts that no target chooses: forced rejection."""
    return arguments | {"draft_ids": torch.full_like(arguments["draft_ids"], -1)}


def one_token(arguments: Arguments, usual: Outputs) -> Outputs:
    """Forced rejection commits the target's first choice alone."""
    committed = torch.full_like(usual["committed_ids"], -1)
    committed[:, 0] = arguments["target_ids"][:, 0]
    return {"accepted_drafts": torch.zeros_like(usual["accepted_drafts"]), "committed_ids": committed}


def prefix(context: LawContext) -> Iterator[str]:
    """What is committed begins with the accepted drafts and goes on with one token that no draft was."""
    arguments = context.arguments()
    outputs = context.call(context.arguments())
    for row, accepted in enumerate(outputs["accepted_drafts"].tolist()):
        committed, draft = outputs["committed_ids"][row].tolist(), arguments["draft_ids"][row].tolist()
        if committed[:accepted] != draft[:accepted]:
            yield f"Sequence {row} commits {committed} after {accepted} accepted drafts of {draft}."
        if accepted < len(draft) and committed[accepted] == draft[accepted]:
            yield f"Sequence {row} stops at draft {accepted}, which the target chose as well."
        if any(one != -1 for one in committed[accepted + 1 :]) or committed[accepted] == -1:
            yield f"Sequence {row} commits {committed}; expected {accepted + 1} ids, then −1."


OPERATOR = Operator(
    name="greedy_verify",
    reference=greedy_verify,
    outputs=(Output("accepted_drafts", "exact", "int32"), Output("committed_ids", "exact", "int32")),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(case(batch=9), case(batch=16, drafts=3)),
    laws=(
        batch_invariance(("target_ids", "draft_ids")),
        row_isolation(("target_ids", "draft_ids")),
        parameter_sensitivity(
            {"draft_ids": lambda a: a["draft_ids"] + 1, "target_ids": lambda a: a["target_ids"].roll(1, 1)}
        ),
        storage_order("draft_ids", {name: partial(laid_out, layout=name) for name in LAYOUTS if name != "contiguous"}),
        equivalence("forced_rejection", "A draft that is never right commits one token.", nothing_drafted, one_token),
        Law("prefix", "What is committed is the accepted draft and one token of the target's.", prefix),
    ),
    special_values=(
        "An empty window (n = 0) commits the target's one choice. Ids are compared as integers, −1 included: a draft "
        "of −1 is accepted only where the target says −1. No sequences launch nothing."
    ),
)
