"""The look that all figures share: colours, names, titles and axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.legend import Legend
from matplotlib.patches import Patch

from lifecycle_sim.events import Kind
from lifecycle_sim.output.figures.picture import new_picture
from lifecycle_sim.output.printable import shown
from lifecycle_sim.replay import DeviceReplay
from lifecycle_sim.replay.attribution import UNIDENTIFIED_KEY
from lifecycle_sim.replay.grouping import LOST_KEY, NO_LABEL_KEY, NO_STACK_KEY, OLDER_KEY, OUTSIDE_KEY
from lifecycle_sim.units import format_bytes

INK, MUTED, FAINT, PAPER = "#1F2328", "#6A737D", "#E3E6E8", "#FFFFFF"
PEAK, STEADY, CAPACITY, GAP = "#B2182B", "#1F2328", "#B2182B", "#8A6D3B"
RESERVED = "#D9730D"

CATEGORY_COLOURS = {
    "parameter": "#4477AA",
    "buffer": "#332288",
    "optimizer_state": "#AA4499",
    "gradient": "#EE6677",
    "activation": "#228833",
    "input": "#66CCEE",
    "temporary": "#DDB23D",
    "workspace": "#6E6259",
    "unknown": "#BBBBBB",
}
"""One colour a category in every figure; from Paul Tol's colour-blind safe sets."""

SEQUENCE = ("#4477AA", "#EE6677", "#228833", "#DDB23D", "#AA4499", "#66CCEE", "#882255", "#44AA99", "#999933", "#332288", "#CC8963")
"""Colours of groups that are no categories, by rank."""

OTHERS, NAMELESS, HATCHING = "#C4CBD0", "#AEB5BB", "#A1AAB2"
SPECIAL: dict[str, tuple[str, str]] = {
    NO_STACK_KEY: ("#8F99A2", ""),
    OLDER_KEY[:-1]: ("#C9CFD4", "//"),
    LOST_KEY: ("#C9CFD4", "xx"),
    UNIDENTIFIED_KEY: ("#C9CFD4", ".."),
    OUTSIDE_KEY: ("#C4B9A2", ""),
    NO_LABEL_KEY: ("#DAD3C4", ""),
}
"""Colour and hatching of the groups that have no real name, by how their names begin: the same in every figure."""

SMALL, NORMAL, LARGE = 8.0, 9.0, 11.0
LONGEST_NAME = 44
LONGEST_TITLE = 60


def new_axes(ax: Axes | None, width: float = 10.0, height: float = 4.6) -> Axes:
    """Return *ax*, or, if it is None, the axes of a new figure of *width* by *height* inches that belongs to no window."""
    return new_picture(width, height) if ax is None else ax


def dress(
    ax: Axes, headline: str, replayed: DeviceReplay, grid: Literal["x", "y", "both"] = "y", above: float = 0.0, title: str = ""
) -> None:
    """Give *ax* its headline, with *title* and the source below it, and quiet spines, ticks and grid lines.

    *above* points above *ax* stay free.
    """
    frame(ax, headline, source(replayed, title), grid, above)


def frame(ax: Axes, headline: str, below: str, grid: Literal["x", "y", "both"] = "y", above: float = 0.0) -> None:
    """Give *ax* its headline, the words *below* it, and quiet spines, ticks and grid lines; *above* points above *ax* stay free."""
    ax.set_title(headline, loc="left", fontsize=LARGE, fontweight="bold", color=INK, pad=above + 21, parse_math=False)
    ax.annotate(
        below,
        xy=(0, 1),
        xycoords="axes fraction",
        xytext=(0, above + 7),
        textcoords="offset points",
        fontsize=SMALL,
        color=MUTED,
        annotation_clip=False,
        parse_math=False,
    )
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(MUTED)
    ax.tick_params(labelsize=SMALL, colors=MUTED, labelcolor=INK, length=3)
    ax.xaxis.label.set(fontsize=NORMAL, color=INK)
    ax.yaxis.label.set(fontsize=NORMAL, color=INK)
    ax.set_axisbelow(True)
    ax.grid(axis=grid, color=FAINT, linewidth=0.6)


def source(replayed: DeviceReplay, title: str = "") -> str:
    """Return where the events come from and how many they are: *title*, such as a file's name, the scenario's own title, the format."""
    release = f" of PyTorch {replayed.trace.release}" if replayed.trace.release else ""
    own = str(replayed.trace.settings.get("title") or "")
    events = f"{replayed.trace.format}{release}, {counted(len(replayed.recorded), 'event')}"
    return " · ".join(shown(text, LONGEST_TITLE) for text in dict.fromkeys((title, own)) if text) + (" · " if title or own else "") + events


