"""`torch.compile` and `torch.compiler` as far as they are true without a compiler.

`compile` raises NotImplementedError rather than run slowly what was asked to be compiled, except where PyTorch too runs the program as it is: with
`backend="eager"`, with `disable=True`, and with `TORCH_COMPILE_DISABLE=1` in the environment.  Marks and hints for a compiler (`disable`,
`allow_in_graph`, `cudagraph_mark_step_begin`, ...) are accepted: there is nothing that they could be wrong about.

>>> import rushlight as torch
>>> torch.compiler.is_compiling(), torch.compiler.list_backends()
(False, [])
>>> torch.compile(torch.nn.Identity(), backend="eager")(torch.ones(2))
tensor([1., 1.])
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from rushlight._interface.base import absent_function, refuse
from rushlight.nn.modules.module import Module

__all__ = [
    "OptimizedModule", "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable", "is_compiling",
    "is_dynamo_compiling", "is_exporting", "list_backends", "load_cache_artifacts", "load_compiled_function", "nested_compile_region", "reset",
    "save_cache_artifacts", "set_stance", "substitute_in_graph", "wrap_numpy",
]  # fmt: skip

_WHY = "there is no compiler yet; call the model as it is, or compile with backend='eager' or disable=True"
_Function = TypeVar("_Function", bound=Callable[..., Any])


def is_compiling() -> bool:
    """Whether this code is being compiled or exported: False."""
    return False


is_dynamo_compiling = is_exporting = is_compiling


class OptimizedModule(Module):
    """A module compiled by `compile(module, backend="eager")`: the module itself is `_orig_mod`, and its attributes are found here too."""

    def __init__(self, mod: Module) -> None:
        super().__init__()
        self._orig_mod = mod
        self.train(mod.training)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module."""
        return self._orig_mod(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self._modules["_orig_mod"]
        return getattr(self._orig_mod, name)


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
) -> Any:
    """A model or function to be compiled; without one a decorator.

    Raises NotImplementedError unless the program is to run as it is: `backend="eager"`, `disable=True`, `TORCH_COMPILE_DISABLE=1`.
    """
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if model is None:
        return functools.partial(
            compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable
        )
    if not callable(model):
        raise AssertionError(f"A callable function is expected, but {type(model)} is provided.")
    if (
        disable
        or "1" in (os.environ.get("TORCH_COMPILE_DISABLE"), os.environ.get("TORCHDYNAMO_DISABLE"))
        or _STANCE[0] == "force_eager"
    ):
        return model
    if backend != "eager":
        refuse("torch.compile()", _WHY)
    if isinstance(model, Module):
        return OptimizedModule(model)

    @functools.wraps(model)
    def function(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    function._torchdynamo_orig_callable = model  # type: ignore[attr-defined]
    return function


# ***** marks and hints *****


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """A function that is never compiled: `fn` itself; without one a decorator."""
    return fn if fn is not None else lambda function: function


def allow_in_graph(fn: Any) -> Any:
    """A function (or a list of them) that the compiler should not look into; returned as it is."""
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(each) for each in fn]
    if not callable(fn):
        raise AssertionError("allow_in_graph expects a callable")
    return fn


def assume_constant_result(fn: _Function) -> _Function:
    """A function whose result the compiler may keep; returned as it is."""
    return fn


def nested_compile_region(fn: Any = None) -> Any:
    """A function that the compiler should compile once; returned as it is."""
    return fn if fn is not None else lambda function: function


def substitute_in_graph(
    original_fn: Callable[..., Any], *, can_constant_fold_through: bool = False, skip_signature_check: bool = False
) -> Any:
    """A decorator for what the compiler should trace in the place of a native function; the function itself is returned."""
    return lambda function: function


def cudagraph_mark_step_begin() -> None:
    """A new step begins: a hint for recorded CUDA graphs, of which there are none."""


def reset() -> None:
    """Forget everything compiled: nothing is."""


def list_backends(exclude_tags: Iterable[str] = ("debug", "experimental")) -> list[str]:
    """Names for `compile(backend=...)`; `"eager"`, which is for debugging, is left out as in PyTorch.

    >>> torch.compiler.list_backends(exclude_tags=())
    ['eager']
    """
    return [] if "debug" in (exclude_tags or ()) else ["eager"]


_STANCE = ["default"]


class set_stance:
    """`"default"`, or `"force_eager"`: `compile` then gives back what it is given.  A call, a context, or a decorator."""

    def __init__(
        self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None
    ) -> None:
        if stance not in ("default", "force_eager"):
            refuse(f"torch.compiler.set_stance({stance!r})", _WHY)
        self.before = _STANCE[0]
        _STANCE[0] = stance

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        _STANCE[0] = self.before

    def __call__(self, function: _Function) -> _Function:
        stance, _STANCE[0] = _STANCE[0], self.before

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with set_stance(stance):
                return function(*args, **kwargs)

        return inside  # type: ignore[return-value]


wrap_numpy = absent_function("torch.compiler.wrap_numpy", _WHY)
save_cache_artifacts = absent_function("torch.compiler.save_cache_artifacts", _WHY)
load_cache_artifacts = absent_function("torch.compiler.load_cache_artifacts", _WHY)
load_compiled_function = absent_function("torch.compiler.load_compiled_function", _WHY)
