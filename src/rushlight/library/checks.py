"""`opcheck`: whether what was registered for an operator goes together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight._interface.base import tree_flatten, tree_map
from rushlight.library.libraries import overload_of
from rushlight.library.operators import OpOverload

__all__ = ["OpCheckError", "opcheck"]

_DEFAULT = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


class OpCheckError(Exception):
    """Registrations of an operator do not go together."""


def _tensors(tree: Any) -> list[Any]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, rushlight.Tensor)]


def _copied(tree: Any) -> Any:
    return tree_map(
        lambda x: x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, rushlight.Tensor) else x, tree
    )


def _test_schema(op: OpOverload, args: Any, kwargs: Any, rtol: float | None, atol: float | None) -> None:
    """Only what the schema says is changed, and results share no memory that it does not speak of."""
    args, kwargs = _copied((args, kwargs))
    values = op.bind(args, kwargs)
    before = tree_map(lambda x: x.detach().clone() if isinstance(x, rushlight.Tensor) else x, values)
    found = op.run(values)
    for argument, old, new in zip(op._schema.arguments, before, values, strict=True):
        for a, b in zip(_tensors([old]), _tensors([new]), strict=True):
            if not argument.written and not rushlight.equal(a.nan_to_num(), b.detach().nan_to_num()):
                raise OpCheckError(
                    f"Argument {argument.name} is not defined as mutable but was mutated, by {op} with schema {op._schema}"
                )
    if not any(r.alias for r in op._schema.returns):
        held = {x.data_ptr() for x in _tensors(values) if x.numel()}
        if any(x.data_ptr() in held for x in _tensors([found]) if x.numel() and not x.is_meta):
            raise OpCheckError(f"A result of {op} aliases an argument, which its schema {op._schema} does not say")


def _test_autograd_registration(op: OpOverload, args: Any, kwargs: Any, rtol: float | None, atol: float | None) -> None:
    """A result that has a history has it by a rule for autograd."""
    if (
        not any(x.requires_grad for x in _tensors([args, kwargs]))
        or op.definition is not None
        or op.backward is not None
    ):
        return
    if any("Autograd" in key for key in op.kernels):
        return
    found = op.run(op.bind(*_copied((args, kwargs))))
    if any(x.requires_grad for x in _tensors([found])):
        raise OpCheckError(
            f"{op} was called with inputs that require a gradient, but it has no autograd kernel: register one with torch.library.register_autograd"
        )


def _test_faketensor(op: OpOverload, args: Any, kwargs: Any, rtol: float | None, atol: float | None) -> None:
    """The results without data have the shapes, dtypes and strides of those with data."""
    if not _tensors([args, kwargs]):
        return
    real = op.run(op.bind(*_copied((args, kwargs))))
    meta = tree_map(lambda x: x.detach().to("meta") if isinstance(x, rushlight.Tensor) else x, (args, kwargs))
    try:
        fake = op.run(op.bind(*meta))
    except (RuntimeError, NotImplementedError) as error:
        raise OpCheckError(f"{op} cannot be run on tensors without data: {error}") from error
    for place, (a, b) in enumerate(zip(_tensors([real]), _tensors([fake]), strict=True)):
        if (a.shape, a.dtype, a.stride()) != (b.shape, b.dtype, b.stride()):
            raise OpCheckError(
                f"result {place} of the fake implementation of {op} has shape {tuple(b.shape)}, {b.dtype}, strides {b.stride()}; the real one has "
                f"{tuple(a.shape)}, {a.dtype}, {a.stride()}"
            )


def _test_aot_dispatch_dynamic(op: OpOverload, args: Any, kwargs: Any, rtol: float | None, atol: float | None) -> None:
    """Forward and backward give the same numbers each time, and gradients have the inputs' shapes."""
    runs = []
    for _ in range(2):
        given = _copied((args, kwargs))
        found = op.run(op.bind(*given))
        outputs = [x for x in _tensors([found]) if x.requires_grad]
        grads: Sequence[Any] = ()
        if outputs:
            inputs = [x for x in _tensors(list(given)) if x.requires_grad]
            grads = rushlight.autograd.grad([x.sum() for x in outputs], inputs, allow_unused=True)
        runs.append((_tensors([found]), [g for g in grads if g is not None]))
    for ours, again in zip(*runs, strict=True):
        for a, b in zip(ours, again, strict=True):
            try:
                rushlight.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True)
            except AssertionError as error:
                raise OpCheckError(f"{op} gave other numbers when it was run again: {error}") from error


_TESTS: dict[str, Callable[..., None]] = {
    "test_schema": _test_schema,
    "test_autograd_registration": _test_autograd_registration,
    "test_faketensor": _test_faketensor,
    "test_aot_dispatch_static": _test_aot_dispatch_dynamic,
    "test_aot_dispatch_dynamic": _test_aot_dispatch_dynamic,
}


def opcheck(
    op: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: Any = _DEFAULT,
    raise_exception: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, Any]:
    """Test an operator on these arguments: that it changes only what its schema says, that gradients have a rule, that
    its fake implementation agrees with the real one, that forward and backward can be run again.

    Returns "SUCCESS" or the error for every test; with `raise_exception` (the default) an error is raised
    (`OpCheckError`).
    """
    found = overload_of(op)
    if not isinstance(found, OpOverload):
        raise ValueError(f"opcheck(op, ...): {op} is not an operator of a user's")
    wanted = (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    unknown = set(wanted) - set(_TESTS)
    if unknown:
        raise ValueError(
            f"opcheck(op, ..., test_utils={test_utils}), expected test_utils to be subset of {tuple(_TESTS)} but it was not"
        )
    results: dict[str, Any] = {}
    for name in wanted:
        try:
            _TESTS[name](found, tuple(args), dict(kwargs or {}), rtol, atol)
            results[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise (
                    error
                    if isinstance(error, OpCheckError)
                    else OpCheckError(f"opcheck(op, ...): {name} failed with {error}")
                ) from error
            results[name] = error
    return results
