"""Hold the commands to their contract on any input: a target for the fuzzers.

usage: python benchmarks/fuzz_snapshots.py --target fuzz_cli:commands [--cases 10000] [--seed 0] [--keep FOLDER]
       python benchmarks/fuzz_formats.py [--cases 2000] [--seed 0] [--keep FOLDER]

``commands`` gives a case to ``peak`` and, by the case's content, to two of the other commands, in this process. Each must end with 0 or
1 and the whole of its answer on stdout, or with 3, nothing on stdout and one clear line for each problem on stderr; all must agree on
which it is. What they answer must hold together: shares add up to their level, the documents tell the same peak, no output
carries a control character, JSON is strict, and a trace that is converted still gives the same answer.
"""

from __future__ import annotations

import json
import tempfile
import zlib
from pathlib import Path
from typing import Any, NoReturn

from click.testing import CliRunner

from lifecycle_sim.cli import main
from lifecycle_sim.errors import InputError

LONGEST_LINE = 1000
PREFIX = "error: "
ALSO = (
    (("timeline", "--json"), ("lifetimes", "--json")),
    (("check", "--json"), ("lifetimes",)),
    (("timeline", "--by", "span"), ("check",)),
    (("convert", ".jsonl"), ("timeline", "--json", "--by", "span")),
    (("convert", ".npz"), ("lifetimes", "--json", "--leaked")),
    (("peak", "--json", "--by", "stack"), ("peak", "--by", "size", "--at", "-1", "--device", "0")),
    (("convert", ".csv"), ("peak", "--json", "--capacity", "1 GiB")),
)


class BrokenContractError(AssertionError):
    """A command did not answer as it promises."""


def commands(data: bytes, suffix: str = "") -> None:
    """Give *data* to several commands.

    Raises:
        InputError: they refuse it, with the lines that they said on stderr.
        BrokenContractError: one of them broke its promises.
    """
    chosen = zlib.crc32(data)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / f"case{suffix}"
        source.write_bytes(data)
        plain = ("peak", "--json") if chosen % 3 else ("peak",)
        first = _run(source, plain)
        refused = isinstance(first, InputError)
        for arguments in ALSO[chosen % len(ALSO)]:
            other = _run(source, arguments)
            if isinstance(other, InputError) and refused:
                if other.problems != first.problems and "--device" not in arguments:
                    raise BrokenContractError(f"peak said {first.problems}, {arguments} said {other.problems}")
            elif isinstance(other, InputError) or refused:
                if not _may_differ(arguments, other):
                    raise BrokenContractError(f"peak answered {first!r:.500}, {arguments} answered {other!r:.500}")
            elif isinstance(first, dict):
                _agree(first, other, arguments, source)
    if isinstance(first, InputError):
        raise first


def _run(source: Path, arguments: tuple[str, ...]) -> Any:
    """Return a command's document, the tables it printed, the file it wrote, or an InputError of the lines on stderr."""
    output = source.with_name(f"converted{arguments[1]}") if arguments[0] == "convert" else None
    given = ["convert", str(source), "-o", str(output)] if output else [arguments[0], str(source), *arguments[1:]]
    result = CliRunner().invoke(main, given)

    def broken(why: str) -> NoReturn:
        raise BrokenContractError(
            f"{given}: {why}; exit code {result.exit_code}, stdout {result.stdout!r:.500}, stderr {result.stderr!r:.2000}"
        )

    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if result.exit_code == 3:
        return InputError(_problems(result.stderr.replace(str(source), "case"), result.stdout, output, broken))
    if result.exit_code == 2 and "--at" in arguments and "needs one device" in result.stderr:
        return ""
    if result.exit_code not in (0, 1):
        broken("ended in no way that it promises")
    if any(not line.endswith(" …") for line in result.stderr.splitlines()):
        broken("said something though it answered")
    if output:
        if result.stdout or not output.is_file() or not output.stat().st_size:
            broken("wrote no file, or printed")
        return output
    if not result.stdout.endswith("\n") or any(not c.isprintable() and c != "\n" for c in result.stdout):
        broken("printed nothing, or a control character")
    if "--json" not in arguments:
        return result.stdout
    document = json.loads(result.stdout, parse_constant=lambda name: broken(f"printed {name}"))
    if document["schema"] != f"lifecycle-sim/{arguments[0]}/1":
        broken("printed another schema")
    _hold(document, broken)
    return document


