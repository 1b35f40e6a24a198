"""Figures that a notebook shows by themselves, whichever backend runs and whether or not there is one."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

DOTS_AN_INCH, SHOWN_DOTS_AN_INCH = 150, 96


class Picture(Figure):
    """A figure that belongs to no window and to no pyplot; a notebook cell that ends in it, or in its axes, shows it."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        stream = BytesIO()
        self.savefig(stream, format="png", facecolor="white")
        width, height = (round(inches * SHOWN_DOTS_AN_INCH) for inches in self.get_size_inches())
        return stream.getvalue(), {"width": width, "height": height}


class PictureAxes(Axes):
    """The axes of a :class:`Picture`. In a notebook they show the whole of it."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]] | None:
        figure: Any = self.figure
        return figure._repr_png_() if isinstance(figure, Picture) else None


def new_picture(width: float, height: float) -> Axes:
    """Return the axes of a new picture of *width* by *height* inches."""
    return Picture(figsize=(width, height), dpi=DOTS_AN_INCH, layout="constrained").add_subplot(axes_class=PictureAxes)
