"""Parts of networks for losses on the tensors of `bilevel.problem`."""

from ._bilevel import Tensor as _Native


def _composite(name, *tensors, number=0.0):
    return tensors[0]._new(_Native.composite(name, [t._native for t in tensors], number))


def cross_entropy(logits, labels):
    """The mean of −log p(label), for logits [n, classes] and integer labels [n]. Gauss-Newton methods recognise it."""
    return _composite("cross_entropy", logits, labels)


def mse(x, y):
    """The mean square of x − y."""
    return ((x - y) ** 2).mean()


def softmax(x, axis=-1):
    """exp(x), divided by its sum along an axis."""
    return _composite("softmax", x, number=axis % x.ndim)


def log_softmax(x, axis=-1):
    """The logarithm of `softmax`, without overflow."""
    return _composite("log_softmax", x, number=axis % x.ndim)


def relu(x):
    """max(0, x), with the slope 0 at 0."""
    return x._new(x._native.full_like(0.0).binary("max", x._native))


def gelu(x):
    """x·Φ(x), with the distribution function Φ of the standard normal distribution."""
    return _composite("gelu", x)


def layer_norm(x, gain, bias, eps=1e-5):
    """(x − mean)/√(variance + eps)·gain + bias, with mean and variance along the last axis."""
    return _composite("layer_norm", x, gain, bias, number=eps)


__all__ = ["cross_entropy", "gelu", "layer_norm", "log_softmax", "mse", "relu", "softmax"]
