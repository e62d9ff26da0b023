"""The module that `compile(module)` gives: attributes, parameters and modes are those of the module that was compiled."""

from __future__ import annotations

from collections.abc import Callable, Sized
from types import FunctionType
from typing import Any

from rushlight._interface.base import shorten, warn_user
from rushlight._interface.compiling import HOOKS, Looks
from rushlight.nn.modules.hooks import (
    global_backward_hooks,
    global_backward_pre_hooks,
    global_forward_hooks,
    global_forward_pre_hooks,
)
from rushlight.nn.modules.module import Module

__all__ = ["OptimizedModule"]


def _hooks(held: dict[str, Any]) -> list[dict[int, Any]]:
    """The hooks of all modules, then those of a module."""
    everywhere = [global_forward_hooks, global_forward_pre_hooks, global_backward_hooks, global_backward_pre_hooks]
    return [*everywhere, *[held[name] for name in _HOOKS]]


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class _Entry:
    """A compiled call of a module: of its `forward` alone while it has no hooks (`plain`), of the whole call else."""

    def __init__(self, module: Module, context: Callable[..., Callable[..., Any]], own_forward: FunctionType) -> None:
        self.module, self.kind, self.state, self.own_forward = module, type(module), module.__dict__, own_forward
        self._context, self._users = context, type(module).__module__.partition(".")[0] != "rushlight"
        self.plain = context(module.forward, {} if self._users else _names_in_call(own_forward))
        self._hooked: list[Callable[..., Any]] = []

    def is_plain(self) -> bool:
        """Whether a call of the module is one of its `forward` alone."""
        state = self.state
        replaced = "forward" in state or "_compiled_call_impl" in state or self.kind.forward is not self.own_forward
        return not (replaced or any(_hooks(state)))

    def hooked(self) -> Callable[..., Any]:
        """The whole call, compiled."""
        if not self._hooked:
            names = _names_in_forward(self.own_forward) if self._users else {}
            self._hooked.append(self._context(_whole(self.module), names))
        return self._hooked[0]

    def followed(self) -> Callable[..., Any]:
        """The whole call as a trace follows it, which compiles nothing."""
        return _whole(self.module)

    def looks(self, forward: Callable[..., Any]) -> Looks:
        """Whether a call of the module that has the compiled `forward` is one of `plain`, for the dict of that module."""

        def truth(held: dict[str, Any]) -> bool:
            given = "_compiled_call_impl" in held or held["forward"] is not forward
            return not given and not any(_hooks(held)) and self.is_plain()

        return Looks(truth, lambda held: [*_hooks(held), *_hooks(self.state)[4:]], [self.state], self.kind)

    def parts(self) -> list[Callable[..., Any]]:
        """The compiled functions that there are."""
        return [self.plain, *self._hooked]


def _entry(module: Module, context: Callable[..., Callable[..., Any]]) -> tuple[Callable[..., Any], _Entry | None]:
    """A compiled call of a module, and what it consists of where that may be its `forward` alone."""
    own_forward = getattr(type(module), "forward", None)
    if type(module).__call__ is not Module.__call__ or not isinstance(own_forward, FunctionType):
        return context(_whole(module)), None
    entry = _Entry(module, context, own_forward)

    def forward(*args: Any, **kwargs: Any) -> Any:
        return (entry.plain if entry.is_plain() else entry.hooked())(*args, **kwargs)

    forward._compiled_parts = entry.parts  # type: ignore[attr-defined]
    return forward, entry


