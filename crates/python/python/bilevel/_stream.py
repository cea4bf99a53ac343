"""Iterators and loaders as data: one batch for each step, read ahead of the run on a thread of its own."""

import collections
import collections.abc
import concurrent.futures
import contextlib
import itertools
import warnings

from ._build import engine_array
from .errors import Error, StreamError

#: Batches that are kept, because reverse mode walks back and reads them again.
KEPT = 4096


@contextlib.contextmanager
def loaders():
    """Turns the error that PyTorch raises in the main thread when a worker of a loader dies into one about the data."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, Error) or "DataLoader worker" not in str(error):
            raise
        raise StreamError(str(error)) from error


def is_stream(data):
    """Whether data are batches that come one after the other, such as an iterator or a `DataLoader`, and not arrays."""
    return isinstance(data, collections.abc.Iterator) or (hasattr(data, "__iter__") and not hasattr(data, "__getitem__") and not hasattr(data, "shape"))


class Stream:
    """The batches of an iterable, numbered by the steps that ask for them.

    Within a hypergradient the batches go to the steps in their order, whichever step asks first; a step that asks again is given the batch
    that it had. An iterable that ends is started anew; an iterator that ends is an error.
    """

    def __init__(self, source, flatten, what):
        self.source, self.flatten, self.what = source, flatten, what
        self.iterator, self.read_so_far, self.names, self.failure = iter(source), 0, None, None
        self.known = collections.OrderedDict()
        #: All batches are read on one thread of Python's own: loaders start their workers from it, which a thread of the engine cannot.
        self.thread = concurrent.futures.ThreadPoolExecutor(1, f"bilevel {what}")
        #: The words of the newest hypergradient, and its first step without a batch.
        self.begun = ((), 0)
        #: The first batch, for tracing; it is also the first that is read.
        self.first = self._next()
        self.iterator = itertools.chain([self.first], self.iterator)

    def __call__(self, words, step):
        """The arrays of the batch of a step, in the order of their names; `words` tell one hypergradient from another."""
        return self.thread.submit(self._read, tuple(words), step).result()

    def _read(self, words, step):
        if (*words, step) not in self.known:
            begun = self.begun[1] if self.begun[0] == words else 0
            for earlier in range(max(begun, step - KEPT + 1), step + 1) if begun <= step else (step,):
                self.known[*words, earlier] = self._arrays(self._next())
                if len(self.known) > KEPT:
                    self.known.popitem(last=False)
            self.begun = (words, max(begun, step + 1))
        return self.known[*words, step]

    def _next(self):
        if self.failure is not None:
            raise StreamError(self.failure)
        try:
            return next(self.iterator)
        except StopIteration:
            pass
        except Exception as error:
            # What has failed once is not asked again: a generator would only say that it has ended.
            self.failure = f"{self.what} failed after {self.read_so_far} batches: {type(error).__name__}: {error}"
            raise StreamError(self.failure) from error
        if isinstance(self.source, collections.abc.Iterator):
            raise StreamError(
                f"{self.what} ended after {self.read_so_far} batches; give something that can be iterated over again, such as a list or a loader")
        self.iterator = iter(self.source)
        try:
            return next(self.iterator)
        except StopIteration:
            raise StreamError(f"{self.what} has no batches") from None

    def _arrays(self, batch):
        names, arrays = self.flatten(batch)
        arrays = [engine_array(array) for array in arrays]
        shapes = [array.shape for array in arrays]
        if self.names is None:
            self.names, self.shapes = names, shapes
        if is_smaller(shapes, self.shapes):
            # The rest of an epoch: shapes are fixed, so it is left out.
            warnings.warn(f"the last batch of {self.what} is smaller than the others and is left out", stacklevel=1)
            return self._arrays(self._next())
        if (names, shapes) != (self.names, self.shapes):
            raise StreamError(f"a batch of {self.what} has the shapes {shapes}, but the first had {self.shapes}")
        self.read_so_far += 1
        return arrays

    def declared(self, prefix):
        """What the engine must know: names, shapes and types of the arrays, this function, and its identity."""
        names, arrays = self.flatten(self.first)
        arrays = [engine_array(array) for array in arrays]
        self.names, self.shapes = names, [array.shape for array in arrays]
        types = {"float32": "f32", "float64": "f64", "int32": "i32"}
        ports = [(f"{prefix}/{n}", list(a.shape), types[str(a.dtype)]) for n, a in zip(names, arrays)]
        return ports, self, type(self.source).__name__


def is_smaller(shapes, first):
    """Whether batches have the same form but fewer rows."""
    if len(shapes) != len(first) or shapes == first:
        return False
    pairs = list(zip(shapes, first))
    return all(a and b and a[0] < b[0] and a[1:] == b[1:] for a, b in pairs)
