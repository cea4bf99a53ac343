"""A function of pytrees as a traced function with named inputs."""

import bilevel
import jax
import numpy as np

from . import _control, _elementwise, _indexing, _random, _shapes  # noqa: F401  (they register their rules)
from .._build import DTYPES, Builder
from .._bilevel import Tensor
from .._lines import folder_of, user_line
from ..errors import ProblemError, UnsupportedError
from ._walk import Keys, Lowering, is_key

_LIBRARY = (folder_of(jax), folder_of(bilevel))
#: What JAX raises when the value of a traced array is asked for.
_VALUES_ASKED = (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError, jax.errors.TracerIntegerConversionError)


def leaf_names(tree):
    """A readable name of each leaf, its value, and the structure."""
    flat, structure = jax.tree_util.tree_flatten_with_path(tree)
    names = [jax.tree_util.keystr(path, simple=True, separator="/") or "value" for path, _ in flat]
    return names, [leaf for _, leaf in flat], structure


class Lowered:
    """A traced function of pytrees: the function, its lifted constants, and the structure of its result."""

    def __init__(self, function, constants, structure, streams):
        self.function, self.constants, self.structure, self.streams = function, constants, structure, streams


def lower(function, arguments, prefixes, outputs, constants="const"):
    """Traces a function of pytrees.

    `prefixes` has a prefix for each argument: the inputs are called prefix/leaf; None is a random key. `outputs` maps the result and its
    structure to pairs of names and leaves.
    """
    try:
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
    except _VALUES_ASKED as error:
        raise UnsupportedError(
            f"{user_line(error, _LIBRARY)}a loss is traced once, so its arrays have no values that Python could see; use jnp.where or jax.lax.cond "
            f"in place of if, and functions of jax.numpy in place of NumPy's ({str(error).strip().splitlines()[0]})") from error
    lowering = Lowering(Builder(constants))
    inputs, at = [], 0
    for argument, prefix in zip(arguments, prefixes, strict=True):
        names, leaves, _ = leaf_names(argument)
        for name, _ in zip(names, leaves, strict=True):
            aval = closed.jaxpr.invars[at].aval
            at += 1
            inputs.append(_input(lowering, aval, prefix, name))
    results = lowering.closed(closed, inputs)
    leaves, structure = jax.tree_util.tree_flatten(shape)
    results = [lowering.builder.array(r) if not isinstance(r, Tensor) else r for r in results]
    named = outputs(jax.tree_util.tree_unflatten(structure, results))
    function = lowering.builder.graph.function(named)
    return Lowered(function, lowering.builder.constants, structure, lowering.streams)


def _input(lowering, aval, prefix, name):
    if is_key(aval):
        return Keys.root(f"{prefix}/{name}" if prefix else "key", aval.shape)
    if prefix is None:
        raise ProblemError("the key of a loss must be a typed key: jax.random.key(0), not jax.random.PRNGKey(0)")
    dtype = str(aval.dtype)
    if dtype not in DTYPES:
        raise UnsupportedError(f"{prefix}/{name} has the type {dtype}; use floats, 32-bit integers or booleans")
    return lowering.builder.graph.input(f"{prefix}/{name}", [int(n) for n in aval.shape], DTYPES[dtype])


def scalar(result):
    """The one output of a loss that returns a number."""
    leaves = jax.tree_util.tree_leaves(result)
    if len(leaves) != 1 or list(leaves[0].shape) not in ([], [1]):
        shapes = [list(leaf.shape) for leaf in leaves]
        raise ProblemError(f"a loss must return one number, but this returns arrays of shapes {shapes}; take a mean or a sum")
    return [("loss", leaves[0])]


def host(leaf):
    """A leaf as a NumPy array."""
    return np.asarray(leaf)
