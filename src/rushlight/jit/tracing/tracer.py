"""`torch.jit.trace`: a graph of what a call does.

A dispatch mode writes down every operator above autograd, a function mode sees sizes and what leaves tensors for Python,
hooks tell which module runs.  The record is a tree of calls; each call of a module becomes a method.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import rushlight
from rushlight.jit import _TRACING
from rushlight.jit.errors import TracerWarning, TracingCheckError
from rushlight.jit.modules import ScriptFunction, TopLevelTracedModule
from rushlight.jit.tracing.building import Builder
from rushlight.jit.tracing.recording import Call, Recorder
from rushlight.nn.modules.module import Module

__all__ = ["Checks", "trace", "trace_graph", "trace_module"]


class Checks:
    """Whether and how a trace is compared with what it was made of."""

    __slots__ = ("inputs", "tolerance", "wanted")

    def __init__(self, wanted: bool, inputs: Any, tolerance: float) -> None:
        self.wanted, self.inputs, self.tolerance = wanted, inputs, tolerance


def _as_tuple(inputs: Any) -> tuple[Any, ...]:
    if isinstance(inputs, (rushlight.Tensor, dict)):
        return (inputs,)
    if isinstance(inputs, tuple):
        return inputs
    return tuple(inputs)


def trace(func: Any, inputs: Any, kwarg_inputs: Any, checks: Checks, strict: bool) -> Any:
    """A traced function or module."""
    if isinstance(func, ScriptFunction):
        warnings.warn("`trace` was called on a ScriptFunction: it is given back as it is", TracerWarning, stacklevel=3)
        return func
    named = None if kwarg_inputs is None else dict(kwarg_inputs)
    if isinstance(func, Module):
        if named is not None and inputs is not None:
            raise RuntimeError("example_inputs and example_kwarg_inputs should not be both given")
        given: Any = named if named is not None else _as_tuple(inputs)
        return trace_module(func, {"forward": given}, checks, strict)
    owner = getattr(func, "__self__", None)
    if isinstance(owner, Module):
        if func.__name__ == "forward":
            return trace_module(owner, {"forward": _as_tuple(inputs)}, checks, strict)
        raise AttributeError(
            f"trace doesn't support compiling individual module's functions. Please use trace_module for {func.__name__}"
        )
    args = () if named is not None else _as_tuple(inputs)
    call, values = _recorded(func, args, named or {}, None, strict)
    name = getattr(func, "__name__", "traced").replace("<lambda>", "lambda")
    function = Builder(None, {}).function(f"__torch__.{name}", call, values, _names(func, args, named))
    made = ScriptFunction(function, func)
    if checks.wanted:
        for example in [args] if checks.inputs is None else list(map(_as_tuple, checks.inputs)):
            _compare(func, made, example, named or {}, checks.tolerance)
    return made


def trace_module(module: Any, inputs: dict[str, Any], checks: Checks, strict: bool) -> Any:
    """A traced module with one method for each entry of `inputs`."""
    if not isinstance(module, Module):
        raise AttributeError("expected torch.nn.Module as the first argument")
    if not isinstance(inputs, dict):
        raise AttributeError("expected a dictionary of (method_name, input) pairs")
    builder = Builder(module, {})
    for method, given in inputs.items():
        named = given if isinstance(given, dict) else {}
        args = () if isinstance(given, dict) else _as_tuple(given)
        func = module if method == "forward" else getattr(module, method)
        call, values = _recorded(func, args, named, module, strict)
        builder.method(method, call, values, _names(getattr(module, method), args, named))
    made = builder.module(TopLevelTracedModule)
    if checks.wanted:
        for method, given in inputs.items():
            named = given if isinstance(given, dict) else {}
            args = () if isinstance(given, dict) else _as_tuple(given)
            func = module if method == "forward" else getattr(module, method)
            traced = made if method == "forward" else getattr(made, method)
            more = [] if checks.inputs is None else checks.inputs
            for example in [args, *[_as_tuple(e) for e in more if not isinstance(e, dict)]]:
                _compare(func, traced, example, named, checks.tolerance)
    return made


def trace_graph(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """(graph, outputs) of one call; what a module's `state_dict` holds are inputs, and inner modules leave no calls."""
    args = _as_tuple(args)
    lifted: dict[int, Any] = {}
    if isinstance(func, Module):
        lifted = {id(v): v for v in func.state_dict(keep_vars=True).values() if isinstance(v, rushlight.Tensor)}
    recorder = Recorder(None)
    recorder.inlines = True
    with _running(recorder):
        result = recorder.run(func, args, kwargs or {}, list(lifted.values()))
    names = [*_names(func, args, kwargs), *[""] * len(lifted)]
    return Builder(None, {}).function("graph", recorder.root, recorder, names).graph, result


@contextmanager
def _running(recorder: Recorder) -> Iterator[None]:
    _TRACING.depth += 1
    try:
        with recorder:
            yield
    finally:
        _TRACING.depth -= 1


def _recorded(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], module: Any, strict: bool
) -> tuple[Call, Recorder]:
    recorder = Recorder(module)
    recorder.strict = strict
    with _running(recorder):
        recorder.run(func, args, kwargs)
    return recorder.root, recorder


def _names(func: Any, args: Sequence[Any], kwargs: Any) -> list[str]:
    """The names of the arguments of a traced function."""
    import inspect

    target = func.forward if isinstance(func, Module) else func
    try:
        parameters = list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    if kwargs:
        return list(kwargs)
    names = []
    for at in range(len(args)):
        plain = at < len(parameters) and parameters[at].kind in (0, 1)
        names.append(parameters[at].name if plain else f"argument_{at + 1}")
    return names


def _flat(value: Any) -> list[Any]:
    if isinstance(value, rushlight.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [t for v in value for t in _flat(v)]
    if isinstance(value, dict):
        return [t for v in value.values() for t in _flat(v)]
    return []


def _fresh(value: Any) -> Any:
    """Inputs that a check may change."""
    if isinstance(value, rushlight.Tensor):
        made = value.detach().clone()
        return made.requires_grad_(value.requires_grad) if value.requires_grad else made
    if isinstance(value, (tuple, list)):
        made = [_fresh(v) for v in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    if isinstance(value, dict):
        return {k: _fresh(v) for k, v in value.items()}
    return value


def _compare(func: Any, traced: Any, args: Sequence[Any], kwargs: dict[str, Any], tolerance: float) -> None:
    """Run both with the same inputs, and warn of outputs that differ."""
    results = []
    for each in (func, traced):
        with rushlight.random.fork_rng():
            rushlight.manual_seed(0)
            results.append(_flat(each(*_fresh(args), **_fresh(kwargs))))
    if len(results[0]) != len(results[1]):
        raise TracingCheckError(extra_msg=f"{len(results[1])} outputs in the trace, {len(results[0])} in the function")
    for at, (wanted, found) in enumerate(zip(*results, strict=True)):
        if wanted.is_quantized or found.is_quantized:
            wanted, found = wanted.dequantize(), found.dequantize()
        if wanted.is_floating_point():
            wanted, found = wanted.double(), found.double()
        try:
            rushlight.testing.assert_close(found, wanted, rtol=tolerance, atol=1e-5, equal_nan=True)
        except AssertionError as error:
            warnings.warn(
                f"Output nr {at + 1}. of the traced function does not match the corresponding output of the Python function. Detailed error:\n{error}",
                TracerWarning,
                stacklevel=4,
            )
