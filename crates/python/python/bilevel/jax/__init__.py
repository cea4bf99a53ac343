"""Problems from JAX functions on pytrees."""

from ._implicit import implicit
from ._problem import problem

__all__ = ["implicit", "problem"]
