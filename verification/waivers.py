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
        """The ledger of a file; BadLedgerError where an entry is malformed."""
        try:
            entries = tomllib.loads(path.read_text()).get("waiver", [])
            return cls([Waiver.model_validate(entry) for entry in entries])
        except (tomllib.TOMLDecodeError, ValidationError) as error:
            raise BadLedgerError(f"{path.name}: {str(error).splitlines()[0]}") from None

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
