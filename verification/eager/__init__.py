"""Idiomatic production torch for each operator, on every torch device; judged like any kernel."""
