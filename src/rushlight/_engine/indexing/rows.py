"""Tensors put one behind the other by plain copies: for batches of samples, whose number and shape change often.

`torch.stack` makes a plan for every new shape, which takes as long as a thousand copies.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._engine.core.memory import empty_spec, is_host_memory
from rushlight._engine.core.tensor import Tensor
from rushlight._types.spec import Spec

__all__ = ["stack_rows"]


def stack_rows(tensors: Sequence[Any], new: Callable[[Spec], Tensor] = empty_spec) -> Tensor | None:
    """The tensors stacked along a new first dim, in memory from `new`; None where that takes more than copies.

    They must be plain contiguous tensors of one shape and dtype that want no gradient.
    """
    first = tensors[0]
    spec = first._spec
    if not is_host_memory(spec) or not spec.contiguous or spec.conj or spec.released:
        return None
    for x in tensors:
        if type(x) is not Tensor or x._spec is not spec or x._rg:
            return None
    made = new(Spec.of(spec.dtype, spec.device, (len(tensors), *spec.shape)))
    places = array("Q", [x._ptr for x in tensors])
    copy_rows = backend_of(spec.device).routine("copy_rows")
    copy_rows(made._ptr, places.buffer_info()[0], len(tensors), spec.nbytes)
    return made
