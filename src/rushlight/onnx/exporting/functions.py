"""`symbolic` of `autograd.Function` in the classic form of export: an application becomes one node, which that function
writes.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rushlight import Tensor
from rushlight._interface.dispatch import TRANSFORMS
from rushlight.fx.experimental.proxy_tensor import disable_proxy_modes_tracing, get_proxy_mode
from rushlight.onnx.errors import SymbolicValueError
from rushlight.onnx.exporting import operators
from rushlight.onnx.exporting.custom import GraphContext, finished
from rushlight.onnx.exporting.table import Call
from rushlight.onnx.exporting.values import Value

__all__ = ["written_by_functions"]

_STATE = threading.local()  # `calls`: what was applied in this thread's export


@contextlib.contextmanager
def written_by_functions() -> Iterator[None]:
    """A context in which functions with a `symbolic` are nodes, where a program is captured, and are written by it."""
    before = getattr(_STATE, "calls", None)
    _STATE.calls = []
    TRANSFORMS["exported"] = _applied
    operators.OTHERS[operators.FUNCTION] = _written
    try:
        yield
    finally:
        _STATE.calls = before


def _applied(cls: Any, args: tuple[Any, ...]) -> tuple[bool, Any]:
    """(True, results) of an application that became a node; (False, None) for any other."""
    calls = getattr(_STATE, "calls", None)
    if calls is None or not hasattr(cls, "symbolic") or get_proxy_mode() is None:
        return False, None
    with disable_proxy_modes_tracing():
        output = cls._applied(args, {})[0]
    results = output if isinstance(output, tuple) else (output,)
    if not all(isinstance(r, Tensor) for r in results):
        raise SymbolicValueError(f"{cls.__name__}.forward gives other things than tensors: no node has such results")
    tensors = [a for a in args if isinstance(a, Tensor)]
    calls.append((cls, [None if isinstance(a, Tensor) else (a,) for a in args]))
    made = operators.symbolic(
        f"{operators.FUNCTION}::{cls.__name__}", tensors, {"call": len(calls) - 1}, [r.dtype for r in results], [r.shape for r in results],
        None, {}, many=True,
    )  # fmt: skip
    return True, tuple(made) if isinstance(output, tuple) else made[0]


def _written(call: Call, inputs: Sequence[Value | None], attrs: Mapping[str, Any]) -> list[Value]:
    """Nodes that the function's `symbolic` writes; it gets the arguments of `apply`."""
    cls, plain = _STATE.calls[attrs["call"]]
    rest = iter(inputs)
    args = [next(rest) if held is None else held[0] for held in plain]
    try:
        made = cls.symbolic(GraphContext(call), *args)
    except (AttributeError, TypeError) as error:
        raise SymbolicValueError(f"the symbolic function of {cls.__name__} failed: {error}") from error
    done = finished(call, made)
    return [done] if isinstance(done, Value) else done
