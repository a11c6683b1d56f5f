"""Modules for PyTorch: DepthMixer, attention over the depth of a whole network, and AttnRes, one site of it.

The work is done by four operators, torch.ops.fathom.{begin, site, end, attn_res}. A `begin` gives a
*ticket*, a tensor of one number that stands for the tokens under way; each `site` takes the ticket of the
one before and gives another, so the order of the calls is a dependence between values, which torch.compile
has to keep. The tickets' memory holds on to the tokens: when the last of them goes, tokens that never came
to their end are given up.

Where there is nothing to trace and no gradient to follow, DepthMixer calls the functions behind the
operators directly, which saves the time that PyTorch takes to find them.
"""

import ctypes
import hashlib
import itertools
import json
import os
import tempfile
import threading
import weakref
from ctypes import byref, c_int64, c_size_t, c_void_p, pointer

import torch
from torch import nn

from . import _library as lib
from ._model import Model, shared_context

__all__ = ["AttnRes", "Depth", "DepthMixer"]

_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_CODES = {  # DLPack's code and bits
    torch.float32: (2, 32),
    torch.float16: (2, 16),
    torch.bfloat16: (4, 16),
    torch.float8_e4m3fn: (10, 8),
}
_PLAIN = (torch.Tensor, nn.Parameter)
_NO_TRAINING = (
    "fathom: there is no backward pass yet, training is to come\n"
    "  hint: run the model under torch.no_grad() or torch.inference_mode(), or train with PyTorch operators"
)


# ---- DLTensors ----------------------------------------------------------------------------------


class _View:
    """A dense DLTensor [rows, D], or of other sizes, whose memory is set for each call."""

    __slots__ = ("struct", "sizes", "pointer")

    def __init__(self, rank):
        self.sizes = (c_int64 * (2 * rank or 1))()
        self.struct = lib.DLTensor(None, lib.CPU, 0, rank, 2, 32, 1, self.sizes, None, 0)
        if rank:
            self.struct.strides = pointer(c_int64.from_buffer(self.sizes, 8 * rank))
        self.pointer = pointer(self.struct)

    def place(self, device, dtype):
        struct = self.struct
        struct.device_type = lib.CUDA if device.type == "cuda" else lib.CPU
        struct.device_id = device.index or 0
        struct.code, struct.bits = _CODES[dtype]
        return self

    def dense(self, *sizes):
        """Gives it sizes, and the strides of a dense tensor."""
        stride, rank = 1, len(sizes)
        for i in range(rank - 1, -1, -1):
            self.sizes[i], self.sizes[rank + i] = sizes[i], stride
            stride *= sizes[i]
        return self


def _rows(tensor, hidden, what, index=""):
    """(tensor, the stride between its rows) of [..., D], which has to have its channels side by side."""
    strides = tensor.stride()
    if strides[-1] != 1 and hidden > 1:
        raise ValueError(
            f"fathom: {what}{index} has stride {strides[-1]} along its channels, expected 1\n"
            "  hint: hand over tensor.contiguous()"
        )
    if len(strides) == 2:
        return tensor, strides[0]
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()  # rows of several axes need one stride
    return tensor, hidden


def _require(tensor, dtype, device, what):
    if tensor.dtype is not dtype:
        raise TypeError(f"fathom: {what} is {tensor.dtype}, expected {dtype}")
    if tensor.device != device:
        raise ValueError(f"fathom: {what} is on {tensor.device}, expected {device}")


def _require_device(tensor, what):
    if tensor.is_meta or tensor.device.type not in ("cpu", "cuda"):
        raise ValueError(
            f"fathom: {what} is on device {tensor.device.type}, expected cpu or cuda\n"
            "  hint: tensors on meta have no values; they are for tracing only"
        )


def _executor(device):
    """None, or what says that a call is to be launched on PyTorch's current stream."""
    if device.type == "cpu":
        return None, 0
    stream = torch.cuda.current_stream(device).cuda_stream
    executor = lib.Executor(ctypes.sizeof(lib.Executor))
    executor.stream = stream
    return byref(executor), stream


