"""Models and sequences over ctypes: what fathom.h has, as Python objects."""

import ctypes
from ctypes import byref, c_size_t, c_void_p

import numpy

from . import _library as lib
from ._tensors import View

_OUTPUTS = {
    "weights": lib.OUTPUT_WEIGHTS,
    "entropy": lib.OUTPUT_ENTROPY,
    "mix": lib.OUTPUT_MIX,
    "fp8": lib.OUTPUT_FP8,
}
DTYPES = {lib.F32: "f32", lib.BF16: "bf16", lib.F16: "f16", lib.F8E4M3: "f8e4m3"}


def _bytes(text):
    return None if text is None else str(text).encode()


class Context:
    """What compilations share: cache folder and thread pool.

    threads: of the library's pool; 0: one for each core. cache: the folder of compiled code; "": none;
    None: the usual one.
    """

    def __init__(self, threads=0, cache=None):
        options = lib.ContextOptions(ctypes.sizeof(lib.ContextOptions))
        options.threads = threads
        options.cache_directory = _bytes(cache)
        self._handle = c_void_p()
        lib.fathom_context_create(byref(options), byref(self._handle))

    def __del__(self):
        if getattr(self, "_handle", None):
            lib.fathom_context_destroy(self._handle)


_shared = None


def shared_context():
    """The context of models that name none; made when first asked for."""
    global _shared
    if _shared is None:
        _shared = Context()
    return _shared


def _options(target=None, cpu=None, phases=None, outputs=(), rows=0):
    if phases not in lib.PHASES:
        raise ValueError(f"phases: expected one, two, auto or None, found {phases!r}")
    unknown = [name for name in outputs if name not in _OUTPUTS]
    if unknown:
        raise ValueError(f"outputs: expected some of {', '.join(_OUTPUTS)}, found {unknown}")
    options = lib.ModelOptions(ctypes.sizeof(lib.ModelOptions))
    options.target, options.cpu = _bytes(target), _bytes(cpu)
    options.phases = lib.PHASES[phases]
    options.rows = rows
    options.outputs = sum(_OUTPUTS[name] for name in set(outputs))
    return options


def expand(model, outputs=(), context=None):
    """The graph of a model's whole depth, as IR text. `model`: a name, or the path of a .yaml file."""
    text = lib.Text()
    context = context or shared_context()
    lib.fathom_model_expand(
        context._handle, _bytes(model), byref(_options(outputs=outputs)), byref(text)
    )
    return lib.take_text(text)


def plan(model, target=None, phases=None, outputs=(), rows=0, context=None):
    """What of a model runs when, as a table. rows: tokens at a time (0: 1024)."""
    text = lib.Text()
    context = context or shared_context()
    lib.fathom_model_plan(
        context._handle,
        _bytes(model),
        byref(_options(target, phases=phases, outputs=outputs, rows=rows)),
        byref(text),
    )
    return lib.take_text(text)


class Parameter:
    """A parameter of a model: its name, dtype ("f32", "bf16", "f16") and shape."""

    def __init__(self, info):
        self.name = info.name.decode()
        self.dtype = DTYPES[info.dtype]
        self.shape = tuple(info.sizes[: info.rank])


