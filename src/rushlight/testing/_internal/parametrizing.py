"""Tests that are written once and run for many values: `parametrize` and its relatives.

A decorator gives the test an attribute `parametrize_fn`, which yields (test, end of its name, arguments, decorators by
arguments); `instantiate_parametrized_tests`, or `instantiate_device_type_tests`, puts the tests that it yields in the
place of the one that was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial, wraps
from typing import Any

import rushlight as torch

__all__ = [
    "Parametrizer",
    "compose_parametrize_fns",
    "decorateIf",
    "dtype_name",
    "instantiate_parametrized_tests",
    "parametrize",
    "reparametrize",
    "subtest",
]

Case = tuple[Callable[..., Any], str, dict[str, Any], Callable[[dict[str, Any]], Iterable[Any]]]


def dtype_name(dtype: Any) -> str:
    """`float32` of torch.float32."""
    return str(dtype).split(".")[1]


class Parametrizer:
    """A decorator that makes several tests of one; stacked ones make their product, the upper one's name first."""

    def _parametrize_test(self, test: Any, generic_cls: Any, device_cls: Any) -> Iterator[Case]:
        raise NotImplementedError

    def __call__(self, function: Any) -> Any:
        older = getattr(function, "parametrize_fn", None)
        function.parametrize_fn = (
            self._parametrize_test if older is None else compose_parametrize_fns(older, self._parametrize_test)
        )
        return function


def compose_parametrize_fns(old_parametrize_fn: Any, new_parametrize_fn: Any) -> Any:
    """The product of two; RuntimeError where both set one argument."""

    def product(test: Any, generic_cls: Any, device_cls: Any) -> Iterator[Case]:
        for old_test, old_name, old_arguments, old_decorators in list(
            old_parametrize_fn(test, generic_cls, device_cls)
        ):
            for new_test, new_name, new_arguments, new_decorators in new_parametrize_fn(
                old_test, generic_cls, device_cls
            ):
                twice = old_arguments.keys() & new_arguments.keys()
                if twice:
                    raise RuntimeError(
                        "Parametrization over the same parameter by multiple parametrization decorators is not supported. "
                        f'For test "{test.__name__}", the following parameters are handled multiple times: {twice}'
                    )
                name = "_".join(part for part in (new_name, old_name) if part)
                yield new_test, name, {**old_arguments, **new_arguments}, partial(_both, old_decorators, new_decorators)

    return product


def _both(first: Any, second: Any, arguments: dict[str, Any]) -> list[Any]:
    return [*first(arguments), *second(arguments)]


def instantiate_parametrized_tests(generic_cls: Any) -> Any:
    """Replace the parametrized tests of a class by one for each case; also a decorator."""
    for word in dir(generic_cls):
        written = getattr(generic_cls, word)
        if not hasattr(written, "parametrize_fn"):
            continue
        delattr(generic_cls, word)
        for test, suffix, arguments, decorators in written.parametrize_fn(
            written, generic_cls=generic_cls, device_cls=None
        ):
            name = f"{test.__name__}_{suffix}"
            for decorate in decorators(arguments):
                test = decorate(test)
            if hasattr(generic_cls, name):
                raise AssertionError(f"Redefinition of test {name}")
            setattr(generic_cls, name, _with(test, arguments))
    return generic_cls


def _with(test: Any, arguments: dict[str, Any]) -> Any:
    @wraps(test)
    def case(self: Any) -> None:
        test(self, **arguments)

    del case.__wrapped__  # pytest would read the arguments of the test that was written
    return case


class subtest:
    """Values of one case, with a name and decorators of its own."""

    __slots__ = ("arg_values", "decorators", "name")

    def __init__(self, arg_values: Any, name: str | None = None, decorators: Any = None) -> None:
        self.arg_values, self.name, self.decorators = arg_values, name, decorators or []


class parametrize(Parametrizer):
    """A test for each of `arg_values`, given as the arguments that `arg_str` names (`"x"`, `"x, y"`); `name_fn` makes
    the end of its name.
    """

    def __init__(self, arg_str: str, arg_values: Iterable[Any], name_fn: Callable[..., str] | None = None) -> None:
        self.arg_names = [part.strip() for part in arg_str.split(",") if part != ""]
        self.arg_values, self.name_fn = arg_values, name_fn

    def _shown(self, index: int, name: str, value: Any) -> str:
        if isinstance(value, torch.dtype):
            return dtype_name(value)
        if isinstance(value, torch.device):
            return str(value)
        return f"{name}_{str(value).replace('.', '_')}" if isinstance(value, (int, float, str)) else f"{name}{index}"

    def _suffix(self, index: int, values: list[Any]) -> str:
        if self.name_fn is not None:
            return self.name_fn(*values)
        return "_".join(self._shown(index, *pair) for pair in zip(self.arg_names, values, strict=True))

    def _parametrize_test(self, test: Any, generic_cls: Any, device_cls: Any) -> Iterator[Case]:
        if not self.arg_names:
            yield test, "", {}, lambda _: []
            return
        index = -1
        for index, given in enumerate(self.arg_values):
            own = given if isinstance(given, subtest) else subtest(given)
            values = list(own.arg_values) if len(self.arg_names) > 1 else [own.arg_values]
            if len(values) != len(self.arg_names):
                raise RuntimeError(
                    f'Expected # values == # arg names, but got: {len(values)} values and {len(self.arg_names)} names for test "{test.__name__}"'
                )
            case = _copied(test) if own.decorators else test
            arguments = dict(zip(self.arg_names, values, strict=True))
            yield case, own.name or self._suffix(index, values), arguments, partial(_own, own.decorators)
        if index < 0:
            raise ValueError(
                f"{test}: An empty arg_values was passed to @parametrize. Note that this may result from reuse of a generator."
            )


def _own(decorators: Any, arguments: dict[str, Any]) -> Any:
    return decorators


def _copied(test: Any) -> Any:
    """Another function that does the same, for decorators that write to it."""

    @wraps(test)
    def copy(*args: Any, **kwargs: Any) -> Any:
        return test(*args, **kwargs)

    return copy


class reparametrize(Parametrizer):
    """The cases of another parametrizer, changed or left out: `adapter_fn(name, arguments)` gives the new (name,
    arguments), or None.
    """

    def __init__(self, parametrizer: Parametrizer, adapter_fn: Callable[..., Any]) -> None:
        self.parametrizer, self.adapter_fn = parametrizer, adapter_fn

    def _parametrize_test(self, test: Any, generic_cls: Any, device_cls: Any) -> Iterator[Case]:
        for case, name, arguments, decorators in self.parametrizer._parametrize_test(test, generic_cls, device_cls):
            for changed in self.adapter_fn(name, arguments) or ():
                if changed is not None:
                    yield case, *changed, decorators


class decorateIf(Parametrizer):
    """A decorator for the cases whose arguments fulfil `predicate_fn`."""

    def __init__(self, decorator: Any, predicate_fn: Callable[[dict[str, Any]], bool]) -> None:
        self.decorator, self.predicate_fn = decorator, predicate_fn

    def _parametrize_test(self, test: Any, generic_cls: Any, device_cls: Any) -> Iterator[Case]:
        yield _copied(test), "", {}, lambda arguments: [self.decorator] if self.predicate_fn(arguments) else []
