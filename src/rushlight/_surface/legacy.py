"""Legacy methods of Tensor: element-by-element functions, `new`, shared memory, names whose errors say what replaced
them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from operator import index
from typing import Any, NoReturn, cast

from rushlight._backends.registry import backend_of
from rushlight._base.lazy import require
from rushlight._base.trace_marks import ADDRESS, breaks_trace, changes_later_calls
from rushlight._engine.core import convert, creation
from rushlight._engine.core import storage as storages
from rushlight._engine.core.elements import elements_of
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.memory import is_pinned as memory_is_pinned
from rushlight._engine.core.memory import pinned, root_of
from rushlight._engine.core.printing import leaves
from rushlight._engine.core.tensor import Tensor, meta_of, plain_classes, take_state
from rushlight._engine.indexing.view import as_strided
from rushlight._engine.sharing import shared
from rushlight._surface.casts import type_name
from rushlight._surface.methods import both, method
from rushlight._surface.registry import SPACES, LazyMethod, function_of
from rushlight._types.dtype import DType
from rushlight._types.layout import preserved

__all__: list[str] = []

# ***** Python functions over elements *****


def _over_elements(name: str, x: Tensor, others: tuple[Tensor, ...], function: Callable[..., Any]) -> Tensor:
    """Write `function` of the elements of `x` and the others into `x`, in row-major order."""
    for each in (x, *others):
        if each._rg:
            raise RuntimeError(
                f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead."
            )
        if each._storage is None:
            raise TypeError(f"{name}() needs tensors with memory, got one on the meta device")
    for k, each in enumerate(others):
        if each._spec.dtype is not x._spec.dtype:
            word = "other" if len(others) == 1 else f"argument {k + 1}"
            raise TypeError(f"{name}: expected {type_name(x)} for '{word}' (got {type_name(each)})")
    rows = [leaves(elements_of(t.expand(x._spec.shape)).tolist()) for t in (x, *others)]
    found = [function(*values) for values in zip(*rows, strict=True)]
    if x._spec.dtype.is_integer:
        found = [int(v) if isinstance(v, float) else index(v) for v in found]
    elif found and not isinstance(found[0], (bool, int, float, complex)):
        raise TypeError(f"must be real number, not {type(found[0]).__name__}")
    if found:
        convert.copy_(x, creation.tensor(found, dtype=x._spec.dtype).reshape(x._spec.shape))
    return x


@method
def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replace every element by `callable(element)`, one after another in Python; for the CPU, and slow.

    >>> import rushlight as torch
    >>> torch.tensor([1.0, 2.0]).apply_(lambda v: v * 10)
    tensor([10., 20.])
    """
    return _over_elements("apply_", self, (), callable)


