"""Pictures and tables for notebooks and terminals, by the renderer of the reports."""

import html
import os

import numpy as np

from . import _bilevel
from .errors import ShapeError


class _Drawn:
    """A drawing as SVG: shown in a notebook, or saved."""

    def __init__(self, svg):
        self.svg = svg

    def save(self, path):
        """Writes the picture to a file."""
        with open(os.fspath(path), "w", encoding="utf-8") as file:
            file.write(self.svg)

    def _repr_svg_(self):
        return self.svg

    def __repr__(self):
        return f"<bilevel.{type(self).__name__}: {len(self.svg)} bytes of SVG; .save(path) writes it>"


class Plot(_Drawn):
    """Curves in one coordinate system, as SVG: pairs of a name and points (x, y).

    >>> bl.Plot("A parabola", "x", "y", [("x²", [(x, x * x) for x in range(5)])]).svg[:4]
    '<svg'
    """

    def __init__(self, title, x, y, curves, logarithmic=False):
        drawn = [(name, [(float(a), float(b)) for a, b in points], None) for name, points in curves]
        super().__init__(_bilevel.plot(title, x, y, logarithmic, drawn))


class Pictures(_Drawn):
    """Matrices side by side, as SVG, with one scale of colours: a dictionary of matrices by title.

    >>> bl.Pictures("Two matrices", {"identity": np.eye(3), "ones": np.ones((3, 3))}).svg[:4]
    '<svg'
    """

    def __init__(self, title, panels):
        drawn = []
        for name, panel in panels.items():
            panel = np.asarray(panel, float)
            if panel.ndim != 2:
                raise ShapeError(f"'{name}' has the shape {list(panel.shape)}, but a picture has rows and columns")
            drawn.append((str(name), *panel.shape, panel.ravel().tolist()))
        super().__init__(_bilevel.pictures(title, drawn))


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
    """A number in few digits, for a table."""
    return "—" if number is None else f"{number:.6g}"
