from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of a model's text backbone that the operators need; counts unless a unit is named."""

    name: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_experts: int
    experts_per_token: int
    num_shared_experts: int
    expert_intermediate_size: int
    num_expert_groups: int
    kept_expert_groups: int
    routed_scaling_factor: float
    score_function: str
    num_heads: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    q_lora_rank: int | None = None
    latent_size: int | None = None
    residual_block_layers: int | None = None
    residual_blocks: int = 0
    rms_norm_eps: float = 1e-5
    kda_head_dim: int = 128
    kda_conv_width: int = 4
    kda_lower_bound: float | None = None
    situ_beta: float | None = None
    situ_linear_beta: float | None = None


KIMI_K3 = ModelConfig(
    name="kimi-k3", vocab_size=163840, hidden_size=7168, num_layers=93,
    num_experts=896, experts_per_token=16, num_shared_experts=2, expert_intermediate_size=3072,
    num_expert_groups=1, kept_expert_groups=1, routed_scaling_factor=1.0, score_function="sigmoid",
    num_heads=96, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
    q_lora_rank=1536, latent_size=3584, residual_block_layers=12, residual_blocks=8,
    kda_lower_bound=-5.0, situ_beta=4.0, situ_linear_beta=25.0,
)  # fmt: skip

KIMI_LINEAR_48B = ModelConfig(
    name="kimi-linear-48b", vocab_size=163840, hidden_size=2304, num_layers=27,
    num_experts=256, experts_per_token=8, num_shared_experts=1, expert_intermediate_size=1024,
    num_expert_groups=1, kept_expert_groups=1, routed_scaling_factor=2.446, score_function="sigmoid",
    num_heads=32, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
)  # fmt: skip

KIMI_K2 = ModelConfig(
    name="kimi-k2", vocab_size=163840, hidden_size=7168, num_layers=61,
    num_experts=384, experts_per_token=8, num_shared_experts=1, expert_intermediate_size=2048,
    num_expert_groups=1, kept_expert_groups=1, routed_scaling_factor=2.827, score_function="sigmoid",
    num_heads=64, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
    q_lora_rank=1536,
)  # fmt: skip

SMALL = ModelConfig(
    name="small", vocab_size=512, hidden_size=192, num_layers=5,
    num_experts=24, experts_per_token=4, num_shared_experts=1, expert_intermediate_size=64,
    num_expert_groups=1, kept_expert_groups=1, routed_scaling_factor=1.0, score_function="sigmoid",
    num_heads=3, kv_lora_rank=64, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
    q_lora_rank=48, latent_size=96, residual_block_layers=2, residual_blocks=3,
    kda_head_dim=16, kda_lower_bound=-5.0, situ_beta=4.0, situ_linear_beta=25.0,
)  # fmt: skip
"""Odd and tiny on purpose, for tests."""
