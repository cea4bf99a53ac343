"""`bilevel.torch.problem`: a model, hyperparameters and two losses become a problem."""

import inspect

import numpy as np
import torch
from torch import nn

from .._check import Reference
from .._problem import Leaves, Parts, Problem, bounds_of
from ..errors import DataError, ProblemError
from ._lower import array_of, export, lower


class TorchLeaves(Leaves):
    """Parameters and buffers by their names in the model's `state_dict`."""

    def tree(self, arrays):
        return {name: torch.from_numpy(np.array(a)) for name, a in zip(self.names, arrays, strict=True)}

    def flatten(self, tree):
        return [leaf.detach().cpu().numpy() if isinstance(leaf, torch.Tensor) else leaf for leaf in super().flatten(tree)]


class TorchProblem(Problem):
    """A problem whose parameters are those of a PyTorch model."""

    _tied = {}

    def __getstate__(self):
        return {**super().__getstate__(), "tied": self._tied}

    def __setstate__(self, state):
        super().__setstate__(state)
        self._tied = state["tied"]

    def state_dict(self, run_or_params):
        """The parameters and buffers of a run, to be loaded into the model by `load_state_dict(…, strict=False)`; tied weights included."""
        params = getattr(run_or_params, "params", run_or_params)
        return {name: params[own] for name, own in self._tied.items() if own in params}


class _Loss(nn.Module):
    """A loss as a module, to be exported."""

    def __init__(self, model, hyper, loss, forward):
        super().__init__()
        self.model, self.hyper = model, hyper
        self.loss, self.apply_model = [loss], [forward]

    def forward(self, *batch):
        out = self.apply_model[0](self.model, batch)
        params = dict(self.model.named_parameters())
        return call(self.loss[0], out, batch, self.hyper, params)


def call(loss, out, batch, hyper, params):
    """A loss takes (out, batch), and if it wants more, the hyperparameters' module and the parameters by name."""
    count = len([p for p in inspect.signature(loss).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)])
    return loss(*(out, batch, hyper, params)[: max(2, min(count, 4))])


def first_of_batch(model, batch):
    return model(batch[0])


def tensors(data, what):
    """A tuple of tensors: from tensors, arrays, or a dataset of examples."""
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, (tuple, list, dict)):
        if isinstance(data, torch.Tensor):
            data = (data,)
        elif isinstance(data, np.ndarray):
            data = (torch.from_numpy(data),)
        else:  # A dataset.
            columns = zip(*(row if isinstance(row, (tuple, list)) else (row,) for row in (data[i] for i in range(len(data)))))
            data = tuple(torch.stack([torch.as_tensor(v) for v in column]) for column in columns)
    out = tuple(torch.as_tensor(v) for v in data)
    for i, tensor in enumerate(out):
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise DataError(f"{what}[{i}] has numbers that are not finite; remove such rows or replace them")
    return out


def problem(
    model, hyper, inner, outer, *, train, valid, batch_size=None, forward=None, bounds=None, precision="full", check=True, train_mode=True,
):
    """A bilevel problem from a PyTorch model.

    `hyper` is a module whose parameters are λ. `inner(out, batch, hyper, params)` is the training loss of the model's output on a batch, and
    `outer(out, batch)` the loss that λ is judged by; `params` are the model's parameters by name. Data are tuples of tensors, or datasets; the
    model is called with the first tensor of a batch, or as `forward(model, batch)` says. The inner loss sees the model in training mode, with
    dropout and batch statistics; the outer one in evaluation mode. Running statistics are carried.
    """
    forward = forward or first_of_batch
    train, valid = tensors(train, "train"), tensors(valid, "valid")
    if not list(hyper.parameters()):
        raise ProblemError("the module of hyperparameters has no parameters, and these are what is learned")
    own = {n: p for n, p in model.named_parameters(remove_duplicate=False)}
    canonical, tied = {}, {}
    for name, parameter in own.items():
        key = (parameter.data_ptr(), tuple(parameter.shape)) if parameter.numel() else name
        tied[name] = canonical.setdefault(key, name)
    was_training = model.training
    sizes = {"train": batch_size, "valid": None}
    data, lowered, batches, programs = {}, {}, {}, {}
    try:
        for name, loss, tensors_, training in (("train", inner, train, train_mode), ("valid", outer, valid, False)):
            model.train(training)
            size = sizes[name]
            if size is not None and any(t.shape[:1] < (size,) for t in tensors_):
                raise DataError(f"{name} has fewer rows than a minibatch of {size}")
            batches[name] = tuple(t[:size] if size is not None else t for t in tensors_)
            module = _Loss(model, hyper, loss, forward)
            module.training = training
            programs[name] = (export(module, batches[name]), training, loss)
            prefix = "data" if size is None else "batch"
            data.update({f"{name}/{i}": array_of(t) for i, t in enumerate(tensors_)})
        mutated = {
            spec.target for spec in programs["train"][0].graph_signature.output_specs
            if spec.kind.name == "BUFFER_MUTATION" and programs["train"][0].state_dict[spec.target].is_floating_point()
        }
        names = {f"model.{n}": f"theta/{tied[n]}" for n in own}
        names |= {f"hyper.{n}": f"lambda/{n}" for n, _ in hyper.named_parameters(remove_duplicate=False)}
        names |= {target: f"theta/{target.removeprefix('model.')}" for target in mutated}
        for name, (program, _, _) in programs.items():
            prefix = "data" if sizes[name] is None else "batch"
            inputs = [f"{prefix}/{name}/{i}" for i in range(len(batches[name]))]
            lowered[name] = _function(lower(program, names, inputs, f"{name} const"), name, mutated)
            data.update(lowered[name][1])
        lam = {n: p for n, p in hyper.named_parameters()}
        theta = {n: p for n, p in own.items() if tied[n] == n}
        buffers = dict(model.named_buffers())
        statistics = {target.removeprefix("model."): buffers[target.removeprefix("model.")] for target in sorted(mutated)}
        whole = {**theta, **statistics}
        f64 = any(p.dtype == torch.float64 for p in [*lam.values(), *theta.values()])
        wide = np.float64 if f64 else np.float32
        arrays = {n: np.require(array_of(p).astype(wide), requirements="C") for n, p in {**whole}.items()}
        starts = {n: np.require(array_of(p).astype(wide), requirements="C") for n, p in lam.items()}
        pairs = bounds_of(bounds, list(starts))
        parts = Parts(
            [(n, v, *pairs[n]) for n, v in starts.items()],
            [(n, v, "statistic" if n in statistics else "trained") for n, v in arrays.items()],
            data, lowered["train"][0], lowered["valid"][0], "f64" if f64 else "f32", precision=precision,
        )
        references = {}
        if check:
            for name, level in (("train", "inner"), ("valid", "outer")):
                references[level] = _reference(
                    model, hyper, programs[name], forward, batches[name], lowered[name], arrays, starts, sizes[name], name)
        made = TorchProblem(parts, TorchLeaves(list(starts), starts.values()), TorchLeaves(list(arrays), arrays.values()), references)
        made._tied = {**tied, **{n: n for n in statistics}}
        if check:
            made.check()
        return made
    finally:
        model.train(was_training)


