"""Remakes every figure of the gallery: runs each command line of plots/README.md that begins with ``$ lifecycle-sim``."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

GALLERY = Path(__file__).with_name("README.md")
PROMPT = "$ lifecycle-sim "


def commands(text: str) -> list[list[str]]:
    """Return the arguments of each command line in *text*."""
    return [shlex.split(line.removeprefix(PROMPT)) for line in text.splitlines() if line.startswith(PROMPT)]


def main() -> int:
    """Run them all from the project's root; return how many failed."""
    failed = 0
    for arguments in commands(GALLERY.read_text(encoding="utf-8")):
        done = subprocess.run([sys.executable, "-m", "lifecycle_sim", *arguments, "--force"], cwd=GALLERY.parents[1], check=False)
        failed += done.returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
