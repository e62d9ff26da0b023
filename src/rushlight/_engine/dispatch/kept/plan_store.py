"""Where derivations are kept between processes: the store of plan records, its edition, and the keys of calls and of
backward graphs.

A *plan record* says what a plan is made of, in a form that is read without tracing, differentiating or scheduling
(`plan_packing`); `kept_plans` makes plans of them.  Records are found by all that a derivation depends on: the
operator, its arguments and specs, and the *edition*: the sources of every room that takes part, the versions of Python
and NumPy, and the machine.
"""

from __future__ import annotations

import os
import sys
import warnings
import weakref
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._base.digest import digest, hasher
from rushlight._base.errors import PACKAGE
from rushlight._base.knobs import Knob
from rushlight._base.lazy import LazyModule
from rushlight._base.log import LOG, log
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.lower import Literal, Slot
from rushlight._ops.table import OPERATORS, Operator
from rushlight._types.device import Device
from rushlight._types.dtype import DType
from rushlight._types.formats import Layout, MemoryFormat
from rushlight._types.promotion import default_dtype
from rushlight._types.spec import Spec

__all__ = [
    "CHECK_PLANS", "KEEP_PLANS", "PlanNote", "Waiting", "call_key", "flush", "further_note", "graph_key", "inplace_key", "keep", "keep_later", "part_key", "program_key", "settle", "store", "view_key",
]  # fmt: skip

KEEP_PLANS: Knob[bool] = Knob(
    "keep_plans",
    env="RUSHLIGHT_KEEP_PLANS",
    kind=bool,
    default=True,
    doc="Keep what plans are made of in the cache, so that later processes need not derive it again.",
)
CHECK_PLANS: Knob[bool] = Knob(
    "check_plans",
    env="RUSHLIGHT_CHECK_PLANS",
    kind=bool,
    default=False,
    doc="Derive every plan that was read from the cache as well, and raise AssertionError where they differ.",
)

# Rooms that decide nothing about plans: all other private ones take part in derivations, those that come later too.
_APART = frozenset(("_C", "_cli", "_dynamo", "_export", "_functorch", "_higher_order_ops", "_subclasses", "_surface"))
_SHARE = 8  # what part of the cache's limit records may take
_MOST_PENDING = 512  # plans whose records are written before the process ends

atexit: Any = LazyModule("atexit")
cache: Any = LazyModule("rushlight._native.cache")
packing: Any = LazyModule("rushlight._engine.dispatch.kept.plan_packing")
records: Any = LazyModule("rushlight._native.record_store")
sources: Any = LazyModule("rushlight._native.sources")
target: Any = LazyModule("rushlight._native.target")

_STORES: dict[Any, Any] = {}
_PENDING: list[tuple[Any, bytes, Callable[[], bytes | None]]] = []


