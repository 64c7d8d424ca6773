"""The absorbed MLA decode kernels of tokenspeed-kernel-amd, executed on paged latent caches."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from scipy import stats
from torch import Tensor

from reference.numerics import UNIT_FP32, ulp
from verification.budget import FALSE_ALARM
from verification.comparison import same_bits
from verification.guards import poisoned
from verification.inputs import Inputs

production = pytest.importorskip(
    "tokenspeed_kernel_amd.ops.gfx950.attention.mla.decode", reason="tokenspeed-kernel-amd is not installed"
)

HEADS, NOPE, LATENT, POSITION, PAGE = 12, 128, 512, 64, 64
WIDTH = LATENT + POSITION
SCALE = (NOPE + POSITION) ** -0.5
BF16, E4M3 = torch.bfloat16, torch.float8_e4m3fn
SPARE_PAGES = 3


class Attention(NamedTuple):
    """Latent rows [H, 512] and natural-log sums [H] of one query."""

    output: Tensor
    lse: Tensor


def attention(q: Tensor, cache: Tensor) -> Attention:
    """softmax(q·cacheᵀ · 192^-½) · cache[:, :512] in float64, for q [H, 576], cache [N, 576]."""
    scores = q.double() @ cache.double().T * SCALE
    return Attention(torch.softmax(scores, -1) @ cache.double()[:, :LATENT], torch.logsumexp(scores, -1))


def spacing(p: Tensor, dtype: torch.dtype) -> Tensor:
    """Largest distance between neighbours of p ≤ 1 in bf16, or of 256·p in E4M3, whose least step is 2⁻⁹."""
    return p * 2.0**-7 if dtype == BF16 else (256 * p * 2.0**-3).clamp(min=2.0**-9) / 256


def allowed(q: Tensor, cache: Tensor, splits: int, elements: int) -> Attention:
    """What a right kernel may be off by, to first order, at a rate of false alarms over all `elements`.

    At z standard deviations: a sum of n fp32 terms x by z·u·√n·‖x‖; a probability cast to q's dtype,
    relative to the largest, by z·spacing ÷ √12. For certain: half an ulp of bf16 for a stored
    partial and for the result, and in fp32 a few ulps of the scores, N of the sum of N masses.
    """
    z = float(stats.norm.isf(FALSE_ALARM / (2 * elements)))
    exact, dtype, (q, cache) = attention(q, cache), q.dtype, (q.double(), cache.double())
    values, scores = cache[:, :LATENT], q @ cache.T * SCALE
    p, largest = torch.softmax(scores, -1), torch.exp(scores - scores.amax(-1, keepdim=True))
    dot = z * UNIT_FP32 * SCALE * (WIDTH * (q.square() @ cache.square().T)).sqrt()
    off = dot + UNIT_FP32 * (8 * (1 + scores.abs()) + len(cache))
    cast = p / largest * spacing(largest, dtype)
    error = (p * off) @ values.abs() + (p * off).sum(-1, keepdim=True) * exact.output.abs()
    error += z * (cast.square() @ values.square() / 12).sqrt()
    error += z * UNIT_FP32 * (len(cache) * (p.square() @ values.square())).sqrt()
    for part in parts(len(cache), splits) if splits > 1 else ():
        mass = p[:, part].sum(-1, keepdim=True)
        error += mass * 0.5 * ulp((p[:, part] @ values[part]) / mass, BF16)
    error += 0.5 * ulp(exact.output.abs() + error, BF16)
    return Attention(error, off.amax(-1) + UNIT_FP32 * 4 * (splits + exact.lse.abs()))


def parts(length: int, splits: int) -> list[slice]:
    """The tokens of each split: whole pages, as many to each, the last ones may have none."""
    pages = -(-length // PAGE)
    step = -(-pages // splits) * PAGE
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]


class Cache(NamedTuple):
    """A paged pool whose every other token is NaN, and each row's tokens."""

    pool: Tensor
    table: Tensor
    lengths: Tensor
    tokens: list[Tensor]


