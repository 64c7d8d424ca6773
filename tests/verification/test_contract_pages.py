"""The committed pages are what docstrings and contracts say now, one an operator."""

from __future__ import annotations

from pathlib import Path

import pytest

from verification import cli
from verification.operator import operators
from verification.report.contracts import pages

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "contracts"
HEADINGS = ("## Rounding points", "## Variants", "## Special values", "## Compared", "## Laws", "## Cases")


@pytest.fixture(scope="module")
def made():
    return pages()


def test_every_operator_has_a_page_with_every_part(made):
    assert set(made) == {"README.md", *(f"{name}.md" for name in operators())}
    for name, text in made.items():
        if name != "README.md":
            assert [heading for heading in HEADINGS if heading not in text] == [], name
            assert "Shapes:" in text
            assert "Source:" in text


def test_the_committed_pages_are_current(made):
    committed = {path.name: path.read_text() for path in FOLDER.glob("*.md")}
    stale = sorted(name for name in made.keys() | committed if made.get(name) != committed.get(name))
    assert stale == [], "run `parity report contracts docs/contracts`"


def test_pages_are_written_where_asked_and_an_unwritable_place_is_refused(tmp_path):
    with pytest.raises(SystemExit) as ended:
        cli.main(["report", "contracts", str(tmp_path / "new")])
    assert not ended.value.code
    assert len(list((tmp_path / "new").iterdir())) == len(operators()) + 1
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as ended:
        cli.main(["report", "contracts", str(tmp_path / "file")])
    assert ended.value.code == 2
