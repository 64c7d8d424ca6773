"""Acceptance rules that the field uses, each in a few lines from its published description.

They stand beside `comparison` to be scored on the same outputs; no verdict comes from them. Each is
kept with its holes: what becomes of NaN, of another shape and of another dtype is what the original
does. Where an original would raise an error, the output is not accepted. Outputs without elements
are accepted by all, though some originals raise there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from verification.operator import Outputs

Accepts = Callable[[Tensor, Tensor, Tensor], bool]
"""Of one output: what was given, the exact one in the output's dtype, what a low-precision reference gives."""


@dataclass(frozen=True)
class Rule:
    """A public acceptance rule: how it takes numbers and integers, and which shapes and dtypes it lets through."""

    name: str
    source: str
    numbers: Accepts
    integers: Accepts
    shapes: Literal["equal", "equal where any", "broadcast", "count"] = "equal"
    """`equal where any`: unseen where there are no elements; `broadcast`: any that can be subtracted; `count`: any
    with as many elements."""
    dtypes: Literal["equal", "any"] = "equal"
    """`any`: values alone are compared."""

    def accepts(self, got: Outputs, golden: Outputs, low_precision: Outputs) -> bool:
        """Whether the rule accepts all outputs, by name; further ones in `got` are ignored."""
        return golden.keys() <= got.keys() and all(
            self._accepts_one(got[name], exact, low_precision[name]) for name, exact in golden.items()
        )

    def _accepts_one(self, got: Tensor, exact: Tensor, low_precision: Tensor) -> bool:
        if self.dtypes == "equal" and got.dtype != exact.dtype:
            return False
        if not SHAPES[self.shapes](got, exact):
            return False
        judge = self.numbers if exact.is_floating_point() else self.integers
        return not exact.numel() or judge(got, exact, low_precision)


def _broadcast(got: Tensor, exact: Tensor) -> bool:
    pairs = zip(reversed(got.shape), reversed(exact.shape), strict=False)
    return bool(got.numel()) == bool(exact.numel()) and all(1 in pair or pair[0] == pair[1] for pair in pairs)


SHAPES: dict[str, Callable[[Tensor, Tensor], bool]] = {
    "equal": lambda got, exact: got.shape == exact.shape,
    "equal where any": lambda got, exact: got.shape == exact.shape or not exact.numel(),
    "broadcast": _broadcast,
    "count": lambda got, exact: got.numel() == exact.numel(),
}

TOLERANCE = 1e-2
"""Absolute and relative: the default of several."""


def equal(got: Tensor, exact: Tensor, low_precision: Tensor) -> bool:
    """Every element equal."""
    return got.shape == exact.shape and bool((got == exact).all())


def never_compared(got: Tensor, exact: Tensor, low_precision: Tensor) -> bool:
    """Accepted unseen."""
    return True


def mismatch_share(got: Tensor, exact: Tensor, low_precision: Tensor) -> bool:
    """At most 5 % of the elements beyond |a − b| ≤ 1e-2 + 1e-2·|b|; NaN is beyond, and may be among the 5 %."""
    close = torch.isclose(got, exact, rtol=TOLERANCE, atol=TOLERANCE)
    return int((~close).sum()) / got.numel() <= 0.05


def all_close(got: Tensor, exact: Tensor, low_precision: Tensor) -> bool:
    """|a − b| ≤ 1e-2 + 1e-2·|b| everywhere; NaN equals nothing."""
    return torch.allclose(got, exact, rtol=TOLERANCE, atol=TOLERANCE)


def torch_testing(got: Tensor, exact: Tensor, low_precision: Tensor) -> bool:
    """Within the dtype's defaults: bf16 1.6e-2·|b| + 1e-5, fp16 1e-3, fp32 1.3e-6; NaN equals nothing."""
    try:
        torch.testing.assert_close(got, exact)
    except AssertionError:
        return False
    return True


def counted_beyond(got: Tensor, exact: Tensor, low_precision: Tensor) -> bool:
    """No element with |a − b| > 1e-2 + 1e-2·|b|, which no NaN is."""
    got, exact = got.float(), exact.float()
    return not ((got - exact).abs() > TOLERANCE + TOLERANCE * exact.abs()).any()


