"""From a module to the program that is translated: exported, without changes in place, over operators that have translations."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.fx.experimental.proxy_tensor import get_proxy_mode
from rushlight.onnx.errors import OnnxExporterError, OnnxExporterWarning
from rushlight.onnx.exporting.numbers import NUMBERS
from rushlight.onnx.exporting.table import translations
from rushlight.onnx.exporting.translator import operator_name
from rushlight.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["axes_as_shapes", "captured", "dim_names", "exporting", "in_export", "without_names"]

_STATE = threading.local()


def in_export() -> bool:
    """Whether this thread exports a model."""
    return bool(getattr(_STATE, "depth", 0))


@contextlib.contextmanager
def exporting() -> Iterator[None]:
    """A context in which `is_in_onnx_export()` is True."""
    _STATE.depth = getattr(_STATE, "depth", 0) + 1
    try:
        yield
    finally:
        _STATE.depth -= 1


def captured(
    model: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    custom: Mapping[Any, Callable[..., Any]],
) -> Any:
    """The program of a module as an `ExportedProgram` whose operators have translations, where rules lead there."""
    program = model
    if not isinstance(model, rushlight.export.ExportedProgram):
        if not isinstance(model, rushlight.nn.Module):
            raise TypeError(
                f"torch.onnx.export: a module or an ExportedProgram is expected, not {type(model).__name__}"
            )
        program = rushlight.export.export(
            model, tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic_shapes, strict=False
        )
    return _simplified(program, custom)


def _simplified(program: Any, custom: Mapping[Any, Any]) -> Any:
    """Operators without a translation become what their rules say; changes in place become new values."""
    missing, changed = _missing(program, custom)
    for _ in range(_DEPTH):
        if not missing and not changed:
            return program
        rules = _rules(missing)
        if not rules and not changed:
            return program
        program = program.run_decompositions(rules)
        left, changed = _missing(program, custom)
        if left == missing:
            return program
        missing = left
    return program


_DEPTH = 4  # rules lead to operators that need rules themselves


def _rules(missing: set[Any]) -> dict[Any, Callable[..., Any]]:
    """Decompositions of operators: rules of `torch.export`, else their own functions, where those call other operators."""
    table = rushlight.export.default_decompositions()
    rules = {op: rule for op, rule in table.items() if op in missing}
    for op in missing:
        if op not in rules and getattr(op, "form", None) is not None:
            rule = _opened(op)
            if rule is not None:
                rules[op] = rule
    return rules


def _opened(op: Any) -> Callable[..., Any] | None:
    """A composite as the operators that it calls; None for an operator that stands for itself."""
    if not op.form.composite:
        return None

    def run(*args: Any, **kwargs: Any) -> Any:
        mode: Any = get_proxy_mode()
        before, mode.pre_dispatch = mode.pre_dispatch, False
        try:
            return op(*args, **kwargs)
        finally:
            mode.pre_dispatch = before

    return run


def _known(target: Any, custom: Mapping[Any, Any]) -> bool:
    return target in custom or target in NUMBERS or operator_name(target) in translations()


def _missing(program: Any, custom: Mapping[Any, Any]) -> tuple[set[Any], bool]:
    """(operators without a translation, whether something is changed in place)."""
    missing, changed = set(), False
    for module in program.graph_module.modules():
        for node in getattr(module, "graph", _NO_GRAPH).nodes:
            if node.op != "call_function" or not hasattr(node.target, "_schema"):
                continue
            if getattr(node.target._schema, "is_mutable", False):
                changed = True
            elif not _known(node.target, custom):
                missing.add(node.target)
    return missing, changed


class _NO_GRAPH:
    nodes: tuple[Any, ...] = ()


# ***** dims that vary *****


def axes_as_shapes(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], input_names: Sequence[str], axes: Mapping[str, Any]
) -> Any:
    """`dynamic_axes` (dims by the names of inputs) as `dynamic_shapes` (in the order of the arguments)."""
    leaves, structure = tree_flatten((tuple(args), dict(kwargs)))
    names = iter(input_names)
    specs = []
    for leaf in leaves:
        spec = None
        if isinstance(leaf, Tensor):
            name = next(names, None)
            given = axes.get(name) if name is not None else None
            if given is not None:
                items = given.items() if isinstance(given, Mapping) else [(d, f"{name}_dim_{d}") for d in given]
                spec = {int(d) % leaf.ndim: str(n) for d, n in items}
        specs.append(spec)
    positional, named = tree_unflatten(specs, structure)
    if not named:
        return tuple(positional)
    return {**dict(zip(_parameters(positional), positional, strict=False)), **named}


def _parameters(positional: Any) -> list[str]:
    raise OnnxExporterError("dynamic_axes with keyword arguments: give dynamic_shapes")


def without_names(dynamic_shapes: Any, lenient: bool) -> Any:
    """Specs with `Dim.DYNAMIC` in the place of names (`Dim.AUTO` where a fixed size is no error)."""
    wanted = rushlight.export.Dim.AUTO if lenient else rushlight.export.Dim.DYNAMIC
    if isinstance(dynamic_shapes, str):
        return wanted
    if isinstance(dynamic_shapes, Mapping):
        return {k: without_names(v, lenient) for k, v in dynamic_shapes.items()}
    if isinstance(dynamic_shapes, (list, tuple)):
        return type(dynamic_shapes)([without_names(v, lenient) for v in dynamic_shapes])
    return dynamic_shapes


def dim_names(program: Any, dynamic_shapes: Any) -> dict[str, str]:
    """Names that the user gave to dims, by symbol; a warning names dims that turned out to be fixed."""
    found: dict[str, str] = {}
    specs = _leaf_specs(program, dynamic_shapes)
    for node, spec in specs:
        value = node.meta.get("val")
        if not isinstance(value, Tensor) or not spec:
            continue
        items = spec.items() if isinstance(spec, Mapping) else enumerate(spec)
        for d, name in items:
            text = name if isinstance(name, str) else getattr(name, "__name__", None)
            if text is None:
                continue
            size = value.shape[d]
            if type(size) is int:
                warnings.warn(
                    f"the size {size} of dim {d} of {node.name} is fixed by the program: it is not {text!r} in the model",
                    OnnxExporterWarning,
                    stacklevel=2,
                )
            else:
                found.setdefault(str(size), text)
    return found


def _leaf_specs(program: Any, dynamic_shapes: Any) -> list[tuple[Any, Any]]:
    """(placeholder, spec of its dims) of the user's tensors."""
    wanted = set(program.graph_signature.user_inputs)
    nodes = [n for n in program.graph.nodes if n.op == "placeholder" and n.name in wanted]
    specs: list[Any] = []

    def walk(spec: Any, value: Any) -> None:
        if isinstance(value, Tensor) or not isinstance(value, (list, tuple, Mapping)):
            specs.append(spec)
        elif isinstance(value, Mapping):
            for key, item in value.items():
                walk(spec.get(key) if isinstance(spec, Mapping) else None, item)
        else:
            for i, item in enumerate(value):
                walk(spec[i] if isinstance(spec, (list, tuple)) and i < len(spec) else None, item)

    if program.example_inputs is None:
        return []
    args, kwargs = program.example_inputs
    if isinstance(dynamic_shapes, Mapping):
        given = list(dynamic_shapes.values())
        for i, arg in enumerate(args):
            walk(given[i] if i < len(given) else None, arg)
        for key, arg in kwargs.items():
            walk(dynamic_shapes.get(key), arg)
    else:
        walk(list(dynamic_shapes), list(args))
        for arg in kwargs.values():
            walk(None, arg)
    return list(zip(nodes, specs, strict=False))
