"""Branches, waits, barriers and what has no effect on results here."""

from __future__ import annotations

from verification.gfx950.instructions.rows import Row

CONDITIONS = {
    "s_branch": "1", "s_cbranch_scc0": "!w->scc", "s_cbranch_scc1": "w->scc",
    "s_cbranch_vccz": "!sgpr64(w, VCC)", "s_cbranch_vccnz": "sgpr64(w, VCC)",
    "s_cbranch_execz": "!exec_of(w)", "s_cbranch_execnz": "exec_of(w)",
}  # fmt: skip

NO_EFFECT = {
    "s_nop": "immediate", "s_sleep": "immediate", "s_setprio": "immediate", "s_icache_inv": "none",
    "s_dcache_wb": "none", "s_dcache_inv": "none", "buffer_wbl2": "cache", "buffer_inv": "cache",
    "s_ttracedata": "none",
}  # fmt: skip
"""Timing, hints and caches: memory here is coherent at once."""

TABLE = (
    *(Row(name, "control", (), (), f"if ({condition}) w->pc = (u32)i->immediate", "branch")
      for name, condition in CONDITIONS.items()),
    *(Row(name, "control", (), (), "(void)w; (void)i", form) for name, form in NO_EFFECT.items()),
    Row("v_nop", "control", (), (), "(void)w; (void)i", "none"),
    Row("s_waitcnt", "control", (), (), "wait_vector(w, i->extra[0]); wait_local(w, i->extra[1])", "wait"),
    Row("s_barrier", "control", (), (), "(void)i; w->state = AT_BARRIER", "none"),
    Row("s_endpgm", "control", (), (), "(void)i; w->state = ENDED; w->group->ended++", "none"),
    Row("s_setreg_imm32_b32", "control", (), (), "w->saturate = (u8)(i->immediate & 1)", "overflow_mode"),
    Row("s_trap", "control", (), (), "(void)i; fault(w, TRAP, 0, 0, 0, 0)", "immediate"),
    Row("s_memtime", "control", ("s64",), (), "set_sgpr64(w, i->result[0].reg, w->group->launch->clock += 4)", "result"),
    Row("s_memrealtime", "control", ("s64",), (), "set_sgpr64(w, i->result[0].reg, w->group->launch->clock += 4)",
        "result"),
    Row("s_getpc_b64", "control", ("s64",), (), "set_sgpr64(w, i->result[0].reg, CODE_BASE + w->pc)", "result"),
    Row("s_setpc_b64", "control", (), ("s64",), "w->pc = (u32)(sgpr64(w, i->source[0].reg) - CODE_BASE)", "source"),
)  # fmt: skip
