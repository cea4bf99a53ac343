"""Rules of elementwise primitives: one primitive of the engine, or a few."""

import math

from .._build import binary, erf_inv, integer_power, mask, round_even, same, select, truncated
from .._bilevel import Tensor
from ..errors import UnsupportedError
from ._walk import RULES, Bits, Keys, is_bool, out_dtype, rule

UNARY = {
    "neg": "neg", "abs": "abs", "sign": "sign", "floor": "floor", "sqrt": "sqrt", "exp": "exp", "expm1": "expm1",
    "log": "log", "log1p": "log1p", "sin": "sin", "cos": "cos", "tanh": "tanh", "logistic": "sigmoid", "erf": "erf",
    "erfc": "erfc", "atan": "atan", "lgamma": "ln_gamma", "digamma": "digamma",
}
BINARY = {
    "add": "add", "add_any": "add", "sub": "sub", "mul": "mul", "pow": "pow", "max": "max", "min": "min", "eq": "eq", "ne": "ne",
    "lt": "lt", "le": "le", "lt_to": "lt", "le_to": "le", "eq_to": "eq",
}


def composite(name, *operands, number=0.0):
    return Tensor.composite(name, list(operands), number)


def _unary(op):
    return lambda lowering, equation, x: lowering.tensor(x).unary(op)


def _binary(op):
    def lowered(lowering, equation, a, b):
        a, b = lowering.tensor(a), lowering.tensor(b)
        if op in ("add", "mul") and is_bool(equation):
            a, b = mask(a), mask(b)
        return binary(op, a, b)

    return lowered


for _name, _op in UNARY.items():
    RULES[_name] = _unary(_op)
for _name, _op in BINARY.items():
    RULES[_name] = _binary(_op)


def single(*names):
    """A rule whose operands are tensors."""
    return lambda function: rule(*names)(lambda lowering, equation, *x: function(*map(lowering.tensor, x)))


single("gt")(lambda a, b: binary("lt", b, a))
single("ge")(lambda a, b: binary("le", b, a))
single("square")(lambda x: x.binary("mul", x))
single("rsqrt")(lambda x: x.unary("sqrt").unary("recip"))
single("ceil")(lambda x: x.unary("neg").unary("floor").unary("neg"))
single("is_finite")(lambda x: x.unary("abs").binary("lt", math.inf))
single("stop_gradient")(lambda x: x.stop_gradient())
single("exp2")(lambda x: x.binary("mul", math.log(2)).unary("exp"))
single("tan")(lambda x: x.unary("sin").binary("div", x.unary("cos")))
single("asin")(lambda x: composite("asin", x))
single("acos")(lambda x: composite("acos", x))
single("atan2")(lambda y, x: composite("atan2", y, x))
single("sinh")(lambda x: x.unary("exp").binary("sub", x.unary("neg").unary("exp")).binary("mul", 0.5))
single("cosh")(lambda x: x.unary("exp").binary("add", x.unary("neg").unary("exp")).binary("mul", 0.5))
single("acosh")(lambda x: root_of_square(x, -1.0).binary("add", x).unary("log"))
single("atanh")(lambda x: x.unary("log1p").binary("sub", x.unary("neg").unary("log1p")).binary("mul", 0.5))
single("cbrt")(lambda x: x.unary("sign").binary("mul", x.unary("abs").binary("pow", 1 / 3)))
single("erf_inv")(erf_inv)
single("polygamma")(lambda order, x: binary("polygamma", order, x))
single("clamp")(lambda low, x, high: low.binary("max", x).binary("min", high))


def root_of_square(x, shift):
    """√(x² + shift)"""
    return x.binary("mul", x).binary("add", shift).unary("sqrt")