def _room(needed, device):
    """(tensor, address) of so many bytes that begin at a multiple of 128."""
    tensor = torch.empty(needed + 128, dtype=torch.uint8, device=device)
    address = tensor.data_ptr()
    return tensor, address + -address % 128


def _can_go_direct(tensor):
    """Whether nobody is to see an operator: no tracing, no subclass, no gradient."""
    return not torch.is_grad_enabled() and type(tensor) in _PLAIN


# ---- models and their tokens under way -----------------------------------------------------------

_engines = weakref.WeakValueDictionary()  # by key: what operators find a mixer by
_flights = weakref.WeakValueDictionary()  # by number: those that have tickets
_numbers = itertools.count(1)


class _Engine:
    """A description compiled for each kind of device that it is used on, and the sequences of each."""

    def __init__(self, description, options):
        self.description, self.options = description, options
        said = json.dumps([description, options], sort_keys=True, default=str)
        digest = hashlib.sha256(said.encode()).hexdigest()[:12]
        # The digest: so that a compiled graph that PyTorch finds on disk is never that of another model.
        self.key = f"{digest}.{next(_numbers)}"
        self._lock = threading.Lock()
        self._models, self._bound, self._pools = {}, {}, {}
        _engines[self.key] = self
        first = self.model("cpu" if options.get("target") else options["device"])
        self.hidden, self.heads, self.dtype = first.hidden, first.heads, _DTYPES[first.dtype]
        self.sublayers, self.sites = first.sublayers, first.sites
        self.addends, self.sources = first.addends, first.sources
        self.extras = tuple(name for name in first.outputs if name != "fp8")
        self.fp8 = "fp8" in first.outputs
        self.names = tuple(dict.fromkeys(p.name.rsplit("_", 1)[0] for p in first.parameters))
        self.parameters = {p.name: p for p in first.parameters}

    def __reduce__(self):  # of copies and pickles: compiled anew
        return _Engine, (self.description, self.options)

    def model(self, kind):
        """The model for "cpu" or "cuda", compiled when first asked for."""
        with self._lock:
            if kind not in self._models:
                self._models[kind] = self._open(kind)
            return self._models[kind]

    def _open(self, kind):
        options = {k: v for k, v in self.options.items() if k not in ("target", "device")}
        options["target"] = self.options.get("target") if kind == "cpu" else "cuda"
        if isinstance(self.description, str):
            return Model(self.description, **options)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, self.description.get("name", "model") + ".yaml")
            with open(path, "w") as file:
                json.dump({"schema": 1, **self.description}, file)  # JSON is YAML
            return Model(path, **options)

    def bind(self, kind, model, parameters):
        """Binds parameters, unless they are those that are bound."""
        now = tuple([p.data_ptr() for p in parameters])
        if self._bound.get(kind) == now:
            return
        arrays = {}
        for name, p in zip(self.names, parameters):
            of_site = self.parameters[name + "_0"]
            if p.dtype is not _DTYPES[of_site.dtype]:
                raise TypeError(
                    f"fathom: parameter {name} is {p.dtype}, expected {_DTYPES[of_site.dtype]}\n"
                    "  hint: do not call .to(dtype) on a DepthMixer; its dtypes are the description's"
                )
            arrays[name] = p
            if name == "weights":
                arrays[name] = [p[s, :n] for s, n in enumerate(self._weights())]
        with self._lock:
            if self._bound.get(kind) == now:  # another thread was faster
                return
            try:
                model.bind(arrays)
            except lib.Error as error:
                raise RuntimeError(
                    f"fathom: parameters of the mixer changed their memory: {error}"
                ) from error
            self._bound[kind] = now

    def _weights(self):
        return [self.parameters[f"weights_{s}"].shape[0] for s in range(self.sites)]

    def pool(self, device, stream):
        """Sequences that are free, of those that were used on this stream."""
        key = (device.type, device.index, stream)
        pool = self._pools.get(key)
        return self._pools.setdefault(key, []) if pool is None else pool

    def gives(self, site):
        """The names of what a site gives, in the order of the operators' results."""
        scale = ("scale",) if self.fp8 and site < self.sublayers else ()
        return ("input",) + self.extras + scale

    def empty(self, site, like, outputs):
        """Tensors for what a site gives, like [..., D] of the model's dtype."""
        if len(outputs) == 1:
            return [torch.empty_like(like, memory_format=torch.contiguous_format)]
        fp8 = "scale" in outputs
        rows = like.shape[:-1]
        heads = (self.heads,) if self.heads > 1 else ()
        shapes = {
            "input": (like.shape, torch.float8_e4m3fn if fp8 else self.dtype),
            "weights": ((self.sources[site], *rows, *heads), torch.float32),
            "entropy": ((*rows, *heads), torch.float32),
            "mix": (like.shape, self.dtype),
            "scale": (rows, torch.float32),
        }
        return [like.new_empty(shapes[name][0], dtype=shapes[name][1]) for name in outputs]


