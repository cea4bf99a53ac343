"""A jaxpr, equation by equation, onto a graph.

A value is a tensor of the graph, or a NumPy array if it does not depend on any input: such equations are computed by JAX itself, once.
That covers masks, static loops, integer arithmetic and draws from keys that a loss closes over. What depends on an input goes by one rule
for each primitive; an equation without a rule is refused with the line of user code.
"""

import os

import jax
import numpy as np
from jax.extend import core as jex

from .._build import DTYPES, Builder
from .._bilevel import Tensor
from ..errors import Error, UnsupportedError

#: By the name of a primitive: a function of the lowering, the equation, and its operands.
RULES = {}
#: The same for equations on random keys.
KEY_RULES = {}
#: A known array that is larger than this and not uniform is computed by the graph, if that can.
MAX_FOLDED_ELEMENTS = 1 << 16


def rule(*names):
    def register(function):
        for name in names:
            RULES[name] = function
        return function

    return register


def key_rule(*names):
    def register(function):
        for name in names:
            KEY_RULES[name] = function
        return function

    return register


class Located(UnsupportedError):
    """An error that names its line already."""


def is_key(aval):
    return jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key)


class Keys:
    """Random keys as the paths by which they were derived from an input: an array of tuples."""

    def __init__(self, paths):
        self.paths = paths

    @staticmethod
    def root(name, shape):
        paths = np.empty(shape, object)
        for index in np.ndindex(*shape):
            paths[index] = (name, *index)
        return Keys(paths)

    def derived(self, shape, step):
        """Keys of this shape below each: `step` of the place within it."""
        out = np.empty(self.paths.shape + tuple(shape), object)
        for outer in np.ndindex(*self.paths.shape):
            for inner in np.ndindex(*shape):
                out[outer + inner] = self.paths[outer] + (step(inner),)
        return Keys(out)


class Bits:
    """Random bits on their way to becoming numbers: a stream."""

    def __init__(self, stream, shape):
        self.stream, self.shape = stream, list(shape)


def location(equation):
    """The line of user code, and the function it is in; empty if it is not known."""
    try:
        from jax._src import source_info_util

        frame = source_info_util.user_frame(equation.source_info.traceback)
        return "" if frame is None else f"{os.path.basename(frame.file_name)}:{frame.start_line} ({frame.function_name}): "
    except Exception:  # The line is a help; without it the error stands.
        return ""


def is_jax_own(jaxpr):
    """Whether a function is one of JAX's: its lines say nothing to the user, and are those of its first call."""
    file = getattr(getattr(jaxpr, "debug_info", None), "func_filename", None) or ""
    return file.startswith(os.path.dirname(jax.__file__))


class Lowering:
    """A graph under construction, and what is known of its values."""

    def __init__(self, builder=None, depth=0):
        self.builder = builder or Builder()
        self.depth = depth
        #: The line of the call that is being lowered, if it is a call of one of JAX's functions.
        self.line = ""
        self.streams = {}
        self.rules = {}

    # Values.

    def tensor(self, value, dtype=None):
        """A value as a tensor; a known one becomes a constant."""
        if isinstance(value, Tensor):
            return value
        if isinstance(value, Bits):
            raise UnsupportedError("arithmetic on random bits; draw uniform or normal numbers instead")
        if isinstance(value, Keys):
            raise UnsupportedError("arithmetic on random keys")
        return self.builder.array(value, dtype)

    def stream(self, path):
        return self.streams.setdefault(path, len(self.streams))

    def random(self, kind, path, shape, dtype):
        return self.builder.graph.random(kind, self.stream(path), list(shape), dtype)

    # Equations.

    def closed(self, closed, values):
        return self.run(closed.jaxpr, list(closed.consts), values)

    def called(self, equation, closed, values):
        """The results of a function that an equation calls."""
        if self.line or not is_jax_own(closed.jaxpr):
            return self.closed(closed, values)
        self.line = location(equation)
        try:
            return self.closed(closed, values)
        finally:
            self.line = ""

    def run(self, jaxpr, constants, values):
        env = {}

        def read(v):
            return np.asarray(v.val, v.aval.dtype) if isinstance(v, jex.Literal) else env[v]

        for variables, given in ((jaxpr.constvars, constants), (jaxpr.invars, values)):
            for v, value in zip(variables, given, strict=True):
                env[v] = value
        for equation in jaxpr.eqns:
            operands = [read(v) for v in equation.invars]
            self.builder.graph.set_line((self.line or location(equation)).removesuffix(": "))
            try:
                results = self.equation(equation, operands)
            except Located:
                raise
            except (Error, NotImplementedError) as error:
                raise Located(f"{self.line or location(equation)}{equation.primitive.name}: {error}") from error
            for v, result in zip(equation.outvars, results, strict=True):
                env[v] = result
        return [read(v) for v in jaxpr.outvars]

    def equation(self, equation, operands):
        name = equation.primitive.name
        if not any(isinstance(x, (Tensor, Keys, Bits)) for x in operands) and self.is_folded(equation):
            return folded(equation, operands)
        if any(isinstance(x, Keys) for x in operands) and name in KEY_RULES:
            results = KEY_RULES[name](self, equation, *operands)
        elif name in RULES:
            results = RULES[name](self, equation, *operands)
        else:
            raise UnsupportedError(f"'{name}' is not supported")
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        for v, result in zip(equation.outvars, results, strict=True):
            if isinstance(result, Tensor) and list(result.shape) != list(v.aval.shape):
                raise AssertionError(f"{name}: {result.shape} instead of {v.aval.shape}")
        return results

    def is_folded(self, equation):
        """Whether JAX computes it: not, if the result is large and the graph can make it without an input."""
        if equation.effects:
            raise UnsupportedError("it has a side effect; a loss must be a pure function")
        if equation.primitive.name not in ("iota", "broadcast_in_dim"):
            return True
        return all(
            v.aval.size <= MAX_FOLDED_ELEMENTS or is_key(v.aval) or str(v.aval.dtype) not in DTYPES
            for v in equation.outvars
        )


def bound(equation, values):
    """The results of an equation on values, or on tracers, by JAX."""
    params = equation.primitive.get_bind_params(equation.params)
    if isinstance(params, tuple):  # Before JAX 0.10 the functions of a call came separately.
        functions, params = params
        values = [*functions, *values]
    with equation.ctx.manager:
        results = equation.primitive.bind(*values, **params)
    return list(results) if equation.primitive.multiple_results else [results]


def folded(equation, operands):
    """The results of an equation on known values."""
    with jax.ensure_compile_time_eval():
        results = bound(equation, operands)
    return [r if is_key(r) else np.asarray(r) for r in results]


def out_shape(equation, i=0):
    return [int(n) for n in equation.outvars[i].aval.shape]


def out_dtype(equation, i=0):
    name = str(equation.outvars[i].aval.dtype)
    if name not in DTYPES:
        raise UnsupportedError(f"values of type {name} that depend on an input; use 32-bit integers or floats")
    return DTYPES[name]


def is_bool(equation, i=0):
    return str(equation.invars[i].aval.dtype) == "bool"


def folded_like(equation, *operands):
    """The result of an equation on known values that stand for others, such as the places of keys."""
    with jax.ensure_compile_time_eval():
        return np.asarray(equation.primitive.bind(*operands, **equation.params))