def _function(found, name, mutated):
    """The traced function of a loss, and its constants."""
    if len(found.outputs) != 1 or list(found.outputs[0].shape) not in ([], [1]):
        shapes = [list(getattr(o, "shape", [])) for o in found.outputs]
        raise ProblemError(f"the {'inner' if name == 'train' else 'outer'} loss must return one number, but returns {shapes}")
    outputs = [("loss", found.outputs[0])]
    if name == "train":
        outputs += [(f"update/{t.removeprefix('model.')}", v) for t, v in found.updates.items() if t in mutated]
    return found.builder.graph.function(outputs), found.builder.constants


def _reference(model, hyper, program, forward, batch, lowered, theta, lam, size, name):
    """The loss as PyTorch computes it, for the check."""
    _, training, loss = program
    function, constants = lowered
    prefix = "data" if size is None else "batch"
    inputs = {f"theta/{n}": v for n, v in theta.items()} | {f"lambda/{n}": v for n, v in lam.items()}
    inputs |= {f"{prefix}/{name}/{i}": array_of(t) for i, t in enumerate(batch)} | {f"data/{n}": v for n, v in constants.items()}
    expected = {n: t for n, _, t in function.inputs}
    widths = {"f32": np.float32, "f64": np.float64, "i32": np.int32}
    inputs = {n: v.astype(widths[expected[n]]) if n in expected else v for n, v in inputs.items()}
    known = dict(model.named_parameters())
    variables = [f"lambda/{n}" for n, _ in hyper.named_parameters()] + [f"theta/{n}" for n in known]
    leaves = [p for _, p in hyper.named_parameters()] + list(known.values())

    def original(vectors):
        buffers = {n: b.clone() for n, b in model.named_buffers()}
        was = model.training
        model.train(training)
        try:
            # Only the plain form of attention has second derivatives in PyTorch.
            from torch.nn.attention import SDPBackend, sdpa_kernel

            with sdpa_kernel(SDPBackend.MATH), torch.enable_grad():
                value = call(loss, forward(model, batch), batch, hyper, known).reshape(())
                slope = torch.autograd.grad(value, leaves, create_graph=True, allow_unused=True)
                second = _product(slope, [torch.from_numpy(vectors[v]) for v in variables], leaves)
        finally:
            model.train(was)
            with torch.no_grad():
                for n, b in model.named_buffers():
                    b.copy_(buffers[n])
        return [[array_of(value)], [_full(g, p) for g, p in zip(slope, leaves)], second]

    return Reference(function, inputs, variables, original)


def _product(slope, vectors, leaves):
    along = sum((g * v.to(g.dtype)).sum() for g, v in zip(slope, vectors) if g is not None)
    if not along.requires_grad:
        return [_full(None, p) for p in leaves]
    try:
        found = torch.autograd.grad(along, leaves, allow_unused=True)
    except RuntimeError:  # PyTorch has no second derivative of something.
        return None
    return [_full(h, p) for h, p in zip(found, leaves)]


def _full(derivative, like):
    return np.zeros(tuple(like.shape)) if derivative is None else array_of(derivative)