class _Slot:
    """A sequence with its workspace, and the structs of its calls. Knows nothing that holds slots: a cycle could
    be freed in any order, and a sequence has to go before its model."""

    def __init__(self, engine, model, device):
        self.model, self.device = model, device
        self.hidden, self.dtype = engine.hidden, engine.dtype
        self.heads = (engine.heads,) if engine.heads > 1 else ()
        self.handle = c_void_p()
        lib.fathom_sequence_create(model._handle, byref(self.handle))
        self.rows, self.needed = -1, 0
        self.room, self.address, self.size = None, None, -1
        self.taken = [_View(2).place(device, engine.dtype) for _ in range(2)]
        self.addends = (ctypes.POINTER(lib.DLTensor) * 2)(*(v.pointer for v in self.taken))
        self.views = {"input": _View(2).place(device, engine.dtype)}
        self.outputs = lib.SiteOutputs(ctypes.sizeof(lib.SiteOutputs), self.views["input"].pointer)
        self.outputs_at = byref(self.outputs)
        heads = len(self.heads)
        ranks = {"weights": 2 + heads, "entropy": 1 + heads, "mix": 2, "scale": 1}
        for name in engine.extras + (("scale",) if engine.fp8 else ()):
            dtype = engine.dtype if name == "mix" else torch.float32
            self.views[name] = _View(ranks[name]).place(device, dtype)
            setattr(self.outputs, name, self.views[name].pointer)

    def prepare(self, rows, executor):
        """Sizes of so many tokens, and workspace for them."""
        if rows == self.rows:
            return
        views = self.views
        needed = c_size_t()
        lib.fathom_sequence_workspace(self.handle, rows, executor, byref(needed))
        self.needed = needed.value
        if self.needed > self.size:
            self.room, self.address = _room(self.needed, self.device)
            self.size = self.needed
        views["input"].dense(rows, self.hidden)
        for name, sizes in (("entropy", self.heads), ("mix", (self.hidden,)), ("scale", ())):
            if name in views:
                views[name].dense(rows, *sizes)
        for view in self.taken:
            view.dense(rows, self.hidden)
        self.rows = rows

    def give(self, outputs, tensors):
        """Sets where the results of a site go: tensors, and their names."""
        views = self.views
        for name, tensor in zip(outputs, tensors):
            views[name].struct.data = tensor.data_ptr()
        if len(views) == 1:
            return
        given = dict(zip(outputs, tensors))
        if "weights" in given:
            views["weights"].dense(len(given["weights"]), self.rows, *self.heads)
        if "scale" in views:  # fp8, but for the last site
            views["input"].place(self.device, given["input"].dtype)
            self.outputs.scale = views["scale"].pointer if "scale" in given else None

    def __del__(self):
        if getattr(self, "handle", None):
            lib.fathom_sequence_destroy(self.handle)


