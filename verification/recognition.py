"""Whether a wrong result is one that a known fault gives on the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from verification.budget import Golden
from verification.comparison import Observed, named
from verification.fault import SOURCE, Fault, faults
from verification.nearest import nearest
from verification.operator import Arguments, Case, Operator, Outputs
from verification.plan import Candidate, Check, place

TOLD = ("budget", "bias", "special_value", "structure")
"""Kinds of failure that are about values."""

Run = Callable[[Check], Observed | None]
"""What a check's implementation gives on the case, or None where it gives nothing."""


def recognised(
    run: Run, operator: Operator, case: Case, arguments: Arguments, observed: Observed, golden: Golden
) -> str | None:
    """A sentence that names the fault whose numbers these are, and the field's records of it."""
    got = _comparable(operator, arguments, observed, golden)
    if got is None:
        return None
    known = {fault.id: fault for fault in faults().values() if fault.operator == operator.name}
    name = nearest(got, golden, _outputs(run, operator, case, arguments, golden, known))
    return None if name is None else _told(operator, [known[one] for one in name.split(" or ")])


def _told(operator: Operator, found: list[Fault]) -> str:
    said = " or ".join(fault.says for fault in found)
    records = sorted({record for fault in found for record in fault.records})
    return f"these are the numbers of {operator.name}: {said}" + (f", records {', '.join(records)}" if records else "")


def _outputs(
    run: Run, operator: Operator, case: Case, arguments: Arguments, golden: Golden, known: dict[str, Fault]
) -> Iterator[tuple[str, Outputs]]:
    for name, fault in known.items():
        candidate = Candidate(fault.declared, SOURCE)
        target = place(candidate, "cpu")
        if target is None or candidate.declared.variant != golden.variant.name:
            continue
        observed = run(Check(case, "recognition", "smoke", operator, candidate, target))
        outputs = None if observed is None else _comparable(operator, arguments, observed, golden)
        if outputs is not None:
            yield name, outputs


def _comparable(operator: Operator, arguments: Arguments, observed: Observed, golden: Golden) -> Outputs | None:
    """The outputs as they are compared, what is left open taken from the golden; None where they do not fit."""
    returned = [o for o in operator.outputs if o.argument is None]
    if len(observed.results) != len(returned):
        return None
    outputs = named(operator, observed, golden)
    if any(outputs[n].shape != x.shape or outputs[n].dtype != golden.dtypes[n] for n, x in golden.exact.items()):
        return None
    meant = operator.meant(outputs)
    return {name: _specified(operator, name, arguments, outputs, meant[name], golden) for name in golden.exact}


def _specified(
    operator: Operator, name: str, arguments: Arguments, outputs: Outputs, value: Tensor, golden: Golden
) -> Tensor:
    mask = operator.compared(name, arguments, outputs) if operator.compared else None
    return value if mask is None else torch.where(mask, value, golden.exact[name].to(value.dtype))
