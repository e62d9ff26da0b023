"""Tools of ordinary Python over tensors, beside `rushlight` itself: state of the thread, specs, checks of arguments."""

from __future__ import annotations

from rushlight._engine.core.creation import as_shape, python_dtype
from rushlight._engine.core.integers import as_flag, as_int, as_ints
from rushlight._engine.core.state import (
    AUTOCAST,
    FUNCTION_MODE,
    GRAD,
    INFERENCE,
    OBSERVED,
    SAVED_HOOKS,
    STATE,
    beside,
    inherit,
)
from rushlight._engine.core.tensor import alias, make, version_of
from rushlight._engine.dispatch.modes import Decorating
from rushlight._types.layout import (
    contiguous_strides,
    is_dense,
    overlaps_itself,
    suggests_channels_last,
    view_strides,
    wrap_dim,
)
from rushlight._types.promotion import join
from rushlight._types.spec import Spec, bytes_on

__all__ = [
    # The state of a thread: `STATE.word & FLAG`.
    "STATE",
    "AUTOCAST",  # operators cast
    "GRAD",  # operations are recorded
    "INFERENCE",  # nothing that is made takes part in a graph
    "FUNCTION_MODE",  # a `TorchFunctionMode` is on
    "OBSERVED",  # observers are told of calls
    "SAVED_HOOKS",  # saved tensors are packed
    "beside",  # run a task in a thread that begins with the state
    "inherit",  # let threads of backward take over a thread-local object
    "Decorating",  # base of context managers that are decorators too
    # Tensors.
    "version_of",  # how often a tensor was changed in place
    "alias",  # another tensor over the same memory, outside of any graph
    "make",  # a tensor over a storage
    "Spec",  # dtype, device, shape and strides of a tensor, interned
    "bytes_on",  # where a view begins, in bytes, checked
    # Arguments: `as_...(function name, argument name, value)` converts, or raises what PyTorch raises.
    "as_flag",
    "as_int",
    "as_ints",
    "as_shape",
    "python_dtype",  # the dtype that `float`, `int` or `bool` stand for
    # Pure functions of shapes, strides and dtypes.
    "contiguous_strides",
    "is_dense",  # no gaps and no overlaps
    "overlaps_itself",  # two indices share an address
    "suggests_channels_last",
    "view_strides",
    "wrap_dim",  # a dim counted from the front
    "join",  # `promote_types`, for all unsigned integers too
]
