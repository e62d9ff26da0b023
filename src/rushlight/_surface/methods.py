"""Tensor methods and functions that are not rows of the operator table: sizes, conversions, autograd, Python protocols."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

from rushlight._base.absent import absent_function
from rushlight._engine import convert, creation, indexing
from rushlight._engine.autograd import api
from rushlight._engine.fast import RUNS, make_learner
from rushlight._engine.inplace import retain
from rushlight._engine.integers import as_int, as_ints, is_numpy_scalar
from rushlight._engine.override import as_subclass as retyped
from rushlight._engine.state import FUNCTION_MODE, GRAD, INFERENCE, LEARNING, OBSERVED, STATE, TRANSFORMS
from rushlight._engine.tensor import Tensor, alias, meta_of, plain_classes
from rushlight._engine.view import as_strided, view_dtype
from rushlight._ops.forms import forms
from rushlight._surface.registry import SPACES, composite, function_of, row_named
from rushlight._types.device import CPU, Device
from rushlight._types.dtype import ALL_DTYPES, BY_NAME, DType
from rushlight._types.formats import FORMATS, STRIDED, MemoryFormat
from rushlight._types.layout import Size, channels_last_strides, contiguous_strides

__all__: list[str] = []


def method(function: Any) -> Any:
    """Put a plain function on Tensor under its own name."""
    setattr(Tensor, function.__name__, function)
    return function


def both(function: Any) -> Any:
    """A method that is also a function of the package."""
    setattr(Tensor, function.__name__, function)
    SPACES["torch"][function.__name__] = function
    return function


# ***** what it is *****


_item = tuple.__getitem__


@method
@forms("(self: Tensor) -> Size", "(self: Tensor, dim: int) -> int")
def size(self: Tensor, dim: int | None = None) -> Any:
    """The shape, or one of its sizes."""
    shape = self._spec.shape
    if dim is None:
        return shape
    if type(dim) is not int:
        dim = as_int("size", "dim", dim)
    try:
        return _item(shape, dim)
    except IndexError:
        n = len(shape)
        raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})"
                         if n else "Dimension specified as 0 but tensor has no dimensions") from None


@method
@forms("(self: Tensor) -> tuple[int, ...]", "(self: Tensor, dim: int) -> int")
def stride(self: Tensor, dim: int | None = None) -> Any:
    """Steps between neighbours in each dim, in elements."""
    if dim is None:
        return self._spec.strides
    return self._spec.strides[dim + self._spec.ndim if dim < 0 else dim]


@method
def dim(self: Tensor) -> int:
    """Number of dims."""
    return self._spec.ndim


Tensor.ndimension = dim  # type: ignore[attr-defined]


@both
def numel(input: Tensor) -> int:
    """Number of elements."""
    return input._spec.numel


Tensor.nelement = numel  # type: ignore[attr-defined]


@method
def element_size(self: Tensor) -> int:
    """Bytes of one element."""
    return self._spec.dtype.itemsize


@method
def storage_offset(self: Tensor) -> int:
    """Where the first element lies in the storage, in elements."""
    step = self._ptr - self._storage.ptr if self._storage is not None else 0
    return step and step // self._spec.dtype.itemsize


@method
def data_ptr(self: Tensor) -> int:
    """Address of the first element; 0 for tensors without memory."""
    return self._ptr if self._spec.numel else 0


_CONTIGUOUS = FORMATS["contiguous_format"]


@method
def is_contiguous(self: Tensor, memory_format: MemoryFormat = _CONTIGUOUS) -> bool:
    """Whether the elements lie in this order without gaps."""
    if memory_format is _CONTIGUOUS:
        return self._spec.contiguous
    return convert.is_in_format(self._spec, convert.format_name(memory_format))


@both
def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a floating point one."""
    return input._spec.dtype.is_floating_point


@both
def is_complex(input: Tensor) -> bool:
    """Whether the dtype is complex."""
    return input._spec.dtype.is_complex


@both
def is_signed(input: Tensor) -> bool:
    """Whether the dtype holds negative numbers."""
    return input._spec.dtype.is_signed


@both
def is_nonzero(input: Tensor) -> bool:
    """The truth of a tensor with one element."""
    return bool(input)


