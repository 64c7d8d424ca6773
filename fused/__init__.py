"""How a GPU computes it: one fused Triton kernel a boundary, with a thin launcher."""
