"""The collectives' eager form over a process group has the bits of the virtual ranks."""

from __future__ import annotations

import pytest
import torch
from torch import distributed, multiprocessing

from reference.collectives import all_reduce
from verification.eager.collectives import all_reduce_across

RANKS = 3


def shards() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(RANKS, 4, 257, generator=generator)
    return (values * 2.0 ** torch.randint(-20, 20, values.shape, generator=generator)).bfloat16()


def take_part(rank: int, meeting: str, folder: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    torch.save(all_reduce_across(shards()[rank]), f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


@pytest.mark.skipif(not distributed.is_available(), reason="this torch has no torch.distributed")
def test_a_process_group_gives_the_bits_of_virtual_ranks(tmp_path):
    multiprocessing.spawn(take_part, (str(tmp_path / "meeting"), str(tmp_path)), RANKS)
    wanted = all_reduce(shards())
    for rank in range(RANKS):
        assert torch.equal(torch.load(tmp_path / f"{rank}.pt"), wanted[rank])