class _Flight:
    """Tokens on their way through the depth. Gives its slot back when it ends, or is let go."""

    def __init__(self, engine, embedding, parameters):
        self.slot = None
        self.engine, self.shape, self.device = engine, embedding.shape, embedding.device
        self.site, self.lock = 0, threading.Lock()
        _require_device(embedding, "the embedding")
        _require(embedding, engine.dtype, embedding.device, "the embedding")
        if embedding.dim() < 2 or embedding.shape[-1] != engine.hidden:
            raise ValueError(
                f"fathom: the embedding has shape {list(embedding.shape)}, expected [T, {engine.hidden}] or "
                f"[B, T, {engine.hidden}]"
            )
        kind = embedding.device.type
        model = engine.model(kind) if kind not in engine._models else engine._models[kind]
        engine.bind(kind, model, parameters)
        executor, stream = _executor(self.device)
        embedding, stride = _rows(embedding, engine.hidden, "the embedding")
        pool = engine.pool(self.device, stream)
        try:
            slot = pool.pop()
        except IndexError:
            slot = _Slot(engine, model, self.device)
        rows = embedding.numel() // engine.hidden
        outputs = engine.gives(0)
        self.given = engine.empty(0, embedding, outputs)
        try:
            slot.prepare(rows, executor)
            slot.taken[0].struct.data = embedding.data_ptr()
            slot.taken[0].sizes[2] = stride
            slot.give(outputs, self.given)
            lib.fathom_sequence_begin(
                slot.handle, slot.taken[0].pointer, slot.outputs_at, slot.address, slot.needed, executor
            )
        except BaseException:
            pool.append(slot)
            raise
        self.slot, self.pool = slot, pool

    def add(self, site, addends):
        """What the site gives: a list of tensors."""
        if not self.lock.acquire(blocking=False):
            raise RuntimeError("fathom: two threads use one depth; give each thread a depth of its own")
        try:
            return self._add(site, addends)
        finally:
            self.lock.release()

    def _add(self, site, addends):
        engine, slot = self.engine, self.slot
        if slot is None:
            raise RuntimeError("fathom: the depth has ended; begin another one")
        if site != self.site + 1:
            raise RuntimeError(
                f"fathom: site {site} is out of order, the depth expects site {self.site + 1}\n"
                "  hint: what a sublayer gives is added once, in the order of the sublayers"
            )
        if len(addends) != engine.addends[site - 1]:
            raise ValueError(
                f"fathom: sublayer {site - 1} gives {engine.addends[site - 1]} tensors by the description, "
                f"found {len(addends)}"
            )
        kept = []
        for view, tensor in zip(slot.taken, addends):
            if tensor.dtype is not engine.dtype or tensor.device != self.device:
                _require(tensor, engine.dtype, self.device, f"the output of sublayer {site - 1}")
            if tensor.shape != self.shape:
                raise ValueError(
                    f"fathom: the output of sublayer {site - 1} has shape {list(tensor.shape)}, expected "
                    f"{list(self.shape)}, the embedding's"
                )
            tensor, view.sizes[2] = _rows(tensor, engine.hidden, "the output of sublayer ", site - 1)
            view.struct.data = tensor.data_ptr()
            kept.append(tensor)
        last = site == engine.sublayers
        outputs = engine.gives(site)
        given = engine.empty(site, kept[0], outputs)
        slot.give(outputs, given)
        if last:
            lib.fathom_sequence_end(slot.handle, slot.addends, len(kept), slot.outputs_at)
            self.slot = None
            self.pool.append(slot)
        else:
            lib.fathom_sequence_site(slot.handle, site, slot.addends, len(kept), slot.outputs_at)
        self.site = site
        return given

    def __del__(self):
        slot = self.slot
        if slot is not None:
            self.slot = None
            lib.fathom_sequence_reset(slot.handle)
            self.pool.append(slot)


class _Ticket(c_int64 * 1):
    """The memory of a ticket, which keeps the tokens under way."""


def _ticket(flight):
    memory = _Ticket(flight.number)
    memory.flight = flight
    return torch.frombuffer(memory, dtype=torch.int64)  # keeps `memory`


def _with_ticket(flight):
    flight.number = next(_numbers)
    _flights[flight.number] = flight
    return _ticket(flight)


def _engine_of(key):
    engine = _engines.get(key)
    if engine is None:
        raise RuntimeError(f"fathom: there is no mixer {key}; it has been freed")
    return engine


def _flight_of(ticket):
    flight = _flights.get(int(ticket))
    if flight is None:
        raise RuntimeError("fathom: the depth of this ticket has ended; begin another one")
    return flight


# ---- operators ----------------------------------------------------------------------------------


def _begin(embedding, parameters, model):
    flight = _Flight(_engine_of(model), embedding, parameters)
    given, flight.given = flight.given, None
    return _with_ticket(flight), given


