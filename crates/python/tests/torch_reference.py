"""A PyTorch module against the same module as traced: value, gradient, and a product with the Hessian."""

import numpy as np
import torch
from bilevel._check import difference
from bilevel.torch._lower import array_of, export, lower
from bilevel.torch._problem import first_names
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

torch.set_num_threads(1)


class Supervised(nn.Module):
    """A model with its cross entropy, or the sum of its squared outputs."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, y=None):
        out = self.model(x)
        return out.square().mean() if y is None else F.cross_entropy(out, y)


class Applied(nn.Module):
    """A loss as a function of a model and its inputs."""

    def __init__(self, model, loss):
        super().__init__()
        self.model, self.loss = model, [loss]

    def forward(self, *inputs):
        return self.loss[0](self.model, *inputs)


def traced(module, inputs):
    """The traced function, its arrays by name, and the names of what it is derived by."""
    trained = {n for n, p in module.named_parameters() if p.requires_grad}
    names = {n: f"theta/{own}" for n, own in first_names(module).items() if own in trained}
    found = lower(export(module, inputs), names, [f"data/{i}" for i in range(len(inputs))], "const")
    function = found.builder.graph.function([("loss", found.outputs[0])])
    parameters = {n: p for n, p in module.named_parameters() if n in trained}
    arrays = {f"theta/{n}": array_of(p) for n, p in parameters.items()} | {f"data/{i}": array_of(x) for i, x in enumerate(inputs)}
    arrays |= {f"data/{n}": v for n, v in found.builder.constants.items()}
    known = [n for n, _, _ in function.inputs]
    return function, {n: arrays[n] for n in known}, [f"theta/{n}" for n in parameters if f"theta/{n}" in known]


def perturbed(module, seed=0, by=0.05):
    """With noise in every parameter, so that no output is trivially 0."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(by * torch.randn_like(p))
    return module


def differences(module, inputs):
    """How far value, gradient and Hessian product are from PyTorch's, relative to the largest element."""
    function, arrays, wrt = traced(module, inputs)
    parameters = {n: p for n, p in module.named_parameters() if p.requires_grad}
    along = {f"theta/{n}": torch.randn_like(p) for n, p in parameters.items()}
    got = function.evaluate(list(arrays.items()), wrt, [along[n].numpy() for n in wrt])
    torch.backends.mha.set_fastpath_enabled(False)
    with sdpa_kernel(SDPBackend.MATH):
        loss = module(*inputs)
        leaves = list(parameters.values())
        slope = torch.autograd.grad(loss, leaves, create_graph=True, allow_unused=True)
        product = torch.autograd.grad(
            sum((g * along[f"theta/{n}"]).sum() for n, g in zip(parameters, slope) if g is not None), leaves, allow_unused=True)
    zeros = lambda found: [np.zeros(tuple(p.shape)) if g is None else g.detach().numpy() for g, p in zip(found, leaves)]  # noqa: E731
    full = lambda part: [dict(zip(wrt, part)).get(f"theta/{n}", np.zeros(tuple(p.shape))) for n, p in parameters.items()]  # noqa: E731
    count = len(wrt)
    return [
        difference(got[:1], [loss.detach().numpy()]), difference(full(got[1 : 1 + count]), zeros(slope)),
        difference(full(got[1 + count :]), zeros(product)),
    ]
