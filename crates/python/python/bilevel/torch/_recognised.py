"""Operators that are recognised before PyTorch takes them apart, because the engine knows them better whole.

    attention      softmax(q·kᵀ·scale + mask)·v         one fused loop over the keys
    cross entropy  ln Σeᶻ − z[label]                     convex in the logits, for Gauss-Newton products
    linear         x·wᵀ + b                              one product, with the bias in its epilogue
    layer norm     (x − mean)/√(variance + ε)·g + b

What an option makes of them, such as dropout of attention weights, is written out with the same parts.
"""

import math

import torch

from .._build import select
from .._bilevel import Tensor
from ._rules import RULES, affine, axes_of, kept, normalised, rule

_ATEN = torch.ops.aten
#: What stays whole in an exported program.
WHOLE = (
    _ATEN.linear.default, _ATEN.layer_norm.default, _ATEN.scaled_dot_product_attention.default, _ATEN.cross_entropy_loss.default,
    _ATEN.binary_cross_entropy_with_logits.default, _ATEN.logsumexp.default,
)
#: Rules that are given known tensors as they are.
TAKES_KNOWN = ("aten.scaled_dot_product_attention.default",)
#: Added to a score that must not count: far below every other, and finite, so that no derivative is 0·∞.
_HIDDEN = -1e30
#: PyTorch's numbers for what becomes of the rows of a loss.
_NONE, _MEAN, _SUM = 0, 1, 2


def decompositions():
    """PyTorch's own table, without what is recognised."""
    table = torch.export.default_decompositions()
    for operator in WHOLE:
        table.pop(operator, None)
    return table


@rule("aten.linear")
def _(s, o, x, weight, bias=None):
    x, weight = x.convert(o), weight.convert(o)
    y = x.dot(weight, [len(x.shape) - 1], [len(weight.shape) - 1], [], [])
    return y if bias is None else s.binary("add", y, bias, o)


@rule("aten.layer_norm")
def _(s, o, x, shape, weight=None, bias=None, eps=1e-5, *_):
    axes = list(range(len(x.shape) - len(shape), len(x.shape)))
    return affine(s, o, normalised(x.convert(o), axes, eps)[0], weight, bias)


# Attention.


