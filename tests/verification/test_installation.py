"""Another distribution's package of the same common name is named before anything runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import verification
from verification.installation import PACKAGES, intruder

HOME = Path(verification.__file__).resolve().parent.parent

PROGRAM = """
import sys
sys.path[:0] = sys.argv[1:]
from verification.installation import intruder
print(intruder())
"""


def told(*path):
    words = [sys.executable, "-c", PROGRAM, *map(str, path)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=HOME)
    return done.stdout.strip() or done.stderr.strip()


def package(folder, name):
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("raise AssertionError('an intruder was imported')\n")


def test_the_projects_own_packages_are_no_intruders():
    assert intruder() is None
    assert told() == "None"


@pytest.mark.parametrize("name", sorted(set(PACKAGES) - {"verification"}))
def test_an_intruder_earlier_on_the_path_is_named_and_never_run(tmp_path, name):
    package(tmp_path, name)
    said = told(tmp_path)
    assert said == f"package {name!r} comes from {tmp_path}, not from {HOME}: use an environment of its own for parity"


def test_a_package_that_is_nowhere_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "comes from nowhere" in intruder()


def test_an_intruder_later_on_the_path_does_no_harm(tmp_path):
    package(tmp_path, "reference")
    assert told(HOME, tmp_path) == "None"
