"""The command `bilevel`: `python -m bilevel` is the same."""

import signal
import sys


def main():
    from . import _bilevel

    # The command ends its runs itself on Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _bilevel.command(["bilevel", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
