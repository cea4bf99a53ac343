"""Executes the code cells of notebooks and writes what they show into them: `python execute.py *.ipynb`.

A cell's output is what it prints and the value of its last line, as text and as a picture or a table if it has one.
"""

import ast
import contextlib
import io
import json
import pathlib
import sys


def executed(cells):
    """The outputs of each code cell, executed one after the other in one namespace."""
    namespace, found = {"__name__": "__main__"}, []
    for cell in cells:
        if cell["cell_type"] == "code":
            found.append(outputs("".join(cell["source"]), namespace, len(found) + 1))
    return found


def outputs(source, namespace, number):
    tree, printed, value = ast.parse(source), io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"cell {number}", "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), namespace)
    made = []
    if printed.getvalue():
        made.append({"output_type": "stream", "name": "stdout", "text": lines(printed.getvalue())})
    if value is not None:
        data = {"text/plain": lines(repr(value))}
        for kind, method in (("image/svg+xml", "_repr_svg_"), ("text/html", "_repr_html_")):
            if hasattr(value, method):
                data[kind] = lines(getattr(value, method)())
        made.append({"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data})
    return made


def lines(text):
    return text.splitlines(keepends=True)


def main(paths):
    for path in map(pathlib.Path, paths):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        for number, (cell, found) in enumerate(zip(code, executed(notebook["cells"])), 1):
            cell["outputs"], cell["execution_count"] = found, number
        path.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
