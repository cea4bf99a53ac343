"""Problems from PyTorch modules."""

from ._function import Hypergradient
from ._problem import problem

__all__ = ["Hypergradient", "problem"]
