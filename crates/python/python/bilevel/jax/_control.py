"""Rules of calls, loops and branches, and of functions with derivative rules of their own.

A loop whose number of steps is known is unrolled; a branch that depends on an input computes all its cases and selects. The rule of a
custom derivative is traced from JAX's own transformation of the equation, so it holds whatever it is written with.
"""

import jax
import numpy as np

from .._build import DTYPES, RuleBuilder, select
from .._bilevel import Tensor
from ..errors import UnsupportedError
from ._random import NAMED_DRAWS
from ._walk import Bits, Keys, Lowering, bound, is_jax_own, location, rule

#: More steps than this are not unrolled.
MAX_UNROLLED_STEPS = 1024
#: Rules of custom derivatives hold up to this order of derivatives.
MAX_RULE_ORDER = 4
#: Functions of JAX whose rule is only there for JAX's own sake: the engine's derivative of what they compute is the same.
TRUSTED_RULES = {"_softmax", "log_softmax", "logsumexp", "_logsumexp", "silu", "_sigmoid", "sigmoid", "log_sigmoid", "softplus"}


def relu(x):
    # 0 first: of equal elements the first is the larger, so the slope at 0 is 0, as JAX's is.
    return x.full_like(0.0).binary("max", x)


@rule("jit", "pjit", "closed_call", "core_call", "remat2", "remat", "checkpoint")
def _(lowering, equation, *operands):
    p = equation.params
    jaxpr = p.get("jaxpr") or p.get("call_jaxpr")
    name = str(p.get("name", ""))
    if operands and isinstance(operands[0], Keys) and name in NAMED_DRAWS:
        return NAMED_DRAWS[name](lowering, equation, *operands)
    if name == "relu" and len(operands) == 1 and isinstance(operands[0], Tensor):
        return relu(operands[0])
    if name == "expm" and len(operands) == 1 and isinstance(operands[0], Tensor) and len(operands[0].shape) == 2:
        return Tensor.composite("matrix_exponential", list(operands))
    if hasattr(jaxpr, "consts"):
        return lowering.called(equation, jaxpr, list(operands))
    return lowering.run(jaxpr, [], list(operands))


def row(x, i):
    """Row i of a value of any kind."""
    if isinstance(x, Keys):
        return Keys(x.paths[i])
    if isinstance(x, Tensor):
        return x.slice([i] + [0] * (len(x.shape) - 1), [i + 1, *x.shape[1:]], [1] * len(x.shape)).reshape(x.shape[1:])
    return x[i]


def stacked(lowering, rows, aval):
    """Rows as one value."""
    if all(not isinstance(r, (Tensor, Keys, Bits)) for r in rows):
        return np.stack(rows) if rows else np.zeros(aval.shape, aval.dtype)
    if isinstance(rows[0], Keys):
        return Keys(np.stack([r.paths for r in rows]))
    tensors = [lowering.tensor(r) for r in rows]
    tensors = [t.reshape([1, *t.shape]) for t in tensors]
    return tensors[0].concat(tensors[1:], 0) if len(tensors) > 1 else tensors[0]


@rule("scan")
def _(lowering, equation, *operands):
    p = equation.params
    constants, carried, steps = p["num_consts"], p["num_carry"], p["length"]
    if steps > MAX_UNROLLED_STEPS:
        raise UnsupportedError(f"a scan of {steps} steps would be unrolled; {MAX_UNROLLED_STEPS} steps are the most")
    fixed, carry = list(operands[:constants]), list(operands[constants : constants + carried])
    rows, results = operands[constants + carried :], []
    order = range(steps)
    for i in reversed(order) if p["reverse"] else order:
        out = lowering.closed(p["jaxpr"], fixed + carry + [row(x, i) for x in rows])
        carry = out[:carried]
        results.append(out[carried:])
    if p["reverse"]:
        results.reverse()
    collected = equation.outvars[carried:]
    return carry + [stacked(lowering, [r[k] for r in results], v.aval) for k, v in enumerate(collected)]


@rule("while")
def _(lowering, equation, *operands):
    p = equation.params
    a, b = p["cond_nconsts"], p["body_nconsts"]
    asked, done, carry = list(operands[:a]), list(operands[a : a + b]), list(operands[a + b :])
    for _ in range(MAX_UNROLLED_STEPS + 1):
        more = lowering.closed(p["cond_jaxpr"], asked + carry)[0]
        more = more.constant_value if isinstance(more, Tensor) else more
        if more is None:
            raise UnsupportedError(
                "a while loop whose number of steps depends on an input; use a loop with a fixed number of steps"
            )
        if not more:
            return carry
        carry = lowering.closed(p["body_jaxpr"], done + carry)
    raise UnsupportedError(f"a while loop of more than {MAX_UNROLLED_STEPS} steps would be unrolled")


