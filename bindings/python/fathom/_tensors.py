"""Tensors of NumPy and PyTorch as the library sees them: DLTensor structs that share their memory."""

from ctypes import POINTER, c_int64, pointer

import numpy

from . import _library as lib

# NumPy has no bfloat16 and no float8: their bits come as uint16 and uint8.
_NUMPY_DTYPES = {
    numpy.dtype("float32"): (2, 32),
    numpy.dtype("float16"): (2, 16),
    numpy.dtype("uint16"): (4, 16),
    numpy.dtype("uint8"): (10, 8),
}
_torch_dtypes = {}


def _torch_dtype(dtype):
    if not _torch_dtypes:
        import torch

        _torch_dtypes.update({torch.float32: (2, 32), torch.float16: (2, 16), torch.bfloat16: (4, 16)})
    return _torch_dtypes.get(dtype)


class View:
    """A DLTensor over an array's memory. Keeps the array alive."""

    __slots__ = ("array", "struct", "pointer", "_shape")

    def __init__(self, array):
        self.array = array
        if isinstance(array, numpy.ndarray):
            dtype = _NUMPY_DTYPES.get(array.dtype)
            item = array.itemsize
            strides = [stride // item for stride in array.strides]
            data, device = array.ctypes.data, (lib.CPU, 0)
        else:
            dtype = _torch_dtype(array.dtype)
            strides = array.stride()
            data = array.data_ptr()
            device = (lib.CUDA, array.device.index or 0) if array.is_cuda else (lib.CPU, 0)
        if dtype is None:
            raise TypeError(f"expected float32, float16 or bfloat16, found {array.dtype}")
        rank = len(array.shape)
        self._shape = (c_int64 * (2 * rank or 1))(*array.shape, *strides)
        self.struct = lib.DLTensor(
            data, device[0], device[1], rank, dtype[0], dtype[1], 1, self._shape, None, 0
        )
        if rank:
            self.struct.strides = pointer(c_int64.from_buffer(self._shape, 8 * rank))
        self.pointer = pointer(self.struct)
