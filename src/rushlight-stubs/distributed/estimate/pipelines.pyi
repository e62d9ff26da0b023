"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import dict as _dict, float as _float, int as _int
from collections.abc import Callable as _Callable, Mapping as _Mapping, Sequence as _Sequence
from rushlight.distributed.estimate.layouts import Layout as _Layout
from rushlight.distributed.estimate.pipelines import Run as _Run
from rushlight.distributed.pipelining.actions import Action as _Action, ComputationType as _ComputationType, Order as _Order
from typing import Any as _Any, NamedTuple as _NamedTuple

from rushlight.distributed.pipelining.actions import Action as Action
B: _ComputationType
from rushlight.distributed.pipelining.actions import ComputationType as ComputationType
F: _ComputationType
from rushlight.distributed.estimate.layouts import Layout as Layout
from rushlight.distributed.pipelining.actions import Order as Order
class Run(_NamedTuple):
    seconds: _float
    busy: _dict[_int, _float]
def kept_at_most(actions: _Sequence[_Action | None], saved: _Callable[[_int], _float]) -> _float: ...
from rushlight.distributed.pipelining.lowering import needs as needs
def order_of(layout: _Layout) -> _Order: ...
def replay(order: _Mapping[_int, _Sequence[_Action | None]], stages: _int, seconds: _Callable[[_Action], _float], message: _Callable[[_int], _float]) -> _Run: ...
