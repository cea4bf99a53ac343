"""Writes `python/bilevel/_methods.py`: a function with typed settings for each method, from the settings that the library knows.

Run it where `bilevel` can be imported; `python generate.py --check` compares instead, and fails where the file is out of date.
"""

import json
import pathlib
import sys

from bilevel import _bilevel

FILE = pathlib.Path(__file__).parent / "python/bilevel/_methods.py"

HEADER = '''"""A function for each method, with its settings: `bilevel.methods.rmd(storage="checkpoints")` is given to `run` in place of a name.

Written by `generate.py` from the settings of the library; do not edit.
"""

import json
from typing import Any, Literal

from . import _bilevel


class Methods:
    """All methods: called, a table of them; by name, a method with settings."""

    def __call__(self) -> list[dict[str, Any]]:
        """All methods, as a list of dictionaries: name, summary, cost, memory, when to choose it, and its settings.

        Each setting has its type, default, meaning, choices if it is a word, and range if it is a number.
        """
        return json.loads(_bilevel.methods(True))

    def __repr__(self) -> str:
        return "<bilevel.methods: " + ", ".join(m["name"] for m in json.loads(_bilevel.methods())) + ">"
'''

METHOD = '''
    @staticmethod
    def {function}({arguments}) -> dict[str, Any]:
        """{summary}{settings}
        """
        return {{"name": "{name}"{pairs}}}
'''


def written():
    """The text of the file."""
    methods = [method(m) for m in json.loads(_bilevel.methods(True))]
    return HEADER + "".join(methods) + "\n\nmethods = Methods()\n"


def method(known):
    arguments, lines, pairs = [], [], []
    for setting in known["settings"]:
        name, kind = setting["name"], setting["type"]
        if setting["choices"]:
            kind = f"Literal[{', '.join(repr(c).replace(chr(39), chr(34)) for c in setting['choices'])}]"
            kind += " | dict[str, Any]" if "{" in setting["meaning"] else ""
        elif kind == "dict":
            kind = "Any"
        arguments.append(f"{name}: {kind} = {literal(setting['default'])}")
        said = setting["meaning"].strip().rstrip(".") or "a setting of this method"
        lines.append(f"        {name}: {said}{'' if setting['range'] is None else ', ' + setting['range']}.")
        pairs.append(f', "{name}": {name}')
    text = METHOD.format(
        function=known["name"].replace("-", "_"), name=known["name"], summary=sentence(known["summary"]),
        arguments=wrapped(arguments), settings="\n\n" + "\n".join(lines) if lines else "", pairs="".join(pairs))
    return text if lines else text.replace('.\n        """', '."""')


def sentence(text):
    text = text.strip().rstrip(".")
    return text[:1].upper() + text[1:] + "."


def wrapped(arguments):
    if not arguments:
        return ""
    return "*, " + ", ".join(arguments) if sum(map(len, arguments)) < 90 else "\n        *,\n        " + ",\n        ".join(arguments) + ",\n    "


def literal(value):
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


if __name__ == "__main__":
    if "--check" not in sys.argv:
        FILE.write_text(written(), encoding="utf-8")
    elif FILE.read_text(encoding="utf-8") != written():
        sys.exit("python/bilevel/_methods.py is out of date; run: python generate.py")
