"""Whether a traced loss is the loss the user wrote: value, gradient and a product with the Hessian, on the user's data."""

import math
from dataclasses import dataclass

import numpy as np

from .errors import CheckError

#: How far a quantity may be from the framework's, relative to its largest element.
TOLERANCE = {"f64": 1e-8, "f32": 3e-3}


@dataclass(frozen=True)
class Row:
    """One quantity of one loss."""

    loss: str
    quantity: str
    #: The largest difference, relative to the largest element of the framework's; NaN if it was not compared.
    difference: float
    tolerance: float
    note: str = ""

    @property
    def passed(self):
        """Whether the difference is at most the tolerance, or the quantity could not be compared."""
        return bool(self.note) or self.difference <= self.tolerance


class CheckReport:
    """The result of `Problem.check`, row by row."""

    def __init__(self, rows):
        self.rows = rows

    @property
    def passed(self):
        """Whether every row passed."""
        return all(row.passed for row in self.rows)

    def raise_if_failed(self):
        """Raises `CheckError` for the first row that differs by more than rounding."""
        for row in self.rows:
            if not row.passed:
                raise CheckError(
                    f"the {row.loss} loss as traced differs from the original: its {row.quantity} by {row.difference:.1e}, where "
                    f"{row.tolerance:.0e} would be rounding; please report the loss, or switch this off by check=False"
                )

    def __repr__(self):
        lines = [f"{r.loss:6} {r.quantity:16} {r.note or f'{r.difference:.1e}'}" for r in self.rows]
        return "\n".join(lines) or "nothing was compared"

    def _repr_html_(self):
        cells = "".join(f"<tr><td>{r.loss}</td><td>{r.quantity}</td><td>{r.note or f'{r.difference:.1e}'}</td></tr>" for r in self.rows)
        return f"<table><tr><th>loss</th><th>quantity</th><th>relative difference</th></tr>{cells}</table>"


@dataclass
class Reference:
    """A traced function with its inputs, and what the framework makes of the same."""

    function: object
    #: Arrays by the names of the inputs.
    inputs: dict
    #: The names of the inputs it is derived by.
    variables: list
    #: From vectors along the variables to value, gradient and product, as lists; None in place of one that the framework cannot compute.
    original: object


def compared(name, reference, dtype, tolerance=None):
    """The rows for one loss."""
    limit = tolerance or TOLERANCE[dtype]
    if reference.function.is_random:
        return [Row(name, "all", math.nan, limit, "not compared: it draws random numbers")]
    known = [n for n, _, _ in reference.function.inputs]
    rng = np.random.default_rng(0)
    vectors = {v: rng.choice([-1.0, 1.0], reference.inputs[v].shape).astype(reference.inputs[v].dtype) for v in reference.variables}
    wrt = [v for v in reference.variables if v in known]
    found = reference.function.evaluate(
        [(n, reference.inputs[n]) for n in known if n in reference.inputs], wrt, [vectors[v] for v in wrt])
    outputs = len(reference.function.outputs)
    parts = {
        "value": found[:1],
        "gradient": found[outputs : outputs + len(wrt)],
        "Hessian product": found[outputs + len(wrt) : outputs + 2 * len(wrt)],
    }
    originals = dict(zip(parts, reference.original(vectors), strict=True))
    rows = []
    for quantity, own in parts.items():
        theirs = originals[quantity]
        if theirs is None:
            rows.append(Row(name, quantity, math.nan, limit, "not compared: the framework cannot compute it"))
            continue
        if quantity != "value":
            # What the traced loss does not depend on must have a derivative of zero.
            own = [own[wrt.index(v)] if v in wrt else np.zeros_like(t) for v, t in zip(reference.variables, theirs)]
        rows.append(Row(name, quantity, difference(own, theirs), limit))
    return rows


def difference(own, theirs):
    """The largest difference, relative to the largest element."""
    pairs = [(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in zip(own, theirs, strict=True)]
    scale = max((float(np.max(np.abs(b))) for _, b in pairs if b.size), default=0.0)
    apart = 0.0
    for a, b in pairs:
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        d = np.where(same, 0.0, np.abs(a - b)) if a.size else np.zeros(1)
        apart = max(apart, math.inf if np.isnan(d).any() else float(d.max()))
    return apart / scale if scale > 0 else apart
