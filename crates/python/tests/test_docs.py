"""The Python programs of README and of the guide run, and the stubs name what the module has."""

import ast
import importlib.util
import pathlib
import re

import bilevel
import numpy as np
import pytest
from bilevel import _bilevel
from bilevel._check import difference

ROOT = pathlib.Path(__file__).resolve().parents[3]


def programs():
    for path in ("README.md", "crates/python/README.md", "docs/guide/src/python.md"):
        for i, (needs, text) in enumerate(re.findall(r"```python(,torch)?\n(.*?)```", (ROOT / path).read_text(), re.S)):
            yield pytest.param(needs or text, text, id=f"{path}-{i}")


@pytest.mark.parametrize("needs, text", list(programs()))
def test_a_program_of_the_documentation_runs(needs, text):
    for framework in ("jax", "torch"):
        if framework in needs and importlib.util.find_spec(framework) is None:
            pytest.skip(f"{framework} is not installed")
    exec(compile(text, "documentation", "exec"), {"__name__": "documentation"})


def test_there_are_programs():
    assert len(list(programs())) >= 4


def switches():
    """The programs of the page for users of other libraries: blocks with the libraries that each needs."""
    text = (ROOT / "docs/guide/src/python-coming-from.md").read_text()
    found = []
    for needs, block in re.findall(r"```python((?:,\w+)*)\n(.*?)```", text, re.S):
        if block.startswith("import bilevel"):
            found.append([])
        found[-1].append(([*needs.split(",")[1:], *(["jax"] if "import jax" in block else [])], block))
    return [pytest.param(blocks, id=name) for name, blocks in zip(("JAXopt", "higher-TorchOpt", "Betty"), found, strict=True)]


def leaves(found):
    if isinstance(found, dict):
        found = list(found.values())
    return [np.asarray(getattr(leaf, "detach", lambda leaf=leaf: leaf)()) for leaf in found]


@pytest.mark.parametrize("blocks", switches())
def test_what_other_libraries_compute_is_what_is_computed_here(blocks):
    scope, there, compared = {"__name__": "documentation"}, None, 0
    missing = lambda needs: [name for name in needs if importlib.util.find_spec(name) is None]  # noqa: E731
    if lacks := [name for name in missing(blocks[0][0]) if name in ("jax", "torch")]:
        pytest.skip(f"{lacks[0]} is not installed")
    for needs, block in blocks:
        if missing(needs):
            there = None
            continue
        exec(compile(block, "documentation", "exec"), scope)
        if "there = " in block:
            there = leaves(scope["there"])
        elif "here = " in block:
            here = leaves(scope["here"])
            assert all(np.isfinite(leaf).all() for leaf in here)
            if there is not None:
                # Implicit derivatives are solved for iteratively on both sides.
                assert difference(here, there) <= 1e-7, block
                compared += 1
    assert compared or any(missing(needs) for needs, _ in blocks)


def test_the_stubs_name_what_the_module_has():
    stub = pathlib.Path(bilevel.__file__).with_name("_bilevel.pyi")
    tree = ast.parse(stub.read_text())
    named = {node.name: node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    public = {n for n in dir(_bilevel) if not n.startswith("_")}
    assert public == set(named)
    for name, node in named.items():
        if isinstance(node, ast.ClassDef):
            methods = {f.name for f in node.body if isinstance(f, ast.FunctionDef)} - {"__init__", "__len__"}
            assert {n for n in vars(getattr(_bilevel, name)) if not n.startswith("_")} == methods, name


def test_the_package_is_typed():
    assert pathlib.Path(bilevel.__file__).with_name("py.typed").exists()


def test_the_functions_of_methods_are_up_to_date():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "crates/python/generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert pathlib.Path(bilevel.__file__).with_name("_methods.py").read_text(encoding="utf-8") == module.written(), (
        "run crates/python/generate.py")
