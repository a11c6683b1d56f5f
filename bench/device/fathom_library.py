"""libfathom from Python, as far as comparisons need it: the structs and calls of include/fathom.h through ctypes.

Tensors are given as `Memory`: an address, a shape and a dtype. Nothing here knows PyTorch.
"""

import ctypes
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64
from ctypes import c_void_p
from typing import NamedTuple

KDLCPU, KDLCUDA = 1, 2
DTYPES = {"f32": (2, 32), "bf16": (4, 16), "f16": (2, 16), "f8e4m3": (10, 8)}  # code and bits of DLPack


class Memory(NamedTuple):
    address: int
    shape: tuple
    dtype: str
    device: int = KDLCUDA


class DLTensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class Arg(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("tensor", POINTER(DLTensor)), ("slices", c_void_p), ("slice_count", c_uint32)]


class CompileOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("target", c_char_p), ("cpu", c_char_p), ("schedule", c_char_p),
                ("verify_each", c_int), ("reserved", c_int)]


class Executor(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("user", c_void_p), ("concurrency", c_uint32), ("parallel_for", c_void_p),
                ("stream", c_void_p), ("check_pointers", c_int)]


class Text(ctypes.Structure):
    _fields_ = [("data", c_char_p), ("length", c_size_t)]


class Failure(Exception):
    pass


class Library:
    def __init__(self, path):
        self.calls = ctypes.CDLL(path)
        self.calls.fathom_error_text.restype = c_char_p
        self.context = c_void_p()
        self.check(self.calls.fathom_context_create(None, byref(self.context)))

    def check(self, status):
        if status != 0:
            raise Failure(self.calls.fathom_error_text().decode())

    def compile(self, path, axes, target="cuda", schedule=""):
        """The only graph of a file, with `axes` (a dict) bound."""
        with open(path, "rb") as file:
            text = file.read()
        module, graph, executable = c_void_p(), c_void_p(), c_void_p()
        self.check(self.calls.fathom_parse(self.context, text, c_size_t(len(text)), path.encode(), byref(module)))
        self.check(self.calls.fathom_module_graph(module, None, byref(graph)))
        for axis, size in axes.items():
            self.check(self.calls.fathom_graph_bind(graph, axis.encode(), c_int64(size)))
        options = CompileOptions(size=ctypes.sizeof(CompileOptions), target=target.encode(), schedule=schedule.encode())
        self.check(self.calls.fathom_compile(self.context, graph, byref(options), byref(executable)))
        return Executable(self, executable)


class Executable:
    def __init__(self, library, handle):
        self.library, self.handle = library, handle

    def bind(self, tensors, allocate):
        """A function that runs on these tensors (name to Memory) and on the stream it is given. `allocate` gives the
        address of that many bytes of workspace, which stays as long as the function."""
        return Run(self, tensors, allocate)


class Run:
    def __init__(self, executable, tensors, allocate):
        self.executable = executable
        self.args = (Arg * len(tensors))()
        self.kept = []  # what the arguments point to
        for arg, (name, memory) in zip(self.args, tensors.items()):
            code, bits = DTYPES[memory.dtype]
            shape = (c_int64 * len(memory.shape))(*memory.shape)
            tensor = DLTensor(data=memory.address, device_type=memory.device, ndim=len(memory.shape), code=code,
                              bits=bits, lanes=1, shape=shape)
            arg.name, arg.tensor = name.encode(), ctypes.pointer(tensor)
            self.kept += [shape, tensor]
        calls, needed = executable.library.calls, c_size_t()
        executable.library.check(calls.fathom_workspace_size(executable.handle, self.args, c_uint32(len(self.args)),
                                                             None, byref(needed)))
        self.workspace_bytes = needed.value
        self.workspace = allocate(needed.value) if needed.value else None
        self.executor = Executor(size=ctypes.sizeof(Executor), concurrency=1)

    def __call__(self, stream=None):
        self.executor.stream = stream
        executor = byref(self.executor) if stream is not None else None
        calls = self.executable.library.calls
        self.executable.library.check(calls.fathom_run(self.executable.handle, self.args, c_uint32(len(self.args)),
                                                       c_void_p(self.workspace), c_size_t(self.workspace_bytes),
                                                       executor))