def counted(count: int, noun: str) -> str:
    """Return *count* with its *noun*: ``"1 event"``, ``"2,988 events"``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def basis(replayed: DeviceReplay) -> str:
    """Return what the bytes of *replayed* are, as axis labels say it: ``"requested bytes, measured"``."""
    return f"{replayed.timeline.basis} bytes, {replayed.timeline.evidence}"


def level_basis(replayed: DeviceReplay) -> str:
    """Return what levels of *replayed* are, as axis labels say it: the basis, and whether they count from a start that is not known."""
    return basis(replayed) + (", above the unknown start" if is_relative(replayed) else "")


def level_text(replayed: DeviceReplay, level: int) -> str:
    """Return *level* for people; where the start is not known, as bytes above it."""
    return f"{format_bytes(level)} above the start" if is_relative(replayed) else format_bytes(level)


def is_relative(replayed: DeviceReplay) -> bool:
    """Whether all levels count from a start that is not known: neither it nor an end to follow storages back from was recorded."""
    recorded = replayed.recorded
    return recorded.start is None and (recorded.final is None or not recorded.identified)


def state_only(replayed: DeviceReplay) -> bool:
    """Whether no allocation and no free was recorded, only what was held when the snapshot was taken."""
    changes = (Kind.ALLOC, Kind.FREE, Kind.FREE_REQUESTED, Kind.FREE_COMPLETED)
    return replayed.recorded.final is not None and not any(np.isin(device.events.kind, changes).any() for device in replayed.trace)


def legend(ax: Axes, entries: Sequence[tuple[Artist, str]], title: str | None = None) -> Legend:
    """Put a legend with *entries* to the right of *ax*, outside."""
    drawn = ax.legend(
        [artist for artist, _ in entries],
        [label for _, label in entries],
        title=title,
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        borderaxespad=0,
        frameon=False,
        fontsize=SMALL,
        title_fontsize=SMALL,
        alignment="left",
        handlelength=1.2,
        labelcolor=INK,
    )
    for text in drawn.get_texts():
        text.set_parse_math(False)
    drawn.get_title().set_color(MUTED)
    return drawn


def colours(by: str, keys: Iterable[str]) -> dict[str, str]:
    """Return a colour for each of *keys*, given by rank; categories and groups without a real name always have their own."""
    chosen: dict[str, str] = {}
    unused = iter(SEQUENCE * 50)
    for key in keys:
        if by == "category" and key in CATEGORY_COLOURS:
            chosen[key] = CATEGORY_COLOURS[key]
        elif key.startswith("("):
            chosen[key] = _special(key)[0]
        else:
            chosen[key] = next(unused)
    return chosen


def hatch(key: str) -> str:
    """Return the hatching of the group *key*: that of a group without a real name, or none."""
    return _special(key)[1] if key.startswith("(") else ""


def swatch(key: str, colour: str) -> Patch:
    """Return what a legend shows for the group *key* in *colour*."""
    return Patch(facecolor=colour, edgecolor=HATCHING, linewidth=0, hatch=hatch(key) * 2)


def _special(key: str) -> tuple[str, str]:
    if " other " in key:
        return OTHERS, ""
    return next((look for begin, look in SPECIAL.items() if key.startswith(begin)), (NAMELESS, ""))


def on(colour: str) -> str:
    """Return the colour in which text on *colour* is easy to read."""
    red, green, blue = to_rgb(colour)
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 0.55 else PAPER


def short_names(names: Sequence[str], longest: int = LONGEST_NAME) -> list[str]:
    """Return *names* short enough to draw: of a path only the file, with as many folders as tell the names apart, and the tail."""
    readable = ["".join(c if c.isprintable() else "·" for c in " ".join(name.split())) for name in names]
    short = [_shorten(name, 0, longest) for name in readable]
    for folders in range(1, 6):
        unclear = {name for name in short if short.count(name) > 1}
        if not unclear:
            break
        short = [_shorten(name, folders, longest) if old in unclear else old for name, old in zip(readable, short, strict=True)]
    return short


def _shorten(name: str, folders: int, longest: int) -> str:
    innermost = name.split(" ← ", 1)[0]
    place, _, rest = innermost.rpartition(":")
    if "::" in innermost:
        innermost = _cpp_function(innermost)
    elif place and rest[:1].isdigit():
        innermost = "/".join(PurePosixPath(place.replace("\\", "/")).parts[-folders - 1 :]) + ":" + rest
    return innermost if len(innermost) <= longest else "…" + innermost[1 - longest :]


def _cpp_function(text: str) -> str:
    """Return the last two names of the C++ function in *text*, without its arguments: ``"AccumulateGrad::apply"``."""
    plain, depth = "", 0
    for c in text.replace("(anonymous namespace)::", ""):
        depth += {"<": 1, ">": -1}.get(c, 0)
        if c == "(" and depth <= 0:
            break
        if depth <= 0 and c != ">":
            plain += c
    return "::".join(plain.split(" ")[-1].split("::")[-2:]) or text
