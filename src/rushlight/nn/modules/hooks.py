"""The hooks of modules: their tables, how they are registered, and the call that runs them."""

from __future__ import annotations

import functools
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rushlight import Tensor
from rushlight._interface.base import shorten
from rushlight.utils.hooks import BackwardHook, RemovableHandle

if TYPE_CHECKING:
    from rushlight.nn.modules.module import Module

__all__ = [
    "HookedCall",
    "_WrappedHook",
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]

# ***** tables of hooks that concern every module *****

global_buffer_registration_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
global_module_registration_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
global_parameter_registration_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()

global_backward_pre_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
global_backward_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
global_forward_pre_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
global_forward_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
global_forward_hooks_always_called: OrderedDict[int, bool] = OrderedDict()
global_forward_hooks_with_kwargs: OrderedDict[int, bool] = OrderedDict()

# None until the first global backward hook decides which of the two kinds is in use.
global_is_full_backward_hook: bool | None = None


def _register(table: OrderedDict[int, Any], hook: Any, *flags: OrderedDict[int, bool]) -> RemovableHandle:
    handle = RemovableHandle(table, extra_dict=list(flags))
    table[handle.id] = hook
    return handle


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, buffer)` before any buffer is registered; a result that is not None replaces it."""
    return _register(global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, submodule)` before any submodule is registered; a result replaces it."""
    return _register(global_module_registration_hooks, hook)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, param)` before any parameter is registered; a result replaces it."""
    return _register(global_parameter_registration_hooks, hook)


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, args)` before the `forward` of every module, ahead of the module's own hooks."""
    return _register(global_forward_pre_hooks, hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call `hook(module, args, output)` after the `forward` of every module; see `Module.register_forward_hook`."""
    handle = _register(global_forward_hooks, hook, global_forward_hooks_with_kwargs, global_forward_hooks_always_called)
    if with_kwargs:
        global_forward_hooks_with_kwargs[handle.id] = True
    if always_call:
        global_forward_hooks_always_called[handle.id] = True
    return handle


_MIXED_GLOBAL = (
    "Cannot use both regular backward hooks and full backward hooks as a global Module hook. "
    "Please use only one of them."
)
_MIXED_LOCAL = (
    "Cannot use both regular backward hooks and full backward hooks on a single Module. Please use only one of them."
)


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Register an old-style backward hook for every module; prefer `register_module_full_backward_hook`."""
    global global_is_full_backward_hook
    if global_is_full_backward_hook is True:
        raise RuntimeError(_MIXED_GLOBAL)
    global_is_full_backward_hook = False
    return _register(global_backward_hooks, hook)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, grad_output)` whenever the gradient of any module's output is known."""
    return _register(global_backward_pre_hooks, hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, grad_input, grad_output)` whenever the gradients of any module's inputs are known."""
    global global_is_full_backward_hook
    if global_is_full_backward_hook is False:
        raise RuntimeError(_MIXED_GLOBAL)
    global_is_full_backward_hook = True
    return _register(global_backward_hooks, hook)


class _WrappedHook:
    """A hook, optionally bound to a module that it holds weakly (so a module and its hook are no cycle)."""

    # Where PyTorch has it: modules that were saved whole name it.
    __module__ = "rushlight.nn.modules.module"

    def __init__(self, hook: Callable[..., Any], module: Module | None = None) -> None:
        self.hook = hook
        functools.update_wrapper(self, hook)
        self.with_module = module is not None
        if module is not None:
            self.module: weakref.ref[Module] = weakref.ref(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.with_module:
            return self.hook(*args, **kwargs)
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = {"hook": self.hook, "with_module": self.with_module}
        if self.with_module:
            state["module"] = self.module()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.hook = state["hook"]
        self.with_module = state["with_module"]
        if self.with_module:
            if state["module"] is None:
                raise RuntimeError("You are trying to revive the hook of a dead Module!")
            self.module = weakref.ref(state["module"])


class HookedCall:
    """The part of `Module` that registers hooks and calls `forward` between them."""

    _backward_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _backward_hooks: OrderedDict[int, Callable[..., Any]]
    _is_full_backward_hook: bool | None
    _forward_hooks: OrderedDict[int, Callable[..., Any]]
    _forward_hooks_with_kwargs: OrderedDict[int, bool]
    _forward_hooks_always_called: OrderedDict[int, bool]
    _forward_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _forward_pre_hooks_with_kwargs: OrderedDict[int, bool]
    _compiled_call_impl: Callable[..., Any] | None = None
    forward: Callable[..., Any]

    # ***** registration *****

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args)` (or `hook(module, args, kwargs)`) before each `forward`.

        A result that is not None replaces the positional arguments (a single value is wrapped into a tuple); with
        `with_kwargs=True` it must be a pair `(args, kwargs)`. `prepend` puts the hook before those already there.
        """
        handle = _register(self._forward_pre_hooks, hook, self._forward_pre_hooks_with_kwargs)
        if with_kwargs:
            self._forward_pre_hooks_with_kwargs[handle.id] = True
        if prepend:
            self._forward_pre_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args, output)` (or `hook(module, args, kwargs, output)`) after each `forward`.

        A result that is not None replaces the output. With `always_call=True` the hook also runs when `forward`
        raised (its own errors are then turned into warnings, and the first error is raised again).

        Example: `handle = model.layer1.register_forward_hook(lambda m, args, out: features.append(out.detach()))`
        """
        handle = _register(
            self._forward_hooks, hook, self._forward_hooks_with_kwargs, self._forward_hooks_always_called
        )
        if with_kwargs:
            self._forward_hooks_with_kwargs[handle.id] = True
        if always_call:
            self._forward_hooks_always_called[handle.id] = True
        if prepend:
            self._forward_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_output)` when the gradient of the output is known; a result replaces it."""
        handle = _register(self._backward_pre_hooks, hook)
        if prepend:
            self._backward_pre_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` when the gradients of the inputs are known.

        Both are tuples with None in the place of what is no tensor; a result that is not None replaces `grad_input`.
        """
        if self._is_full_backward_hook is False:
            raise RuntimeError(_MIXED_LOCAL)
        self._is_full_backward_hook = True
        handle = _register(self._backward_hooks, hook)
        if prepend:
            self._backward_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Register an old-style backward hook, which sees only the last node of `forward`. Prefer the full one."""
        if self._is_full_backward_hook is True:
            raise RuntimeError(_MIXED_LOCAL)
        self._is_full_backward_hook = False
        return _register(self._backward_hooks, hook)

    def _get_backward_hooks(self) -> tuple[list[Any], list[Any]]:
        full: list[Any] = []
        partial: list[Any] = []
        for kind, table in (
            (global_is_full_backward_hook, global_backward_hooks),
            (self._is_full_backward_hook, self._backward_hooks),
        ):
            if kind is not None:
                (full if kind else partial).extend(table.values())
        return full, partial

    def _get_backward_pre_hooks(self) -> list[Any]:
        return [*global_backward_pre_hooks.values(), *self._backward_pre_hooks.values()]

    # ***** the call *****

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the hooks and `forward`."""
        # One look at the instance's dictionary instead of attribute lookups: a class with __getattr__ pays for each.
        state = self.__dict__
        try:
            plain = not (
                state["_forward_hooks"]
                or state["_forward_pre_hooks"]
                or state["_backward_hooks"]
                or state["_backward_pre_hooks"]
                or global_forward_hooks
                or global_forward_pre_hooks
                or global_backward_hooks
                or global_backward_pre_hooks
                or "_compiled_call_impl" in state
            )
        except KeyError as missing:
            raise AttributeError(
                f"'{type(self).__name__}' object has no attribute {missing}: was Module.__init__() called?"
            ) from None
        try:
            if plain:
                return self.forward(*args, **kwargs)
            if self._compiled_call_impl is not None:
                return self._compiled_call_impl(*args, **kwargs)
            return self._call_impl(*args, **kwargs)
        except BaseException as error:
            shorten(error)
            raise

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        """`forward` with every hook around it."""
        called: set[int] = set()
        progress: dict[str, Any] = {"args": args, "kwargs": kwargs, "result": None}
        try:
            return self._run_hooked(progress, called)
        except Exception:
            self._run_always_called(progress, called)
            raise

    def _run_hooked(self, progress: dict[str, Any], called: set[int]) -> Any:
        # `progress` tells the always-called hooks how far the call came when it failed.
        self._run_pre_hooks(progress)
        full_hooks, partial_hooks = self._get_backward_hooks()
        pre_hooks = self._get_backward_pre_hooks()
        backward_hook = None
        if full_hooks or pre_hooks:
            backward_hook = BackwardHook(self, full_hooks, pre_hooks)
            progress["args"] = backward_hook.setup_input_hook(progress["args"])
        args, kwargs = progress["args"], progress["kwargs"]
        progress["result"] = self.forward(*args, **kwargs)
        for hook_id, hook in (*global_forward_hooks.items(), *self._forward_hooks.items()):
            if hook_id in self._forward_hooks_always_called or hook_id in global_forward_hooks_always_called:
                called.add(hook_id)
            self._run_forward_hook(hook_id, hook, progress)
        result = progress["result"]
        if backward_hook is not None:
            if not isinstance(result, (Tensor, tuple)):
                warnings.warn(
                    "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors "
                    f"but received {type(result)}",
                    stacklevel=4,
                )
            result = progress["result"] = backward_hook.setup_output_hook(result)
        if partial_hooks:
            self._attach_partial_hooks(partial_hooks, progress["args"], result)
        return result

    def _run_pre_hooks(self, progress: dict[str, Any]) -> None:
        for hook_id, hook in (*global_forward_pre_hooks.items(), *self._forward_pre_hooks.items()):
            if hook_id in self._forward_pre_hooks_with_kwargs:
                given = hook(self, progress["args"], progress["kwargs"])
                if given is None:
                    continue
                if not (isinstance(given, tuple) and len(given) == 2):
                    raise RuntimeError(
                        f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {given}."
                    )
                progress["args"], progress["kwargs"] = given
            else:
                given = hook(self, progress["args"])
                if given is not None:
                    progress["args"] = given if isinstance(given, tuple) else (given,)

    def _run_forward_hook(self, hook_id: int, hook: Callable[..., Any], progress: dict[str, Any]) -> None:
        if hook_id in self._forward_hooks_with_kwargs or hook_id in global_forward_hooks_with_kwargs:
            given = hook(self, progress["args"], progress["kwargs"], progress["result"])
        else:
            given = hook(self, progress["args"], progress["result"])
        if given is not None:
            progress["result"] = given

    def _run_always_called(self, progress: dict[str, Any], called: set[int]) -> None:
        """Run the always-called hooks that the failing call did not reach."""
        groups = (
            ("global module", global_forward_hooks, global_forward_hooks_always_called),
            ("module", self._forward_hooks, self._forward_hooks_always_called),
        )
        for kind, hooks, always in groups:
            for hook_id, hook in hooks.items():
                if hook_id not in always or hook_id in called:
                    continue
                try:
                    self._run_forward_hook(hook_id, hook, progress)
                except Exception as error:
                    warnings.warn(
                        f"{kind} forward hook with ``always_call=True`` raised an exception "
                        f"that was silenced as another error was raised in forward: {error}",
                        stacklevel=4,
                    )

    def _attach_partial_hooks(self, hooks: list[Any], args: Any, result: Any) -> None:
        """Old-style backward hooks sit on the node that made the (first tensor of the) result."""
        var = result
        while not isinstance(var, Tensor):
            var = next(v for v in var.values() if isinstance(v, Tensor)) if isinstance(var, dict) else var[0]
        grad_fn = var.grad_fn
        if grad_fn is not None:
            for hook in hooks:
                grad_fn.register_hook(_WrappedHook(hook, self))  # type: ignore[arg-type]
            _warn_partial_hook(args, result, grad_fn)


def _warn_partial_hook(inputs: Any, result: Any, grad_fn: Any) -> None:
    """Say when an old-style backward hook cannot see all the gradients that its name promises."""

    def tensors_of(value: Any) -> tuple[Any, ...] | None:
        if isinstance(value, Tensor):
            return (value,)
        ok = isinstance(value, tuple) and all(isinstance(v, Tensor) for v in value)
        return value if ok else None

    outputs, given = tensors_of(result), tensors_of(inputs)
    if outputs is None:
        problem = (
            "non-full backward hooks on a Module that does not return a single Tensor or a tuple of Tensors",
            "some of the grad_output",
        )
    elif given is None:
        problem = (
            "non-full backward hooks on a Module that does not take as input a single Tensor or a tuple of Tensors",
            "some of the grad_input",
        )
    else:
        nodes = {t.grad_fn for t in outputs if t.grad_fn is not None}
        if not nodes or (len(nodes) == 1 and grad_fn not in nodes):
            problem = ("a non-full backward hook when outputs are nested in python data structure", "some grad_output")
        elif len(nodes) > 1:
            problem = (
                "a non-full backward hook when outputs are generated by different autograd Nodes",
                "some grad_output",
            )
        elif {t.grad_fn for t in given if t.grad_fn is not None} != {n[0] for n in grad_fn.next_functions}:
            problem = ("a non-full backward hook when the forward contains multiple autograd Nodes", "some grad_input")
        else:
            return
    what, missing = problem
    warnings.warn(
        f"Using {what} is deprecated and will be removed in future versions. "
        f"This hook will be missing {missing}. Please use register_full_backward_hook to get the documented behavior.",
        FutureWarning,
        stacklevel=6,
    )
