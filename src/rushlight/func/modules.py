"""Modules as functions of their parameters."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.base import LazyModule
from rushlight.nn import Module

jit: Any = LazyModule("rushlight.jit.modules")

__all__ = ["functional_call", "replace_all_batch_norm_modules_", "stack_module_state"]


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Any,
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """`module(*args, **kwargs)` with other tensors in place of its parameters and buffers, by name.

    - `parameter_and_buffer_dicts`: names (as in `named_parameters`) to tensors, or a sequence of such dicts with
      different names.
    - `args`: a tuple, or one argument.
    - `tie_weights`: a tensor that stands for a tied parameter stands for it under all its names.
    - `strict`: RuntimeError unless every parameter and buffer is given and nothing else; without it, other attributes
      may be named as well, whether the module has them or not.

    The module itself keeps its tensors, whatever happens. Where it assigns another tensor to one of the names, the dict
    has that one afterwards.

        >>> import rushlight as torch
        >>> layer = torch.nn.Linear(2, 1, bias=False)
        >>> torch.func.functional_call(layer, {"weight": torch.tensor([[1.0, 2.0]])}, torch.tensor([3.0, 4.0]))
        tensor([11.])
    """
    if isinstance(parameter_and_buffer_dicts, dict):
        tensors = parameter_and_buffer_dicts
    elif isinstance(parameter_and_buffer_dicts, Sequence):
        if not all(isinstance(d, dict) for d in parameter_and_buffer_dicts):
            raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
        tensors = {}
        for each in parameter_and_buffer_dicts:
            repeated = tensors.keys() & each.keys()
            if repeated:
                raise ValueError(
                    f"{sorted(repeated)} appeared in multiple dictionaries; behavior of functional call is ambiguous"
                )
            tensors.update(each)
    else:
        raise ValueError(
            f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got {type(parameter_and_buffer_dicts)}"
        )
    given = () if args is None else args if isinstance(args, tuple) else (args,)
    with swapped(module, tensors, tie_weights, strict):
        return module(*given, **(kwargs or {}))


def _places(module: Any) -> dict[str, tuple[dict[str, Any], str]]:
    """Where each parameter and buffer is kept, by its name; tied ones under every name."""
    found = {}
    for path, part in module.named_modules(remove_duplicate=False):
        for table in (part._parameters, part._buffers):
            for name, value in table.items():
                if value is not None:
                    found[f"{path}.{name}" if path else name] = (table, name)
    return found


_ABSENT = object()


def _owner(module: Any, name: str) -> tuple[Any, str]:
    """The submodule that has the tensor of this name, and its name there."""
    *path, key = name.split(".")
    if not key:
        raise KeyError('tensor name can\'t be empty string ""')
    for part in path:
        if not hasattr(module, part):
            raise AttributeError(f"{type(module).__name__} has no attribute `{part}`")
        module = getattr(module, part)
        if not isinstance(module, Module):
            raise TypeError(f"submodule `{part}`: {module} is not an instance of torch.nn.Module")
    return module, key


def _exchange(owner: Any, key: str, value: Any) -> Any:
    """Put a tensor, None or `_ABSENT` in place of an attribute; returns what was there, of the same three."""
    for table in (owner._parameters, owner._buffers):
        if key in table:
            before = table[key]
            if value is _ABSENT:
                del table[key]
            else:
                table[key] = value
            return before
    before = getattr(owner, key, _ABSENT)
    if before is not _ABSENT and not isinstance(before, Tensor):
        raise TypeError(f"attribute `{key}`: {before} is not an instance of torch.Tensor")
    if value is _ABSENT:
        delattr(owner, key)
    else:
        setattr(owner, key, value)
    return before


def _check_complete(module: Any, known: Any, wanted: dict[str, Any], given: dict[str, Any]) -> None:
    """RuntimeError unless every parameter and buffer is given, and nothing else."""
    unexpected, missing = sorted(given.keys() - known), sorted(known - wanted.keys())
    if unexpected or missing:
        pairs = (("Unexpected", unexpected), ("Missing", missing))
        lines = [f"{word} key(s): {', '.join(map(repr, keys))}." for word, keys in pairs if keys]
        raise RuntimeError(f"Error(s) in reparametrizing for {type(module).__name__}:\n\t" + "\n\t".join(lines))


@contextmanager
def swapped(module: Any, tensors: dict[str, Any], tie_weights: bool, strict: bool) -> Iterator[None]:
    """Inside, the module holds `tensors` in place of its own; afterwards `tensors` has what it held at the end."""
    if jit.__name__ in sys.modules and isinstance(module, jit.ScriptModule):
        raise RuntimeError("The stateless API can't be used with Jitted modules")
    places = _places(module) if tie_weights or strict else {}
    wanted = dict(tensors)
    if tie_weights:
        wanted |= _tied(places, tensors)
    if strict:
        _check_complete(module, places.keys(), wanted, tensors)
    for value in wanted.values():
        if not (value is None or isinstance(value, Tensor)):
            raise TypeError(f"{value} is not an instance of torch.Tensor")
    before: list[tuple[str, Any, str, Any]] = []
    try:
        for name, value in wanted.items():
            owner, key = _owner(module, name)
            before.append((name, owner, key, _exchange(owner, key, value)))
        yield
    finally:
        for name, owner, key, value in reversed(before):
            held = _exchange(owner, key, value)
            if name in tensors and held is not tensors[name]:
                tensors[name] = held


def _tied(places: dict[str, tuple[dict[str, Any], str]], tensors: dict[str, Any]) -> dict[str, Any]:
    """Values for the other names of tied parameters."""
    groups: dict[Tensor, list[str]] = {}
    for name, (table, key) in places.items():
        groups.setdefault(table[key], []).append(name)
    found = {}
    for names in groups.values():
        given = [n for n in names if n in tensors]
        if any(tensors[n] is not tensors[given[0]] for n in given):
            raise ValueError(
                f"functional_call got multiple values for keys {sorted(given)}, which are tied. Consider using tie_weights=False"
            )
        if given:
            found.update(dict.fromkeys(names, tensors[given[0]]))
    return found


def stack_module_state(models: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(parameters, buffers) of several modules of one kind, by name, each stacked along a new first dim: an ensemble
    for `vmap`.

    RuntimeError without modules, or where they differ in kind or mode.  The stacked parameters are leaves that require
    gradients as the originals do.

        >>> import rushlight as torch
        >>> params, buffers = torch.func.stack_module_state([torch.nn.Linear(2, 3) for _ in range(4)])
        >>> params["weight"].shape
        torch.Size([4, 3, 2])
    """
    models = list(models)
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if not (all(m.training for m in models) or all(not m.training for m in models)):
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    params = {
        name: _stacked([dict(m.named_parameters())[name] for m in models], name)
        for name, _ in models[0].named_parameters()
    }
    buffers = {
        name: _stacked([dict(m.named_buffers())[name] for m in models], name) for name, _ in models[0].named_buffers()
    }
    return params, buffers


def _stacked(tensors: list[Any], name: str) -> Any:
    wants = [t.requires_grad for t in tensors]
    if any(wants) != all(wants):
        raise RuntimeError(f"Expected {name} from each model to have the same .requires_grad")
    return rushlight.stack([t.detach() for t in tensors]).requires_grad_(wants[0])


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Let every batch normalisation in `root` use the statistics of its batch alone, in place; returns `root`.

    Running statistics are changed in place, which `vmap` forbids where the statistics are no part of the batch.
    """
    for part in root.modules():
        if isinstance(part, rushlight.nn.modules.batchnorm._BatchNorm):
            part.running_mean = None
            part.running_var = None
            part.num_batches_tracked = None
            part.track_running_stats = False
    return root
