"""`custom_op`: a Python function as an operator that transforms, autograd and tensors without data know how to take."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import rushlight
from rushlight import Tag
from rushlight._interface.autograd import bump
from rushlight._interface.base import tree_flatten
from rushlight._interface.memory import own
from rushlight.library import libraries, operators
from rushlight.library.inference import infer_schema
from rushlight.library.schema import FunctionSchema, parse

__all__ = ["CustomOpDef", "custom_op", "triton_op"]


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: Any = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """Decorator: makes a function an operator `torch.ops.<namespace>.<name>`.

    `mutates_args` names the arguments that it changes ("unknown": perhaps all); results must be new tensors.
    `device_types` says on which devices the function works (None: on all); others get theirs by `register_kernel`.  The
    schema comes from the annotations unless it is given.

    >>> import rushlight as torch
    >>> @torch.library.custom_op("doc::cubed", mutates_args=())
    ... def cubed(x: torch.Tensor) -> torch.Tensor:
    ...     return torch.from_numpy(x.numpy() ** 3)
    >>> cubed.register_autograd(lambda ctx, grad: grad * 3 * ctx.saved_tensors[0] ** 2,
    ...                         setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> cubed(x).sum().backward()
    >>> x.grad
    tensor([ 3., 12.])
    """

    def decorate(function: Callable[..., Any]) -> CustomOpDef:
        if mutates_args is None:
            raise ValueError("mutates_args must be given: a sequence of names, or 'unknown'")
        text = infer_schema(function, mutates_args=mutates_args, tags=tags) if schema is None else schema
        namespace, word = libraries._parts(name)
        made = CustomOpDef(namespace, word, text, function, tags)
        if schema is not None:
            changed = {a.name for a in made._opoverload._schema.arguments if a.written}
            if mutates_args == "unknown" or set(mutates_args) != changed:
                raise ValueError(
                    f"Attempted to create a custom op with `mutates_args={mutates_args}` and `schema={schema}. The schema suggests that the op mutates {changed} which is different from what was provided to us in `mutates_args`. Please make these consistent."
                )
        made.register_kernel(device_types)(function)
        return made

    return decorate if fn is None else decorate(fn)


class CustomOpDef:
    """An operator made of a function: called like it, with methods that register what else it needs."""

    def __init__(self, namespace: str, name: str, schema: str, fn: Callable[..., Any], tags: Any = None) -> None:
        self._namespace, self._name, self._schema, self._init_fn = namespace, name, schema, fn
        self._opoverload: operators.OpOverload
        given = [tags] if isinstance(tags, Tag) else list(tags or ())
        self._tags = [*given, *([] if Tag.pt2_compliant_tag in given else [Tag.pt2_compliant_tag])]
        parsed = parse(f"{namespace}::{name}{schema}")
        _check_schema(parsed, schema)
        self._functions: dict[str | None, Callable[..., Any]] = {}
        self._disabled: set[str] = set()
        before = _DEFINED.pop(self._qualname, None)
        if before is not None:
            operators.unregister(before._opoverload)
        code = getattr(fn, "__code__", None)
        self._opoverload = operators.register(
            parsed, self._tags, f"{code.co_filename}:{code.co_firstlineno}" if code else repr(fn)
        )
        self._opoverload.definition = self
        _DEFINED[self._qualname] = self

    @property
    def _qualname(self) -> str:
        return f"{self._namespace}::{self._name}"

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._opoverload(*args, **kwargs)

    # ***** what may be registered *****

    def register_kernel(self, device_types: Any, fn: Callable[..., Any] | None = None, /) -> Any:
        """Register what computes the operator on a device type, or several (None: on all without one of their own);
        also a decorator.
        """
        wanted = [device_types] if device_types is None or isinstance(device_types, str) else list(device_types)
        schema = self._opoverload._schema
        if (
            device_types is not None
            and not any(a.is_tensor_like for a in schema.arguments)
            and not any(a.base == "Device" for a in schema.arguments)
        ):
            raise ValueError("Functions without tensor inputs are required to have a `device: torch.device` argument")

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            for device in wanted:
                self._functions[device] = function
                key = "CompositeExplicitAutograd" if device is None else operators.key_of(rushlight.device(device).type)
                self._opoverload.kernels[key] = lambda *args, _device=device, **kwargs: self._run(_device, args, kwargs)
            return function

        return register if fn is None else register(fn)

    def _run(self, device: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        function = self._init_fn if device in self._disabled else self._functions[device]
        found = function(*args, **kwargs)
        _check_results(self, args, kwargs, found, function)
        for x in self._written(args, kwargs):
            if x._storage is not None:  # whatever changed the numbers, autograd must hear of it
                bump(x._storage)
        return found

    def _written(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        schema = self._opoverload._schema
        if not schema.is_mutable:
            return []
        given = dict(zip((a.name for a in schema.positional), args, strict=False)) | kwargs
        values = [given.get(a.name) for a in schema.arguments if a.written]
        return [x for x in tree_flatten(values)[0] if isinstance(x, rushlight.Tensor)]

    @contextlib.contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """Inside, the kernel of a device type is used or not; without it the original function runs."""
        before = device_type in self._disabled
        (self._disabled.discard if enabled else self._disabled.add)(device_type)
        try:
            yield
        finally:
            (self._disabled.add if before else self._disabled.discard)(device_type)

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Register what says the results' shapes, dtypes and strides without data."""
        self._opoverload.fake = fn
        return fn

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        """Register the gradient; see `torch.library.register_autograd`."""
        libraries.register_autograd(self, backward, setup_context=setup_context)

    def register_vmap(self, func: Callable[..., Any] | None = None) -> Any:
        """Register how the operator takes a batch; see `torch.library.register_vmap`."""
        return libraries.register_vmap(self, func)

    def register_torch_dispatch(self, torch_dispatch_class: type, fn: Callable[..., Any] | None = None, /) -> Any:
        """Register what the operator does with tensors of a class; see `torch.library.register_torch_dispatch`."""
        return libraries.register_torch_dispatch(self, torch_dispatch_class, fn)

    def register_autocast(self, device_type: str, cast_inputs: Any) -> None:
        """Register the dtype of automatic casts; see `torch.library.register_autocast`."""
        libraries.register_autocast(self, device_type, cast_inputs)

    def register_effect(self, effect: Any) -> None:
        """NotImplementedError: effects order calls in compiled programs, and there is no compiler for whole programs."""
        raise NotImplementedError(
            "rushlight has no effects of operators: calls run in the order in which the program makes them"
        )


_DEFINED: dict[str, CustomOpDef] = {}


def _check_schema(schema: FunctionSchema, text: str) -> None:
    if any(r.alias for r in schema.returns) and not schema.is_mutable:
        raise ValueError(f"custom_op: the results of {text} may not alias its arguments")
    if any(a.kwarg_only and a.is_tensor_like and not a.written for a in schema.arguments):
        raise NotImplementedError(
            f"custom_op with kwarg-only Tensor args. Please make your tensors not kwarg-only. Got: {schema.name.split('::')[1]}{text}"
        )


def _check_results(
    op: CustomOpDef, args: tuple[Any, ...], kwargs: dict[str, Any], found: Any, function: Callable[..., Any]
) -> None:
    """Results must be new: RuntimeError for one that is an argument, or lies in the memory of one or of another result."""
    if any(r.alias for r in op._opoverload._schema.returns):
        return
    seen = {_memory(x) for x in tree_flatten([args, kwargs])[0] if isinstance(x, rushlight.Tensor)}
    for result in tree_flatten(found)[0]:
        if not isinstance(result, rushlight.Tensor):
            continue
        place = _memory(result)
        if place in seen:
            raise RuntimeError(
                f"{op._name} (with implementation in {inspect.getmodule(function)}): The output of this custom operator (1) must not also be an "
                "input to this custom operator and (2) may not alias any inputs to this custom operator or other returns. The most common way to "
                "trigger this error is if we have y = custom_op(x) and y and x are the same Tensor. Please instead return a clone of the "
                "offending output tensor(s) (e.g. return x.clone()) or refactor the custom operator to not return y."
            )
        seen.add(place)


def _memory(x: Any) -> int:
    """Key that is equal for tensors over the same memory."""
    own(x)
    storage = x._storage
    return id(x) if storage is None or not storage.nbytes else int(storage.ptr)


def triton_op(
    name: str, fn: Callable[..., Any] | None = None, /, *, mutates_args: Any, schema: str | None = None
) -> Any:
    """An operator whose Python launches kernels of the Triton language (by `wrap_triton`).

    It is a `custom_op` whose Python also says what the results are: on tensors without data launches do nothing.
    """

    def decorate(function: Callable[..., Any]) -> CustomOpDef:
        made = custom_op(name, function, mutates_args=mutates_args, schema=schema)
        made.register_fake(function)
        return made

    return decorate if fn is None else decorate(fn)
