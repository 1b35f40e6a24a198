"""Figures are written whole, with the same bytes each time, and never over a file without being told to."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from lifecycle_sim.errors import InputError, OutputExistsError
from lifecycle_sim.events import Basis, Clock, DeviceTrace, Events, Evidence, Kind, Trace
from lifecycle_sim.output.figures import composition, lifecycle_chart, save, size_span, timeline
from lifecycle_sim.replay import replay_device

EVENTS = Events.of([Kind.ALLOC, Kind.ALLOC, Kind.FREE], [1, 2, 1], [1024, 2048, 1024], category=[1, 5, 1])
REPLAYED = replay_device(Trace((DeviceTrace("gpu", EVENTS, Basis.PAYLOAD, start=0),), "scenario", Evidence.SIMULATED, Clock.NONE))


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
@pytest.mark.parametrize("draw", [timeline, lifecycle_chart, composition, size_span])
def test_same_figure_same_bytes(draw, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = save(draw(REPLAYED), tmp_path / f"first{suffix}").read_bytes()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert save(draw(REPLAYED), tmp_path / f"second{suffix}").read_bytes() == first
    assert b"dc:date" not in first
    assert b"CreationDate" not in first


def test_a_file_that_is_there_is_kept_unless_forced(tmp_path: Path) -> None:
    target = tmp_path / "figure.svg"
    target.write_text("mine")
    with pytest.raises(OutputExistsError, match="exists already"):
        save(timeline(REPLAYED), target)
    assert target.read_text() == "mine"
    save(timeline(REPLAYED), target, force=True)
    assert target.read_text().startswith("<?xml")
    assert [path.name for path in tmp_path.iterdir()] == ["figure.svg"]


def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object, **_kinds: object) -> None:
        raise OSError(28, "No space left on device")

    target = tmp_path / "figure.png"
    target.write_text("mine")
    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="No space left"):
        save(timeline(REPLAYED), target, force=True)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("name", "message"), [("figure.gif", "gif"), ("figure", "without a suffix"), ("nowhere/figure.svg", "does not exist")]
)
def test_refusals_say_why(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises((InputError, FileNotFoundError), match=message):
        save(timeline(REPLAYED), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_axes_in_a_subfigure_need_the_figure(tmp_path: Path) -> None:
    figure = Figure()
    ax = timeline(REPLAYED, ax=figure.subfigures(1, 1).subplots())
    with pytest.raises(InputError, match="given itself"):
        save(ax, tmp_path / "figure.png")
    assert save(figure, tmp_path / "figure.png").exists()
