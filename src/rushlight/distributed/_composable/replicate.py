"""`replicate`: data parallel training of a module that stays what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import rushlight
from rushlight.nn import Module

__all__ = ["DDP", "replicate"]


class DDP:
    """Additions of `replicate` to the class of a module."""

    _replicated: Any
    _plain_class: type

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """A module of the class as it was: parts of containers (`model[:2]`) are made by calling the container's class."""
        if not args and not kwargs:  # a copy, which gets its attributes next
            return object.__new__(cls)
        return cls._plain_class(*args, **kwargs)

    def set_requires_gradient_sync(self, requires_gradient_sync: bool) -> None:
        """Whether backward averages gradients; without, they are summed on each process until it does."""
        self._replicated.syncs = requires_gradient_sync

    def register_comm_hook(self, state: Any, hook: Callable[[Any, Any], Any]) -> None:
        """As `DistributedDataParallel.register_comm_hook`."""
        self._replicated.register_comm_hook(state, hook)


class _Replicated:
    """The averaging of one module's gradients, around its forward.

    It begins with the first forward: until then parameters may be without memory (`meta`), or be made anew.
    """

    def __init__(self, ignored: Iterable[Module], options: dict[str, Any]) -> None:
        self.ignored, self.options, self.hooks = list(ignored), options, list[tuple[Any, Any]]()
        self.ddp: Any = None
        self.syncs, self.reduces = True, False

    def register_comm_hook(self, state: Any, hook: Callable[[Any, Any], Any]) -> None:
        """For now, or for when it begins."""
        if self.ddp is None:
            self.hooks.append((state, hook))
        else:
            self.ddp.register_comm_hook(state, hook)

    def begin(self, module: Module) -> None:
        """Make parameters those of the first process, and buckets for the gradients."""
        names = {m: name for name, m in module.named_modules()}
        left = [
            f"{names[m]}.{key}" if names[m] else key
            for root in self.ignored
            for m in root.modules()
            for key in (*m._parameters, *m._buffers)
        ]
        kind = rushlight.nn.parallel.DistributedDataParallel
        kind._set_params_and_buffers_to_ignore_for_model(module, left)
        self.ddp = kind(module, **self.options)
        for state, hook in self.hooks:
            self.ddp.register_comm_hook(state, hook)

    def before(self, module: Module, args: Any) -> None:
        if self.ddp is None:
            self.begin(module)
        ddp = self.ddp
        self.reduces = rushlight.is_grad_enabled() and self.syncs
        ddp.reducer.sync = self.syncs
        if self.reduces:
            ddp.reducer.prepare()
        if ddp.broadcast_buffers and ddp.require_forward_param_sync and ddp.process_group.size() > 1:
            ddp._send_buffers()

    def after(self, module: Module, args: Any, outputs: Any) -> None:
        ddp = self.ddp
        if self.reduces:
            ddp.reducer.arm(outputs)
        ddp.require_forward_param_sync = self.reduces or not rushlight.is_grad_enabled()


_CLASSES: dict[type, type] = {}


def replicate(module: Module, ignored_modules: Iterable[Module] | None = None, **kwargs: Any) -> Module:
    """A module whose gradients are averaged over processes, as by `DistributedDataParallel` with these settings; it is
    changed in place, and returned.  Parts in `ignored_modules` are left to each process.  Parameters become those of the
    first process in the first forward call.

    RuntimeError for a module that `fully_shard` or `replicate` has.
    """
    if getattr(module, "_fsdp_state", None) is not None:
        raise RuntimeError("Cannot apply `replicate()` on a Module already managed by `fully_shard`")
    if isinstance(module, DDP):
        raise RuntimeError("each module is replicated once; this one is")
    kwargs.pop("device_id", None)  # where the module is anyway
    if kwargs.get("mixed_precision") is not None:
        raise NotImplementedError("replicate(mixed_precision=...) is not built: use DistributedDataParallel")
    state = _Replicated(ignored_modules or (), kwargs)
    kind = type(module)
    if kind not in _CLASSES:
        _CLASSES[kind] = type(f"DDP{kind.__name__}", (DDP, kind), {"__module__": kind.__module__, "_plain_class": kind})
    module.__class__ = _CLASSES[kind]
    object.__setattr__(module, "_replicated", state)
    module.register_forward_pre_hook(state.before)
    module.register_forward_hook(state.after)
    return module


def _state(module: Any) -> _Replicated | None:
    """State that `replicate` keeps for a module; None for other modules."""
    return getattr(module, "_replicated", None)


replicate.state = _state  # type: ignore[attr-defined]
