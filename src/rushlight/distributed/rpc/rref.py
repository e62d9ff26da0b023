"""`RRef`: a value that one worker owns, and others refer to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from rushlight import Tensor
from rushlight._interface.calls import FrameType
from rushlight.distributed.autograd.passes import backward
from rushlight.distributed.rpc import constants
from rushlight.distributed.rpc.calling import call_of, rpc_async, rpc_sync
from rushlight.distributed.rpc.payload import CURRENT
from rushlight.distributed.rpc.references import OwnedValue, shown
from rushlight.distributed.rpc.running import Awaited, current_agent, is_async, result_of
from rushlight.futures import Future

__all__ = ["RRef", "RRefProxy", "remote"]

T = TypeVar("T")
_NO_PICKLE = "Can not pickle rref in python pickler, rref can only be pickled when using RPC"


class RRef(Generic[T]):
    """A reference to a value of a worker, its *owner*; the value never moves, and is free when no reference is left.

    `RRef(value)` is a reference to a value of this worker; `rpc.remote` and messages from others give the rest. It can be
    an argument or a result of calls.  RuntimeError before `init_rpc`.

    >>> import rushlight as torch
    >>> from rushlight.distributed import rpc
    >>> options = rpc.TensorPipeRpcBackendOptions(init_method="tcp://localhost:0")
    >>> rpc.init_rpc("alone", rank=0, world_size=1, rpc_backend_options=options)
    >>> reference = rpc.RRef([1, 2])
    >>> reference.is_owner(), reference.to_here(), reference.rpc_sync().index(2)
    (True, [1, 2], 1)
    >>> rpc.remote("alone", torch.add, args=(torch.ones(2), 1)).to_here()
    tensor([2., 2.])
    >>> rpc.shutdown()
    """

    __module__ = "torch.distributed.rpc"

    def __init__(self, value: Any, type_hint: Any = None) -> None:
        agent = current_agent()
        held = OwnedValue(agent, agent.references.number())
        held.future.set_result(value)
        self._begin(agent, agent.me, held.number, value=held, type_name=type(value).__qualname__)

    @classmethod
    def _made(cls, *arguments: Any, **named: Any) -> RRef[Any]:
        made = cls.__new__(cls)
        made._begin(*arguments, **named)
        return made

    def _begin(
        self, agent: Any, owner: Any, number: int, *, value: OwnedValue | None = None, fork: int = -1, known: Any = None, type_name: str = "",
    ) -> None:  # fmt: skip
        self._agent, self._owner, self._number, self._value = agent, owner, number, value
        self._fork, self._known, self._type_name = fork, known, type_name
        if value is None:
            with agent.references._lock:
                agent.references.users += 1

    def __del__(self) -> None:
        if getattr(self, "_value", self) is None:
            self._agent.references.end(self._owner.id, self._number, self._fork, self._known)

    def __reduce_ex__(self, protocol: Any) -> Any:
        pickler = CURRENT.packing
        if pickler is None:
            raise RuntimeError(_NO_PICKLE)
        sent = pickler.agent.references.send_on(self, pickler.to)
        pickler.forks.append(sent[2])
        return _received, sent

    def __repr__(self) -> str:
        if self._value is not None:
            return f"OwnerRRef({shown(self._number)})"
        return f"UserRRef(RRefId = {shown(self._number)}, ForkId = {shown(self._fork)})"

    # ***** whose it is *****

    def owner(self) -> Any:
        """The worker that has the value, as a `WorkerInfo`."""
        return self._owner

    def owner_name(self) -> str:
        """Its name."""
        name: str = self._owner.name
        return name

    def is_owner(self) -> bool:
        """Whether it is this worker."""
        return self._value is not None

    def confirmed_by_owner(self) -> bool:
        """Whether the owner knows of this reference: always, at the owner itself."""
        return self._value is not None or (self._known.done() and self._known._error is None)

    # ***** the value *****

    def local_value(self) -> T:
        """The value, at its owner (awaited); RuntimeError elsewhere."""
        if self._value is None:
            raise RuntimeError(
                f"For UserRRef(rref_id={shown(self._number)}, fork_id={shown(self._fork)}), can't call localValue() on user {self._agent.me}. "
                f"Call it on owner {self._owner}"
            )
        value: T = result_of(self._value.future.wait())
        return value

    def to_here(self, timeout: float = -1.0) -> T:
        """The value, or a copy of it from its owner; waits until it is there.

        RuntimeError after `timeout` seconds (0: never; negative: that of `init_rpc`), and what the function raised that
        should have made it.
        """
        if self._value is not None:
            return self.local_value()
        if self._known.done():
            self._known.value()  # why it was never made
        value: T = self._agent.references.fetched(self._owner.id, self._number, self._agent.seconds(timeout)).wait()
        return value

    def _get_type(self, timeout: float = -1.0, blocking: bool = True) -> Any:
        found = self._call("rpc_async", _type_of, (self,), timeout)
        return found.wait() if blocking else found

    def _get_future(self) -> Future[Any]:
        """Done when the owner knows of the reference."""
        if self._value is not None:
            return self._value.future
        known: Future[Any] = self._known
        return known

    # ***** calls of methods *****

    def _call(self, how: str, function: Callable[..., Any], args: tuple[Any, ...], timeout: float) -> Any:
        return _WAYS[how](self._owner, function, args=args, timeout=timeout)

    def rpc_sync(self, timeout: float = -1.0) -> RRefProxy:
        """A proxy: `rref.rpc_sync().method(...)` runs the method at the owner, and gives its result."""
        return RRefProxy(self, "rpc_sync", timeout)

    def rpc_async(self, timeout: float = -1.0) -> RRefProxy:
        """The same with a future of the result."""
        return RRefProxy(self, "rpc_async", timeout)

    def remote(self, timeout: float = -1.0) -> RRefProxy:
        """The same with a reference to the result, which stays at the owner."""
        return RRefProxy(self, "remote", timeout)

    def backward(self, dist_autograd_ctx_id: int = -1, retain_graph: bool = False) -> None:
        """Back-propagate from the value, a scalar, at its owner: over all workers in an autograd context, else by itself.

        RuntimeError where the value is no tensor.
        """
        if self._value is None:
            self._call("rpc_sync", _backward, (self, dist_autograd_ctx_id, retain_graph), -1.0)
        else:
            _backward(self, dist_autograd_ctx_id, retain_graph)


class RRefProxy:
    """Methods of a value at its owner."""

    def __init__(self, rref: RRef[Any], how: str, timeout: float) -> None:
        self._rref, self._how, self._timeout = rref, how, timeout

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)

        def method(*args: Any, **kwargs: Any) -> Any:
            return self._rref._call(self._how, _invoke, (self._rref, name, args, kwargs), self._timeout)

        return method


def _invoke(rref: RRef[Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method of a value, at its owner."""
    method = getattr(rref.local_value(), name)
    found = method(*args, **kwargs)
    return Awaited(found) if is_async(method) else found