def _begin_fake(embedding, parameters, model):
    engine = _engine_of(model)
    ticket = torch.empty(1, dtype=torch.int64, device="cpu")
    return ticket, engine.empty(0, embedding, engine.gives(0))


def _site(ticket, addends, model, site):
    flight = _flight_of(ticket)
    given = flight.add(site, addends)
    return _ticket(flight), given


def _site_fake(ticket, addends, model, site):
    engine = _engine_of(model)
    return torch.empty_like(ticket), engine.empty(site, addends[0], engine.gives(site))


def _end(ticket, addends, model):
    flight = _flight_of(ticket)
    return flight.add(flight.engine.sublayers, addends)


def _end_fake(ticket, addends, model):
    engine = _engine_of(model)
    return engine.empty(engine.sublayers, addends[0], engine.gives(engine.sublayers))


def _no_backward(context, *gradients):
    raise NotImplementedError(_NO_TRAINING)


# ---- one site on its own -------------------------------------------------------------------------

_executables = {}
_executables_lock = threading.Lock()


def _site_text(count, hidden, dtypes, eps):
    source, query, key_gain, output_gain = dtypes
    gain = f", %key_gain: {key_gain}[D]" if key_gain else ""
    gain += f", %output_gain: {output_gain}[D]" if output_gain else ""
    return f"""
graph @attn_res(%v: {source}[N={count}, T, D={hidden}], %query: {query}[D]{gain}) {{
  %k = rms_norm %v{", %key_gain" if key_gain else ""} over D {{eps = {eps!r}}} : f32[N, T, D]
  %z = dot %k, %query over D : f32[N, T]
  %a = softmax %z over N : f32[N, T]
  %h = weighted_sum %a, %v over N : f32[T, D]
  %x = rms_norm %h{", %output_gain" if output_gain else ""} over D {{eps = {eps!r}}} : {source}[T, D]
  return %x
}}
"""


class _Executable:
    """One site compiled. Calls in different threads have structs of their own."""

    def __init__(self, kind, count, hidden, dtypes, eps):
        self.context = shared_context()
        self.count, self.hidden = count, hidden
        self.handle = c_void_p()
        self.local = threading.local()
        text = _site_text(count, hidden, dtypes, eps).encode()
        module, graph = c_void_p(), c_void_p()
        options = lib.CompileOptions(ctypes.sizeof(lib.CompileOptions), kind.encode())
        try:
            lib.fathom_parse(self.context._handle, text, len(text), b"AttnRes", byref(module))
            lib.fathom_module_graph(module, None, byref(graph))
            lib.fathom_compile(self.context._handle, graph, byref(options), byref(self.handle))
        finally:
            lib.fathom_module_destroy(module)

    def call(self, device, parameters):
        """The structs of this thread's calls, with these parameters' dtypes and places."""
        calls = self.local.__dict__.setdefault("calls", {})
        if device not in calls:
            calls[device] = _Call(self, device, parameters)
        return calls[device]

    def __del__(self):
        if getattr(self, "handle", None):
            lib.fathom_executable_destroy(self.handle)


class _Call:
    def __init__(self, executable, device, parameters):
        count, hidden = executable.count, executable.hidden
        self.rows, self.needed, self.stream = -1, 0, None
        self.room = self.address = None
        self.sources = [_View(2) for _ in range(count)]
        self.out = _View(2)
        self.parameters = [_View(1).dense(hidden) for _ in parameters]
        self.slices = (ctypes.POINTER(lib.DLTensor) * count)(*(v.pointer for v in self.sources))
        self.args = (lib.Arg * (2 + len(parameters)))()
        self.args[0] = lib.Arg(b"v", None, self.slices, count)
        self.args[1] = lib.Arg(b"x", self.out.pointer, None, 0)
        for i, (view, (name, tensor)) in enumerate(zip(self.parameters, parameters)):
            view.place(device, tensor.dtype)
            self.args[2 + i] = lib.Arg(name.encode(), view.pointer, None, 0)


