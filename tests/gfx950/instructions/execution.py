"""One instruction in a kernel of its own: inputs from memory into registers, the instruction, results to memory."""

from __future__ import annotations

import struct

import numpy as np
import torch

from verification.gfx950.assembly import read
from verification.gfx950.encoding import encode
from verification.gfx950.machine import Grid, run
from verification.gfx950.memory import reach_of
from verification.gfx950.models import Models

LANES = 64
SCALARS = 16

HEAD = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_load_dwordx2 s[6:7], s[0:1], 0x8
s_load_dwordx2 s[8:9], s[0:1], 0x10
s_load_dwordx2 s[12:13], s[0:1], 0x18
s_waitcnt lgkmcnt(0)
s_mul_i32 s10, s2, {read}
s_add_u32 s4, s4, s10
s_addc_u32 s5, s5, 0
s_mul_i32 s10, s2, 64
s_add_u32 s6, s6, s10
s_addc_u32 s7, s7, 0
s_mul_i32 s10, s2, {written}
s_add_u32 s8, s8, s10
s_addc_u32 s9, s9, 0
v_lshlrev_b32 v1, 2, v0
s_load_dwordx16 s[32:47], s[6:7], 0x0
"""
TAIL = """
s_waitcnt vmcnt(0) lgkmcnt(0)
s_cselect_b32 s90, 1, 0
s_mov_b64 s[92:93], exec
s_mov_b64 exec, -1
"""
DIRECTIVES = """
.amdhsa_kernel k
.amdhsa_user_sgpr_count 2
.amdhsa_user_sgpr_kernarg_segment_ptr 1
.amdhsa_system_sgpr_workgroup_id_x 1
.amdhsa_float_denorm_mode_32 {denormals}
.amdhsa_fp16_overflow {overflow}
.amdhsa_private_segment_fixed_size {scratch}
.end_amdhsa_kernel
"""


def masked(mask):
    """What leaves on the lanes of a mask alone."""
    return f"s_mov_b32 exec_lo, {mask & 0xFFFFFFFF:#x}\ns_mov_b32 exec_hi, {mask >> 32:#x}\n"


def span(first, words):
    """So many vector registers."""
    return f"v{first}" if words == 1 else f"v[{first}:{first + words - 1}]"


def named(first, words):
    """The names of so many vector registers."""
    return [f"v{first + k}" for k in range(words)]


def execute(body, vectors, scalars=None, results=(), *, lds=0, scratch=0, memory=None, denormals=3, overflow=0,
            models=None):  # fmt: skip
    """Run `body` on each group of inputs: v10, v11, ... hold vectors[group], s32 to s47 scalars[group].

    `results` names registers; of the answer [group, result, lane] scalars fill all lanes. s90 is scc and
    s[92:93] exec after the body; s[12:13] is the address of `memory`, which is changed in place.
    """
    vectors = np.ascontiguousarray(vectors, np.uint32)
    groups, words, _ = vectors.shape
    scalars = np.zeros((groups, SCALARS), np.uint32) if scalars is None else np.ascontiguousarray(scalars, np.uint32)
    results = results or ("v0",)
    out = np.zeros((groups, len(results), LANES), np.uint32)
    memory = np.zeros(16, np.uint8) if memory is None else memory
    text = _kernel(body, words, results) + DIRECTIVES.format(denormals=denormals, overflow=overflow, scratch=scratch)
    reaches, kernarg = [], b""
    for name, array in {"vectors": vectors, "scalars": scalars, "out": out, "memory": memory}.items():
        tensor = torch.from_numpy(array.reshape(-1).view(np.uint8))
        reaches.append(reach_of(name, tensor))
        kernarg += struct.pack("<Q", tensor.data_ptr())
    run(Grid(encode(read(text)), (groups, 1, 1), 1, lds, kernarg, reaches), models or Models())
    return out


def _kernel(body, words, results):
    lines = [HEAD.format(read=words * 256, written=len(results) * 256)]
    lines += [f"global_load_dword v{10 + k}, v1, s[4:5] offset:{256 * k}" for k in range(words)]
    lines += ["s_waitcnt vmcnt(0) lgkmcnt(0)", body, TAIL]
    for k, name in enumerate(results):
        register = name
        if name[0] not in "v":
            lines.append(f"v_mov_b32 v250, {name}")
            register = "v250"
        lines.append(f"global_store_dword v1, {register}, s[8:9] offset:{256 * k}")
    return "\n".join(line.strip() for line in "\n".join([*lines, "s_endpgm"]).splitlines())
