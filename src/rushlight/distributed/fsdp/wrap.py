"""Which parts of a model are wrapped by themselves: policies, and `wrap` within `enable_wrap`."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rushlight import nn
from rushlight._interface.base import trace_marks

__all__ = [
    "CustomPolicy", "ModuleWrapPolicy", "always_wrap_policy", "enable_wrap", "lambda_auto_wrap_policy",
    "size_based_auto_wrap_policy", "transformer_auto_wrap_policy", "wrap",
]  # fmt: skip


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Every module."""
    return True


class _Policy(ABC):
    """Says for a whole tree which modules are wrapped, and with which options."""

    @abstractmethod
    def _run_policy(
        self, root_module: nn.Module, ignored_modules: set[nn.Module], root_kwargs: dict[str, Any]
    ) -> dict[nn.Module, dict[str, Any]]:
        """The options of the modules that are wrapped."""


class ModuleWrapPolicy(_Policy):
    """All modules of some classes.

    >>> from rushlight import nn
    >>> policy = ModuleWrapPolicy({nn.Linear})
    >>> policy(nn.Linear(1, 1), recurse=False), policy(nn.ReLU(), recurse=False)
    (True, False)
    """

    def __init__(self, module_classes: Iterable[type[nn.Module]]) -> None:
        self._module_classes = set(module_classes)

    def _run_policy(
        self, root_module: nn.Module, ignored_modules: set[nn.Module], root_kwargs: dict[str, Any]
    ) -> dict[nn.Module, dict[str, Any]]:
        kinds = tuple(self._module_classes)
        return {
            module: copy.copy(root_kwargs)
            for module in root_module.modules()
            if module not in ignored_modules and isinstance(module, kinds)
        }

    def __call__(self, module: nn.Module, recurse: bool, *args: Any, **kwargs: Any) -> bool:
        return recurse or isinstance(module, tuple(self._module_classes))

    def __repr__(self) -> str:
        return f"{super().__repr__()}({self._module_classes})"


class CustomPolicy(_Policy):
    """`lambda_fn(module)` says whether a module is wrapped: False, True, or a dict of options that replace the root's.

    ValueError for what is neither.
    """

    def __init__(self, lambda_fn: Callable[[nn.Module], bool | dict[str, Any]]) -> None:
        self._lambda_fn = lambda_fn

    def _run_policy(
        self, root_module: nn.Module, ignored_modules: set[nn.Module], root_kwargs: dict[str, Any]
    ) -> dict[nn.Module, dict[str, Any]]:
        found: dict[nn.Module, dict[str, Any]] = {}
        for module in root_module.modules():
            if module in ignored_modules:
                continue
            options = self._lambda_fn(module)
            if not isinstance(options, (dict, bool)):
                raise ValueError(
                    "The lambda_fn passed to CustomPolicy should return "
                    f"False/True or a kwarg dict, but it returned {options}"
                )
            if options:
                found[module] = {**root_kwargs, **(options if isinstance(options, dict) else {})}
        return found


def lambda_auto_wrap_policy(
    module: nn.Module, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[nn.Module], bool]
) -> bool:
    """Modules for which a function says so; for `functools.partial`."""
    return recurse or lambda_fn(module)


def transformer_auto_wrap_policy(
    module: nn.Module, recurse: bool, nonwrapped_numel: int, transformer_layer_cls: set[type[nn.Module]]
) -> bool:
    """Modules of some classes (the blocks of a transformer); for `functools.partial`."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(
    module: nn.Module,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = int(1e8),
    force_leaf_modules: set[type[nn.Module]] | None = None,
    exclude_wrap_modules: set[type[nn.Module]] | None = None,
) -> bool:
    """Modules that have at least `min_num_params` elements of parameters which no part has taken.

    The parts of `force_leaf_modules` are never wrapped, modules of `exclude_wrap_modules` not themselves.
    """
    named: Any = size_based_auto_wrap_policy
    leaves = named.FORCE_LEAF_MODULES if force_leaf_modules is None else force_leaf_modules
    excluded = named.EXCLUDE_WRAP_MODULES if exclude_wrap_modules is None else exclude_wrap_modules
    return nonwrapped_numel >= min_num_params and not isinstance(module, tuple(leaves if recurse else excluded))


size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES = {nn.ModuleList, nn.ModuleDict}  # type: ignore[attr-defined]
size_based_auto_wrap_policy.FORCE_LEAF_MODULES = {nn.MultiheadAttention}  # type: ignore[attr-defined]


def _or_policy(module: nn.Module, recurse: bool, nonwrapped_numel: int, policies: Iterable[Any]) -> bool:
    """Modules for which one of several policies says so."""
    return any(policy(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel) for policy in policies)


# ***** wrapping *****

_OPEN: list[tuple[Any, dict[str, Any]]] = []


@contextmanager
@trace_marks.changes_later_calls
def enable_wrap(*, wrapper_cls: Any, **wrapper_kwargs: Any) -> Iterator[None]:
    """Within it `wrap` wraps modules by a class, with options."""
    _OPEN.append((wrapper_cls, wrapper_kwargs))
    try:
        yield
    finally:
        _OPEN.pop()


def wrap(module: nn.Module, **wrap_overrides: Any) -> nn.Module:
    """A module wrapped as the innermost `enable_wrap` says, with these options before its own; elsewhere the module."""
    if not _OPEN:
        return module
    kind, options = _OPEN[-1]
    wrapped: nn.Module = kind(module, **{**options, **wrap_overrides})
    return wrapped


def wrap_parts(
    module: nn.Module, policy: Any, wrapper: Any, ignored: tuple[set[nn.Module], set[Any]], options: dict[str, Any]
) -> None:
    """Wrap the parts of a module that a policy chooses, the innermost first."""
    modules, parameters = ignored
    if isinstance(policy, _Policy):
        chosen = policy._run_policy(module, modules, options)
        _replace(module, lambda part: wrapper(part, **chosen[part]) if part in chosen else part, {}, modules)
        return
    done: dict[nn.Module, tuple[nn.Module, int]] = {}

    def visit(part: nn.Module, is_root: bool) -> tuple[nn.Module, int]:
        if part in done:
            return done[part]
        if "_fsdp_state" in part.__dict__:  # wrapped before
            return part, 0
        count = sum(p.numel() for p in part.parameters() if p not in parameters)
        found: tuple[nn.Module, int] = part, 0
        if policy(module=part, recurse=True, nonwrapped_numel=count):
            taken = 0
            for name, child in list(part.named_children()):
                if child in modules:
                    continue
                new, number = visit(child, False)
                setattr(part, name, new)
                taken += number
            wraps = not is_root and policy(module=part, recurse=False, nonwrapped_numel=count - taken)
            found = (wrapper(part, **options), count) if wraps else (part, taken)
        done[part] = found
        return found

    visit(module, True)


def _replace(
    module: nn.Module,
    change: Callable[[nn.Module], nn.Module],
    done: dict[nn.Module, nn.Module],
    ignored: set[nn.Module],
) -> None:
    """Replace the parts of a module, the innermost first; one that stands in several places once."""
    for name, child in list(module._modules.items()):
        if child is None or child in ignored or "_fsdp_state" in child.__dict__:
            continue
        if child not in done:
            _replace(child, change, done, ignored)
            done[child] = change(child)
        module._modules[name] = done[child]
