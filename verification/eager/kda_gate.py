from __future__ import annotations

from torch import Tensor

from fused.boundary import implements
from verification.eager.kda_rows import log_decay


@implements("kda_gate", name="eager", batch_invariant=True)
def kda_gate(raw_gate: Tensor, A_log: Tensor, dt_bias: Tensor, lower_bound: float | None) -> Tensor:
    """Bounded or softplus decay gate in fp32.

    Shapes: raw_gate [T, N, K], A_log [N], dt_bias [N, K] → log_decay [T, N, K] fp32.
    """
    return log_decay(raw_gate.float(), A_log, dt_bias, lower_bound)