@both
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether the shapes are equal."""
    return input.shape == other.shape


@both
def is_conj(input: Tensor) -> bool:
    """Whether the memory holds the conjugates of the elements: true of `x.conj()` and of its views."""
    return input._spec.conj and input._spec.dtype.is_complex


@both
def is_neg(input: Tensor) -> bool:
    """Whether the memory holds the negatives of the elements: true of `x.conj().imag` and of its views."""
    return input._spec.conj and not input._spec.dtype.is_complex


@both
def is_inference(input: Tensor) -> bool:
    """Whether it was made in inference mode."""
    return input._meta is not None and input._meta.inference


@method
def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both are the same window on the same memory."""
    return self._ptr == tensor._ptr and self._spec is tensor._spec


@method
def is_pinned(self: Tensor, device: Any = None) -> bool:
    """False: there is no pinned memory without a GPU."""
    return False


def _is_view(self: Tensor) -> bool:
    return self._meta is not None and self._meta.base is not None


Tensor._is_view = _is_view  # type: ignore[attr-defined]

for _flag in ("is_cuda", "is_sparse", "is_sparse_csr", "is_quantized", "is_mkldnn", "is_mps", "is_xpu", "is_nested", "is_vulkan", "is_ipu",
              "is_hpu", "is_maia", "is_mtia", "is_xla"):
    setattr(Tensor, _flag, False)
Tensor.is_meta = property(lambda self: self._spec.device.type == "meta")  # type: ignore[attr-defined]
Tensor.is_cpu = property(lambda self: self._spec.device.type == "cpu")  # type: ignore[attr-defined]
Tensor.layout = property(lambda self: STRIDED)  # type: ignore[attr-defined]
Tensor.retains_grad = property(lambda self: self._meta is not None and self._meta.retains)  # type: ignore[attr-defined]
Tensor.name = property(lambda self: self._meta.name if self._meta is not None else None)  # type: ignore[attr-defined]
Tensor.names = property(lambda self: (None,) * self._spec.ndim)  # type: ignore[attr-defined]


@method
def has_names(self: Tensor) -> bool:
    """False: named tensors are not supported."""
    return False


@method
def dim_order(self: Tensor) -> tuple[int, ...]:
    """Dims from outermost to innermost in memory."""
    from rushlight._types.layout import memory_order

    return tuple(memory_order(self._spec.shape, self._spec.strides))


# ***** to Python and NumPy *****

Tensor.item = convert.item  # type: ignore[attr-defined]
Tensor.tolist = convert.tolist  # type: ignore[attr-defined]
Tensor.numpy = convert.numpy_of  # type: ignore[attr-defined]


@method
@forms("(self: Tensor, dtype: Any = None, copy: bool | None = None) -> ndarray")
def __array__(self: Tensor, dtype: Any = None, copy: bool | None = None) -> Any:
    array = convert.numpy_of(self)
    return array if dtype is None else array.astype(dtype, copy=False)


@method
def __array_wrap__(self: Tensor, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
    """What a NumPy function of a tensor returns: again a tensor, so `np.sin(x)` stays in the program's own type."""
    if array.dtype == bool:
        array = array.astype("uint8")  # PyTorch's old choice for NumPy's comparisons, kept
    return SPACES["torch"]["from_numpy"](array)


def _scalar(self: Tensor, kind: type) -> Any:
    if self._spec.numel != 1:
        raise ValueError("only one element tensors can be converted to Python scalars")
    value = convert.item(self)
    if isinstance(value, complex) and kind is not complex:
        if value.imag:
            raise RuntimeError(f"value cannot be converted to type {'double' if kind is float else 'int64_t'} without overflow")
        value = value.real
    return kind(value)


@method
def __bool__(self: Tensor) -> bool:
    if self._spec.numel != 1:
        word = "no values" if not self._spec.numel else "more than one value"
        raise RuntimeError(f"Boolean value of Tensor with {word} is ambiguous: its shape is {list(self._spec.shape)}; ask any() or all() of it")
    return bool(convert.item(self))


@method
def __float__(self: Tensor) -> float:
    if self._spec.numel == 1 and type(value := convert.item(self)) is float:
        return value
    return float(_scalar(self, float))


@method
def __int__(self: Tensor) -> int:
    if self._spec.numel == 1 and type(value := convert.item(self)) is int:
        return value
    return int(_scalar(self, int))


@method
def __complex__(self: Tensor) -> complex:
    return complex(_scalar(self, complex))


@method
def __index__(self: Tensor) -> int:
    if self._spec.numel != 1 or not (self._spec.dtype.is_integer or self._spec.dtype is BY_NAME["bool"]):
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(convert.item(self))


@method
def __len__(self: Tensor) -> int:
    if not self._spec.ndim:
        raise TypeError("len() of a 0-d tensor")
    return self._spec.shape[0]  # type: ignore[no-any-return]


@method
def __iter__(self: Tensor) -> Iterator[Tensor]:
    if not self._spec.ndim:
        raise TypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))  # type: ignore[attr-defined]