def _attn_res(sources, query, key_gain, output_gain, eps):
    first = sources[0]
    hidden, device = first.shape[-1], first.device
    gains = (("key_gain", key_gain), ("output_gain", output_gain))
    parameters = [("query", query), *((name, gain) for name, gain in gains if gain is not None)]
    dtypes = tuple(None if p is None else p.dtype for p in (first, query, key_gain, output_gain))
    key = (device.type, len(sources), hidden, dtypes, eps)
    executable = _executables.get(key)
    if executable is None:
        executable = _compile_site(key)
    call = executable.call(device, parameters)
    rows, count = first.numel() // hidden, len(sources)
    if rows != call.rows:
        for view in (*call.sources, call.out):
            view.place(device, first.dtype).dense(rows, hidden)
    out = torch.empty_like(first, memory_format=torch.contiguous_format)
    kept = []
    shape, dtype = first.shape, first.dtype
    for i, (view, tensor) in enumerate(zip(call.sources, sources)):
        if tensor.dtype is not dtype or tensor.device != device:
            _require(tensor, dtype, device, f"source {i}")
        if tensor.shape != shape:
            raise ValueError(
                f"fathom: source {i} has shape {list(tensor.shape)}, expected {list(shape)}, source 0's"
            )
        tensor, view.sizes[2] = _rows(tensor, hidden, "source ", i)
        view.struct.data = tensor.data_ptr()
        kept.append(tensor)
    call.out.struct.data = out.data_ptr()
    for view, (name, tensor) in zip(call.parameters, parameters):
        if tensor.device != device or tensor.shape != (hidden,) or not tensor.is_contiguous():
            raise ValueError(
                f"fathom: {name} is {list(tensor.shape)} on {tensor.device}, expected a dense [{hidden}] on {device}"
            )
        view.struct.data = tensor.data_ptr()
    executor, stream = _executor(device)
    if rows != call.rows or stream != call.stream:
        needed = c_size_t()
        lib.fathom_workspace_size(executable.handle, call.args, len(call.args), executor, byref(needed))
        call.needed = needed.value
        call.room, call.address = _room(call.needed, device)
        call.rows, call.stream = rows, stream
    lib.fathom_run(
        executable.handle, call.args, len(call.args), call.address, call.needed, executor
    )
    return out


def _compile_site(key):
    kind, count, hidden, dtypes, eps = key
    names = []
    for dtype in dtypes:
        if dtype is not None and dtype not in _NAMES:
            raise TypeError(f"fathom: found {dtype}, expected float32, bfloat16 or float16")
        names.append(dtype and _NAMES[dtype])
    with _executables_lock:
        if key not in _executables:
            _executables[key] = _Executable(kind, count, hidden, names, eps)
        return _executables[key]


def _attn_res_fake(sources, query, key_gain, output_gain, eps):
    return torch.empty_like(sources[0], memory_format=torch.contiguous_format)


# name: (schema, function, fake function)
_OPERATORS = {
    "begin": (
        "(Tensor embedding, Tensor[] parameters, str model) -> (Tensor, Tensor[])",
        _begin,
        _begin_fake,
    ),
    "site": (
        "(Tensor ticket, Tensor[] addends, str model, int site) -> (Tensor, Tensor[])",
        _site,
        _site_fake,
    ),
    "end": ("(Tensor ticket, Tensor[] addends, str model) -> Tensor[]", _end, _end_fake),
    "attn_res": (
        "(Tensor[] sources, Tensor query, Tensor? key_gain, Tensor? output_gain, float eps) -> Tensor",
        _attn_res,
        _attn_res_fake,
    ),
}
_operators = torch.library.Library("fathom", "DEF")
for _name, (_schema, _function, _fake) in _OPERATORS.items():
    _operators.define(_name + _schema, tags=(torch.Tag.pt2_compliant_tag,))
    for _key in ("CPU", "CUDA"):
        _operators.impl(_name, _function, _key)
    torch.library.register_fake("fathom::" + _name, _fake, lib=_operators)
    torch.library.register_autograd("fathom::" + _name, _no_backward, lib=_operators)

_ops = torch.ops.fathom
_op_begin, _op_site, _op_end = _ops.begin.default, _ops.site.default, _ops.end.default
_op_attn_res = _ops.attn_res.default
# Two begins of one embedding are two depths: no graph pass may make one of them.
torch.fx.node.has_side_effect(_op_begin)


