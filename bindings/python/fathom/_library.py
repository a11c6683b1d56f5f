"""libfathom through ctypes: the structs and functions of fathom.h that the package uses.

Nothing is compiled: the package needs the shared library alone. It is looked for in $FATHOM_LIBRARY (a
file), beside the package, in the folders of `fathom` on PATH, and by the system's own search.
"""

import ctypes
import os
import shutil
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t
from ctypes import c_uint8, c_uint16, c_uint32, c_uint64, c_void_p

MAX_RANK = 8
SONAME = "libfathom.so.0.1"

F32, BF16, F16, F8E4M3 = 0, 1, 2, 3  # fathom_dtype
OUTPUT_WEIGHTS, OUTPUT_ENTROPY, OUTPUT_MIX, OUTPUT_FP8 = 1, 2, 4, 8
PHASES = {None: 0, "auto": 1, "one": 2, "two": 3}
CPU, CUDA = 1, 2  # DLDeviceType


class Error(RuntimeError):
    """What the library refused, with its text; `status` is FATHOM_INVALID and so on."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class DLTensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class Text(Structure):
    _fields_ = [("data", c_void_p), ("length", c_size_t)]


class ContextOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("allocator_user", c_void_p),
        ("allocate", c_void_p),
        ("release", c_void_p),
        ("cache_directory", c_char_p),
        ("threads", c_uint32),
    ]


class CompileOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("target", c_char_p),
        ("cpu", c_char_p),
        ("schedule", c_char_p),
        ("verify_each", c_int),
        ("reserved", c_int),
        ("sanitize", c_int),
    ]


class ModelOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("target", c_char_p),
        ("cpu", c_char_p),
        ("phases", c_int),
        ("outputs", c_uint32),
        ("rows", c_int64),
    ]


class ModelInfo(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("target", c_char_p),
        ("arch", c_char_p),
        ("hidden", c_int64),
        ("heads", c_int64),
        ("sublayers", c_uint32),
        ("sites", c_uint32),
        ("dtype", c_int),
        ("outputs", c_uint32),
        ("param_count", c_uint32),
        ("kernel_count", c_uint32),
        ("run_count", c_uint32),
        ("compile_us", c_double),
    ]


class TensorInfo(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("dtype", c_int),
        ("rank", c_uint32),
        ("axes", c_char_p * MAX_RANK),
        ("sizes", c_int64 * MAX_RANK),
        ("layout", c_uint32 * MAX_RANK),
    ]


class Arg(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("tensor", POINTER(DLTensor)),
        ("slices", POINTER(POINTER(DLTensor))),
        ("slice_count", c_uint32),
    ]


class Executor(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("user", c_void_p),
        ("concurrency", c_uint32),
        ("parallel_for", c_void_p),
        ("stream", c_void_p),
        ("check_pointers", c_int),
    ]


class SiteOutputs(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("input", POINTER(DLTensor)),
        ("weights", POINTER(DLTensor)),
        ("entropy", POINTER(DLTensor)),
        ("mix", POINTER(DLTensor)),
        ("scale", POINTER(DLTensor)),
    ]


# name: (result, arguments); functions that give a fathom_status raise Error.
_STATUS = "status"
_FUNCTIONS = {
    "fathom_error_text": (c_char_p, []),
    "fathom_version": (c_char_p, []),
    "fathom_text_destroy": (None, [POINTER(Text)]),
    "fathom_context_create": (_STATUS, [POINTER(ContextOptions), POINTER(c_void_p)]),
    "fathom_context_destroy": (None, [c_void_p]),
    "fathom_info": (_STATUS, [c_void_p, POINTER(Text)]),
    "fathom_parse": (_STATUS, [c_void_p, c_char_p, c_size_t, c_char_p, POINTER(c_void_p)]),
    "fathom_module_destroy": (None, [c_void_p]),
    "fathom_module_graph": (_STATUS, [c_void_p, c_char_p, POINTER(c_void_p)]),
    "fathom_compile": (
        _STATUS,
        [c_void_p, c_void_p, POINTER(CompileOptions), POINTER(c_void_p)],
    ),
    "fathom_executable_destroy": (None, [c_void_p]),
    "fathom_workspace_size": (
        _STATUS,
        [c_void_p, POINTER(Arg), c_uint32, POINTER(Executor), POINTER(c_size_t)],
    ),
    "fathom_run": (
        _STATUS,
        [c_void_p, POINTER(Arg), c_uint32, c_void_p, c_size_t, POINTER(Executor)],
    ),
    "fathom_model_expand": (
        _STATUS,
        [c_void_p, c_char_p, POINTER(ModelOptions), POINTER(Text)],
    ),
    "fathom_model_plan": (
        _STATUS,
        [c_void_p, c_char_p, POINTER(ModelOptions), POINTER(Text)],
    ),
    "fathom_model_open": (
        _STATUS,
        [c_void_p, c_char_p, POINTER(ModelOptions), POINTER(c_void_p)],
    ),
    "fathom_model_destroy": (None, [c_void_p]),
    "fathom_model_get_info": (_STATUS, [c_void_p, POINTER(ModelInfo)]),
    "fathom_model_addends": (c_uint32, [c_void_p, c_uint32]),
    "fathom_model_sources": (c_uint32, [c_void_p, c_uint32]),
    "fathom_model_param": (_STATUS, [c_void_p, c_uint32, POINTER(TensorInfo)]),
    "fathom_model_bind": (_STATUS, [c_void_p, POINTER(Arg), c_uint32]),
    "fathom_sequence_create": (_STATUS, [c_void_p, POINTER(c_void_p)]),
    "fathom_sequence_destroy": (None, [c_void_p]),
    "fathom_sequence_workspace": (
        _STATUS,
        [c_void_p, c_int64, POINTER(Executor), POINTER(c_size_t)],
    ),
    "fathom_sequence_begin": (
        _STATUS,
        [
            c_void_p,
            POINTER(DLTensor),
            POINTER(SiteOutputs),
            c_void_p,
            c_size_t,
            POINTER(Executor),
        ],
    ),
    "fathom_sequence_site": (
        _STATUS,
        [c_void_p, c_uint32, POINTER(POINTER(DLTensor)), c_uint32, POINTER(SiteOutputs)],
    ),
    "fathom_sequence_end": (
        _STATUS,
        [c_void_p, POINTER(POINTER(DLTensor)), c_uint32, POINTER(SiteOutputs)],
    ),
    "fathom_sequence_reset": (_STATUS, [c_void_p]),
}


def _candidates():
    if os.environ.get("FATHOM_LIBRARY"):
        yield os.environ["FATHOM_LIBRARY"]
        return
    here = os.path.dirname(os.path.abspath(__file__))
    yield os.path.join(here, SONAME)
    program = shutil.which("fathom")
    if program:
        prefix = os.path.dirname(os.path.dirname(os.path.realpath(program)))
        yield os.path.join(prefix, "lib", SONAME)
        yield os.path.join(prefix, "lib", "x86_64-linux-gnu", SONAME)
    yield SONAME


def _open():
    tried = []
    for path in _candidates():
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            tried.append(f"{path}: {error}")
    raise ImportError(
        "libfathom was not found; build and install Fathom, or name the file in $FATHOM_LIBRARY\n  "
        + "\n  ".join(tried)
    )


_library = _open()


def _check(status, function, arguments):
    if status != 0:
        raise Error(status, _library.fathom_error_text().decode())
    return status


for _name, (_result, _arguments) in _FUNCTIONS.items():
    _function = getattr(_library, _name)
    _function.argtypes = _arguments
    _function.restype = c_int if _result is _STATUS else _result
    if _result is _STATUS:
        _function.errcheck = _check
    globals()[_name] = _function


def take_text(text):
    """The string of a Text, which is freed."""
    try:
        return ctypes.string_at(text.data, text.length).decode()
    finally:
        fathom_text_destroy(byref(text))  # noqa: F821
