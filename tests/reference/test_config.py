from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from reference.attention_residual import attention_residual
from reference.config import KIMI_K2, KIMI_K3, KIMI_LINEAR_48B, SMALL, ModelConfig
from reference.routing import route

CONFIGS = pytest.mark.parametrize("config", [KIMI_K3, KIMI_LINEAR_48B, KIMI_K2, SMALL], ids=lambda config: config.name)

PUBLISHED = [
    ("vocab_size", 163840, 163840, 163840),
    ("hidden_size", 7168, 2304, 7168),
    ("num_layers", 93, 27, 61),
    ("num_experts", 896, 256, 384),
    ("experts_per_token", 16, 8, 8),
    ("num_shared_experts", 2, 1, 1),
    ("expert_intermediate_size", 3072, 1024, 2048),
    ("num_expert_groups", 1, 1, 1),
    ("kept_expert_groups", 1, 1, 1),
    ("routed_scaling_factor", 1.0, 2.446, 2.827),
    ("num_heads", 96, 32, 64),
    ("q_lora_rank", 1536, None, 1536),
    ("kv_lora_rank", 512, 512, 512),
    ("qk_nope_head_dim", 128, 128, 128),
    ("qk_rope_head_dim", 64, 64, 64),
    ("v_head_dim", 128, 128, 128),
    ("residual_block_layers", 12, None, None),
    ("situ_beta", 4.0, None, None),
    ("situ_linear_beta", 25.0, None, None),
    ("kda_lower_bound", -5.0, None, None),
]


@pytest.mark.parametrize(("field", "k3", "linear", "k2"), PUBLISHED, ids=lambda value: str(value))
def test_sizes_are_the_published_ones(field: str, k3: object, linear: object, k2: object) -> None:
    configs = (KIMI_K3, KIMI_LINEAR_48B, KIMI_K2)
    assert tuple(getattr(config, field) for config in configs) == (k3, linear, k2)


def test_k3_experts_work_in_a_latent_of_half_the_hidden_size() -> None:
    assert KIMI_K3.latent_size == 3584 == KIMI_K3.hidden_size // 2


def test_delta_attention_sizes_are_those_of_both_models_that_have_it() -> None:
    for config in (KIMI_K3, KIMI_LINEAR_48B):
        assert (config.kda_head_dim, config.kda_conv_width) == (128, 4)
        assert config.rms_norm_eps == 1e-5


@CONFIGS
def test_a_snapshot_starts_every_block_of_layers(config: ModelConfig) -> None:
    if config.residual_block_layers is None:
        assert config.residual_blocks == 0
    else:
        blocks = math.ceil(config.num_layers / config.residual_block_layers)
        assert config.residual_blocks == blocks


@CONFIGS
def test_the_router_accepts_the_sizes(config: ModelConfig) -> None:
    result = route(
        torch.zeros(1, config.num_experts),
        torch.zeros(config.num_experts),
        top_k=config.experts_per_token,
        num_groups=config.num_expert_groups,
        top_groups=config.kept_expert_groups,
        score_function=config.score_function,
        scaling_factor=config.routed_scaling_factor,
    )
    assert result.expert_ids.tolist() == [list(range(config.experts_per_token))]
    share = torch.tensor(config.routed_scaling_factor / config.experts_per_token)
    assert result.expert_weights.tolist() == [[share.item()] * config.experts_per_token]


@pytest.mark.parametrize("config", [KIMI_K3, SMALL], ids=lambda config: config.name)
def test_the_last_read_mixes_every_snapshot(config: ModelConfig) -> None:
    prefix = torch.ones(1, config.hidden_size, dtype=torch.bfloat16)
    blocks = prefix[:, None].expand(1, config.residual_blocks, config.hidden_size)
    result = attention_residual(
        prefix,
        None,
        blocks,
        torch.zeros(config.hidden_size),
        num_blocks=config.residual_blocks,
        eps=config.rms_norm_eps,
        output_eps=config.rms_norm_eps,
    )
    assert torch.equal(result.hidden, prefix)


def test_names_are_distinct() -> None:
    assert len({config.name for config in (KIMI_K3, KIMI_LINEAR_48B, KIMI_K2, SMALL)}) == 4


@CONFIGS
def test_a_config_cannot_be_changed(config: ModelConfig) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.num_layers = 1


def test_the_small_config_tells_apart_what_the_real_one_confuses() -> None:
    """A transposed or swapped size must not go unnoticed where the real sizes are equal."""
    assert SMALL.residual_blocks < KIMI_K3.residual_blocks
    assert SMALL.num_layers % SMALL.residual_block_layers != 0
    assert len({SMALL.hidden_size, SMALL.latent_size, SMALL.expert_intermediate_size}) == 3
    assert SMALL.qk_nope_head_dim != SMALL.qk_rope_head_dim
