"""Which modules are being computed now, in forward and in backward."""

from __future__ import annotations

import weakref
from typing import Any

from rushlight import Tensor
from rushlight._interface.autograd import queue_callback
from rushlight._interface.base import trace_marks, tree_flatten
from rushlight._interface.tensors import STATE
from rushlight.nn.modules.hooks import register_module_forward_hook, register_module_forward_pre_hook

__all__ = ["ModuleTracker"]


class ModuleTracker:
    """Inside `with`, `parents` is the set of the names of all modules that are being computed, "Global" always among
    them.

    Names are the paths from the outermost module that was called, which goes by its class.  In backward a module begins
    with the gradient of its output and ends with those of its inputs; where none of its inputs wants one it ends with
    backward.

        >>> from rushlight.utils.module_tracker import ModuleTracker
        >>> class Watching(torch.nn.Module):
        ...     def forward(self, x):
        ...         return sorted(tracker.parents)
        >>> with ModuleTracker() as tracker:
        ...     torch.nn.Sequential(Watching())(1)
        ['Global', 'Sequential', 'Sequential.0']
    """

    def __init__(self) -> None:
        self.parents: set[str] = {"Global"}
        self._names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._open: list[str] = []
        self._hooks: list[Any] = []
        self._pending: list[Any] = []
        self._in_backward: set[str] = set()

    @property
    def is_bw(self) -> bool:
        """Whether backward is running."""
        return STATE.task is not None

    @trace_marks.breaks_trace(trace_marks.WATCHES)
    def __enter__(self) -> ModuleTracker:
        self._hooks = [
            register_module_forward_pre_hook(self._begins),
            register_module_forward_hook(self._ends, always_call=True),
        ]
        return self

    @trace_marks.breaks_trace(trace_marks.WATCHES)
    def __exit__(self, *args: Any) -> None:
        for hook in (*self._hooks, *self._pending):
            hook.remove()
        self._hooks, self._pending, self._open = [], [], []
        self.parents = {"Global"}

    def name_of(self, module: Any) -> str:
        """The path of a module; one that was not met inside another is named by its class."""
        if module not in self._names:
            self._names[module] = type(module).__name__
        name = self._names[module]
        for word, child in module.named_children():
            if child not in self._names:
                self._names[child] = f"{name}.{word}"
        return name

    def _begins(self, module: Any, args: Any) -> None:
        name = self.name_of(module)
        self._open.append(name)
        self.parents.add(name)
        inputs = [t for t in tree_flatten(args)[0] if isinstance(t, Tensor) and t._rg]
        if not self.is_bw and inputs:
            self._watch(inputs, lambda: self._leave(name))

    def _ends(self, module: Any, args: Any, output: Any) -> None:
        name = self.name_of(module)
        while self._open and self._open.pop() != name:
            pass
        if name not in self._open:
            self.parents.discard(name)
        outputs = [t for t in tree_flatten(output)[0] if isinstance(t, Tensor) and t._rg]
        if not self.is_bw and outputs:
            self._watch(outputs, lambda: self._enter(name))

    def _watch(self, tensors: list[Any], call: Any) -> None:
        """Call once in each backward, when the first of these gradients is there."""
        for tensor in tensors:
            self._pending.append(tensor.register_hook(lambda grad: call()))

    def _enter(self, name: str) -> None:
        if not self._in_backward and STATE.task is not None:
            self._after_backward()
        self._in_backward.add(name)
        self.parents.add(name)

    def _leave(self, name: str) -> None:
        self._in_backward.discard(name)
        self.parents.discard(name)

    def _after_backward(self) -> None:
        """Close all modules that are open when this backward ends."""

        def end() -> None:
            self.parents -= self._in_backward
            self._in_backward.clear()

        queue_callback(end)