def _whole(module: Module) -> Callable[..., Any]:
    """A call of a module, hooks included, as a function."""

    def inner(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    fn = module
    return inner


# Fx graphs name a user's module and its arguments as its `forward` does, and those of `torch.nn` as PyTorch's wrapper
# around them.
def _parameters(forward: FunctionType) -> tuple[str, ...]:
    return forward.__code__.co_varnames[1 : forward.__code__.co_argcount]


def _names_in_forward(forward: FunctionType) -> dict[str, str]:
    names = {"L['fn']": "L['self']"}
    for number, name in enumerate(_parameters(forward)):
        names |= {f"L['args'][{number}]": f"L['{name}']", f"L['kwargs']['{name}']": f"L['{name}']"}
    return names


def _names_in_call(forward: FunctionType) -> dict[str, str]:
    given = {f"L['{name}']": f"L['args'][{number}]" for number, name in enumerate(_parameters(forward))}
    return {"L['self']": "L['fn']", **given}


class OptimizedModule(Module):
    """A compiled module: `_orig_mod` is the module itself, and its attributes are read, set and deleted here too.

    Names in `state_dict`, `named_parameters` and `named_modules` begin with `_orig_mod.`.  `dynamo_ctx` makes the
    compiled call of the module's.
    """

    _torchdynamo_orig_callable: Callable[..., Any]
    _opt_mod_attributes = frozenset((
        "_orig_mod", "dynamo_ctx", "_torchdynamo_orig_callable", "_torchdynamo_wrapper_id", "get_compiler_config", "forward", "_forward",
        "__dict__", "named_children_walk", "_super_module_initialized",
    ))  # fmt: skip

    def __init__(self, mod: Module, dynamo_ctx: Callable[..., Callable[..., Any]]) -> None:
        # A subclass of `Module` may read attributes in `__init__`, and these are the module's.
        object.__setattr__(self, "_orig_mod", mod)
        self._super_module_initialized = False
        super().__init__()
        self._super_module_initialized = True
        del self.__dict__["_orig_mod"]
        self._orig_mod = mod
        self.dynamo_ctx = dynamo_ctx
        before = getattr(mod, "_before_compiling", None)  # of modules that say where programs end
        if before is not None:
            before(dynamo_ctx)
        self._initialize()
        self._torchdynamo_orig_callable = mod.forward
        self._torchdynamo_wrapper_id = id(self)

    def _initialize(self) -> None:
        self.forward, entry = _entry(self._orig_mod, self.dynamo_ctx)
        # What a call looks at: the compiled forward, and whether that is all there is to call.
        self.__dict__["_direct"] = None if entry is None else (entry.plain, entry.looks(self.forward))
        if hasattr(self._orig_mod, "_initialize_hook"):
            self._forward = self.forward
            self.forward = self._call_lazy_check

    def _call_lazy_check(self, *args: Any, **kwargs: Any) -> Any:
        """The first call of a lazy module makes its parameters before it is compiled."""
        if hasattr(self._orig_mod, "_initialize_hook") and callable(getattr(self._orig_mod, "_infer_parameters", None)):
            self._orig_mod._infer_parameters(self._orig_mod, args, kwargs)
        return self._forward(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # The looks of `Module.__call__` and `_Entry.is_plain`, of native code: in Python they cost as much as a layer.
        state = self.__dict__
        direct = state["_direct"]
        if direct is not None:
            plain, looks = direct
            if looks.ask(looks.table, (state,)) is not None or looks(state):
                try:
                    return plain(*args, **kwargs) if kwargs else plain(*args)
                except BaseException as error:
                    shorten(error)
                    raise
        return self._called(*args, **kwargs)

    def _called(self, *args: Any, **kwargs: Any) -> Any:
        """A call with hooks around it."""
        if global_forward_hooks or global_forward_pre_hooks or global_backward_hooks or global_backward_pre_hooks:
            warn_user(
                "Using `torch.compile(module)` when there are global hooks on modules (e.g., from `register_module_forward_hook`); "
                "this will cause the hooks to fire an extra time for the `OptimizedModule` created by `torch.compile(module)`. If this "
                "causes undesired behavior, please try using `module.compile()`, or use the per-module hooks instead",
                UserWarning,
            )
        return super().__call__(*args, **kwargs)

    def __len__(self) -> int:
        if isinstance(self._orig_mod, Sized):
            return len(self._orig_mod)
        raise TypeError(f"{type(self._orig_mod).__name__} does not support len()")

    def __bool__(self) -> bool:
        return not isinstance(self._orig_mod, Sized) or len(self._orig_mod) > 0

    def __reduce__(self) -> Any:
        return type(self), (self._orig_mod, self.dynamo_ctx)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state.pop("forward", None)
        state.pop("_forward", None)
        state.pop("_direct", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        self._initialize()

    @property
    def training(self) -> bool:
        """The module's mode."""
        return self._orig_mod.training

    @training.setter
    def training(self, value: bool) -> None:
        if self._super_module_initialized:
            self._orig_mod.training = value

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self._modules["_orig_mod"]
        return getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(type(self), name) or name in OptimizedModule._opt_mod_attributes:
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        if hasattr(type(self), name) or name in OptimizedModule._opt_mod_attributes:
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        theirs = list(self._orig_mod.__dir__())
        return theirs + [name for name in super().__dir__() if name not in theirs]


# A trace follows neither native looks nor what compiles: it guards what the call with hooks reads.
HOOKS.replaced[id(OptimizedModule.__call__)] = (OptimizedModule.__call__, OptimizedModule._called)
HOOKS.replaced[id(_Entry.hooked)] = (_Entry.hooked, _Entry.followed)