class Model:
    """A compiled model.

    model: a name that comes with Fathom, or the path of a .yaml file. target: "cpu" (default), "interp",
    "cuda", "cuda-emu", each GPU target with an architecture as in "cuda:sm_90". phases: "one", "two",
    "auto" (what is faster for so many `rows` at a time; 0: 1024), or None for what the description says. outputs: results of each site besides, some of
    "weights", "entropy", "mix", and "fp8": inputs of sublayers in f8e4m3, each token with a `scale`.
    """

    def __init__(self, model, target=None, cpu=None, phases=None, outputs=(), rows=0, context=None):
        self.context = context or shared_context()
        self._handle = c_void_p()
        options = _options(target, cpu, phases, outputs, rows)
        lib.fathom_model_open(self.context._handle, _bytes(model), byref(options), byref(self._handle))
        info = lib.ModelInfo(ctypes.sizeof(lib.ModelInfo))
        lib.fathom_model_get_info(self._handle, byref(info))
        self.name, self.target = info.name.decode(), info.target.decode()
        self.hidden, self.heads = info.hidden, info.heads
        self.sublayers, self.sites = info.sublayers, info.sites
        self.dtype, self.outputs = DTYPES[info.dtype], tuple(
            name for name, bit in _OUTPUTS.items() if info.outputs & bit
        )
        self.kernels, self.runs, self.compile_us = info.kernel_count, info.run_count, info.compile_us
        self.addends = [lib.fathom_model_addends(self._handle, i) for i in range(self.sublayers)]
        self.sources = [lib.fathom_model_sources(self._handle, i) for i in range(self.sites)]
        self.parameters = [self._parameter(i) for i in range(info.param_count)]
        self._bound = {}

    def _parameter(self, index):
        info = lib.TensorInfo(ctypes.sizeof(lib.TensorInfo))
        lib.fathom_model_param(self._handle, index, byref(info))
        return Parameter(info)

    def bind(self, arrays):
        """Binds parameters by name: {"query_3": array}, or those of all sites, {"query": [sites, D]}.

        A list of arrays, one for each site, is fine too. Arrays are not copied: they are kept, and may
        change their values between sequences.
        """
        args = (lib.Arg * len(arrays))()
        kept = {}
        for arg, (name, array) in zip(args, arrays.items()):
            arg.name = name.encode()
            if isinstance(array, (list, tuple)):
                views = [View(one) for one in array]
                pointers = (ctypes.POINTER(lib.DLTensor) * len(views))(*(v.pointer for v in views))
                arg.slices, arg.slice_count = pointers, len(views)
                kept[name] = (views, pointers)
            else:
                kept[name] = View(array)
                arg.tensor = kept[name].pointer
        lib.fathom_model_bind(self._handle, args, len(arrays))
        self._bound.update(kept)

    def __del__(self):
        if getattr(self, "_handle", None):
            lib.fathom_model_destroy(self._handle)


def _aligned(array):
    """Where in a byte array the first multiple of 128 is."""
    return -array.ctypes.data % 128


class Sequence:
    """Tokens on their way through the depth of a model, in host memory."""

    def __init__(self, model, executor=None):
        self.model = model
        self._executor = executor
        self._handle = c_void_p()
        lib.fathom_sequence_create(model._handle, byref(self._handle))
        self._room = None

    def workspace_bytes(self, rows):
        """Bytes of workspace for so many tokens."""
        needed = c_size_t()
        lib.fathom_sequence_workspace(self._handle, rows, self._executor, byref(needed))
        return needed.value

    @staticmethod
    def _outputs(input, weights=None, entropy=None, mix=None, scale=None):
        views = [None if a is None else View(a) for a in (input, weights, entropy, mix, scale)]
        pointers = [None if v is None else v.pointer for v in views]
        return lib.SiteOutputs(ctypes.sizeof(lib.SiteOutputs), *pointers), views

    @staticmethod
    def _addends(arrays):
        views = [View(a) for a in arrays]
        return (ctypes.POINTER(lib.DLTensor) * len(views))(*(v.pointer for v in views)), views

    def begin(self, embedding, input, workspace=None, **outputs):
        """Takes the embedding [T, D]; `input` gets the first sublayer's input.

        workspace: (address, bytes), 128-byte aligned; else memory of the object's own.
        """
        view = View(embedding)
        structs, views = self._outputs(input, **outputs)
        if workspace is None:
            needed = self.workspace_bytes(embedding.shape[0])
            if self._room is None or self._room.nbytes < needed + 128:
                self._room = numpy.empty(needed + 128, dtype=numpy.uint8)
            workspace = (self._room.ctypes.data + _aligned(self._room), needed)
        lib.fathom_sequence_begin(
            self._handle, view.pointer, byref(structs), workspace[0], workspace[1], self._executor
        )

    def site(self, index, addends, input, **outputs):
        """Takes what sublayer index - 1 gave, a list of arrays; `input` gets the next one's input."""
        pointers, views = self._addends(addends)
        structs, kept = self._outputs(input, **outputs)
        lib.fathom_sequence_site(self._handle, index, pointers, len(views), byref(structs))

    def end(self, addends, output, **outputs):
        """Takes what the last sublayer gave; `output` gets the network's output."""
        pointers, views = self._addends(addends)
        structs, kept = self._outputs(output, **outputs)
        lib.fathom_sequence_end(self._handle, pointers, len(views), byref(structs))

    def reset(self):
        """Gives up tokens that are under way."""
        lib.fathom_sequence_reset(self._handle)

    def __del__(self):
        if getattr(self, "_handle", None):
            lib.fathom_sequence_destroy(self._handle)
