"""The documentation is true: each command it shows is run and prints what stands below it, and its Python runs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from plots.remake import GALLERY, SHOWN, commands, printed
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = [(found["command"], found["output"]) for found in SHOWN.finditer(README)]


@pytest.mark.parametrize(("command", "output"), EXAMPLES, ids=[command for command, _ in EXAMPLES])
def test_a_command_prints_what_the_readme_shows(command: str, output: str) -> None:
    if " scenarios/capture/" in command:
        pytest.importorskip("torch", reason="torch is not installed: this command captures")
    assert printed(command) == output


def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    program = [sys.executable, "-c", code]
    done = subprocess.run(program, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True)
    promised = re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
    assert promised
    assert set(promised) <= set(done.stdout.splitlines())
    assert (tmp_path / "timeline.png").stat().st_size > 10_000


def test_every_figure_of_the_gallery_is_there_with_its_command() -> None:
    text = GALLERY.read_text(encoding="utf-8")
    shown = set(re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text))
    made = {Path(arguments[arguments.index("-o") + 1]).name for arguments in commands(text)}
    assert shown == made
    assert all((GALLERY.parent / name).is_file() for name in shown)
    assert set(re.findall(r"\]\(plots/([\w-]+\.png)\)", README)) <= shown


def test_documents_link_to_files_that_exist() -> None:
    for document in [*ROOT.glob("*.md"), *ROOT.glob("*/*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_the_table_of_jobs_has_every_job_and_its_recorded_peaks() -> None:
    recorded = json.loads((ROOT / "tests" / "data" / "families.json").read_text())
    found = re.findall(r"^\| (\w+) \| ([\d,]+) \| 0 \| ([\d,]+) \| 0 \| ([\d,]+) \| 0 \|$", README, re.MULTILINE)
    assert [name for name, *_ in found] == list(recorded)
    for name, *peaks in found:
        assert peaks == [f"{max(step[level][0] for step in recorded[name]):,}" for level in range(3)], name
    assert f"| {len(recorded)} jobs of the usual families" in README
