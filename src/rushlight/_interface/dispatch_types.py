"""Dispatch types: subclasses of Tensor that say what an operator does with them."""

from __future__ import annotations

from rushlight._engine.dispatch_types.base import DispatchType, call_name, make_dispatch_tensor
from rushlight._engine.dispatch_types.sparse_printing import describe_sparse
from rushlight._engine.sharing.pickling import form_there

__all__ = [
    "DispatchType",  # base class; see its module for how calls reach a handler
    "make_dispatch_tensor",  # a tensor of such a class
    "call_name",  # the key of a function in the table of handlers
    "describe_sparse",  # `repr` of a sparse tensor
    "form_there",  # its form in a file that is being written
]
