"""What a compiled kernel takes of a compute unit, and the limits that it must keep."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from verification.gfx950.assembly import read
from verification.gfx950.driver import LaunchRecord

LDS_BYTES = {"gfx950": 160 * 1024, "gfx942": 64 * 1024}
REGISTERS = 512
"""VGPRs a lane of a SIMD, of both kinds together; a wave is given them in eights."""
MOST_WAVES = 8
SIMDS = 4
CODE_BYTES = re.compile(r"^; codeLenInByte = (\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Resources:
    """Registers a lane, bytes, and matrix instructions of one compiled kernel."""

    kernel: str
    architecture: str
    warps: int
    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    scratch_bytes: int
    lds_bytes: int
    occupancy: int
    """Waves of a SIMD at once, by registers and LDS."""
    instructions: int
    code_bytes: int
    matrix: dict[str, int]
    """Matrix instructions by opcode."""
    dots: int
    """Dots of the source, as they stand in Triton's IR."""

    def broken_limits(self, *, may_spill: bool = False) -> list[str]:
        """Each limit that is not kept: the number and the limit."""
        found = []
        limit = LDS_BYTES[self.architecture]
        if self.lds_bytes > limit:
            found.append(f"{self.kernel}: {self.lds_bytes} bytes of LDS; {self.architecture} has {limit}")
        if not may_spill:
            numbers = {name: getattr(self, name) for name in ("vgpr_spills", "sgpr_spills", "scratch_bytes")}
            found += [
                f"{self.kernel}: {name.replace('_', ' ')} {n}; the limit is 0" for name, n in numbers.items() if n
            ]
        if self.dots and not self.matrix:
            found.append(f"{self.kernel}: {self.dots} dots in its source, and no matrix instruction in its code")
        return found

    def row(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def resources_of(launch: LaunchRecord, architecture: str) -> Resources:
    """Read off a compiled kernel's assembly and metadata."""
    listing = read(launch.assembly)
    declared = listing.metadata
    matrix = Counter(line.opcode for line in listing.lines if line.opcode.startswith(("v_mfma", "v_smfmac")))
    registers = max(declared.get("vgpr_count", 0), 1)
    lds = int(launch.metadata.shared)
    code = CODE_BYTES.search(launch.assembly)
    return Resources(
        kernel=launch.kernel, architecture=architecture, warps=launch.waves, vgprs=registers,
        agprs=declared.get("agpr_count", 0), sgprs=declared.get("sgpr_count", 0),
        vgpr_spills=declared.get("vgpr_spill_count", 0), sgpr_spills=declared.get("sgpr_spill_count", 0),
        scratch_bytes=declared.get("private_segment_fixed_size", 0), lds_bytes=lds,
        occupancy=_occupancy(registers, lds, launch.waves, architecture), instructions=len(listing.lines),
        code_bytes=int(code.group(1)) if code else 0, matrix=dict(matrix),
        dots=len(re.findall(r"\btt\.dot(?:_scaled)?\b", launch.ttgir)),
    )  # fmt: skip


def _occupancy(registers: int, lds: int, waves: int, architecture: str) -> int:
    by_registers = REGISTERS // (-(-registers // 8) * 8)
    groups = LDS_BYTES[architecture] // lds if lds else MOST_WAVES * SIMDS
    return max(0, min(MOST_WAVES, by_registers, max(1, groups * waves // SIMDS) if groups else 0))
