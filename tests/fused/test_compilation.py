"""Every kernel compiles for gfx950 without a GPU, at integer arguments that Triton specialises."""

from __future__ import annotations

import pytest
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from fused.attention_residual import attention_residual_kernel
from fused.moe_sorting import moe_sorting_kernel
from fused.rms_norm import rms_norm_kernel
from fused.route import route_kernel, router_constants
from fused.route_sort import route_sort_kernel

GFX950 = GPUTarget("hip", "gfx950", 64)

POINTERS = {
    "x_ptr": "bf16", "weight_ptr": "bf16", "y_ptr": "bf16", "prefix_ptr": "bf16", "delta_ptr": "bf16",
    "blocks_ptr": "bf16", "score_weight_ptr": "fp32", "norm_weight_ptr": "bf16", "hidden_ptr": "bf16",
    "logits_ptr": "fp32", "bias_ptr": "fp32", "weights_ptr": "fp32", "sorted_weights_ptr": "fp32", "buffer_ptr": "bf16",
}  # fmt: skip
FLOATS = ("eps", "output_eps", "scaling_factor")

ROUTER = router_constants(
    256, None, top_k=8, num_groups=8, top_groups=4, score_function="sigmoid", renormalize=True, logical_to_physical=None
)
SORTER = {"MASKED": True, "COUNTED": True, "CLEARED": True, "BINS": 512, "TILE": 128, "ZEROED": 8192}
RESIDUAL = {
    "WIDTH": 8192, "BLOCKS": 8, "HAS_DELTA": True, "WRITE": True, "NORM": True, "ROUND_PREFIX": True,
    "ROUND_MIX": True, "TWO_ROUNDINGS": True,
}  # fmt: skip
BIASED = ROUTER | {"BIASED": True, "MAPPED": True}


@pytest.mark.parametrize("ones", [False, True], ids=["plain", "integers-of-one"])
@pytest.mark.parametrize(("kernel", "constants"), [
    (rms_norm_kernel, {"WIDTH": 8192, "TWO_ROUNDINGS": True}),
    (attention_residual_kernel, RESIDUAL),
    (route_kernel, BIASED),
    (moe_sorting_kernel, SORTER | {"TOP_K": 16}),
    (route_sort_kernel, BIASED | SORTER),
], ids=lambda value: getattr(value, "__name__", ""))  # fmt: skip
def test_kernel_compiles_for_gfx950_without_spills(kernel, constants, ones):
    """An integer argument of 1 becomes a constant, which has no dtype to cast: a kernel once failed so."""
    signature, constants = {}, dict(constants)
    for name in kernel.arg_names:
        integer = not name.endswith("_ptr") and name not in FLOATS and name not in constants
        if ones and integer:
            constants[name] = 1
        signature[name] = (
            "constexpr" if name in constants
            else f"*{POINTERS.get(name, 'i32')}" if name.endswith("_ptr")
            else "fp32" if name in FLOATS else "i32"
        )  # fmt: skip
    compiled = compile(ASTSource(kernel, signature, constants, {}), target=GFX950, options={"num_warps": 8})
    assembly = compiled.asm["amdgcn"]
    assert ".vgpr_spill_count: 0" in assembly
    assert ".private_segment_fixed_size: 0" in assembly
    assert compiled.metadata.shared <= 160 * 1024
