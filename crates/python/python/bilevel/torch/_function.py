"""`bilevel.torch.Hypergradient`: the outer loss as a function that PyTorch differentiates by λ, for an outer loop of your own."""

import torch


class Hypergradient(torch.autograd.Function):
    """The outer loss after training, whose gradient by λ is a method's hypergradient.

    `Hypergradient.of(problem, hyper, "rmd", steps=20)` is a tensor; its `backward()` fills the gradients of the parameters of `hyper`, and any
    optimizer of PyTorch can take the step::

        step = torch.optim.Adam(hyper.parameters())
        for _ in range(100):
            step.zero_grad()
            bilevel.torch.Hypergradient.of(problem, hyper, "rmd", steps=20).backward()
            step.step()
    """

    @staticmethod
    def of(problem, hyper, method="langevin-adjoint", **settings):
        """The outer loss at the λ that the module of hyperparameters has now."""
        return Hypergradient.apply(problem, {"method": method, **settings}, *hyper.parameters())

    @staticmethod
    def forward(ctx, problem, settings, *lam):
        """The outer loss after training at this λ; its derivative is kept for `backward`."""
        names = problem._lambda.names
        found = problem.hypergradient(lam=dict(zip(names, lam, strict=True)), **settings)
        ctx.save_for_backward(*(found.value[name].to(leaf) for name, leaf in zip(names, lam, strict=True)))
        return lam[0].new_tensor(found.outer_loss)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, slope):
        """The derivative by each leaf of λ."""
        return None, None, *(slope * value for value in ctx.saved_tensors)
