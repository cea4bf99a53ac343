"""The Python programs of README and of the guide run, and the stubs name what the module has."""

import ast
import importlib.util
import pathlib
import re

import bilevel
import pytest
from bilevel import _bilevel

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