def relative_rms(got: Tensor, exact: Tensor, low_precision: Tensor) -> bool:
    """Every |a − b| ≤ 1e-6, or RMS(a − b) < 0.005·(RMS(b) + 1e-8) over all elements and no NaN."""
    difference = exact - got
    if float(difference.abs().max()) <= 1e-6:
        return True
    ratio = float(difference.square().mean().sqrt()) / (float(exact.square().mean().sqrt()) + 1e-8)
    return not bool(torch.isnan(got).any() | torch.isnan(exact).any()) and ratio < 0.005


def cosine(got: Tensor, exact: Tensor, low_precision: Tensor) -> bool:
    """Cosine of the angle between the flattened outputs above 0.99."""
    similarity = torch.nn.functional.cosine_similarity(exact.reshape(-1).float(), got.reshape(-1).float(), dim=0)
    return float(similarity) > 0.99


def both_beyond(got: Tensor, exact: Tensor, low_precision: Tensor) -> bool:
    """No element beyond 1e-2 absolutely and relatively at once, no NaN or Inf given.

    NaN in the reference is beyond nothing: so it is in flashinfer-bench.
    """
    if not torch.isfinite(got).all():
        return False
    got, exact = got.float(), exact.float()
    error = (got - exact).abs()
    return not ((error > TOLERANCE) & (error / (exact.abs() + 1e-8) > TOLERANCE)).any()


def signal_to_noise(got: Tensor, exact: Tensor, low_precision: Tensor) -> bool:
    """10·log10(Σ b² ÷ Σ (a − b)²) at least 35 dB."""
    noise = (got.double() - exact.double()).square().sum()
    return bool(noise == 0) or float(10 * torch.log10(exact.double().square().sum() / noise)) >= 35


def twice_low_precision(got: Tensor, exact: Tensor, low_precision: Tensor) -> bool:
    """All finite, and max |a − b| at most 2·(max |low − b| + 2⁻⁷·max |b|), the band being bf16's epsilon."""
    exact = exact.double()
    band = torch.finfo(torch.bfloat16).eps * exact.abs().max()
    allowed = 2 * ((low_precision.double() - exact).abs().max() + band)
    return bool(torch.isfinite(got).all() & ((got.double() - exact).abs().max() <= allowed))


def root_mean_square_scale(got: Tensor, exact: Tensor, low_precision: Tensor) -> bool:
    """|a − b| ÷ max(RMS(b), |b|): the largest at most 2e-2, its RMS at most 4e-3; Inf where Inf is, NaN fails."""
    got, exact = got.double(), exact.double()
    if not torch.equal(torch.isinf(got), torch.isinf(exact)):
        return False
    got, exact = (torch.where(torch.isinf(x), 0.0, x) for x in (got, exact))
    scale = (exact.square().mean().sqrt() + 1e-60).maximum(exact.abs())
    relative = (got - exact).abs() / scale
    return bool((relative.max() <= 2e-2) & (relative.square().mean().sqrt() <= 4e-3))


def sorted_weights(got: Tensor, exact: Tensor, low_precision: Tensor) -> bool:
    """The values of each row, sorted, within 1e-3 + 1e-2·|b|: where each stood is not seen."""
    return torch.allclose(got.sort().values.float(), exact.sort().values.float(), rtol=1e-2, atol=1e-3)


def rules() -> tuple[Rule, ...]:
    """Every rule, in the order of a report's columns."""
    return (
        Rule("mismatch share 5 %", "aiter: checkAllclose", mismatch_share, mismatch_share, "broadcast"),
        Rule("allclose 1e-2", "KernelBench: fp16 and bf16", all_close, all_close),
        Rule("torch.testing", "PyTorch: assert_close's defaults", torch_testing, equal),
        Rule("mismatches by >", "FlashInfer: mismatch tolerance", counted_beyond, equal, "broadcast", "any"),
        Rule("relative RMS 0.005", "flash-linear-attention", relative_rms, equal, "broadcast", "any"),
        Rule("cosine 0.99", "FlashInfer: bf16 GEMM", cosine, equal, "count", "any"),
        Rule("absolute and relative 1e-2", "flashinfer-bench, tokenspeed", both_beyond, both_beyond),
        Rule("SNR 35 dB", "SGLang: pull request 33746", signal_to_noise, equal, "equal", "any"),
        Rule("twice low precision", "attention-gym, FlashAttention", twice_low_precision, equal, "broadcast", "any"),
        Rule("max(RMS, |ref|)", "triton_kernels", root_mean_square_scale, equal, "equal where any", "any"),
        Rule("sorted weights", "sgl-kernel: Kimi-K2's gate", sorted_weights, never_compared, "broadcast", "any"),
    )
