"""How a record shows itself in a notebook: two columns, a name and what there is to say of it. Plain HTML, nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


class Shown:
    """A record that Jupyter shows as a table. What it says is what :meth:`facts` returns."""

    def facts(self) -> Iterable[tuple[str, str]]:
        """Return the pairs of name and value that describe the record, the most important first."""
        return [("", repr(self))]

    def _repr_html_(self) -> str:
        return table_html(type(self).__name__, self.facts())


def table_html(caption: str, pairs: Iterable[tuple[str, str]]) -> str:
    """Return an HTML table with a row for each of *pairs*; all text is escaped."""
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(value)}</td></tr>' for name, value in pairs
    )
    return f"<table><caption>{escape(caption)}</caption><tbody>{rows}</tbody></table>"
