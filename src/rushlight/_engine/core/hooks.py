"""Functions that the engine calls before their modules are loaded: `HOOKS`, and the operators of its own loops,
`OPS`.

Everything that is set from elsewhere is a field of `HOOKS`.  A function that nobody has provided raises an error that
says who should.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from rushlight._base.errors import describe_code, user_code

__all__ = ["HOOKS", "OPS", "Hooks", "bump", "last_change"]


def _missing(name: str, provider: str) -> Callable[..., Any]:
    def missing(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"the engine's hook {name!r} is not set: `{provider}` sets it, which is not loaded")

    return missing


class BackwardWalks(Protocol):
    """Who makes backward calls in the engine's place: compiled autograd."""

    def __call__(self, task: Any, heap: Any, /) -> bool:
        """Whether it made the call."""

    def recognised(self, task: Any, edge: Any, grad: Any, /) -> Callable[[], None] | None:
        """The function that makes the call of an edge, where its structure is known, else None."""


class Hooks:
    """Functions that later modules provide, and what somebody may switch on.  Reading a field costs what reading a
    global does.
    """

    __slots__ = (
        "accumulate", "asks", "attribute_changed", "below", "data_of", "dispatch_modes", "follow_leaf", "forget_calls_of", "launch_recorder", "lazy_clones", "legacy_constructor", "make_accumulator", "masked_select", "move", "new_meta",
        "nonzero", "operator_name", "operators_compiled", "override", "own_below", "plain_class_added", "recorder", "storage_from_owner", "subclass_added", "untyped_storage", "user_code",
        "walk", "whole_view",
    )  # fmt: skip

    # Tensors and storages.
    new_meta: Callable[[], Any]
    """An empty `AutogradMeta`: of `core.tensor`, natively once the runtime is loaded."""
    data_of: Callable[[Any], Any]
    """`tensor.data`: of `core.tensor`, natively once the runtime is loaded."""
    storage_from_owner: Callable[[int, int, Any], Any]
    """A storage over (address, bytes) that an owner keeps alive: `core.memory`."""
    untyped_storage: Callable[[Any], Any]
    """A tensor's storage as users see it: `core.storage`."""
    follow_leaf: Callable[[Any], None]
    """Is told of leaves with views whose `requires_grad` is set: `indexing.view`."""
    whole_view: Callable[[Any], Any]
    """A view of a whole tensor: `_surface.engine_ops`."""
    lazy_clones: bool
    """Whether there was a lazy clone in this process: until then nobody needs to call `core.memory.own`."""
    # Classes.
    legacy_constructor: Callable[..., Any]
    """`torch.Tensor(...)`: `_surface.settings`."""
    attribute_changed: Callable[[type, str, Any, Any], None] | None
    """Is told of attributes of Tensor and its subclasses that are set, with what was there before: `_capture.trace.process_settings`."""
    subclass_added: Callable[[type], None]
    """Is told of new subclasses of Tensor: `dispatch.override`."""
    plain_class_added: Callable[[type], None]
    """Is told of classes that take no part in dispatch: the native dispatcher, once it is loaded."""
    asks: bool
    """Whether a subclass takes part in dispatch: until then the fast paths need not look at classes."""
    # Calls.
    override: Callable[[Any, Any, dict[str, Any]], tuple[bool, Any]]
    """(function, args, kwargs) -> (handled, result): asks modes and subclasses; `dispatch.override`, while observed the profiler."""
    below: Callable[[Any, Any, dict[str, Any]], tuple[bool, Any]]
    """(function, args, kwargs) -> (handled, result): shows the operators of a call to dispatch modes and classes: `library.aten.calls`."""
    dispatch_modes: int
    """How many dispatch modes are on, in all threads."""
    forget_calls_of: Callable[[Any], None]
    """Lets a native dispatcher forget its plans: the runtime, once it is loaded; nothing to do before."""
    user_code: Callable[[], Any]
    """The user's line that is running: of `_base.errors`, natively once the runtime is loaded."""
    nonzero: Callable[[Any], Any]
    """Indices of the elements that are not zero, one tensor a dim: `indexing.dynamic`."""
    masked_select: Callable[[Any, Any], Any]
    """`x[mask]`: `indexing.dynamic`."""
    move: Callable[[Any, Any], Any]
    """A tensor on another device: `core.convert`."""
    # Backward.
    walk: BackwardWalks | None
    """(task, ready nodes) -> whether it has made the backward call: `_capture.autograd`, while that is switched on."""
    make_accumulator: Callable[[Any], Any]
    """The node that accumulates a leaf's gradient: `autograd.node`."""
    accumulate: Callable[[Any, Any], None]
    """`leaf.grad += gradient`, and the leaf's hooks: `autograd.engine`."""
    own_below: Callable[[Any, Any], Any]
    """(leaf, gradient) -> the gradient to keep, where dispatch modes or classes see how: `library.aten.calls`."""
    # Looking on.
    recorder: Any
    """Collects the runs of programs that are built from now on (`dispatch.watch.Recorder`); None where nobody does."""
    launch_recorder: Any
    """Likewise of kernels that users wrote."""
    operator_name: str
    """The operator for which a plan is being made."""
    operators_compiled: Callable[[Iterable[str]], None] | None
    """Is told of the operators of each program that is recorded, as "aten::gelu": `_inductor.lowering`; None where nobody asks."""

    def __init__(self) -> None:
        for name, provider in (
            ("new_meta", "core.tensor"),
            ("data_of", "core.tensor"),
            ("storage_from_owner", "core.memory"),
            ("untyped_storage", "core.storage"),
            ("whole_view", "_surface.engine_ops"),
            ("follow_leaf", "_engine.indexing.view"),
            ("legacy_constructor", "_surface.settings"),
            ("override", "dispatch.override"),
            ("nonzero", "indexing.dynamic"),
            ("masked_select", "indexing.dynamic"),
            ("move", "core.convert"),
            ("make_accumulator", "autograd.node"),
            ("accumulate", "autograd.engine"),
            ("below", "library.aten.calls"),
            ("own_below", "library.aten.calls"),
        ):
            setattr(self, name, _missing(name, provider))
        self.subclass_added = self.plain_class_added = self.forget_calls_of = lambda _: None
        self.user_code = user_code
        self.lazy_clones = self.asks = False
        self.dispatch_modes = 0
        self.attribute_changed = None
        self.recorder, self.operator_name, self.walk, self.operators_compiled = None, "", None, None
        self.launch_recorder = None


HOOKS = Hooks()


class _Operators(dict[str, Any]):
    """Functions by name; those in `makers` are made by their first use."""

    def __init__(self) -> None:
        self.makers: dict[str, Callable[[], Any]] = {}

    def __missing__(self, name: str) -> Any:
        make = self.makers.get(name)
        if make is None:
            raise RuntimeError(f"the engine has no operator {name!r}: `_surface.engine_ops` provides its operators")
        found = self[name] = make()
        return found


# Operators that the engine's own loops call; `_surface.engine_ops` provides them once the table is complete.
OPS = _Operators()


# ***** changes of memory *****


def bump(storage: Any) -> None:
    """Count a change of the memory, and remember the user's line."""
    storage.version += 1
    storage.changed = HOOKS.user_code()


def last_change(storage: Any) -> str:
    """The user's line that last changed this memory."""
    return describe_code(storage.changed)