@method
def __contains__(self: Tensor, item: Any) -> bool:
    if isinstance(item, (Tensor, bool, int, float, complex)):
        return bool((self == item).any())  # type: ignore[attr-defined, union-attr]
    raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(item)}.")


@composite("__getitem__", spaces=(), method=True, overridable=False, learns=("self", "index?"))
@forms("(self: Tensor, index: Index) -> Tensor")
def __getitem__(self: Tensor, index: Any) -> Tensor:
    if type(self) not in plain_classes or STATE.word & FUNCTION_MODE:
        handled, made = _override(Tensor.__getitem__, self, index)  # type: ignore[attr-defined, misc]
        if handled:
            return made  # type: ignore[no-any-return]
    return indexing.get_item(self, index)


@composite("__setitem__", spaces=(), method=True, overridable=False, learns=("self", "index?", "value*"))
@forms("(self: Tensor, index: Index, value: Tensor | Scalar | Sequence[Any]) -> None")
def __setitem__(self: Tensor, index: Any, value: Any) -> None:
    if type(self) not in plain_classes or isinstance(value, Tensor) and type(value) not in plain_classes or STATE.word & FUNCTION_MODE:
        handled, _ = _override(Tensor.__setitem__, self, index, value)  # type: ignore[attr-defined, index]
        if handled:
            return
    indexing.set_item(self, index, value)


@method
def __delitem__(self: Tensor, index: Any) -> None:
    raise TypeError("Tensor does not support deleting items")


