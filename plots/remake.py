"""Remakes what the documentation shows: every figure of the gallery, and the output under each command of the README and of docs/.

A command line begins with ``$ lifecycle-sim``. Run from anywhere: ``python -m plots.remake``.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

GALLERY = Path(__file__).with_name("README.md")
ROOT = GALLERY.parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
"""The documents whose commands stand with their output."""
PROMPT = "$ lifecycle-sim "
SHOWN = re.compile(r"```console\n\$ lifecycle-sim (?P<command>[^\n]+)\n(?P<output>.*?)```", re.DOTALL)
"""A command in a document, with the output below it."""


def commands(text: str) -> list[list[str]]:
    """Return the arguments of each command line in *text*."""
    return [shlex.split(line.removeprefix(PROMPT)) for line in text.splitlines() if line.startswith(PROMPT)]


def printed(command: str) -> str:
    """Return what the command line *command* prints on standard output, 100 columns wide, without trailing blanks."""
    program = [sys.executable, "-m", "lifecycle_sim", *shlex.split(command)]
    environment = os.environ | {"COLUMNS": "100"}
    done = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", check=False)
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


def main() -> int:
    """Remake it all; return how many figures failed."""
    failed = 0
    for arguments in commands(GALLERY.read_text(encoding="utf-8")):
        done = subprocess.run([sys.executable, "-m", "lifecycle_sim", *arguments, "--force"], cwd=ROOT, check=False)
        failed += done.returncode not in (0, 1)  # 1 is an answer: it does not fit
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(
            SHOWN.sub(lambda found: f"```console\n{PROMPT}{found['command']}\n{printed(found['command'])}```", text), encoding="utf-8"
        )
    return failed


if __name__ == "__main__":
    sys.exit(main())
