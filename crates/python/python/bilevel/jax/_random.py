"""Random numbers: a key that a loss is given becomes a path, and every path a random stream of the engine.

The stream of a draw is fixed when the loss is traced, and its numbers are new in every step. They are as good as JAX's, but they are not
the same numbers. Draws from keys that a loss closes over are constants, and these are JAX's to the bit.
"""

import numpy as np

from .._bilevel import Tensor
from ..errors import UnsupportedError
from ._walk import KEY_RULES, Bits, Keys, key_rule, out_dtype, out_shape


@key_rule("random_wrap", "random_unwrap", "random_clone", "copy", "convert_element_type", "device_put")
def _(lowering, equation, keys):
    return keys


@key_rule("random_split")
def _(lowering, equation, keys):
    return keys.derived(equation.params["shape"], lambda place: ("split", *place))


@key_rule("random_fold_in")
def _(lowering, equation, keys, number):
    if isinstance(number, Tensor):
        raise UnsupportedError("a number that depends on an input is folded into a random key; fold in a constant")
    numbers = np.broadcast_to(np.asarray(number), keys.paths.shape)
    out = np.empty(keys.paths.shape, object)
    for place in np.ndindex(*keys.paths.shape):
        out[place] = keys.paths[place] + (("fold", int(numbers[place])),)
    return Keys(out)


def stream_of(keys):
    return keys.paths.item() if keys.paths.ndim == 0 else tuple(keys.paths.reshape(-1))


@key_rule("random_bits")
def _(lowering, equation, keys):
    # Several keys at once are one draw with their axes in front.
    return Bits((stream_of(keys), "bits"), out_shape(equation))


def normal(lowering, equation, keys):
    return lowering.random("normal", (stream_of(keys), "normal"), out_shape(equation), out_dtype(equation))


def integers(lowering, equation, keys, low, high):
    """Whole numbers from low up to high, without high."""
    low, high = lowering.tensor(low).convert("f64"), lowering.tensor(high).convert("f64")
    u = lowering.random("uniform", (stream_of(keys), "integers"), out_shape(equation), "f64")
    span = high.binary("sub", low).binary("max", 1.0)
    return u.binary("mul", span).unary("floor").binary("add", low).convert(out_dtype(equation))


#: Functions of jax.random that are one draw of ours, by the name under which they are compiled.
NAMED_DRAWS = {"_normal_real": normal, "_normal": normal, "_randint": integers}