@method
def map_(self: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replace every element a by `callable(a, b)` with the element b of another tensor (same dtype, broadcastable)."""
    return _over_elements("map_", self, (tensor,), callable)


@method
def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
    """`map_` with the elements of two other tensors."""
    return _over_elements("map2_", self, (x, y), callable)


# ***** made from, or loaded into, a tensor *****


@method
def new(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """A tensor of the same dtype from sizes, numbers, a tensor or a storage, as `torch.Tensor(...)` makes it."""
    if len(args) == 1 and isinstance(args[0], float):
        raise TypeError(f"new(): data must be a sequence (got {type(args[0]).__name__})")
    return HOOKS.legacy_constructor(Tensor, args, kwargs, self._spec.dtype, self._spec.device)


@method
def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """The replacement of this tensor in `Module.load_state_dict`: a copy of `other` into it, or with `assign` `other`
    itself.  The class of either of them may decide it.
    """
    if type(other) not in plain_classes:  # of `self`, the class has asked already
        handled, made = HOOKS.override(module_load, (self, other), {"assign": assign})
        if handled:
            return cast("Tensor", made)
    return cast("Tensor", (other if assign else self.copy_(other)).detach())


@method
def __setstate__(self: Tensor, state: Any) -> None:
    """The attributes of a pickled tensor, with or without those in slots of its class; in old pickles (storage, offset,
    size, stride), or (requires_grad, backward hooks) after it.
    """
    if isinstance(state, dict):
        self.__dict__.update(state)
        return
    if len(state) == 2:
        take_state(self, state)
        return
    if len(state) == 4:
        convert.set_(self, state[0], state[1], tuple(state[2]), tuple(state[3]))
        return
    if len(state) == 5:
        convert.set_(self, state[0], state[1], tuple(state[2]), tuple(state[3]))
        state = (state[4], None, None)
    requires_grad, _, _ = state
    self.requires_grad = requires_grad


# ***** Python's older protocols *****


@method
def __reversed__(self: Tensor) -> Tensor:
    return function_of("flip")(self, (0,)) if self._spec.ndim else self


@method
def __long__(self: Tensor) -> int:
    return int(self)


@method
def __nonzero__(self: Tensor) -> bool:
    return bool(self)


@method
def __div__(self: Tensor, other: Any) -> Tensor:
    return self / other


@method
def __idiv__(self: Tensor, other: Any) -> Tensor:
    return self.div_(other)


# Of the interface's element types, those that are not `f` or `u` and a size.
_ARRAY_CODES = {"bool": "|b1", "complex32": "<c4", "complex64": "<c8", "complex128": "<c16", "bfloat16": "<f2"}


def _cuda_array(self: Tensor) -> dict[str, Any]:
    """The memory as Numba, CuPy and others take it: version 2 of the interface, ordered by the current stream.

    AttributeError for tensors that are not on a GPU, RuntimeError for those that require gradients.
    """
    if self._spec.device.type != "cuda":
        raise AttributeError(
            f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {type_name(self)} If CUDA data is required use tensor.cuda() to copy "
            "tensor to device memory."
        )
    if self._rg:
        raise RuntimeError(
            "Can't get __cuda_array_interface__ on Variable that requires grad. If gradients aren't required, use var.detach() to get Variable that "
            "doesn't require grad."
        )
    dtype = self._spec.dtype
    if dtype.name.startswith("float8"):
        raise TypeError(f"__cuda_array_interface__ has no element type for {dtype}")
    letter = "f" if dtype.is_floating_point else "i" if dtype.is_signed else "u"
    code = _ARRAY_CODES.get(dtype.name, f"{'|' if dtype.itemsize == 1 else '<'}{letter}{dtype.itemsize}")
    size = dtype.itemsize
    return {
        "typestr": code,
        "shape": tuple(self._spec.shape),
        "strides": None if self.is_contiguous() else tuple(s * size for s in self._spec.strides),
        "data": (self._ptr if self._spec.numel else 0, False),
        "version": 2,
    }


Tensor.__cuda_array_interface__ = property(_cuda_array)  # type: ignore[attr-defined]

# ***** memory *****


@method
@breaks_trace(ADDRESS)
def const_data_ptr(self: Tensor) -> int:
    """Address of the first element, for reading."""
    return self.data_ptr()


@method
def storage_type(self: Tensor) -> Any:
    """The class of typed storages with this dtype; None for the dtypes that have none."""
    return storages.storage_type(self._spec.dtype)


@method
def is_shared(self: Tensor) -> bool:
    """Whether other processes can see the memory."""
    return self._storage is not None and storages.untyped_storage(self).is_shared()


@method
@changes_later_calls
def share_memory_(self: Tensor) -> Tensor:
    """Move the storage to memory that forked processes share; every tensor over it moves along.  Nothing where it is
    there already.

    >>> import rushlight as torch
    >>> torch.ones(2).share_memory_().is_shared()
    True
    """
    if self._storage is None:
        raise NotImplementedError("share_memory_: a meta tensor has no memory to share")
    shared.share_tensor(self)
    return self


@method
@changes_later_calls
def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """A copy in pinned memory, from which accelerators copy while the program goes on; itself where it is pinned.

    RuntimeError where there is no accelerator, and for tensors on other devices than the CPU.
    """
    if memory_is_pinned(self._storage):
        return self
    dense = self if self._spec.strides == preserved(self._spec.shape, self._spec.strides) else self.clone()
    return pinned(dense.detach())


@method
def record_stream(self: Tensor, stream: Any) -> None:
    """Keep the memory, once it is freed, until a further stream of the device has passed this use of it.

    NotImplementedError on devices whose memory is not used by streams, as on the CPU.
    """
    device = self._spec.device
    backend = backend_of(device)
    if not backend.asynchronous:
        raise NotImplementedError(
            f"Could not run 'aten::record_stream' with arguments from the '{device.type.upper()}' backend: its memory is not used by streams."
        )
    if self._storage is not None and self._storage.nbytes:
        backend.record_stream(root_of(self._storage).ptr, device, stream._handle)


@method
def to_mkldnn(self: Tensor, dtype: Any = None) -> NoReturn:
    """NotImplementedError: there are no opaque layouts here."""
    raise NotImplementedError(
        "rushlight has no 'to_mkldnn': its kernels read plain strides, and there is no opaque layout to convert to"
    )


@method
def to_padded_tensor(self: Tensor, padding: float, output_size: Any = None) -> NoReturn:
    """NotImplementedError for a dense tensor: only nested tensors are padded."""
    raise NotImplementedError(
        "Could not run 'aten::to_padded_tensor' with arguments from the 'CPU' backend: only nested tensors are padded."
    )


def _absent_device(name: str, error: type[Exception], text: str) -> None:
    def go(self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> NoReturn:
        raise error(text)

    go.__name__, go.__doc__ = name, f"Raises: there is no such device as '{name}' here."
    setattr(Tensor, name, go)


_absent_device("xpu", AssertionError, "Torch not compiled with XPU enabled")
_absent_device("mtia", AssertionError, "Torch not compiled with MTIA enabled")
_absent_device("ipu", RuntimeError, "PyTorch is not linked with support for ipu devices")


@both
def is_distributed(input: Tensor) -> bool:
    """False: a tensor lies in one process."""
    return False


@both
def get_device(input: Tensor) -> int:
    """The index of the tensor's device; -1 where the device has none, as the CPU."""
    index = input.device.index
    return -1 if index is None else index


# ***** shapes *****


def _resized(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    count = 1
    for n in shape:
        count *= n
    if count != x._spec.numel:
        raise RuntimeError(
            f"requested resize to {'x'.join(map(str, shape))} ({count} elements in total), but the given tensor has a size of "
            f"{'x'.join(map(str, x._spec.shape))} ({x._spec.numel} elements). autograd's resize can only change the shape of a given tensor, while "
            "preserving the number of elements. "
        )
    return x.contiguous().view(shape)


@method
def resize(self: Tensor, *sizes: Any) -> Tensor:
    """Deprecated: the same elements in another shape; `resize_` changes their number."""
    warnings.warn("non-inplace resize is deprecated", UserWarning, stacklevel=2)
    return _resized(self, creation.as_shape(sizes))


@method
def resize_as(self: Tensor, tensor: Tensor) -> Tensor:
    """Deprecated: the same elements in the shape of another tensor."""
    warnings.warn("non-inplace resize_as is deprecated", UserWarning, stacklevel=2)
    return _resized(self, tuple(tensor._spec.shape))


@both
def slice_inverse(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """From a slice back to the whole: a view of the slice's memory with the geometry of `src`."""
    return as_strided(input, src.size(), src.stride(), src.storage_offset())


def detach_copy(input: Tensor) -> Tensor:
    """`detach` with memory of its own."""
    return convert.detach(input).clone()


SPACES["torch"]["detach_copy"] = detach_copy
for _name in ("as_strided_", "detach_", "resize_as_"):
    SPACES["torch"][_name] = getattr(Tensor, _name)

# ***** gradients *****


def _grad_dtype(self: Tensor) -> DType | None:
    """The dtype of `.grad` of a leaf: its own unless set; None allows any."""
    if self._node is not None:
        raise RuntimeError("grad_dtype can only be accessed on leaf tensors.")
    meta = self._autograd_meta
    return self._spec.dtype if meta is None or meta.grad_dtype is ... else meta.grad_dtype


@changes_later_calls
def _set_grad_dtype(self: Tensor, value: DType | None) -> None:
    if value is not None and not isinstance(value, DType):
        raise RuntimeError(f"grad_dtype must be a torch.dtype or None, but got {type(value).__name__}")
    if self._node is not None:
        raise RuntimeError("grad_dtype can only be set on leaf tensors.")
    meta_of(self).grad_dtype = value


Tensor.grad_dtype = property(_grad_dtype, _set_grad_dtype)  # type: ignore[attr-defined]
Tensor.volatile = property(lambda self: False, lambda self, value: None, doc="False: volatile was replaced by no_grad.")  # type: ignore[attr-defined]


# ***** removed *****


def _removed(name: str, instead: str) -> Callable[..., NoReturn]:
    """A function, and the method of that name, that only says what has taken its place."""

    def gone(input: Tensor, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            f"This function was deprecated since version 1.9 and is now removed from PyTorch: {name}; {instead}"
        )

    gone.__name__ = gone.__qualname__ = name
    gone.__doc__ = f"RuntimeError: removed from PyTorch; {instead}."
    setattr(Tensor, name, gone)
    return gone


eig = _removed("eig", "use torch.linalg.eig, or torch.linalg.eigvals for the eigenvalues alone; they are complex")
symeig = _removed(
    "symeig",
    "use torch.linalg.eigh, or torch.linalg.eigvalsh for the eigenvalues alone; they read the lower triangle by default",
)
solve = _removed(
    "solve", "use torch.linalg.solve(A, B), which has the arguments the other way round and returns no LU factors"
)
lstsq = _removed(
    "lstsq", "use torch.linalg.lstsq(A, B), which has the arguments the other way round and returns no QR factors"
)
matrix_rank = _removed(
    "matrix_rank", "use torch.linalg.matrix_rank, where the argument 'symmetric' is called 'hermitian'"
)
_removed(
    "reinforce", "use torch.distributions: -distribution.log_prob(action) * reward is the loss whose gradient it gave"
)

# ***** quantized tensors: their module is loaded with the first of these that is looked at *****


def _of_quantized(name: str) -> Any:
    return require("rushlight._surface.quantized").METHODS[name]


for _name in (
    "dequantize",
    "int_repr",
    "q_scale",
    "q_zero_point",
    "q_per_channel_scales",
    "q_per_channel_zero_points",
    "q_per_channel_axis",
    "qscheme",
):
    setattr(Tensor, _name, LazyMethod(_name, _of_quantized, _name))