@single("asinh")
def _(x):
    # For the absolute value, where nothing cancels, by log1p: |x| + x²/(1 + √(x² + 1)).
    size = x.unary("sign").binary("mul", x)
    square = size.binary("mul", size)
    more = square.binary("div", root_of_square(x, 1.0).binary("add", 1.0))
    positive = size.binary("add", more).unary("log1p")
    signed = x.binary("lt", 0.0).select(x.full_like(-1.0), x.full_like(1.0))
    near = x.binary("eq", 0.0)
    return near.select(x, signed.binary("mul", positive))


rule("copy", "copy_p", "device_put", "optimization_barrier", "sharding_constraint")(lambda lowering, equation, *x: x)


@rule("reduce_precision")
def _(lowering, equation, x):
    if (equation.params["exponent_bits"], equation.params["mantissa_bits"]) not in ((8, 23), (11, 52)):
        raise UnsupportedError("numbers rounded to fewer digits; use precision='bf16' or 'tf32' of the problem")
    return x


@rule("round")
def _(lowering, equation, x):
    x = lowering.tensor(x)
    if "EVEN" in str(equation.params["rounding_method"]):
        return round_even(x)
    return x.unary("sign").binary("mul", x.unary("abs").binary("add", 0.5).unary("floor"))


@rule("integer_pow")
def _(lowering, equation, x):
    return integer_power(lowering.tensor(x), equation.params["y"])


@rule("div")
def _(lowering, equation, a, b):
    a, b = same(lowering.tensor(a), lowering.tensor(b))
    if a.dtype == "i32":
        return truncated(a.convert("f64").binary("div", b.convert("f64"))).convert("i32")
    return a.binary("div", b)


@rule("rem")
def _(lowering, equation, a, b):
    a, b = same(lowering.tensor(a), lowering.tensor(b))
    dtype = a.dtype
    if dtype == "i32":
        a, b = a.convert("f64"), b.convert("f64")
    return a.binary("sub", truncated(a.binary("div", b)).binary("mul", b)).convert(dtype)


@rule("nextafter")
def _(lowering, equation, x, y):
    raise UnsupportedError("the next number after another has no useful derivative; leave it out")


def logical(function):
    """Of booleans; bits of random draws pass through, because only their number counts."""

    def lowered(lowering, equation, *operands):
        drawn = [x for x in operands if isinstance(x, Bits)]
        if drawn:
            return drawn[0]
        if not is_bool(equation):
            raise UnsupportedError("operations on the bits of integers that depend on an input")
        return function(*(mask(lowering.tensor(x)) for x in operands))

    return lowered


rule("and")(logical(lambda a, b: a.binary("mul", b)))
rule("or")(logical(lambda a, b: a.binary("max", b)))
rule("xor")(logical(lambda a, b: a.binary("ne", b)))
rule("not")(logical(lambda a: a.binary("eq", 0.0)))


@rule("shift_right_logical")
def _(lowering, equation, a, b):
    if isinstance(a, Bits):
        return a
    raise UnsupportedError("operations on the bits of integers that depend on an input")


@rule("bitcast_convert_type")
def _(lowering, equation, x):
    if not isinstance(x, Bits):
        raise UnsupportedError("the bits of numbers that depend on an input")
    # The mantissa of random bits under the exponent of 1: uniform on [1, 2).
    return lowering.random("uniform", x.stream, x.shape, out_dtype(equation)).binary("add", 1.0)


@rule("select_n")
def _(lowering, equation, which, *cases):
    if any(isinstance(x, Keys) for x in cases):
        raise UnsupportedError("a choice between random keys")
    cases, which = [lowering.tensor(x) for x in cases], lowering.tensor(which)
    if len(cases) == 2:
        return select(which, cases[1], cases[0])
    out = cases[0]
    for i, case in enumerate(cases[1:], 1):
        out = select(which.binary("eq", float(i)), case, out)
    return out


@rule("convert_element_type")
def _(lowering, equation, x):
    if isinstance(x, (Bits, Keys)):
        return x
    x = lowering.tensor(x)
    if str(equation.params["new_dtype"]) == "bool":
        return x.binary("ne", 0.0).convert("i32")
    return x.convert(out_dtype(equation))


