"""Fake tensors: shapes, dtypes and a device without memory, for programs that ask what an operator would give.

>>> import rushlight as torch
>>> with FakeTensorMode():
...     x = torch.empty(2, 3)
...     y = torch.nn.functional.linear(x, torch.empty(4, 3))
>>> y
FakeTensor(..., size=(2, 4))

Operators run on the device "meta", below autograd; what depends on elements raises an error that names the operator.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.base import trace_marks, tree_flatten, tree_map
from rushlight._interface.dispatch import DISPATCH_CLASSES, disabled_torch_function
from rushlight._interface.sizes import Undecided, is_unknown, require_between
from rushlight._interface.tensors import STATE
from rushlight._subclasses import constants, unknown_sizes
from rushlight._subclasses.described import described
from rushlight.library.aten.calls import bound
from rushlight.library.operators import describing
from rushlight.utils._python_dispatch import InfraMode, _disable_infra_mode, _ModeKey, _pop_mode, _push_mode

__all__ = [
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeImplCtx",
    "FakeTensor",
    "FakeTensorConverter",
    "FakeTensorMode",
    "UnsupportedFakeTensorException",
    "UnsupportedOperatorException",
    "in_kernel_invocation_manager",
    "is_fake",
    "maybe_get_fake_mode",
    "unset_fake_temporarily",
]


class UnsupportedFakeTensorException(RuntimeError):
    """A tensor that has no fake form."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class UnsupportedOperatorException(RuntimeError):
    """An operator that does not run without elements."""

    def __init__(self, func: Any) -> None:
        super().__init__(str(func))
        self.func = func


class DynamicOutputShapeException(RuntimeError):
    """The shape of an operator's result depends on elements."""

    def __init__(self, func: Any) -> None:
        super().__init__(str(func))
        self.func = func


class DataDependentOutputException(RuntimeError):
    """The result of an operator is a number that depends on elements."""

    def __init__(self, func: Any) -> None:
        super().__init__(str(func))
        self.func = func


HOST, META = rushlight.device("cpu"), rushlight.device("meta")
_DYNAMIC = frozenset(
    "nonzero masked_select unique_dim unique_consecutive _unique2 _unique bincount repeat_interleave.Tensor argwhere where.default".split()
)
_INDEXES = frozenset("index index_put index_put_ _unsafe_index_put _index_put_impl_".split())
_NUMBERS = frozenset("_local_scalar_dense equal allclose is_nonzero _linalg_check_errors".split())


def _is_masked(func: Any, args: Any) -> bool:
    """Whether a call takes, or writes, the elements at which a mask is True."""
    return func._opname in _INDEXES and any(isinstance(m, Tensor) and m.dtype in unknown_sizes.MASKS for m in args[1])


def _writes(func: Any) -> bool:
    """Whether a call may change one of its arguments."""
    form = getattr(func, "form", None)
    return "!" in (str(func._schema) if form is None else form.text)


