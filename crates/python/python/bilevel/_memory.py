"""Arrays of other libraries in the host's memory, by DLPack if need be, and aligned memory that other libraries take without a copy."""

import numpy as np

from .errors import DeviceError

#: The alignment in bytes at which the engine, PyTorch and JAX use memory without a copy.
ALIGNMENT = 64
#: The names of DLPack's kinds of devices.
_DEVICES = {2: "CUDA", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 13: "CUDA, managed", 14: "oneAPI"}
#: Kinds whose memory the processor reads: its own, and pinned memory of CUDA and ROCm.
_HOST = (1, 3, 11)


def host(value):
    """A value as an array of NumPy, without a copy if possible."""
    if hasattr(value, "__array__") or not hasattr(value, "__dlpack__"):
        try:
            return np.asarray(value)
        except TypeError:
            # A tensor of PyTorch on a GPU is one; the others have words of their own.
            _refuse_devices(value)
            raise
    _refuse_devices(value)
    return np.from_dlpack(value)


def _refuse_devices(value):
    try:
        kind, number = (int(n) for n in value.__dlpack_device__())
    except Exception:  # It does not know where it is.
        return
    if kind not in _HOST:
        raise DeviceError(
            f"an array is in the memory of a device ({_DEVICES.get(kind, f'kind {kind} of DLPack')}, number {number}), which is not adopted; "
            "copy it to the host first, as .cpu() and numpy.asarray do, and name the device to compute on by device=…"
        )


def shared(array):
    """The same memory, not to be written."""
    view = array.view()
    view.flags.writeable = False
    return view


def aligned(array, dtype):
    """A read-only copy in aligned memory."""
    size = np.dtype(dtype).itemsize * array.size
    block = np.empty(size + ALIGNMENT, np.uint8)
    first = -block.ctypes.data % ALIGNMENT
    made = block[first : first + size].view(dtype).reshape(array.shape)
    made[...] = array
    return shared(made)