def _problems(said: str, printed: str, output: Path | None, broken: Any) -> list[str]:
    lines = [line for line in said.removesuffix("\n").split("\n") if line.startswith(PREFIX) or not line.endswith(" …")]
    if printed or (output and output.exists()):
        broken("refused, but printed or wrote something")
    for line in lines:
        if not line.startswith(PREFIX) or not line.isprintable() or len(line) > LONGEST_LINE or "internal error" in line:
            broken("refused unclearly")
    return [line.removeprefix(PREFIX) for line in lines]


def _hold(document: dict[str, Any], broken: Any) -> None:
    """Check what must hold within one document."""
    for device in document["devices"]:
        owners, steady = device.get("owners"), device.get("steady_state")
        if owners and sum(share["bytes"] for share in owners["shares"]) != owners["bytes"]:
            broken("shares do not add up")
        if owners and device["storages"] and any(share["bytes"] < 0 for share in owners["shares"]):
            broken("a share of storages is negative")
        peak = device.get("peak")
        if peak and not (peak["lower"] <= peak["bytes"] and (peak["upper"] is None or peak["bytes"] <= peak["upper"])):
            broken("the peak is outside its bounds")
        if peak and peak["exact"] != (peak["lower"] == peak["bytes"] == peak["upper"]):
            broken("exact means that the bounds are equal")
        if "points" in device and max(device["points"]["bytes"]) != peak["bytes"]:
            broken("the peak is not among the points")
        if steady and steady["level"] is not None and steady["peak"] is not None and steady["peak"]["bytes"] > peak["bytes"]:
            broken("a step has a higher peak than the whole")
        spans = device.get("lifespans")
        if spans and sum(cell["bytes"] for cell in spans["cells"]) != sum(
            spans[name]["bytes"] for name in ("temporary", "passing", "long_lived", "older_freed")
        ):
            broken("the table of lifespans does not add up")


def _may_differ(arguments: tuple[str, ...], other: Any) -> bool:
    """Whether a command may refuse what another answers: some need identities, some a second question's object to be there."""
    if arguments[0] == "convert" and arguments[1] != ".csv":
        return not isinstance(other, InputError)  # a trace of no device can be converted, though there is nothing to ask of it
    return "--device" in arguments or (isinstance(other, InputError) and "without identities" in " ".join(other.problems))


def _agree(first: dict[str, Any], other: Any, arguments: tuple[str, ...], source: Path) -> None:
    """Check what must hold between a ``peak --json`` document and what another command answered."""
    if isinstance(other, dict):
        if other["source"] != first["source"]:
            raise BrokenContractError(f"peak read {first['source']}, {arguments} {other['source']}")
        if "--device" in arguments:
            return
        for one, another in zip(first["devices"], other["devices"], strict=True):
            for key in ("device", "events", "basis", "peak", "start", "end", "storages", "reconciliation"):
                if key in one and key in another and one[key] != another[key]:
                    raise BrokenContractError(f"peak: {key} {one[key]}; {arguments}: {another[key]}")
    elif isinstance(other, Path) and other.suffix != ".csv":
        again = _run(other, ("peak", "--json"))
        if not isinstance(again, dict) or again["devices"] != first["devices"]:
            raise BrokenContractError(f"the converted trace answers otherwise: {again!r:.1500} {first!r:.1500}")
    elif isinstance(other, Path):
        again = _run(other, ("peak", "--json"))
        highest = max(device["peak"]["bytes"] for device in first["devices"])
        if isinstance(again, InputError) or again["devices"][0]["peak"]["bytes"] != highest:
            raise BrokenContractError(f"as a minimalloc instance it answers otherwise: {again!r:.1500}, should be {highest}")