@rule("cond")
def _(lowering, equation, index, *operands):
    branches = equation.params["branches"]
    known = index.constant_value if isinstance(index, Tensor) else int(index)
    if known is not None:
        return lowering.closed(branches[min(max(int(known), 0), len(branches) - 1)], list(operands))
    cases = [lowering.closed(branch, list(operands)) for branch in branches]
    results = []
    for values in zip(*cases, strict=True):
        if any(isinstance(v, Keys) for v in values):
            raise UnsupportedError("a choice between random keys")
        out = lowering.tensor(values[0])
        for j, value in enumerate(values[1:], 1):
            last = j == len(values) - 1
            here = index.rbinary("le", float(j)) if last else index.binary("eq", float(j))
            out = select(here, lowering.tensor(value), out)
        results.append(out)
    return results


@rule("platform_index")
def _(lowering, equation, *operands):
    return np.int32(0)


@rule("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
def _(lowering, equation, *operands):
    call = equation.params.get("call_jaxpr") or equation.params.get("fun_jaxpr")
    name, own = str(getattr(call.jaxpr.debug_info, "func_name", "")), is_jax_own(call.jaxpr)
    inner = call.jaxpr.eqns
    called = str(inner[0].params.get("name")) if len(inner) == 1 else ""
    if own and "relu" in (name, called) and len(operands) == 1:
        return relu(lowering.tensor(operands[0]))
    traced = [i for i, x in enumerate(operands) if isinstance(x, Tensor)]
    floats = [i for i in traced if np.issubdtype(equation.invars[i].aval.dtype, np.floating)]
    trusted = own and (name in TRUSTED_RULES or called in TRUSTED_RULES)
    if trusted or not floats or lowering.depth >= MAX_RULE_ORDER:
        return lowering.called(equation, call, list(operands))
    if any(isinstance(x, (Keys, Bits)) for x in operands):
        raise UnsupportedError(f"the function '{name}' with a derivative rule of its own draws random numbers")
    rules = Rules(equation, operands, traced, floats)
    results = []
    for k, value in enumerate(rules.forward(lowering)):
        if isinstance(value, Tensor) and value.dtype != "i32":
            function, constants = rules.cotangents(lowering, k)
            variables = [operands[i] for i in traced] + [lowering.builder.array(c) for c in constants]
            value = value.with_rule(variables, function) if function else value.stop_gradient()
        results.append(value)
    return results


class Rules:
    """A call of a function with a derivative rule: its forward pass, and the cotangents of its operands, as JAX has them."""

    def __init__(self, equation, operands, traced, floats):
        self.equation, self.operands, self.traced, self.floats = equation, operands, traced, floats
        self.known = {i: x for i, x in enumerate(operands) if i not in traced}
        struct = lambda aval: jax.ShapeDtypeStruct(aval.shape, aval.dtype)  # noqa: E731
        self.shapes = [struct(equation.invars[i].aval) for i in traced]

    def pulled(self, given, k=None):
        """All results of the forward pass, or result k, and the function that pulls its cotangent back."""

        def results(*moved):
            values = {**self.known, **dict(zip(self.traced, given)), **dict(zip(self.floats, moved))}
            out = bound(self.equation, [values[i] for i in range(len(self.operands))])
            return out if k is None else out[k]

        return jax.vjp(results, *(given[self.traced.index(i)] for i in self.floats))

    def forward(self, lowering):
        """The results, with the derivatives of what the forward pass is written in: those that derivatives of a gradient go by."""
        closed = jax.make_jaxpr(lambda given: self.pulled(given)[0])(self.shapes)
        lowering.depth += 1
        try:
            return lowering.called(self.equation, closed, [self.operands[i] for i in self.traced])
        finally:
            lowering.depth -= 1

    def cotangents(self, lowering, k):
        """The rule of result k, a traced function of the operands and the cotangent, and the constants it needs.

        No function means that all cotangents are zero.
        """
        fixed = tuple((i, x.tobytes()) for i, x in self.known.items() if hasattr(x, "tobytes"))
        memo = (id(self.equation), k, lowering.depth, fixed)
        if memo not in lowering.rules:
            # The equation is kept, so that its number stays its own.
            lowering.rules[memo] = (self.equation, self._cotangents(lowering, k))
        return lowering.rules[memo][1]

    def _cotangents(self, lowering, k):
        out = self.equation.outvars[k].aval
        cotangent = jax.ShapeDtypeStruct(out.shape, out.dtype)
        closed = jax.make_jaxpr(lambda given, g: self.pulled(given, k)[1](g))(self.shapes, cotangent)
        inner = Lowering(RuleBuilder(len(self.traced)), lowering.depth + 1)
        inner.line = lowering.line or location(self.equation)
        names = [str(n) for n in range(len(self.traced))] + ["cotangent"]
        inputs = [
            inner.builder.graph.input(name, list(shape.shape), DTYPES[str(shape.dtype)])
            for name, shape in zip(names, [*self.shapes, cotangent], strict=True)
        ]
        found = inner.closed(closed, inputs)
        if inner.streams:
            raise UnsupportedError("a derivative rule that draws random numbers")
        outputs = []
        for place, g in zip(self.floats, found, strict=True):
            g = inner.tensor(g)
            if g.constant_value != 0.0:
                outputs.append((str(self.traced.index(place)), g))
        constants = list(inner.builder.constants.values())
        return inner.builder.graph.function(outputs) if outputs else None, constants