def _type_of(rref: RRef[Any]) -> Any:
    return type(rref.local_value())


def _backward(rref: RRef[Any], context_id: int, retain_graph: bool) -> None:
    value = rref.local_value()
    if not isinstance(value, Tensor):
        raise RuntimeError(f"RRef should contain a tensor for .backward(), found {type(value).__name__}")
    if context_id == -1:
        value.backward(retain_graph=retain_graph)
    else:
        backward(context_id, [value], retain_graph)


def _received(owner: int, number: int, fork: int, parent: int, type_name: str) -> RRef[Any]:
    """A reference that came in a message."""
    if CURRENT.source is None:
        raise RuntimeError(_NO_PICKLE)
    agent = CURRENT.source[1]
    value, known = agent.references.receive(number, fork, parent, owner)
    return RRef._made(
        agent, agent.members.info(owner), number, value=value, fork=fork, known=known, type_name=type_name
    )


def remote(
    to: Any,
    func: Callable[..., Any],
    args: Any = None,
    kwargs: Any = None,
    timeout: float = constants.UNSET_RPC_TIMEOUT,
) -> RRef[Any]:
    """Run `func(*args, **kwargs)` on worker `to`, which keeps the result: a reference to it, at once.

    What the function raises comes up where the value is asked for (`to_here`).
    """
    agent, call = current_agent(), call_of(func, args, kwargs)
    owner = agent.worker(to)
    references, own = agent.references, owner.id == agent.me.id
    number = references.number()
    fork = -1 if own else references.number()
    known = agent.ask(owner.id, FrameType.REMOTE, (number, fork), call, agent.seconds(timeout))
    value = references.value_of(number) if own else None
    return RRef._made(agent, owner, number, value=value, fork=fork, known=known)


_WAYS: dict[str, Callable[..., Any]] = {"rpc_sync": rpc_sync, "rpc_async": rpc_async, "remote": remote}
