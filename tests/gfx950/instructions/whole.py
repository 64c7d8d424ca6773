"""What formulas on integers share."""

from __future__ import annotations

M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def signed(x, bits=32):
    x &= (1 << bits) - 1
    return x - (x >> bits - 1 << bits)


def bounded(least, most):
    return lambda x: max(least, min(most, x))


def lowest(x):
    """The place of the lowest one, or −1."""
    return (x & -x).bit_length() - 1 if x else -1


def highest(x, bits=32):
    """Zeros above the highest one, or −1."""
    return bits - x.bit_length() if x else -1


def reverse(x, bits=32):
    return int(f"{x:0{bits}b}"[::-1], 2)
