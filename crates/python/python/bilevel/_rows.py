"""Rows to train on, to choose λ by, to hold out and to test with."""

import dataclasses
import json
import math
from typing import Any

import numpy as np

from . import _bilevel
from .errors import DataError, ProblemError

#: In the order of the engine.
PARTS = ("train", "validation", "held-out", "test")


@dataclasses.dataclass(frozen=True)
class Split:
    """A division of rows, as fractions of all or as whole numbers; rows that no part asks for are left out.

    With `labels`, one for each row, every label has the same share of every part; with `groups`, all rows of a group are in one part.

    >>> [len(part) for part in bl.Split(train=0.5, validation=0.3, held_out=0.2).rows(10)]
    [5, 3, 2, 0]
    """

    train: float | int = 0.5
    validation: float | int = 0.4
    held_out: float | int = 0.1
    test: float | int = 0.0
    seed: int = 0
    labels: Any = None
    groups: Any = None

    def rows(self, count):
        """The numbers of the rows to train on, to choose λ by, held out and to test with, of this many rows."""
        table = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("labels", "groups")}
        known = []
        for name, given in (("labels", self.labels), ("groups", self.groups)):
            given = None if given is None else np.unique(np.asarray(given), return_inverse=True)[1].ravel()
            if given is not None and len(given) != count:
                raise DataError(f"the split has {len(given)} {name} for {count} rows")
            known.append(None if given is None else given.tolist())
        return _bilevel.split_rows(json.dumps(table), count, *known)


class Divided:
    """Arrays with rows, by the names of leaves, and the numbers of the rows of each part."""

    def __init__(self, arrays, rows):
        self.arrays, self.rows = arrays, rows

    def counts(self):
        """The number of rows of each part, by name."""
        return dict(zip(PARTS, (len(rows) for rows in self.rows)))

    def first(self, count):
        """This many rows, to trace a loss with: those to train on first."""
        order = [row for rows in self.rows for row in rows]
        return [array[order[:count]] for array in self.arrays.values()]

    def of(self, part):
        """The rows of a part of each array."""
        return [array[self.rows[PARTS.index(part)]] for array in self.arrays.values()]


def row_count(arrays, what):
    """How many rows these arrays have, all as many."""
    counts = {array.shape[0] if array.ndim else 0 for array in arrays}
    if len(counts) != 1 or 0 in counts:
        raise DataError(f"the arrays of {what} have {sorted(counts)} rows, but must have the same number to be divided")
    return counts.pop()


def divided(names, train, valid, held_out, test, split):
    """The rows of all parts as one table.

    `train`, `valid` and `test` are lists of arrays with these names, or None; `held_out` is such a list, or a fraction of the validation rows;
    `split` divides `train` in place of `valid`.
    """
    if split is not None:
        if valid is not None or test is not None or held_out is not None:
            raise ProblemError("split=… divides the rows of train=…; leave out valid, held_out and test, or give these without a split")
        return Divided(dict(zip(names, train)), split.rows(row_count(train, "train")))
    if valid is None:
        raise ProblemError("held-out and test rows need valid=…, or split=… in its place")
    share = held_out if isinstance(held_out, (int, float)) else 0.0
    if not 0.0 <= share < 1.0:
        raise ProblemError(f"held_out is {held_out}, but must be a fraction of the validation rows below 1, or data")
    parts = {"train": train, "validation": valid, "held-out": None if share else held_out, "test": test}
    rows, at = [], 0
    for part in PARTS:
        count = 0 if parts[part] is None else row_count(parts[part], part)
        rows.append(list(range(at, at + count)))
        at += count
    if share:
        count = min(math.floor(share * len(rows[1]) + 0.5), len(rows[1]) - 1)
        out = set(np.random.default_rng(0).choice(rows[1], count, replace=False).tolist())
        rows[1], rows[2] = [r for r in rows[1] if r not in out], sorted(out)
    given = [part for part in parts.values() if part is not None]
    for place, name in enumerate(names):
        widths = {(array[place].shape[1:], array[place].dtype) for array in given}
        if len(widths) > 1:
            raise DataError(f"'{name}' has rows of different shapes or types in its parts: {sorted(map(str, widths))}")
    return Divided({name: np.concatenate([part[i] for part in given]) for i, name in enumerate(names)}, rows)


#: Blocks that the rows of a part are divided into where a loss is not known row by row: as many as the engine makes.
MAX_BLOCKS = 16


def block_counts(counts):
    """The numbers of rows in the blocks of parts with so many."""
    found = set()
    for count in counts - {0}:
        blocks = min(count, MAX_BLOCKS)
        found |= {count // blocks, -(-count // blocks)}
    return found


def fold_counts(rows, count, held_out):
    """The numbers of rows that the inner and the outer loss see in the folds."""
    total = sum(len(part) for part in rows[:3])
    inner, outer = set(), set()
    for fold in range(count):
        size = (fold + 1) * total // count - fold * total // count
        out = max(0, min(math.floor(held_out * size + 0.5), size - 1))
        inner.add(total - size)
        outer.update({size - out, out} - {0})
    return inner, outer