# ---- modules ------------------------------------------------------------------------------------


class Depth:
    """Tokens on their way through the depth: DepthMixer.begin makes it.

    input: what the next sublayer takes. weights, entropy, mix, scale: what else the last site gave, where
    the mixer was asked for it; weights are [N, ..., T], oldest source first.
    """

    def __init__(self, engine, parameters, embedding):
        self._engine, self._index = engine, 0
        self._flight = self._ticket = self._output = None
        self.weights = self.entropy = self.mix = self.scale = None
        if torch.compiler.is_compiling():
            self._ticket, given = _op_begin(embedding, parameters, engine.key)
        elif _can_go_direct(embedding):
            self._flight = _Flight(engine, embedding, parameters)
            given, self._flight.given = self._flight.given, None
        else:
            _require_device(embedding, "the embedding")
            self._ticket, given = _op_begin(embedding, parameters, engine.key)
        self._take(given)

    def _take(self, given):
        self.input = given[0]
        if len(given) > 1:
            names = self._engine.gives(self._index)
            for name, tensor in zip(names[1:], given[1:]):
                setattr(self, name, tensor)
            if "scale" not in names:
                self.scale = None

    def add(self, *addends):
        """Takes what the next sublayer gave: a tensor, or two whose sum it is. Then `input` is the one after's."""
        engine, site = self._engine, self._index + 1
        if site > engine.sublayers:
            raise RuntimeError(
                f"fathom: all {engine.sublayers} sublayers have been added; end() has the output"
            )
        if torch.compiler.is_compiling():
            given = self._call(site, addends)
        elif self._flight is not None and not torch.is_grad_enabled():
            given = self._flight.add(site, addends)
        else:
            for tensor in addends:
                _require_device(tensor, f"the output of sublayer {site - 1}")
            if self._ticket is None:
                self._ticket = _with_ticket(self._flight)
            given = self._call(site, addends)
        self._index = site
        self._take(given)
        if site == engine.sublayers:
            self._output, self.input = self.input, None

    def _call(self, site, addends):
        engine = self._engine
        if site == engine.sublayers:
            return _op_end(self._ticket, addends, engine.key)
        self._ticket, given = _op_site(self._ticket, addends, engine.key, site)
        return given

    def end(self):
        """The network's output, after all sublayers have been added."""
        engine = self._engine
        if self._index < engine.sublayers:
            raise RuntimeError(
                f"fathom: the depth ends after {engine.sublayers} sublayers, {self._index} have been added"
            )
        if self._output is None:
            raise RuntimeError("fathom: the depth has ended; begin another one")
        output, self._output = self._output, None
        return output


