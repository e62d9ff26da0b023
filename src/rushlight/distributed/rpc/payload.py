"""Messages of users, as parts of bytes: a pickle, in which tensors and references are numbers, and the tensors' memory.

Unpickling runs what a pickle says: workers of a job trust one another, and strangers are refused before (see
`_distributed/calls/links.py`).
"""

from __future__ import annotations

import io
import pickle
import threading
from typing import Any, NamedTuple

import rushlight
from rushlight import Tensor
from rushlight._interface.memory import BY_NAME, bytes_at, is_host_memory
from rushlight._interface.tensors import Spec, is_dense, make

__all__ = ["CURRENT", "Packed", "packed", "unpacked"]


class _Current(threading.local):
    """The payload that this thread packs or unpacks."""

    packing: _Pickler | None = None
    tensors: list[Tensor] = []
    source: Any = None  # the worker that the payload came from, and the agent


CURRENT = _Current()


class Packed(NamedTuple):
    """A payload: its parts, and the tensors among them that require a gradient."""

    parts: list[Any]
    differentiable: list[Tensor]


class _Pickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, agent: Any, to: int) -> None:
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)
        self.agent, self.to = agent, to
        self.tensors: list[Tensor] = []
        self.forks: list[int] = []  # of references that are being sent

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is Tensor and obj.layout is rushlight.strided and is_host_memory(obj._spec):
            self.tensors.append(obj)
            return _tensor, (len(self.tensors) - 1,)
        return NotImplemented


def _tensor(number: int) -> Tensor:
    """The tensor with a number in the payload that is being unpacked."""
    return CURRENT.tensors[number]


def packed(value: Any, agent: Any, to: int) -> Packed:
    """The payload of a value for worker `to`."""
    stream = io.BytesIO()
    pickler = _Pickler(stream, agent, to)
    outer, CURRENT.packing = CURRENT.packing, pickler
    try:
        pickler.dump(value)
    except BaseException:
        agent.references.take_back(pickler.forks)
        raise
    finally:
        CURRENT.packing = outer
    parts: list[Any] = [stream.getbuffer()]
    if not pickler.tensors:
        return Packed(parts, [])
    with rushlight.no_grad():
        sent = [_in_one_piece(t) for t in pickler.tensors]
    facts = [
        (t.dtype.name, tuple(t.shape), t.stride(), own.requires_grad)
        for t, own in zip(sent, pickler.tensors, strict=True)
    ]
    parts.append(pickle.dumps(facts))
    parts += [_bytes_of(t) for t in sent]
    return Packed(parts, [t for t in pickler.tensors if t.requires_grad])


def _in_one_piece(t: Tensor) -> Tensor:
    """A tensor whose elements lie one behind the other, in whichever order of the dims."""
    if t.is_conj() or t.is_neg():
        return t.resolve_conj().resolve_neg()
    return t if is_dense(t.shape, t.stride()) else t.contiguous()


def _bytes_of(t: Tensor) -> Any:
    return bytes_at(t._storage, t.data_ptr(), t.nbytes) if t.nbytes else b""


def unpacked(parts: list[Any], agent: Any, source: int, link: Any = None) -> Any:
    """The value of a payload of worker `source`; `link` gives differentiable tensors their place in a graph, and others
    are leaves.
    """
    tensors: list[Tensor] = []
    if len(parts) > 1:
        facts = pickle.loads(parts[1])
        tensors = [_from_bytes(part, *fact[:3]) for part, fact in zip(parts[2:], facts, strict=True)]
        wanting = [t for t, fact in zip(tensors, facts, strict=True) if fact[3]]
        if link is not None and wanting:
            link(wanting)
        else:
            for t in wanting:
                t.requires_grad = True
    outer = CURRENT.tensors, CURRENT.source
    CURRENT.tensors, CURRENT.source = tensors, (source, agent)
    try:
        return pickle.loads(parts[0])
    finally:
        CURRENT.tensors, CURRENT.source = outer


def _from_bytes(data: Any, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    kind = BY_NAME[dtype]
    if not len(data):
        return rushlight.empty_strided(shape, strides, dtype=kind)
    held = rushlight.frombuffer(data, dtype=rushlight.uint8)
    return make(held._storage, Spec.of(kind, held.device, shape, strides), held._ptr)
