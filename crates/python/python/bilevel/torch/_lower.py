"""An exported PyTorch program as a traced function."""

import operator

import torch

from .._build import Builder, engine_array
from .._bilevel import Tensor
from ..errors import Error, UnsupportedError
from ._rules import DTYPES, RULES, Lowering

#: What a lowering says of a line that is not the user's.
_LIBRARY = ("/torch/", "/bilevel/")


def array_of(tensor):
    """A tensor as an array of the engine's types."""
    tensor = tensor.detach().cpu()
    if tensor.dtype in (torch.bfloat16, torch.float16):
        tensor = tensor.float()
    return engine_array(tensor.numpy())


def export(module, arguments):
    """The program of a module, in PyTorch's own decomposition."""
    try:
        return torch.export.export(module, tuple(arguments), strict=False).run_decompositions()
    except Error:
        raise
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UnsupportedError(
            f"torch.export cannot trace the model: {first}; remove what depends on the values of tensors, such as if and .item()"
        ) from error


def location(node):
    """The line of user code of a node."""
    lines = (node.meta.get("stack_trace") or node.stack_trace or "").strip().splitlines()
    frames = [line.strip() for line in lines if line.strip().startswith("File ")]
    own = [f for f in frames if not any(part in f for part in _LIBRARY)] or frames
    if not own:
        return ""
    file, line, function = (own[-1].split('"')[1], own[-1].split("line ")[1].split(",")[0], own[-1].rsplit("in ", 1)[-1])
    return f"{file.rsplit('/', 1)[-1]}:{line} ({function}): "


class Lowered:
    """A traced function: its named outputs, and the constants that it needs."""

    def __init__(self, builder, outputs, updates, streams):
        self.builder, self.outputs, self.updates, self.streams = builder, outputs, updates, streams


def lower(program, names, inputs, constants):
    """Walks an exported program.

    `names` maps parameters and buffers to the names of inputs, with None for what is constant; `inputs` are names for the arguments. Returns
    the results, and the new values of buffers by their names.
    """
    builder = Builder(constants)
    s, env, given = Lowering(builder), {}, iter(inputs)
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    known = {**program.state_dict, **program.constants}
    made = {}
    for node in program.graph_module.graph.nodes:
        if node.op == "placeholder":
            env[node] = _placeholder(builder, node, specs[node.name], names, given, known, made)
        elif node.op == "call_function":
            env[node] = _called(s, node, env)
        elif node.op == "output":
            results = [env.get(m) if isinstance(m, torch.fx.Node) else m for m in node.args[0]]
    outputs, updates = [], {}
    for spec, result in zip(program.graph_signature.output_specs, results, strict=True):
        if spec.kind.name == "USER_OUTPUT":
            outputs.append(result)
        elif spec.kind.name == "BUFFER_MUTATION":
            updates[spec.target] = result
        else:
            raise UnsupportedError(f"the model changes {spec.target or 'its input'} while it computes a loss")
    return Lowered(builder, outputs, updates, s.streams)


def _placeholder(builder, node, spec, names, given, known, made):
    value, kind = node.meta["val"], spec.kind.name
    if not hasattr(value, "shape"):
        return value
    if kind in ("PARAMETER", "BUFFER") and names.get(spec.target) is not None:
        name = names[spec.target]
    elif kind == "USER_INPUT":
        name = next(given)
    else:
        return builder.array(array_of(known[spec.target]))
    if name not in made:
        # Tied weights are one input.
        made[name] = builder.graph.input(name, [int(n) for n in value.shape], DTYPES[value.dtype])
    return made[name]


def _called(s, node, env):
    fill = lambda m: env[m]  # noqa: E731
    arguments, options = torch.fx.node.map_arg(node.args, fill), torch.fx.node.map_arg(node.kwargs, fill)
    if node.target is operator.getitem:
        return arguments[0][arguments[1]]
    name, value = str(node.target), node.meta.get("val")
    first = value[0] if isinstance(value, (tuple, list)) and value else value
    try:
        if name not in RULES:
            raise UnsupportedError(f"'{name}' is not supported")
        dtype = DTYPES.get(first.dtype) if hasattr(first, "dtype") else None
        if hasattr(first, "dtype") and dtype is None:
            raise UnsupportedError(f"tensors of type {first.dtype}")
        result = RULES[name](s, dtype, *arguments, **options)
    except (Error, NotImplementedError) as error:
        raise UnsupportedError(f"{location(node)}{name}: {error}") from error
    checked = result[0] if isinstance(result, (list, tuple)) else result
    if isinstance(checked, Tensor) and hasattr(first, "shape") and list(checked.shape) != [int(n) for n in first.shape]:
        raise AssertionError(f"{name}: {checked.shape} instead of {list(first.shape)}")
    return result


