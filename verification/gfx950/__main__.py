"""`python -m verification.gfx950 FILE.py [WORDS…]`: a script whose Triton launches run on the executor."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from verification.gfx950 import executor
from verification.gfx950.machine import ExecutionError
from verification.gfx950.models import models_from


def main() -> int:
    """Run the script, then list its launches; exit 1 where a kernel did what it must not."""
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    with executor(models_from(os.environ.get("PARITY_GFX950_MODELS", ""))) as session:
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except ExecutionError as error:
            print(f"parity: {error.kind}: {error}", file=sys.stderr)
            return 1
        finally:
            for launch in session.launches:
                count = launch.outcome.executed if launch.outcome else 0
                print(f"gfx950 executor: {launch.kernel} grid {launch.grid}, {launch.waves} waves: "
                      f"{count} wave-instructions", file=sys.stderr)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
