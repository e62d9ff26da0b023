"""The module that `compile(module)` gives: attributes, parameters and modes are those of the module that was compiled."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sized
from typing import Any

from rushlight._interface.base import warn_user
from rushlight.nn.modules import module as modules
from rushlight.nn.modules.module import Module

__all__ = ["OptimizedModule"]

_in_optimized_module = [False]
_GLOBAL_HOOKS = (
    "_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks", "_global_backward_pre_hooks",
)  # fmt: skip


@contextlib.contextmanager
def _inside() -> Iterator[None]:
    before, _in_optimized_module[0] = _in_optimized_module[0], True
    try:
        yield
    finally:
        _in_optimized_module[0] = before


def _entry(module: Module) -> Callable[..., Any]:
    """What is compiled of a module: a call of it."""

    def inner(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    fn = module
    if type(module).__module__.partition(".")[0] != "rushlight":
        inner._source_names = _names_in_forward(module)  # type: ignore[attr-defined]
    return inner


def _names_in_forward(module: Module) -> dict[str, str]:
    """Names of the module and its arguments in fx graphs: those in `forward`, as in PyTorch, where the module is a user's."""
    code = getattr(getattr(type(module).forward, "__code__", None), "co_varnames", ())
    count = getattr(getattr(type(module).forward, "__code__", None), "co_argcount", 0)
    names = {"L['fn']": "L['self']"}
    for number, name in enumerate(code[1:count]):
        names |= {f"L['args'][{number}]": f"L['{name}']", f"L['kwargs']['{name}']": f"L['{name}']"}
    return names


class OptimizedModule(Module):
    """A compiled module: `_orig_mod` is the module itself, and its attributes are read, set and deleted here too.

    Names in `state_dict`, `named_parameters` and `named_modules` begin with `_orig_mod.`.  `dynamo_ctx` makes the compiled call of the module's.
    """

    _torchdynamo_orig_callable: Callable[..., Any]
    _opt_mod_attributes = frozenset((
        "_orig_mod", "dynamo_ctx", "_torchdynamo_orig_callable", "_torchdynamo_wrapper_id", "get_compiler_config", "forward", "_forward",
        "__dict__", "named_children_walk", "_super_module_initialized",
    ))  # fmt: skip

    def __init__(self, mod: Module, dynamo_ctx: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        # A subclass of `Module` may read attributes in `__init__`, and these are the module's.
        object.__setattr__(self, "_orig_mod", mod)
        self._super_module_initialized = False
        super().__init__()
        self._super_module_initialized = True
        del self.__dict__["_orig_mod"]
        self._orig_mod = mod
        self.dynamo_ctx = dynamo_ctx
        self._initialize()
        self._torchdynamo_orig_callable = mod.forward
        self._torchdynamo_wrapper_id = id(self)

    def _initialize(self) -> None:
        self.forward = self.dynamo_ctx(_entry(self._orig_mod))
        if hasattr(self._orig_mod, "_initialize_hook"):
            self._forward = self.forward
            self.forward = self._call_lazy_check

    def _call_lazy_check(self, *args: Any, **kwargs: Any) -> Any:
        """The first call of a lazy module makes its parameters before it is compiled."""
        if hasattr(self._orig_mod, "_initialize_hook") and callable(getattr(self._orig_mod, "_infer_parameters", None)):
            self._orig_mod._infer_parameters(self._orig_mod, args, kwargs)
        return self._forward(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if any(getattr(modules, table, None) for table in _GLOBAL_HOOKS):
            warn_user(
                "Using `torch.compile(module)` when there are global hooks on modules (e.g., from `register_module_forward_hook`); "
                "this will cause the hooks to fire an extra time for the `OptimizedModule` created by `torch.compile(module)`. If this "
                "causes undesired behavior, please try using `module.compile()`, or use the per-module hooks instead",
                UserWarning,
            )
        with _inside():
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
