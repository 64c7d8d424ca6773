"""Is it the same? The differential harness: cases, budgets, comparison, records, reports."""

from fused.boundary import candidate

__all__ = ["candidate"]
