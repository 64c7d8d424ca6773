from __future__ import annotations

from types import SimpleNamespace

import pytest

from .checking import check_exec, check_vector, integers, words
from .execution import execute, masked, named, span
from .formats import agrees, decode, drawn, encoded, generator_for


@pytest.fixture(scope="session")
def lanes():
    """`lanes.execute`, `lanes.check_vector`, and what they need."""
    functions = (execute, masked, named, span, check_vector, check_exec, words, integers, decode, encoded, drawn,
                 generator_for, agrees)  # fmt: skip
    return SimpleNamespace(**{function.__name__: function for function in functions})
