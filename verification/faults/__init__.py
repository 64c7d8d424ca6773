"""Implementations with exactly one thing wrong, a file an operator, and kernels that cheat."""
