"""Several processes, one run: the ranks that a launcher has started."""

import contextlib
import sys
import traceback

from . import _bilevel
from .errors import Error


class Ranks:
    """This process among those of a launch: `rank` is its number, from 0, and `size` the number of processes."""

    def __init__(self, rank, size):
        self.rank, self.size = rank, size

    def __repr__(self):
        return f"<bilevel rank {self.rank} of {self.size}>"


#: The ranks that are joined; a process joins at most once.
_JOINED = None


@contextlib.contextmanager
def ranks():
    """Joins the other processes that `mpirun`, `srun` or `torchrun` has started: runs within share out their rows, chains and directions.

    Without a launcher there is one rank, and nothing changes. All ranks give the same runs in the same order. An exception on one rank
    ends the others. A process joins ranks once, so all runs on them go into one `with`.

    >>> with bl.ranks() as ranks:
    ...     print(ranks.size)
    1
    """
    global _JOINED
    if _JOINED is not None and _JOINED.size > 1:
        raise Error("the ranks were joined before, which a process can do once; put all runs into one 'with bilevel.ranks()'")
    _JOINED = Ranks(*_bilevel.join_ranks())
    try:
        yield _JOINED
    except BaseException as error:
        if not isinstance(error, SystemExit) or error.code not in (None, 0):
            if _JOINED.size > 1:
                # A launcher may end this process before Python has printed it.
                traceback.print_exc()
                sys.stderr.flush()
            _bilevel.leave_ranks(f"{type(error).__name__}: {error}")
        else:
            _bilevel.leave_ranks()
        raise
    _bilevel.leave_ranks()


def follows():
    """True for a rank that neither prints nor writes."""
    return _JOINED is not None and _JOINED.rank > 0
