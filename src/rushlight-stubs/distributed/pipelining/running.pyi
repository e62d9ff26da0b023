"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import bool as _bool, dict as _dict, list as _list, str as _str
from collections.abc import Callable as _Callable, Iterable as _Iterable
from rushlight.distributed.pipelining.actions import Action as _Action, ComputationType as _ComputationType
from rushlight.distributed.pipelining.running import StepContext as _StepContext
from typing import Any as _Any

from rushlight.distributed.pipelining.actions import Action as Action
B: _ComputationType
from rushlight.distributed.pipelining.actions import ComputationType as ComputationType
F: _ComputationType
from rushlight.distributed.fsdp.sharding import FSDPModule as FSDPModule
I: _ComputationType
class Step:

    def __init__(self, context: _StepContext, stages: _Iterable[_Any], save_outputs: _bool) -> None:
        ...

    def run(self, actions: _Iterable[_Action], custom: _dict[_ComputationType, _Callable[..., None]]) -> None:
        ...

    def _send(self, ops: _list[_Any]) -> None:
        ...

    def _send_forward(self, stage: _Any, action: _Action) -> None:
        ...

    def _receive_forward(self, stage: _Any, action: _Action) -> None:
        ...

    def _ask(self, stage: _Any, m: _Any) -> None:
        ...

    def _ask_deferred(self, stage: _Any) -> None:
        ...

    def _send_backward(self, stage: _Any, action: _Action) -> None:
        ...

    def _receive_backward(self, stage: _Any, action: _Action) -> None:
        ...

    def _forward(self, stage: _Any, action: _Action) -> None:
        ...

    def _is_last_backward(self, stage: _Any) -> _bool:
        ...

    def _backward(self, stage: _Any, action: _Action) -> None:
        ...

    def _weight(self, stage: _Any, action: _Action) -> None:
        ...

    def _gather(self, stage: _Any, action: _Action) -> None:
        ...

    def _release(self, stage: _Any, action: _Action) -> None:
        ...

    def _reduce(self, stage: _Any, action: _Action) -> None:
        ...
class StepContext:

    def __init__(self, schedule_ref: _Any, arg_mbs: _list[_Any] | None=..., kwarg_mbs: _list[_Any] | None=..., target_mbs: _list[_Any] | None=..., losses: _list[_Any] | None=...) -> None:
        ...
W: _ComputationType
def start_messages(p2p_ops: _list[_Any], desc: _str | None = None) -> _list[_Any]: ...
def wait_for_messages(work: _Iterable[_Any]) -> None: ...
