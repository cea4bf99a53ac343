"""The exceptions of this package. Each says in one sentence what is wrong and what to do next."""


class Error(Exception):
    """The base of all exceptions of this package."""


class SettingError(Error, ValueError):
    """A setting that is unknown, outside its range, or excluded by another."""


class ShapeError(Error, ValueError):
    """An array or tensor of the wrong shape, type or structure."""


class DataError(Error, ValueError):
    """Data that are missing, not finite, or otherwise unusable."""


class StreamError(DataError):
    """A stream of data that ended, failed or changed its shape; the sentence names the step."""


class ProblemError(Error, ValueError):
    """A problem that is incomplete or contradicts itself."""


class UnsupportedError(Error, NotImplementedError):
    """An operation of a model that cannot be lowered; the sentence names the line of user code."""


class NotApplicableError(Error, ValueError):
    """A method that cannot work on this problem."""


class CheckError(Error, ArithmeticError):
    """A loss whose value or derivatives differ from those of the framework it was written in."""


class DivergenceError(Error, ArithmeticError):
    """A run whose numbers ran away."""


class CheckpointError(Error, RuntimeError):
    """A checkpoint or a file of arrays that cannot be read or written, or belongs to another run."""


class OutOfMemoryError(Error, MemoryError):
    """Memory that is not available."""


class DeviceError(Error, RuntimeError):
    """A device, or one of its libraries, that is missing or failed."""