@composite("index_put_", method=True, learns=("input", "indices?", "values?", "accumulate"))
@forms("(input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor")
def index_put_(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """Write (or add, with `accumulate`) values at the places that `input[indices]` would read; None in `indices` takes a whole dim."""
    return indexing.index_put_(input, indices, values, accumulate)


@both
@forms("(input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor")
def index_put(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """`index_put_` on a copy: `input` stays as it is."""
    return indexing.index_put(input, indices, values, accumulate)


def _override(function: Any, *args: Any) -> tuple[bool, Any]:
    from rushlight._engine.override import handle

    return handle(function, args, {})


@method
def __repr__(self: Tensor, *, tensor_contents: Any = None) -> str:
    from rushlight._engine.describe import describe

    return describe(self, tensor_contents)


@method
def __format__(self: Tensor, spec: str) -> str:
    if not self._spec.ndim and self._storage is not None and type(self) in plain_classes:
        return format(convert.item(self), spec)
    return object.__format__(self, spec)


@method
def __dir__(self: Tensor) -> list[str]:
    return sorted({*dir(type(self)), *self.__dict__})


@method
def __deepcopy__(self: Tensor, memo: dict[int, Any]) -> Tensor:
    if self._node is not None:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.  If you were attempting to "
            "deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage, see https://github.com/pytorch/pytorch/pull/103001"
        )
    found = memo.get(id(self))
    if found is not None:
        return found  # type: ignore[no-any-return]
    storage = self._storage
    made = alias(convert.clone(self.detach()) if self._spec.conj else self)  # type: ignore[attr-defined]
    if self._spec.conj:
        storage = None  # the copy has memory of its own
    if storage is not None:
        copied = memo.get(("storage", storage.ptr))  # type: ignore[call-overload]
        if copied is None:
            whole = creation.from_address(storage.ptr, creation.Spec.of(BY_NAME["uint8"], CPU, (storage.nbytes,)), storage.nbytes, storage)
            copied = convert.clone(whole)._storage
            memo[("storage", storage.ptr)] = copied  # type: ignore[index]
        made._storage, made._ptr = copied, copied.ptr + (self._ptr - storage.ptr)
    if type(self) is not Tensor:
        made = retyped(made, type(self))
    made._rg = self._rg
    memo[id(self)] = made
    if self._meta is not None and self._meta.grad is not None:
        meta_of(made).grad = __deepcopy__(self._meta.grad, memo)
    if self.__dict__:
        import copy

        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
    return made


@method
def __copy__(self: Tensor) -> Tensor:
    made = retyped(alias(self), type(self)) if type(self) is not Tensor else alias(self)
    made._rg = self._rg
    made.__dict__.update(self.__dict__)
    return made


# ***** copies and casts *****

composite("clone", method=True, learns=("input", "memory_format"))(convert.clone)
composite("contiguous", spaces=(), method=True, learns=("self", "memory_format"))(convert.contiguous)
composite("to", spaces=(), method=True, learns=("self", "dtype?", "non_blocking", "copy", "memory_format", "device"))(convert.to)
composite("detach", method=True, learns=("input",))(convert.detach)
composite("copy_", spaces=(), method=True, learns=("self", "src", "non_blocking"), tensors=2)(convert.copy_)
composite("as_strided", method=True, learns=True)(as_strided)


def _cast(name: str, dtype: DType) -> None:
    def cast(self: Tensor, memory_format: Any = None) -> Tensor:
        if memory_format is not None:
            return convert.to(self, dtype, memory_format=memory_format)
        return self if self._spec.dtype is dtype else convert.cast(self, dtype)

    cast.__name__ = name
    cast.__doc__ = f"The same as `to(torch.{dtype.name})`."
    composite(name, spaces=(), method=True, learns=("self", "memory_format"))(cast)


for _name, _word in (("float", "float32"), ("double", "float64"), ("half", "float16"), ("bfloat16", "bfloat16"), ("long", "int64"), ("int", "int32"),
                     ("short", "int16"), ("char", "int8"), ("byte", "uint8"), ("bool", "bool"), ("cfloat", "complex64"), ("cdouble", "complex128"),
                     ("chalf", "complex32")):
    _cast(_name, BY_NAME[_word])


@method
def cpu(self: Tensor, memory_format: Any = None) -> Tensor:
    """On the CPU; itself when it is there."""
    return self if self._spec.device is CPU and type(self) in plain_classes else convert.to(self, CPU)


@method
def to_device(self: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """On another device, in the words of the array API standard; there are no streams to choose from."""
    if stream is not None:
        raise ValueError(f"to_device: expected no stream, found {stream!r}")
    return convert.to(self, Device(device) if isinstance(device, str) else device)


@method
def cuda(self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Tensor:
    """Raises: rushlight has no GPU yet."""
    return convert.to(self, Device("cuda") if device is None else device)


@forms("(self: Tensor) -> str", "(self: Tensor, dtype: dtype | str | type, non_blocking: bool = False) -> Tensor")
def _type(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """Without an argument the type's name (`torch.FloatTensor`), else a cast."""
    if dtype is None:
        return f"torch.{TYPE_NAMES[self._spec.dtype.name]}Tensor"
    if isinstance(dtype, str):
        word = dtype.removeprefix("torch.").removesuffix("Tensor")
        found = next((n for n, t in TYPE_NAMES.items() if t == word), None)
        if found is None:
            raise ValueError(f"invalid type: '{dtype}'")
        dtype = BY_NAME[found]
    elif not isinstance(dtype, DType):
        dtype = getattr(dtype, "dtype", dtype)
    return convert.to(self, dtype)


Tensor.type = _type  # type: ignore[attr-defined]  # not named `type` here: this module needs the built-in one


TYPE_NAMES = {d.name: ("quantized." if d.kind == "q" else "") + d.scalar for d in ALL_DTYPES}


@composite("type_as", spaces=(), method=True, learns=True)
def type_as(self: Tensor, tensor: Tensor) -> Tensor:
    """Cast to the dtype of another tensor."""
    return convert.to(self, tensor._spec.dtype)


@method
@forms(
    "(self: Tensor, *sizes: int, memory_format: memory_format | None = None) -> Tensor",
    "(self: Tensor, sizes: Sequence[int], *, memory_format: memory_format | None = None) -> Tensor",
)
def resize_(self: Tensor, *sizes: Any, memory_format: Any = None) -> Tensor:
    """Change the shape in place; new elements are undefined."""
    shape = creation.as_shape(sizes)
    if memory_format is not None and str(memory_format) == "torch.preserve_format":
        raise RuntimeError("Unsupported memory formatPreserve")
    return convert.resize_(self, shape, None if memory_format is None else _dense_strides(shape, memory_format))


def _dense_strides(shape: tuple[int, ...], memory_format: Any) -> tuple[int, ...]:
    return contiguous_strides(shape) if str(memory_format) == "torch.contiguous_format" else channels_last_strides(shape)


@method
def resize_as_(self: Tensor, other: Tensor, memory_format: Any = None) -> Tensor:
    """`resize_` to the shape of another tensor; `torch.preserve_format` also takes its order in memory."""
    shape = tuple(other.shape)
    if memory_format is not None and str(memory_format) == "torch.preserve_format":
        return convert.resize_(self, shape, creation.like_strides(other, memory_format))
    return self.resize_(shape, memory_format=memory_format)  # type: ignore[attr-defined, no-any-return]


@method
def set_(self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """Use another tensor's or storage's memory."""
    return convert.set_(self, source, storage_offset, None if size is None else tuple(size), None if stride is None else tuple(stride))


@method  # type: ignore[no-redef]
def as_subclass(self: Tensor, cls: Any) -> Tensor:
    """The same tensor as an object of a subclass."""
    from rushlight._engine import override

    return override.shown_as(self, cls)


def _make_subclass(cls: Any, data: Tensor, require_grad: bool = False) -> Tensor:
    """A detached alias of `data` as an object of `cls`."""
    from rushlight._engine import override

    if require_grad and not (data.dtype.is_floating_point or data.dtype.is_complex):
        raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
    plain = type(data) in plain_classes and data._meta is None and not hasattr(cls, "__torch_dispatch__")
    if plain and not STATE.word & (FUNCTION_MODE | INFERENCE | OBSERVED | LEARNING):
        made = Tensor.__new__(cls)
        made._storage, made._spec, made._ptr = data._storage, data._spec, data._ptr
        made._rg, made._node, made._meta = require_grad, None, None
        return made  # type: ignore[no-any-return]
    made = override.as_subclass(convert.detach(data), cls)
    if require_grad:
        made.requires_grad = True
    return made


Tensor._make_subclass = staticmethod(_make_subclass)  # type: ignore[attr-defined]
Tensor._make_wrapper_subclass = staticmethod(  # type: ignore[attr-defined]
    absent_function("torch.Tensor._make_wrapper_subclass", "tensors without memory of their own need __torch_dispatch__, which nothing here calls")
)


@composite("view", spaces=(), method=True, overridable=False, learns=("self", "size"))
@forms(
    "(self: Tensor, *size: int) -> Tensor",
    "(self: Tensor, size: Sequence[int]) -> Tensor",
    "(self: Tensor, dtype: dtype) -> Tensor",
)
def view(self: Tensor, *size: Any, **kwargs: Any) -> Tensor:
    """The same elements under another shape, or the same bytes as another dtype (`x.view(torch.int32)`)."""
    dtype = size[0] if size else kwargs.get("dtype")
    if isinstance(dtype, type):  # `float`, `int`, ... stand for dtypes too
        dtype = creation.python_dtype(dtype)
    if type(dtype) is not DType:
        if RUNS.now is not None:
            return convert.call("view", self, *size, **kwargs)  # type: ignore[no-any-return]
        return function_of("view")(self, *size, **kwargs)  # type: ignore[no-any-return]
    handled, made = _override(Tensor.view, self, dtype)  # type: ignore[attr-defined]
    return made if handled else view_dtype(self, dtype)  # type: ignore[no-any-return]


# ***** views taken in place *****


def _restride(name: str) -> None:
    """`x.t_()` and its kin: the tensor itself becomes its view."""

    def change(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        shown = getattr(self, name)(*args, **kwargs)
        if self._rg and self._node is None and STATE.word & GRAD:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        self._spec, self._ptr, self._node = shown._spec, shown._ptr, shown._node
        if self._meta is not None:
            self._meta.output_nr = 0
        return self

    change.__name__ = name + "_"
    change.operator = row_named(name)  # type: ignore[attr-defined]
    change.__doc__ = f"`{name}` in place: shape and strides of this tensor change, its memory does not."
    setattr(Tensor, name + "_", change)


for _view in ("t", "transpose", "swapaxes", "swapdims", "squeeze", "unsqueeze"):
    _restride(_view)


@method
def as_strided_(self: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """`as_strided` in place."""
    shown = as_strided(self, size, stride, storage_offset)
    self._spec, self._ptr, self._node = shown._spec, shown._ptr, shown._node
    return self


# ***** autograd *****


@method
@forms(
    "(self: Tensor, gradient: Tensor | None = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Tensor | Sequence[Tensor] | None = None) -> None",
)
def backward(self: Tensor, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None) -> None:
    """Add the gradient of this tensor with respect to the graph's leaves to their `.grad`."""
    api.backward(self, gradient, retain_graph, create_graph, inputs=inputs)


@method
def requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
    """Set `requires_grad` in place."""
    if "active" in TRANSFORMS and TRANSFORMS["active"]():
        raise RuntimeError(
            "You are attempting to call Tensor.requires_grad_() (or perhaps using torch.autograd.functional.* APIs) inside of a function being "
            "transformed by a functorch transform. This is unsupported, please attempt to use the functorch transforms (e.g. grad, vjp, jacrev, jacfwd, "
            "hessian) or call requires_grad_() outside of a function being transformed instead."
        )
    self.requires_grad = requires_grad
    return self


@method
def detach_(self: Tensor) -> Tensor:
    """Leave the graph in place."""
    if self._meta is not None and self._meta.base is not None:
        raise RuntimeError("Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel (DDP) for training, and "
                           "gradient_as_bucket_view is set as True, gradients are views of DDP buckets, and hence detach_() cannot be called on "
                           "these gradients. To fix this error, please refer to the Optimizer.zero_grad() function in torch/optim/optimizer.py as a "
                           "solution.")
    self._node, self._rg = None, False
    if self._meta is not None:
        self._meta.output_nr = 0
    return self


@method
def retain_grad(self: Tensor) -> None:
    """Let this non-leaf keep its gradient."""
    if not self._rg:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    node = self._node
    if node is None:
        return
    if not meta_of(self).retains:
        retain(self)


@method
@forms("(self: Tensor, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle")
def register_hook(self: Tensor, hook: Any) -> Any:
    """`hook(grad)` runs when this tensor's gradient is ready and may replace it."""
    if not self._rg:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    from rushlight._base.handles import RemovableHandle

    meta = meta_of(self)
    if self._node is None:
        if meta.hooks is None:
            meta.hooks = OrderedDict()
        target = meta.hooks
    else:
        extra = self._node._more()
        if extra.tensor_hooks is None:
            extra.tensor_hooks = {}
        target = extra.tensor_hooks.setdefault(meta.output_nr, OrderedDict())
    handle = RemovableHandle(target)
    target[handle.id] = hook
    return handle


@method
@forms("(self: Tensor, hook: Callable[[Tensor], None]) -> RemovableHandle")
def register_post_accumulate_grad_hook(self: Tensor, hook: Any) -> Any:
    """`hook(tensor)` runs after the gradient was added to this leaf's `.grad`."""
    if not self._rg:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if self._node is not None:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    from rushlight._base.handles import RemovableHandle

    meta = meta_of(self)
    if meta.post_hooks is None:
        meta.post_hooks = OrderedDict()
    handle = RemovableHandle(meta.post_hooks)
    meta.post_hooks[handle.id] = hook
    return handle


# ***** functions of the package *****


@composite("is_tensor", overridable=False)
def is_tensor(obj: Any) -> bool:
    """Whether it is a tensor."""
    return isinstance(obj, Tensor)


@composite("set_default_dtype", overridable=False)
def set_default_dtype(d: DType) -> None:
    """Set the dtype that Python floats get."""
    from rushlight._engine.state import clear_plans
    from rushlight._types.promotion import set_default_dtype as set_default

    set_default(d)
    clear_plans()


@composite("result_type", overridable=False, learns=True)
@forms("(tensor: Tensor | Scalar, other: Tensor | Scalar) -> dtype")
def result_type(tensor: Any, other: Any) -> DType:
    """The dtype of an operation over two tensors or numbers."""
    from rushlight._types.promotion import number_dtype
    from rushlight._types.promotion import result_type as promote

    tensors = [(t._spec.dtype, t._spec.ndim) for t in (tensor, other) if isinstance(t, Tensor)]
    numbers = [v.item() if is_numpy_scalar(v) else v for v in (tensor, other) if not isinstance(v, Tensor)]
    return promote(tensors, [number_dtype(v) for v in numbers])


@composite("broadcast_shapes", overridable=False)
@forms("(*shapes: int | Sequence[int]) -> Size")
def broadcast_shapes(*shapes: Sequence[int]) -> Size:
    """The common shape."""
    from rushlight._types.layout import broadcast_shapes as common

    sizes = []
    for shape in shapes:
        if shape is None:
            continue
        if not isinstance(shape, (int, tuple, list)):
            raise RuntimeError(f"Input shapes should be of type ints, a tuple of ints, or a list of ints, got {type(shape).__name__}")
        sizes.append((shape,) if isinstance(shape, int) else as_ints("broadcast_shapes", "shapes", shape))
        if any(n < 0 for n in sizes[-1]):
            raise ValueError(f"Attempting to broadcast a dimension with negative length! (shape {list(sizes[-1])})")
    try:
        return Size(common(*sizes))
    except RuntimeError:
        raise RuntimeError("Shape mismatch: objects cannot be broadcast to a single shape") from None


def _warn_reduced(self: Tensor) -> Tensor:
    if self._spec.ndim not in (0, 2):
        warnings.warn("The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated", UserWarning, stacklevel=3)
    if RUNS.now is not None and self._spec.ndim == 2:
        return convert.call("permute", self, (1, 0))  # type: ignore[no-any-return]
    return self.permute(tuple(range(self._spec.ndim - 1, -1, -1)))  # type: ignore[attr-defined, no-any-return]


def _learning(name: str, get: Any) -> None:
    """A property that is a view: from its second reading on by plans that are kept.  It stays the same object: overrides know it by that."""

    def first(self: Tensor) -> Any:
        if made.fget is first:
            made.__init__(make_learner(get, ("self",)), doc=get.__doc__)  # type: ignore[misc]
        return get(self)

    made = property(first, doc=get.__doc__)
    setattr(Tensor, name, made)


_learning("T", _warn_reduced)


def _swap_last(self: Tensor) -> Tensor:
    if not self._spec.ndim:
        return self
    if self._spec.ndim < 2:
        raise RuntimeError(f"tensor.mT is only supported on matrices or batches of matrices. Got {self._spec.ndim}-D tensor.")
    if RUNS.now is not None:
        return convert.call("transpose", self, -2, -1)  # type: ignore[no-any-return]
    return self.transpose(-2, -1)  # type: ignore[attr-defined, no-any-return]


def _part(name: str) -> property:
    def get(self: Tensor) -> Tensor:
        return SPACES["torch"][name](self)  # type: ignore[no-any-return]

    def put(self: Tensor, value: Any) -> None:
        convert.copy_(get(self), value)

    return property(get, put, doc=f"The {name} parts, as a view where the dtype is complex; assignment writes through.")


Tensor.real, Tensor.imag = _part("real"), _part("imag")  # type: ignore[attr-defined]
_learning("mT", _swap_last)


def _adjoint(self: Tensor) -> Tensor:
    return _swap_last(self).conj() if self._spec.dtype.is_complex else _swap_last(self)  # type: ignore[attr-defined, no-any-return]


Tensor.H, Tensor.mH = property(_adjoint), property(_adjoint)  # type: ignore[attr-defined]

