"""Right kernels of latent attention round their probabilities in units of their own; all are within the budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from reference.numerics import EXACT
from verification.budget import derive
from verification.comparison import compare_numbers
from verification.operator import find_operator, parse_case

CASES = (
    "mla_decode/rows=2,longest=129,splits=1/bf16/normal/{}",
    "mla_decode/rows=3,heads=3,latent=40,position=12,qk_width=20,page=16,longest=70,splits=1/bf16/normal/{}",
    "mla_decode/rows=3,heads=3,latent=40,position=12,qk_width=20,page=16,longest=70,splits=1/bf16/rising/{}",
    "mla_decode/rows=3,heads=3,latent=40,position=12,qk_width=20,page=16,longest=70,splits=1/bf16/peaked/{}",
)
BF16 = torch.bfloat16
TILE = 16


def shares(score: Tensor, values: Tensor) -> Tensor:
    """The modelling code: softmax in fp32, cast, product."""
    return torch.softmax(score, -1).to(BF16).float() @ values


def unrounded(score: Tensor, values: Tensor) -> Tensor:
    return torch.softmax(score, -1) @ values


def of_the_largest(score: Tensor, values: Tensor) -> Tensor:
    """Masses relative to the largest score, divided last."""
    mass = torch.exp(score - score.amax(-1, keepdim=True))
    return mass.to(BF16).float() @ values / mass.sum(-1, keepdim=True)


def online(score: Tensor, values: Tensor) -> Tensor:
    """Tile by tile, relative to the largest so far, in powers of two."""
    score = score * 1.4426950408889634
    largest = torch.full((len(score), 1), -torch.inf)
    total, weighted = torch.zeros(len(score), 1), torch.zeros(len(score), values.shape[1])
    for part, rows in zip(score.split(TILE, 1), values.split(TILE), strict=True):
        higher = torch.maximum(largest, part.amax(-1, keepdim=True))
        mass, fade = torch.exp2(part - higher), torch.exp2(largest - higher)
        total = total * fade + mass.sum(-1, keepdim=True)
        weighted = weighted * fade + mass.to(BF16).float() @ rows
        largest = higher
    return weighted / total


def computed(form: Callable[[Tensor, Tensor], Tensor], arguments: dict[str, object]) -> Iterator[tuple[int, Tensor]]:
    """The latents [N, L] of each row that has keys, in that form."""
    query = torch.cat([arguments["q_latent"], arguments["q_pe"]], -1).float()
    for row, length in enumerate(arguments["seq_lens"].tolist()):
        if length:
            pages = arguments["kv_pages"][
                arguments["page_table"][row, : -(-length // arguments["kv_pages"].shape[1])].long()
            ]
            keys = pages.flatten(0, 1)[:length].float()
            score = query[row] @ keys.T * arguments["softmax_scale"]
            yield row, form(score, keys[:, : arguments["q_latent"].shape[-1]])


@pytest.mark.parametrize("text", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_any_unit_of_rounding_is_within_the_budget(text, seed):
    operator = find_operator("mla_decode")
    arguments = operator.make(parse_case(text.format(seed)))
    golden = derive(operator, arguments)
    for form in (shares, unrounded, of_the_largest, online):
        got = operator.evaluate(arguments, numerics=EXACT)["latent"].to(BF16)
        for row, latents in computed(form, arguments):
            got[row] = latents.to(BF16)
        findings = compare_numbers("latent", got, golden.exact["latent"], golden.budgets["latent"])[1]
        assert findings == [], (form.__name__, findings)
