"""Dispatch types: subclasses of Tensor that say what an operator does with them."""

from __future__ import annotations

from rushlight._engine.kinds.kinds import Kind, call_name, make_kind
from rushlight._engine.kinds.sparse_printing import describe_sparse
from rushlight._engine.sharing.pickling import form_there

__all__ = [
    "Kind",  # base class; see its module for how calls reach a handler
    "make_kind",  # a tensor of such a class
    "call_name",  # the key of a function in the table of handlers
    "describe_sparse",  # `repr` of a sparse tensor
    "form_there",  # its form in a file that is being written
]
