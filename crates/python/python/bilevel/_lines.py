"""Lines of user code, as errors name them: `model.py:37 (attention)`."""

import os
import traceback


def named(file, line, function):
    return f"{os.path.basename(file)}:{line} ({function})"


def line_of(function):
    """Where a function begins, if it is one of Python."""
    code = getattr(function, "__code__", None)
    return None if code is None else named(code.co_filename, code.co_firstlineno, code.co_name)


def folder_of(module):
    """The folder of a library, as it is in the names of its files."""
    return os.path.dirname(module.__file__) + os.sep


def user_line(error, libraries):
    """The line of user code that an exception passed through last, with a colon: one outside the folders of libraries, if there is one."""
    while error is not None:
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if not f.filename.startswith((*libraries, "<"))]
        # The outermost of them is the call of bilevel itself.
        inside = [f for f in own if f.name != "<module>"] or own
        if inside:
            return f"{named(inside[-1].filename, inside[-1].lineno, inside[-1].name)}: "
        error = error.__cause__ or error.__context__
    return ""
