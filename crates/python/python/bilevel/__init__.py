"""Gradient-based bilevel optimisation of JAX and PyTorch models.

`bilevel.jax.problem`, `bilevel.torch.problem` and `bilevel.problem` make a `Problem` of an inner and an outer loss; its methods estimate
hypergradients and run the outer loop.
"""

import importlib

from . import _bilevel, errors, nn
from ._bilevel import __version__
from ._display import Pictures, Plot
from ._methods import methods
from ._own import full, normal, problem
from ._problem import Problem
from ._ranks import ranks
from ._rows import Split
from ._run import Run
from ._settings import adam, adamw, constant, cosine, momentum, rmsprop, sgd, step_decay
from ._tensor import (
    Tensor, arctan, concatenate, cos, exp, expm1, flip, floor, log, log1p, matmul, maximum, minimum, sigmoid, sign, sin, sqrt, stack, tanh,
    where,
)
from .errors import Error

__all__ = [
    "Error", "Pictures", "Plot", "Problem", "Run", "Split", "Tensor", "__version__", "adam", "adamw", "arctan", "concatenate", "constant", "cos", "cosine", "errors", "exp",
    "expm1", "flip", "floor", "full", "jax", "log", "log1p", "matmul", "maximum", "methods", "minimum", "momentum", "nn", "normal", "problem", "ranks",
    "rmsprop", "sgd", "sigmoid", "sign", "sin", "sqrt", "stack", "step_decay", "tanh", "torch", "where",
]


def digits():
    """The 1797 digits of scikit-learn, which come with the library: images of 64 pixels from 0 to 1, and labels."""
    return _bilevel.digits()


def __getattr__(name):
    # The frameworks are imported when they are asked for.
    if name in ("jax", "torch"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'bilevel' has no attribute '{name}'")
