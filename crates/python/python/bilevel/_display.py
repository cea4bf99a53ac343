"""Pictures and tables for notebooks and terminals, by the renderer of the reports."""

import html
import os

from . import _bilevel


class Plot:
    """Curves as SVG: shown in a notebook, or saved."""

    def __init__(self, title, x, y, curves, logarithmic=False):
        drawn = [(name, [(float(a), float(b)) for a, b in points], None) for name, points in curves]
        self.svg = _bilevel.plot(title, x, y, logarithmic, drawn)

    def save(self, path):
        """Writes the picture to a file."""
        with open(os.fspath(path), "w", encoding="utf-8") as file:
            file.write(self.svg)

    def _repr_svg_(self):
        return self.svg

    def __repr__(self):
        return f"<bilevel.Plot: {len(self.svg)} bytes of SVG; .save(path) writes it>"


def table(header, rows):
    """A table in HTML."""
    head = "".join(f"<th>{html.escape(str(cell))}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def text_table(header, rows):
    """A table for a terminal."""
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells)


def short(number):
    return "—" if number is None else f"{number:.6g}"
