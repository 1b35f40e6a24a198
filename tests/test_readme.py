"""The documentation is true: each command it shows is run and prints what stands below it, and its Python runs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lifecycle_sim.cli import COMMANDS
from plots.remake import GALLERY, PAGES, SHOWN, commands, printed
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = {found["command"]: found["output"] for page in PAGES for found in SHOWN.finditer(page.read_text(encoding="utf-8"))}


@pytest.mark.parametrize(("command", "output"), EXAMPLES.items(), ids=EXAMPLES)
def test_a_command_prints_what_the_documentation_shows(command: str, output: str) -> None:
    if re.search(r" scenarios/capture/\S+\.py", command):
        pytest.importorskip("torch", reason="torch is not installed: this command captures")
    assert printed(command) == output


def test_a_command_is_shown_with_its_output_once() -> None:
    shown = [found["command"] for page in PAGES for found in SHOWN.finditer(page.read_text(encoding="utf-8"))]
    assert sorted(EXAMPLES) == sorted(shown)


def test_what_the_readme_quotes_is_what_the_command_before_it_says() -> None:
    (found,) = re.finditer(r"`lifecycle-sim ([^`]+)` says:\n\n((?:> [^\n]+\n)+)", README)
    quoted = " ".join(found[2].replace("> ", "").split())
    assert quoted in " ".join(printed(found[1]).split())


JOB = r" (\w+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|"
LEVELS = ("requested_bytes", "allocated_bytes", "reserved_bytes")


def jobs(pattern: str, text: str) -> dict[str, tuple[int, ...]]:
    """Return the bytes that stand beside each job in the tables of *text*."""
    return {job: tuple(int(size.replace(",", "")) for size in sizes) for job, *sizes in re.findall(pattern, text, re.MULTILINE)}


def jobs_shown() -> dict[str, tuple[int, ...]]:
    (table,) = re.findall(r"<details>.*?</details>", README, re.DOTALL)
    found = jobs(JOB, table)
    assert f"All {len(found)} jobs" in table
    return found


def test_the_jobs_of_the_families_are_the_recorded_ones() -> None:
    recorded = {}
    for job, steps in json.loads((ROOT / "tests" / "data" / "families.json").read_text(encoding="utf-8")).items():
        recorded[job] = tuple(max(step[level][0] for step in steps) for level in range(3))
    assert recorded.items() <= jobs_shown().items()
    page = (ROOT / "docs" / "capture.md").read_text(encoding="utf-8")
    assert jobs(r"^\| (\w+) \| ([\d,]+) \| 0 \| ([\d,]+) \| 0 \| ([\d,]+) \| 0 \|$", page) == recorded


def test_the_stub_jobs_are_the_recorded_ones(shared: Path) -> None:
    for job, recorded in json.loads((shared / "data" / "stub_jobs.json").read_text(encoding="utf-8")).items():
        assert jobs_shown()[job] == tuple(max(step[level]["peak"] for step in recorded["steps"]) for level in LEVELS)


def test_the_readme_and_the_index_lead_everywhere() -> None:
    for command in COMMANDS:
        assert f"`lifecycle-sim {command} " in README, f"no question leads to {command}"
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"} == set(
        re.findall(r"^\| \[([\w-]+\.md)\]", index, re.MULTILINE)
    )
    assert len(README.splitlines()) <= 420


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


def anchors(document: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of *document*."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_documents_link_to_files_and_headings_that_exist() -> None:
    for document in [*ROOT.glob("*.md"), *ROOT.glob("*/*.md")]:
        for target, heading in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", document.read_text(encoding="utf-8")):
            linked = document.parent / target if target else document
            assert linked.exists(), f"{document.name} links to {target}"
            assert not heading or heading in anchors(linked), f"{document.name} links to {target}#{heading}"
