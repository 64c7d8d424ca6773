"""The ledger of known failures: each entry names checks, a tracker and the day it ends."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from verification.records import Record

LEDGER = Path(__file__).with_name("waivers.toml")


class BadLedgerError(ValueError):
    """The ledger cannot be read; the message names the entry and the reason."""


class Waiver(BaseModel):
    """Checks that are known to fail, until a day."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    pattern: str = Field(description="Matches check ids, shell style")
    tracker: str = Field(min_length=3, description="Where the failure is followed up")
    expires: date
    reason: str


class Waivers:
    """Waivers in force, and what each of them met."""

    def __init__(self, waivers: Iterable[Waiver], today: date | None = None) -> None:
        self.waivers = tuple(waivers)
        self.today = today or datetime.now(UTC).date()
        self.met: dict[str, int] = {waiver.id: 0 for waiver in self.waivers}
        self.passed: list[tuple[str, str]] = []

    @classmethod
    def read(cls, path: Path = LEDGER) -> Waivers:
        """The ledger of a file; BadLedgerError names the entry that is malformed, and why."""
        try:
            entries = tomllib.loads(path.read_text(encoding="utf-8")).get("waiver", [])
        except tomllib.TOMLDecodeError as error:
            raise BadLedgerError(f"{path.name}: {error}") from None
        if not isinstance(entries, list):
            raise BadLedgerError(f"{path.name}: waiver is {entries!r}; expected [[waiver]] tables")
        waivers = [_read(path, number, entry) for number, entry in enumerate(entries, start=1)]
        repeated = {w.id for w in waivers if sum(other.id == w.id for other in waivers) > 1}
        if repeated:
            raise BadLedgerError(f"{path.name}: more than one waiver is called {', '.join(sorted(repeated))}")
        return cls(waivers)

    def applied(self, record: Record) -> Record:
        """The record, `waived` where a waiver in force covers its failure."""
        for waiver in self.waivers:
            if not fnmatchcase(record.check, waiver.pattern):
                continue
            self.met[waiver.id] += 1
            if record.verdict == "passed":
                self.passed.append((waiver.id, record.check))
            elif record.verdict in ("failed", "error") and self.today <= waiver.expires:
                return record.model_copy(update={"verdict": "waived", "waiver": waiver.id})
        return record

    def complaints(self, *, whole: bool) -> list[str]:
        """What is wrong with the ledger itself: unexpected passes, expiries, patterns that met nothing."""
        found = [f"waiver {name}: {check} passes; remove the waiver" for name, check in self.passed]
        found += [
            f"waiver {w.id} expired on {w.expires}; see {w.tracker}" for w in self.waivers if w.expires < self.today
        ]
        if whole:
            found += [f"waiver {w.id}: {w.pattern!r} matches no check" for w in self.waivers if not self.met[w.id]]
        return found


def _read(path: Path, number: int, entry: object) -> Waiver:
    try:
        return Waiver.model_validate(entry)
    except ValidationError as error:
        first = error.errors()[0]
        name = entry.get("id", number) if isinstance(entry, dict) else number
        where = ".".join(map(str, first["loc"])) or "the entry"
        raise BadLedgerError(f"{path.name}: waiver {name}: {where}: {first['msg']}") from None