@rule("aten.scaled_dot_product_attention")
def _(s, o, q, k, v, mask=None, dropout=0.0, is_causal=False, *, scale=None, enable_gqa=False):
    q, k, v = (s.tensor(x).convert(o) for x in (q, k, v))
    if enable_gqa:
        k, v = (_repeated(x, q.shape[-3] // x.shape[-3]) for x in (k, v))
    lead = _common([x.shape[:-2] for x in (q, k, v)])
    q, k, v = (_stretched(x, lead) for x in (q, k, v))
    width, usual = q.shape[-1], 1.0 / math.sqrt(q.shape[-1])
    hidden, empty = _mask(s, o, mask, is_causal, q.shape[-2], k.shape[-2])
    if dropout == 0.0 and (scale is None or abs(scale - usual) <= 1e-15 * usual) and width:
        y = Tensor.composite("attention", [q, k, v]) if hidden is None else Tensor.composite("masked_attention", [q, k, v, hidden])
    else:
        y = _weighted(s, q, k, v, hidden, dropout, usual if scale is None else float(scale))
    # Of a row whose keys are all masked nothing comes out.
    return y if empty is None else select(empty, y.full_like(0.0), y)


def _weighted(s, q, k, v, hidden, dropout, scale):
    """Attention with another scale, or with dropout of its weights."""
    last, lead = len(q.shape) - 1, list(range(len(q.shape) - 2))
    scores = q.dot(k, [last], [last], lead, lead).binary("mul", scale)
    weights = Tensor.composite("softmax", [scores if hidden is None else scores.binary("add", hidden)], last)
    if dropout:
        weights = RULES["aten.native_dropout.default"](s, weights.dtype, weights, dropout, True)[0]
    return weights.dot(v, [last], [last - 1], lead, lead)


def _mask(s, o, mask, is_causal, rows, columns):
    """What is added to the scores, and where a row has nothing left."""
    has_empty = True
    if isinstance(mask, torch.Tensor):
        mask, is_causal, has_empty = _known_mask(mask, rows, columns)
        mask = None if mask is None else s.tensor(mask)
    if is_causal:
        row, column = (s.builder.iota([rows, columns], axis) for axis in (0, 1))
        zero = s.builder.constant(0, [rows, columns], o)
        return column.binary("le", row).select(zero, zero.full_like(_HIDDEN)), None
    if mask is None:
        return None, None
    if mask.dtype == "i32":
        zero = s.builder.constant(0, mask.shape, o)
        hidden, gone = mask.binary("ne", 0.0).select(zero, zero.full_like(_HIDDEN)), mask.binary("eq", 0.0).convert(o)
    else:
        mask = mask.convert(o)
        hidden, gone = mask.binary("max", _HIDDEN), mask.binary("eq", -math.inf).convert(o)
    last = len(mask.shape) - 1
    return hidden, kept(mask, gone.unary("neg").max([last]).unary("neg"), [last]) if has_empty else None


def _known_mask(mask, rows, columns):
    """A mask without what can be said otherwise: nothing is masked, or what lies ahead is; and whether a whole row may be."""
    allowed = mask if mask.dtype == torch.bool else mask == 0
    hidden = ~allowed if mask.dtype == torch.bool else mask <= _HIDDEN
    if bool(allowed.all()):
        return None, False, False
    causal = torch.ones(rows, columns, dtype=torch.bool).tril()
    if bool((allowed == causal).all()) and bool((hidden == ~causal).all()):
        return None, True, False
    return mask, False, bool((~allowed if mask.dtype == torch.bool else mask == -math.inf).all(-1).any())


def _repeated(x, times):
    """Each head so many times, one after the other."""
    lead, (heads, length, width) = x.shape[:-3], x.shape[-3:]
    shape = [*lead, heads, times, length, width]
    axes = [i for i in range(len(shape)) if i != len(lead) + 1]
    return x.broadcast(axes, shape).reshape([*lead, heads * times, length, width])


def _common(shapes):
    return list(torch.broadcast_shapes(*(tuple(shape) for shape in shapes)))


def _stretched(x, lead):
    """With these leading axes."""
    return x if x.shape[:-2] == lead else RULES["aten.expand.default"](None, x.dtype, x, [*lead, *x.shape[-2:]])


@rule("aten.logsumexp")
def _(s, o, x, dims, keepdim=False):
    # The largest element has no derivative here: PyTorch's own form gives it one that adds up to zero.
    x = x.convert(o)
    axes = axes_of(x, dims)
    largest = x.max(axes).stop_gradient()
    largest = select(largest.unary("abs").binary("eq", math.inf), largest.full_like(0.0), largest)
    y = x.binary("sub", kept(x, largest, axes)).unary("exp").sum(axes).unary("log").binary("add", largest)
    return kept(x, y, axes) if keepdim else y


# Losses. A mask of rows counts as a factor that cannot be negative, so what is convex stays so.


def _reduced(rows, reduction, count=None):
    """The rows, their sum, or their mean over `count`."""
    if reduction == _NONE:
        return rows
    total = rows.sum(list(range(len(rows.shape))))
    if reduction == _SUM:
        return total
    return total.binary("mul", 1.0 / math.prod(rows.shape)) if count is None else total.binary("div", count)


@rule("aten.cross_entropy_loss")
def _(s, o, logits, target, weight=None, reduction=_MEAN, ignore_index=-100, label_smoothing=0.0):
    logits = logits.convert(o)
    axis = 1 if len(logits.shape) > 1 else 0
    last = len(logits.shape) - 1
    z = logits.transpose([i for i in range(last + 1) if i != axis] + [axis])
    if target.dtype != "i32":
        return _soft(s, o, z, target.transpose([i for i in range(last + 1) if i != axis] + [axis]), weight, reduction, label_smoothing)
    valid = target.binary("ne", float(ignore_index)).convert(o)
    labels = select(target.binary("ne", float(ignore_index)), target, target.full_like(0.0))
    factor = valid if weight is None else weight.convert(o).gather(labels, 0).binary("mul", valid)
    rows = Tensor.composite("cross_entropy_rows", [z, labels])
    if label_smoothing:
        spread = Tensor.composite("log_softmax", [z], last).unary("neg")
        spread = _classwise(spread, weight, o).sum([last]).binary("mul", label_smoothing / z.shape[-1]).binary("mul", valid)
        rows = rows.binary("mul", factor).binary("mul", 1.0 - label_smoothing).binary("add", spread)
    else:
        rows = rows.binary("mul", factor)
    return _reduced(rows, reduction, factor.sum(list(range(len(factor.shape)))))


def _soft(s, o, z, target, weight, reduction, smoothing):
    """−Σ t·ln softmax(z) for targets t that are probabilities."""
    last, classes = len(z.shape) - 1, z.shape[-1]
    if smoothing:
        target = target.binary("mul", 1.0 - smoothing).binary("add", smoothing / classes)
    target = target.convert(o)
    losses = Tensor.composite("log_softmax", [z], last).unary("neg")
    rows = _classwise(losses.binary("mul", target), weight, o).sum([last])
    if weight is None:
        rows = rows.convex_in([z])
    return _reduced(rows, reduction)


def _classwise(x, weight, o):
    """Weighted by classes along the last axis."""
    return x if weight is None else x.binary("mul", weight.convert(o))


@rule("aten.binary_cross_entropy_with_logits")
def _(s, o, logits, target, weight=None, pos_weight=None, reduction=_MEAN):
    # ln(1 + eᶻ) − t·z, and with a weight p of the positive class (1 − t)·z + (1 + (p − 1)·t)·ln(1 + e⁻ᶻ).
    z, target = logits.convert(o), target.convert(o)
    if pos_weight is None:
        rows = Tensor.composite("softplus", [z]).binary("sub", target.binary("mul", z))
    else:
        factor = pos_weight.convert(o).binary("sub", 1.0).binary("mul", target).binary("add", 1.0)
        low = Tensor.composite("softplus", [z.unary("neg")])
        rows = target.rbinary("sub", 1.0).binary("mul", z).binary("add", factor.binary("mul", low))
    if weight is not None:
        rows = s.binary("mul", rows, weight, o)
    return _reduced(rows, reduction)