class FakeTensor(Tensor):
    """A tensor without memory that says where it would be: `fake_device`; its operators run on the device "meta"."""

    __torch_function__ = disabled_torch_function
    fake_mode: Any
    meta: Any
    constant: Any
    place: Any

    @staticmethod
    def __new__(
        cls: Any, fake_mode: Any, elem: Any, device: Any, constant: Any = None, *, requires_grad: Any = None
    ) -> Any:
        device = rushlight.device(device) if isinstance(device, str) else device
        if device.type == "cuda" and device.index is None:
            number = rushlight.cuda.current_device() if rushlight.cuda.is_initialized() else 0
            device = rushlight.device("cuda", number)
        known = device in (HOST, META)  # of other devices the tensor itself says so, not its layout
        shell: Any = Tensor
        made: Any = shell._make_wrapper_subclass(
            cls,
            elem.shape,
            strides=elem.stride(),
            dtype=elem.dtype,
            device=device if known else "meta",
            requires_grad=elem.requires_grad if requires_grad is None else requires_grad,
        )
        made.meta, made.fake_mode, made.constant, made.place = elem, fake_mode, constant, device
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    @property
    def device(self) -> Any:
        """Where the tensor would be."""
        return self.place

    def numel(self) -> Any:
        """Number of elements."""
        count = self._spec.numel
        if isinstance(count, rushlight.SymInt) and count.shape_env.watch is not None:
            count = type(count)(count.shape_env, count.value, count.terms)
            count.shape_env.watch(rushlight.ops.aten.sym_numel.default, (self,), count)
        return count

    nelement = numel

    @trace_marks.tells_offset
    def storage_offset(self) -> int:
        """Where the first element would lie in the storage, in elements."""
        return self._ptr // self._spec.dtype.itemsize  # no address: views know where they lie in their bases

    @property
    def fake_device(self) -> Any:
        """Where the tensor would be."""
        return self.place

    @staticmethod
    def from_tensor(t: Any, fake_mode: Any) -> Any:
        """The fake form of a tensor in a mode."""
        return fake_mode.from_tensor(t)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        parts = ["..."]
        if self.device != HOST:
            parts.append(f"device='{self.device}'")
        parts.append(f"size={tuple(self.shape)}")
        if self.dtype is not rushlight.get_default_dtype():
            parts.append(f"dtype={self.dtype}")
        if self.grad_fn is not None:
            parts.append(f"grad_fn=<{type(self.grad_fn).__name__}>")
        elif self.requires_grad:
            parts.append("requires_grad=True")
        return f"FakeTensor({', '.join(parts)})"

    def __deepcopy__(self, memo: Any) -> Any:
        made = FakeTensor(self.fake_mode, self.meta.detach().clone(), self.device, requires_grad=self.requires_grad)
        memo[id(self)] = made
        return made

    def tolist(self) -> Any:
        """Known elements; integers as symbols where the mode has a `ShapeEnv`, else DataDependentOutputException."""
        known = _constant_of(self)
        if known is not None:
            return known.tolist()
        if self.fake_mode.shape_env is None or not unknown_sizes.is_whole(self):
            raise DataDependentOutputException(rushlight.ops.aten._local_scalar_dense.default)
        return [row.tolist() for row in self.unbind(0)] if self.dim() else self.item()

    def numpy(self, *, force: bool = False) -> Any:
        """RuntimeError: there are no elements."""
        raise RuntimeError(".numpy() is not supported for tensor subclasses.")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves = tree_flatten((args, kwargs))[0]
        mode = next(leaf.fake_mode for leaf in leaves if isinstance(leaf, FakeTensor))
        if any(issubclass(t, Tensor) and t not in (FakeTensor, Tensor, rushlight.nn.Parameter) for t in types):
            return NotImplemented
        with mode:
            return func(*args, **kwargs)


class FakeImplCtx:
    """The result of `torch.library.get_ctx()` inside of a fake implementation."""

    def __init__(self, shape_env: Any, op: Any) -> None:
        self._shape_env, self._op = shape_env, op

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> Any:
        """A size that only elements tell, between `min` and `max`.

        DynamicOutputShapeException where sizes cannot be symbols, ValueError for a negative `min`.
        """
        if self._shape_env is None:
            raise DynamicOutputShapeException(self._op)
        if any(isinstance(bound, rushlight.SymInt) for bound in (min, max)):
            raise ValueError(
                f"ctx.new_dynamic_size(min={min}, max={max}): expected min and max to be statically known ints"
            )
        if min < 0:
            raise ValueError(f"ctx.new_dynamic_size(min={min}, ...): expected min to be greater than or equal to 0")
        made = self._shape_env.create_unbacked_symint()
        if min > 0 or max is not None:
            require_between(made, min, float("inf") if max is None else max)
        return made

    def create_unbacked_symint(self, *, min: int = 2, max: int | None = None) -> Any:
        """The older name of `new_dynamic_size`."""
        return self.new_dynamic_size(min=min, max=max)