def paged(key: str, lengths: tuple[int, ...], dtype: torch.dtype, order: str = "shuffled") -> Cache:
    inputs, columns = Inputs(key), -(-max(lengths) // PAGE)
    pages = len(lengths) * columns + SPARE_PAGES
    places = inputs.permutations(order, 1, pages)[0] if order != "ascending" else torch.arange(pages)
    table = places[: len(lengths) * columns].view(len(lengths), columns).to(torch.int32)
    pool = torch.full((pages, PAGE, 1, WIDTH), torch.nan).to(dtype)
    tokens = [inputs.normal(f"tokens {row}", (n, WIDTH)).float().to(dtype) for row, n in enumerate(lengths)]
    for row, held in enumerate(tokens):
        for page, part in enumerate(held.split(PAGE)):
            pool[table[row, page].long(), : len(part), 0] = part
    return Cache(pool, table, torch.tensor(lengths, dtype=torch.int32), tokens)


def queries(key: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return Inputs(key).normal("q", (*shape, HEADS, WIDTH)).float().to(dtype)


def run(execute, kernel, q, cache, limit, **options):
    return execute(
        kernel, q, cache.pool, cache.table, cache.lengths, limit, NOPE, LATENT, POSITION, SCALE,
        return_lse=True, **options,
    )  # fmt: skip


def check(output: Tensor, lse: Tensor, q: Tensor, seen: list[Tensor], splits: int) -> None:
    """Every row against the exact attention over the tokens that it sees."""
    for row, tokens in enumerate(seen):
        exact, bound = attention(q[row], tokens), allowed(q[row], tokens, splits, output.numel())
        assert ((output[row].double() - exact.output).abs() <= bound.output).all()
        assert ((lse[row].double() - exact.lse).abs() <= bound.lse).all()


KERNELS = {
    "bf16": (production.gluon_mla_decode_bf16xbf16_gfx950, BF16, BF16),
    "bf16-fp8": (production.gluon_mla_decode_bf16xfp8_gfx950, BF16, E4M3),
    "fp8": (production.gluon_mla_decode_fp8xfp8_gfx950, E4M3, E4M3),
}


@pytest.mark.parametrize(("kernel", "lengths", "limit", "splits"), [
    ("bf16", (63, 1), 64, 1),
    ("bf16", (130, 65, 1), 130, 3),
    ("bf16", (513,), 513, 9),
    ("bf16-fp8", (128, 5), 128, 1),
    ("bf16-fp8", (200, 64), 200, 2),
    ("fp8", (200, 65), 200, 1),
    ("fp8", (450, 130), 1200, 3),
])  # fmt: skip
def test_decode_is_attention_over_the_cached_tokens(execute, kernel, lengths, limit, splits):
    function, q_type, cache_type = KERNELS[kernel]
    cache, q = (
        paged(f"mla {kernel} {lengths}", lengths, cache_type),
        queries(f"mla {kernel}", (len(lengths), 1), q_type),
    )
    output, lse = run(execute, function, q, cache, limit)
    check(output[:, 0], lse[:, 0], q[:, 0], cache.tokens, splits)


def test_the_place_of_a_page_changes_no_bit(execute):
    function, q_type, cache_type = KERNELS["bf16"]
    q = queries("mla places", (1, 1), q_type)
    one, other = (
        run(execute, function, q, paged("mla places", (150,), cache_type, order), 150)
        for order in ("ascending", "shuffled")
    )
    assert all(same_bits(a, b).all() for a, b in zip(one, other, strict=True))


def test_a_block_of_queries_is_causal(execute):
    lengths, block = (130, 66), 4
    cache, q = paged("mla block", lengths, E4M3), queries("mla block", (len(lengths), block), E4M3)
    output, lse = run(
        execute, production.launch_gluon_mla_decode_fp8_query_blocks_gfx950, q, cache, 130, logit_cap=0.0, out=None
    )
    for row, tokens in enumerate(cache.tokens):
        seen = [tokens[: len(tokens) - block + query + 1] for query in range(block)]
        check(output[row], lse[row], q[row], seen, splits=1)


@pytest.mark.parametrize(("lengths", "limit"), [((1,), 64), ((1, 70), 70)], ids=["one-split", "two-splits"])
def test_a_row_of_length_0_is_not_written_or_nan(execute, lengths, limit):
    """The single split leaves at once, so the row keeps what its memory held; the merger divides 0 by 0."""
    function, q_type, cache_type = KERNELS["bf16"]
    cache = paged("mla empty", lengths, cache_type)
    cache.lengths[0] = 0
    output, lse = run(execute, function, queries("mla empty", (len(lengths), 1), q_type), cache, limit)
    kept = len(lengths) == 1
    assert poisoned(output[0]).all() == poisoned(lse[0]).all() == kept
    assert torch.isnan(output[0]).all()


FAULTS = {
    "scale-of-the-cached-width": lambda q, tokens: (q.double() * (192 / WIDTH) ** 0.5, tokens),
    "position-left-out": lambda q, tokens: (q.double().index_fill(-1, torch.arange(LATENT, WIDTH), 0.0), tokens),
    "a-token-fewer": lambda q, tokens: (q, tokens[:-1]),
    "a-token-twice": lambda q, tokens: (q, torch.cat([tokens, tokens[-1:]])),
    "heads-in-another-order": lambda q, tokens: (q.roll(1, 0), tokens),
}


@pytest.mark.parametrize("dtype", [BF16, E4M3], ids=["bf16", "fp8"])
@pytest.mark.parametrize("fault", FAULTS)
def test_bounds_notice(fault, dtype):
    q, (tokens,) = queries("mla faults", (), dtype), paged("mla faults", (200,), dtype).tokens
    right, bound = attention(q, tokens), allowed(q, tokens, 4, HEADS * LATENT)
    wrong = attention(*FAULTS[fault](q, tokens))
    assert ((wrong.output - right.output).abs() > bound.output).any()
    assert ((wrong.lse - right.lse).abs() > bound.lse).any()
