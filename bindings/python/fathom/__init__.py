"""Fathom: fused kernels for attention over the depth of a network.

    model = fathom.Model("kimi-k3")
    model.bind({"query": queries, "key_gain": gains, "output_gain": output_gains})
    sequence = fathom.Sequence(model)

NumPy arrays and PyTorch tensors are taken as they are, without a copy. `fathom.torch` has modules for
PyTorch.
"""

from . import _library
from ._library import Error
from ._model import Context, Model, Parameter, Sequence, expand, plan, shared_context

__version__ = _library.fathom_version().decode()
__all__ = [
    "Context",
    "Error",
    "Model",
    "Parameter",
    "Sequence",
    "expand",
    "plan",
    "shared_context",
]