class FakeTensorConverter:
    """Fake forms of tensors, one for each."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[Any, Any]] = {}

    def from_real_tensor(
        self, fake_mode: Any, t: Any, shape_env: Any = None, source: Any = None, symbolic_context: Any = None
    ) -> Any:
        """The fake form, the same for the same tensor."""
        held = self.known.get(id(t))
        if held is not None and held[0]() is t:
            return held[1]
        spec, offset = t._spec, 0 if t._storage is None else t.storage_offset()
        if shape_env is not None:
            name = f"__meta_utils_unknown_tensor{len(self.known)}" if source is None else _name_of(source)
            chosen = {} if symbolic_context is None else symbolic_context.chosen(spec)
            spec = shape_env.layout(spec, name, **chosen)
            offset = shape_env.create_symbol(offset, f"{name}.storage_offset()")
        with _without_modes(), contextlib.nullcontext() if shape_env is None else shape_env.read():
            meta = rushlight.empty_strided(spec.shape, spec.strides, dtype=t.dtype, device="meta")
        made: Any = FakeTensor(fake_mode, meta, t.device, requires_grad=t.requires_grad and t.is_leaf)
        made._ptr = offset * spec.dtype.itemsize
        if isinstance(t, rushlight.nn.Parameter):
            made._is_param = True
        self.known[id(t)] = weakref.ref(t), made
        return made


def _constant_of(tensor: Any) -> Any:
    """The elements of a fake tensor, where they are known."""
    return constants.living(tensor.constant) if isinstance(tensor, FakeTensor) else None


def _let_be_constant(tensor: Any, constant: Any) -> None:
    tensor.constant = constant


def _name_of(source: Any) -> str:
    """The name of a source: text, or what has a name."""
    name = source if isinstance(source, str) else source.name
    return str(name() if callable(name) else name)


@contextlib.contextmanager
def _without_modes() -> Iterator[None]:
    held = []
    while STATE.dispatch_modes:
        held.append(_pop_mode())
    try:
        yield
    finally:
        for mode in reversed(held):
            _push_mode(mode)


class FakeTensorMode(InfraMode):
    """A context in which factories make fake tensors, and operators on fake tensors give fake tensors.

    Real tensors among the arguments are an AssertionError, unless `allow_non_fake_inputs`; numbers as tensors without
    dims are taken.
    """

    _mode_key = _ModeKey.FAKE

    def __init__(
        self,
        *,
        allow_fallback_kernels: bool = True,
        allow_non_fake_inputs: bool = False,
        shape_env: Any = None,
        static_shapes: Any = None,
        export: bool = False,
    ) -> None:
        super().__init__()
        if shape_env is not None and not hasattr(shape_env, "create_symbol"):
            raise TypeError(f"FakeTensorMode(shape_env=...): a ShapeEnv is expected, not {type(shape_env).__name__}")
        self.allow_fallback_kernels, self.allow_non_fake_inputs = allow_fallback_kernels, allow_non_fake_inputs
        self.static_shapes = shape_env is None if static_shapes is None else static_shapes
        self.export, self.shape_env = export, shape_env
        self.fake_tensor_converter = FakeTensorConverter()
        self.writes = 0  # calls so far that may have changed a tensor

    def from_tensor(
        self,
        tensor: Any,
        *,
        static_shapes: Any = None,
        source: Any = None,
        symbolic_context: Any = None,
        trace: bool = True,
    ) -> Any:
        """The fake form of a tensor, the same for the same tensor; a fake tensor of this mode itself.

        With a `ShapeEnv` its sizes are symbols, named by `source`, unless they are `static_shapes`.
        """
        if isinstance(tensor, FakeTensor):
            if tensor.fake_mode is not self:
                raise AssertionError("Mixing fake modes NYI")
            return tensor
        static = self.static_shapes if static_shapes is None else static_shapes
        env = None if static else self.shape_env
        return self.fake_tensor_converter.from_real_tensor(self, tensor, env, source, symbolic_context)

    def sized(self, shape: Any, strides: Any, dtype: Any, device: Any) -> Any:
        """A fake tensor with sizes of the `ShapeEnv`; row-major for None, which asks nothing of the sizes."""
        if strides is None:
            strides = [1]
            for size in reversed(shape[1:]):
                strides.insert(0, strides[0] * (max(size, 1) if type(size) is int else size))
            strides = strides[: len(shape)]
        with _without_modes(), self.shape_env.read():
            meta = rushlight.empty_strided(shape, strides, dtype=dtype, device=META)
        return FakeTensor(self, meta, device)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = f"{func._opname}.{func._overloadname}"
        leaves = [v for v in tree_flatten((list(args), kwargs))[0] if isinstance(v, Tensor)]
        if any(type(v) in DISPATCH_CLASSES and not isinstance(v, FakeTensor) for v in leaves):
            return NotImplemented  # a wrapper says what it does with the tensors inside
        if (
            not leaves
            and "device" not in kwargs
            and not any(isinstance(a, rushlight.device) for a in args)
            and not _makes(func)
        ):
            return func(*args, **kwargs)
        if func._opname in _DYNAMIC or name in _DYNAMIC or _is_masked(func, args):
            made = unknown_sizes.made(self, func, args, kwargs)
            if made is None:
                raise DynamicOutputShapeException(func)
            return made
        args, kwargs = unknown_sizes.settled_places(self, func, args, kwargs)
        told = described(self, func, args, kwargs)
        if told is not None:
            return told
        if func._opname in _NUMBERS:
            read = constants.applied(func, args, kwargs, _constant_of)
            if read is not constants.UNKNOWN:
                return read
        if func._opname == "_linalg_check_errors":
            return None
        if func._opname == "_local_scalar_dense" and self.shape_env is not None and unknown_sizes.is_number(leaves[0]):
            return self._number_in(leaves[0])
        if func._opname in _NUMBERS:
            raise DataDependentOutputException(func)
        if _writes(func):
            self.writes += 1
        if func._opname in ("lift_fresh", "lift_fresh_copy") and leaves and not isinstance(leaves[0], FakeTensor):
            made = self.from_tensor(leaves[0], static_shapes=True)
            constants.carry(func, args, kwargs, made, _constant_of, _let_be_constant)
            return made
        device = self._device(func, leaves, kwargs)
        if "device" in kwargs:
            kwargs["device"] = META
        elif not leaves:
            kwargs["device"] = META

        def bare(value: Any) -> Any:
            return self._meta(func, value, args) if isinstance(value, Tensor) else value

        with (
            _without_modes(),
            contextlib.nullcontext() if self.shape_env is None else self.shape_env.read(),
            contextlib.nullcontext() if func.form is not None else describing(func, FakeImplCtx(self.shape_env, func)),
        ):
            given, named = tree_map(bare, list(args)), {k: tree_map(bare, v) for k, v in kwargs.items()}
            made = func(*given, **named)
        wrapped = self._wrapped(made, given, list(args), device)
        constants.carry(func, args, kwargs, wrapped, _constant_of, _let_be_constant)
        if func.is_view and leaves and isinstance(leaves[0], FakeTensor):
            base = leaves[0]
            for number, out in enumerate(wrapped if isinstance(wrapped, (tuple, list)) else (wrapped,)):
                if out is not base and out._spec.dtype is base._spec.dtype:
                    out._ptr = base._ptr + first_element(func, args, kwargs, base, number) * base._spec.dtype.itemsize
        return wrapped

    def _have_sizes(self, made: Any) -> None:
        """No size is negative."""
        for size in made._spec.shape:
            if is_unknown(size):
                self.shape_env.assume(-size, "<=")

    def _number_in(self, leaf: Any) -> Any:
        """The element of a tensor as a number without a value."""
        env = self.shape_env

        def made() -> Any:
            if leaf.is_floating_point():
                return env.create_unbacked_symfloat()
            if leaf.dtype is rushlight.bool:
                return Undecided(env.create_unbacked_symint() - 1, "==")
            return env.create_unbacked_symint(unknown_sizes.LEAST)

        return self.number_of(leaf, "_number_in", made)

    def number_of(self, leaf: Any, what: str, made: Callable[[], Any]) -> Any:
        """A number that the elements of a tensor tell: the same one until a call writes into some tensor."""
        held = leaf.__dict__.get(what)
        if held is None or held[0] != self.writes or held[1] is not self.shape_env:
            held = leaf.__dict__[what] = self.writes, self.shape_env, made()
        return held[2]

    def _device(self, func: Any, leaves: list[Any], kwargs: dict[str, Any]) -> Any:
        """Where the result would be; RuntimeError where the arguments are on several devices."""
        if kwargs.get("device") is not None:
            return kwargs["device"]
        found: Any = None
        found_numbers = False
        for leaf in leaves:
            if found is None or found_numbers and leaf.dim():
                found, found_numbers = leaf.device, leaf.dim() == 0
            elif leaf.device != found and not (leaf.dim() == 0 and leaf.device == HOST):
                raise RuntimeError(
                    f"Unhandled FakeTensor Device Propagation for {func}, found two different devices {found}, {leaf.device}"
                )
        return rushlight.get_default_device() if found is None else found

    def _meta(self, func: Any, value: Any, args: Any) -> Any:
        if isinstance(value, FakeTensor):
            return value.meta
        if value.device != META and not self.allow_non_fake_inputs and value.dim():
            raise AssertionError(
                "Please convert all Tensors to FakeTensors first or instantiate FakeTensorMode with 'allow_non_fake_inputs'. Found in "
                f"{func}({', '.join(type(a).__name__ for a in args)})"
            )
        return self.from_tensor(value, static_shapes=True).meta

    def _wrapped(self, made: Any, given: Any, args: list[Any], device: Any) -> Any:
        known = {
            id(m): a
            for m, a in zip(tree_flatten(given)[0], tree_flatten(args)[0], strict=True)
            if isinstance(a, FakeTensor)
        }

        def wrap(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            held = known.get(id(value))
            if held is None:
                self._have_sizes(value)
                return FakeTensor(self, value, device)
            if held._spec.shape != value._spec.shape or held._spec.strides != value._spec.strides:
                now = FakeTensor(self, value, held.place)  # it was made to look otherwise
                held._spec, held._ptr = now._spec, now._ptr
            return held

        if isinstance(made, (tuple, list)):
            return type(made)([wrap(m) for m in made])
        return wrap(made)


def first_element(func: Any, args: Any, kwargs: Any, base: Any, number: int) -> Any:
    """Where the first element of a view, or of one of several, lies behind that of its base."""
    name, strides, sizes = func._opname, base.stride(), base.shape
    if name not in ("select", "slice", "diagonal", "as_strided", "split", "split_with_sizes", "unbind"):
        return 0
    given = bound(func, args, kwargs)
    if name == "as_strided":
        offset = given["storage_offset"]
        return 0 if offset is None else offset - base.storage_offset()
    if name == "diagonal":
        offset = given["offset"]
        return offset * strides[given["dim2"]] if offset >= 0 else -offset * strides[given["dim1"]]
    dim = given["dim"]
    if name == "select":
        index = given["index"]
        return (index + sizes[dim] if index < 0 else index) * strides[dim]
    if name == "slice":
        start = given["start"] or 0
        return min(max(start + sizes[dim] if start < 0 else start, 0), sizes[dim]) * strides[dim]
    if name == "unbind":
        return number * strides[dim]
    parts = given.get("split_sizes")
    return (sum(parts[:number]) if parts is not None else number * given["split_size"]) * strides[dim]


def _makes(func: Any) -> bool:
    """Whether an operator makes tensors of sizes."""
    form = func.form
    return form is not None and any(a.name == "device" for a in form.parsed().arguments)


def is_fake(x: Any) -> bool:
    """Whether a value is a fake tensor, or a wrapper around some."""
    if isinstance(x, FakeTensor):
        return True
    if isinstance(x, Tensor) and hasattr(type(x), "__tensor_flatten__"):
        return any(is_fake(getattr(x, name)) for name in x.__tensor_flatten__()[0])
    return False


def maybe_get_fake_mode(t: Any) -> Any:
    """The mode of a fake tensor; None for others."""
    return t.fake_mode if isinstance(t, FakeTensor) else None


def unset_fake_temporarily() -> contextlib.AbstractContextManager[Any]:
    """A context without the mode that makes fake tensors: gives the mode that was on, None for none."""
    return _disable_infra_mode(_ModeKey.FAKE)


@contextlib.contextmanager
def in_kernel_invocation_manager(fake_mode: Any) -> Iterator[None]:
    """A context as operators run in: without modes."""
    with _without_modes():
        yield