class DepthMixer(nn.Module):
    """Attention over the depth of a network: a mix site before each sublayer and one at the end.

        mixer = DepthMixer("kimi-k3")
        depth = mixer.begin(embedding)              # [T, D] or [B, T, D]
        for sublayer in sublayers:
            depth.add(sublayer(depth.input))        # or add(f, g), whose sum is the sublayer's output
        y = depth.end()

    or `y = mixer(embedding, sublayers)`. The description (docs/models.md) is a name that comes with Fathom,
    the path of a .yaml file, a dict of its keys, or those as keyword arguments: DepthMixer(hidden=768,
    sublayers=24, blocks={"size": 4}).

    Parameters are those of all sites, stacked: `query` [sites, D] and so on, in the description's dtypes.
    Gains start as ones, `weights` as 1 / N, all others as zeros. They are read where they are: in-place
    changes count from the next begin, and memory that was exchanged is bound then.

    Any number of depths may be under way, in any number of threads, one thread at a time each. A depth
    that is dropped frees what it holds. Tokens never meet, so a prompt may be taken in chunks, and T may
    differ from one begin to the next.

    outputs: some of "weights", "entropy", "mix", "fp8": further results of each site, attributes of the
    depth; with "fp8" inputs are float8_e4m3fn with a `scale` for each token, and sublayers that the mixer
    calls get both. phases, target, cpu, rows: as in fathom.Model. device: where parameters are made.

    torch.compile(fullgraph=True) takes a loop over a depth without a break: each call is one operator, whose
    ticket depends on the one before, which keeps them in order. There is no backward pass yet: compile
    under torch.no_grad(). CUDA tensors run on the stream that is PyTorch's current one at begin.
    """

    def __init__(
        self,
        description=None,
        *,
        outputs=(),
        phases=None,
        target=None,
        cpu=None,
        rows=0,
        device=None,
        **keys,
    ):
        super().__init__()
        if (description is None) == (not keys):
            raise TypeError("DepthMixer: expected a description or its keys as arguments")
        if isinstance(description, os.PathLike):
            description = os.fspath(description)
        device = torch.device(device or "cpu")
        options = {"outputs": tuple(outputs), "phases": phases, "target": target, "cpu": cpu, "rows": rows}
        options["device"] = device.type
        self._engine = engine = _Engine(keys if description is None else description, options)
        for name in engine.names:
            setattr(self, name, nn.Parameter(self._initial(name, device)))

    def _initial(self, name, device):
        engine = self._engine
        shapes = [engine.parameters[f"{name}_{s}"].shape for s in range(engine.sites)]
        dtype = _DTYPES[engine.parameters[name + "_0"].dtype]
        if name != "weights":
            make = torch.ones if name.endswith("_gain") else torch.zeros
            return make(engine.sites, *shapes[0], dtype=dtype, device=device)
        values = torch.zeros(engine.sites, max(n for n, in shapes), dtype=dtype, device=device)
        for row, (n,) in zip(values, shapes):
            row[:n] = 1 / n
        return values

    @property
    def hidden(self):
        return self._engine.hidden

    @property
    def sublayers(self):
        return self._engine.sublayers

    def extra_repr(self):
        engine = self._engine
        return f"hidden={engine.hidden}, sublayers={engine.sublayers}, dtype={engine.dtype}"

    def begin(self, embedding):
        """Takes an embedding [..., T, D] on its way: a Depth."""
        return Depth(self._engine, list(self._parameters.values()), embedding)

    def forward(self, embedding, sublayers):
        """The whole loop. A sublayer is a function of its input that gives a tensor, or two of them."""
        depth = self.begin(embedding)
        for sublayer in sublayers:
            x = depth.input
            given = sublayer(x) if depth.scale is None else sublayer(x, depth.scale)
            depth.add(*given) if isinstance(given, tuple) else depth.add(given)
        return depth.end()


class AttnRes(nn.Module):
    """One site on its own: RMSNorm(sum_i a_i v_i) * output_gain, a = softmax(query . RMSNorm(v_i) * key_gain).

        site = AttnRes(768)
        x = site([embedding, block_0, block_1, running])      # each [..., T, D]; or one tensor [N, ..., T, D]

    Sources are read where they are, without a copy. key_gain, output_gain: False for norms without one.
    dtype: of the parameters. Code is compiled when a number of sources is first seen, and kept.
    """

    def __init__(
        self,
        hidden,
        eps=1e-5,
        key_gain=True,
        output_gain=True,
        dtype=torch.float32,
        device=None,
    ):
        super().__init__()
        self.hidden, self.eps = hidden, float(eps)
        made = {"dtype": dtype, "device": device}
        self.query = nn.Parameter(torch.zeros(hidden, **made))
        self.key_gain = nn.Parameter(torch.ones(hidden, **made)) if key_gain else None
        self.output_gain = nn.Parameter(torch.ones(hidden, **made)) if output_gain else None

    def extra_repr(self):
        return f"hidden={self.hidden}, eps={self.eps}"

    def forward(self, sources):
        if isinstance(sources, torch.Tensor):
            sources = sources.unbind(0)
        if not sources or sources[0].dim() < 1 or sources[0].shape[-1] != self.hidden:
            found = f"{list(sources[0].shape)}" if len(sources) else "no source"
            raise ValueError(f"AttnRes: expected sources [..., {self.hidden}], found {found}")
        given = (sources, self.query, self.key_gain, self.output_gain, self.eps)
        if torch.compiler.is_compiling():
            return _op_attn_res(*given)
        _require_device(sources[0], "source 0")
        return _attn_res(*given) if _can_go_direct(sources[0]) else _op_attn_res(*given)