def store() -> Any:
    """The records of this machine and edition; None where none are kept, or while somebody looks at how things are
    derived.
    """
    if HOOKS.recorder is not None or LOG.get() or not KEEP_PLANS.get():
        return None
    place = (cache.CACHE_DIR.get(), target.host_target(), CHECK_PLANS.get())
    if place not in _STORES:
        kept = cache.default_cache()
        # records that are to be compared say more
        _STORES[place] = (
            records.RecordStore(kept, _edition() + b"\0texts" * place[2], kept.limit_bytes // _SHARE)
            if place[0]
            else None
        )
    return _STORES[place]


def _edition() -> bytes:
    """The digest of everything on which all records depend."""
    rooms = [room for room in sources.rooms() if room not in _APART]
    contents = sources.sources_digest(tuple(name for room in rooms for name in sources.files_below(room)))
    host = target.host_target()
    machine = f"{host.l1_bytes} {host.l2_bytes} {host.l3_bytes} {host.cores}"
    return b"\0".join([contents, sys.version.encode(), _numpy_version(), machine.encode()])


def _numpy_version() -> bytes:
    """The text of NumPy's version file: reading it takes a hundredth of importing NumPy."""
    spec = find_spec("numpy")
    if spec is None or spec.origin is None:
        return b"none"
    try:
        with open(os.path.join(os.path.dirname(spec.origin), "version.py"), "rb") as file:
            return file.read()
    except OSError:
        return b"unknown"


# ***** keys *****


def call_key(
    op: Operator, template: Sequence[Any], specs: Sequence[Spec], wrt: Sequence[int], device: Device
) -> bytes | None:
    """The key of the plan of a call; None where none is kept: of operators that are not of the table, and of arguments
    that have no text.
    """
    if type(op) is not Operator or OPERATORS.get(op.name) is not op or not _in_edition(op) or store() is None:
        return None
    texts: list[str] = []
    if not _texts_of(template, texts) or not _keeps(device) or any(s.device is not device for s in specs):
        return None
    h = hasher(b"call")
    h.update(
        "\0".join(
            [op.name, str(device), default_dtype().name, *texts, "specs", *map(_spec_text, specs), str(tuple(wrt))]
        ).encode()
    )
    return h.digest()


def _in_edition(op: Operator) -> bool:
    """Whether the package's sources say what an operator does: a program that declares one may give it another body
    next time.
    """
    rules = [op.body] if op.gradient_rule is None else [op.body, op.gradient_rule]
    return all(
        getattr(rule, "__code__", None) is not None and rule.__code__.co_filename.startswith(PACKAGE) for rule in rules
    )


def graph_key(forward: bytes, inputs: Sequence[Any]) -> bytes | None:
    """The key of the plan of a backward graph, outside of any graph: that of the forward call's record, and the inputs."""
    if store() is None:
        return None
    texts = [default_dtype().name]
    for item in inputs:
        if not isinstance(item, Tensor):
            texts.append(type(item).__name__)
        elif _keeps(item._spec.device):
            texts.append(_spec_text(item._spec))
        else:
            return None
    h = hasher(b"back" + forward)
    h.update("\0".join(texts).encode())
    return h.digest()


def program_key(kind: str, *parts: Any) -> bytes | None:
    """The key of a program of some kind that `parts` (values of a template, specs) determine; None where none is kept."""
    texts: list[str] = []
    if store() is None or not _texts_of(parts, texts):
        return None
    h = hasher(b"program")
    h.update("\0".join([kind, default_dtype().name, *texts]).encode())
    return h.digest()


def inplace_key(
    op: Operator, template: Sequence[Any], specs: Sequence[Spec], wrt: Sequence[int], device: Device
) -> bytes | None:
    """The key of the in-place form of a call, which records a node for the tensors numbered `wrt`; None where none is
    kept.
    """
    key = call_key(op, template, specs, wrt, device)
    return None if key is None else digest(b"inplace" + key)


def view_key(op: Operator, template: Sequence[Any], spec: Spec, wants: bool) -> bytes | None:
    """The key of the plan of a view, which records a node if it `wants`; None where none is kept."""
    key = call_key(op, template, [spec], [0] if wants else [], spec.device)
    return None if key is None else digest(b"view" + key)


def part_key(key: bytes, number: int) -> bytes:
    """The key of one of several derivatives of a call."""
    return digest(key + number.to_bytes(4, "little"))


def _keeps(device: Device) -> bool:
    """Whether programs of a device can be kept."""
    return backend_of(device).keeps_programs


def _spec_text(spec: Spec) -> str:
    flags = f"{spec.conj:d}{spec.released:d}" if spec.conj or spec.released else ""
    strides = "" if spec.plain else tuple.__repr__(spec.strides)
    return f"{spec.dtype.name}{tuple.__repr__(spec.shape)}{strides}{flags}{spec.device}"


_PLAIN = frozenset((int, float, bool, complex, str, type(None)))
_NAMED = frozenset((DType, Device, Layout, MemoryFormat, Slot))


def _texts_of(value: Any, texts: list[str]) -> bool:
    """Append texts that tell a part of a template from all others; False where it has none."""
    kind = type(value)
    if kind is Slot or kind is Literal and type(value.value) in _PLAIN:
        texts.append(f"{kind.__name__} {value!r}")
    elif kind in _PLAIN or kind in _NAMED:
        texts.append(f"{kind.__name__} {value!r}")
    elif kind is Spec and _keeps(value.device):
        texts.append(f"spec {_spec_text(value)}")
    elif kind is tuple:
        texts.append(f"tuple {len(value)}")
        return all(_texts_of(v, texts) for v in value)
    else:
        return False
    return True


# ***** writing *****


def keep(key: bytes, pack: Callable[[], bytes | None], kept: Any = None) -> None:
    """Keep the record that `pack()` makes, later: when many wait, or when the process ends.  None: it cannot be kept.
    `kept` is the store where it belongs, the present one by default.
    """
    kept = kept or store()
    if kept is None:
        return
    if not _PENDING:
        _on_exit()
    _PENDING.append((kept, key, pack))
    if len(_PENDING) >= _MOST_PENDING:
        _write()


class Waiting:
    """Owner of records that are not made yet: they are made when they are written, or when nobody holds the
    object any more.  So what they are made of is not kept alive by what waits.
    """

    def settle(self) -> None:
        """Make the records, and `keep` them."""
        raise NotImplementedError

    def forget(self) -> None:
        """Make none of them."""
        raise NotImplementedError

    def __del__(self) -> None:
        try:
            self.settle()
        except Exception as error:  # nobody could handle it here
            if LOG is not None:  # at the end of a process modules are empty
                log("cache", f"records are not kept: {type(error).__name__}: {error}")


_WAITING: weakref.WeakSet[Waiting] = weakref.WeakSet()


def keep_later(waiting: Waiting) -> None:
    """Settle an object before records are written the next time."""
    _WAITING.add(waiting)
    _on_exit()


def settle() -> None:
    """Make the records that wait for it."""
    for waiting in list(_WAITING):
        waiting.settle()
    _WAITING.clear()


def flush() -> None:
    """Write the records that wait, those that are not made yet included."""
    settle()
    _write()


def _write() -> None:
    """Write the records that were made."""
    pending = _PENDING[:]
    del _PENDING[: len(pending)]
    stores = {}
    for kept, key, pack in pending:
        body = pack()
        if body is not None:
            kept.put(key, body)
            stores[id(kept)] = kept
    for kept in stores.values():
        kept.flush()


_REGISTERED: list[bool] = []


def _on_exit() -> None:
    """Write what waits when the process ends."""
    if not _REGISTERED:
        _REGISTERED.append(True)
        atexit.register(_flush_at_exit)


def _flush_at_exit() -> None:
    """Write what waits; a fault of ours must not look like one of the program that ends."""
    try:
        flush()
    except Exception as error:
        if CHECK_PLANS.get():
            raise
        warnings.warn(f"plans are not kept: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=1)


def _forget_waiting() -> None:
    """Leave what waits to the parent, which writes it."""
    _PENDING.clear()
    for waiting in list(_WAITING):
        waiting.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_waiting)


# ***** what is being derived *****


class PlanNote:
    """The record of one plan that is being derived: its key, and for backward plans which outputs are inputs (see
    `passed` above).
    """

    __slots__ = ("key", "passed")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.passed: Sequence[int] = ()

    def take(
        self, lowered: Any, specs: Sequence[Spec], program: Callable[[], Any], backward: Callable[[], Any]
    ) -> None:
        """Keep the record of a plan; `program` gives its program as plain data, `backward` its `Backward`, or None."""
        keep(self.key, lambda: packing.packed_plan(lowered, specs, program(), backward(), self.passed))

    def show(self, layouts: Sequence[Any]) -> None:
        """Keep the record of a plan that shows its inputs under other layouts."""
        keep(self.key, lambda: packing.packed_layouts(layouts))


_MOST_FURTHER = (
    256  # plans of further sizes that a process keeps: one that meets other sizes all the time would write without end
)
_further = [0]


def further_note(key: Callable[[], bytes | None]) -> PlanNote | None:
    """The note of a plan that is cast for further sizes of a shape class, while those are few."""
    if _further[0] >= _MOST_FURTHER:
        return None
    _further[0] += 1
    found = key()
    return None if found is None else PlanNote(found)
