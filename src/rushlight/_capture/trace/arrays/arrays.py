"""NumPy arrays in a trace: `TracedArray` is a recorded tensor that follows NumPy's rules.

Arrays from outside are tensors over the same memory, and results leave as arrays over the program's memory.  Dtypes are
those that NumPy itself gives to arrays of one element of the same dtypes; what NumPy makes a scalar is one at the end.
The elements are computed by our operators, so they are close to NumPy's and not always the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from rushlight._capture.recording.errors import RecordingError
from rushlight._capture.trace.settings import HOOKS
from rushlight._engine.core.creation import from_numpy
from rushlight._engine.core.tensor import Tensor
from rushlight._types.dtype import DType

if TYPE_CHECKING:
    from rushlight._capture.trace.guards.sources import Source
    from rushlight._capture.trace.tracer import Tracer

__all__ = [
    "ATTRIBUTES",
    "METHODS",
    "TracedArray",
    "computed",
    "given",
    "is_array",
    "like",
    "operand",
    "refused",
    "sample",
    "tensor_dtype",
]

_NAMES = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)
_DTYPES: dict[Any, DType] = {np.dtype(name): from_numpy(np.zeros(1, name)).dtype for name in _NAMES}
_ARRAY_DTYPES = {dtype: array for array, dtype in _DTYPES.items()}


def refused(what: str) -> RecordingError:
    """The error for what is not traced: it ends the trace."""
    return RecordingError(f"{what} of NumPy is not traced")


def tensor_dtype(dtype: Any) -> DType:
    """Our dtype for one of NumPy's."""
    try:
        return _DTYPES[np.dtype(dtype)]
    except KeyError:
        raise refused(f"the dtype {dtype}") from None


class TracedArray:
    """See the module's text.  `scalar` says that NumPy has no array here but a number of its own."""

    __slots__ = ("scalar", "tensor")

    def __init__(self, tensor: Tensor, scalar: bool = False) -> None:
        self.tensor, self.scalar = tensor, scalar

    @property
    def dtype(self) -> Any:
        """NumPy's dtype."""
        return _ARRAY_DTYPES[self.tensor._spec.dtype]

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes."""
        return tuple(self.tensor._spec.shape)

    @property
    def ndim(self) -> int:
        """How many dims there are."""
        return self.tensor._spec.ndim

    @property
    def size(self) -> Any:
        """How many elements there are."""
        return self.tensor._spec.numel

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.tensor._spec.dtype.itemsize

    @property
    def nbytes(self) -> Any:
        """Bytes of all elements."""
        return self.size * self.itemsize

    @property
    def T(self) -> Any:
        """The dims in the other order."""
        return TracedArray(self.torch.permute(*reversed(range(self.ndim))))

    @property
    def real(self) -> Any:
        """The real parts."""
        return self if not self.tensor._spec.dtype.is_complex else TracedArray(self.torch.real, self.scalar)

    @property
    def imag(self) -> Any:
        """The imaginary parts."""
        if not self.tensor._spec.dtype.is_complex:
            return TracedArray(self.torch.new_zeros(self.shape), self.scalar)
        return TracedArray(self.torch.imag, self.scalar)

    @property
    def torch(self) -> Any:
        """The tensor, whose methods the surface has given it."""
        return self.tensor

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of unsized object")
        return int(self.shape[0])

    def __iter__(self) -> Any:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return iter([self[i] for i in range(len(self))])

    def __bool__(self) -> bool:
        return bool(self.torch.item())

    def __getitem__(self, index: Any) -> Any:
        found = self.torch[_index(index)]
        whole = not any(x is Ellipsis for x in (index if isinstance(index, tuple) else (index,)))
        if found._spec.ndim == 0 and whole:
            return TracedArray(found.clone(), scalar=True)  # a number of its own
        return TracedArray(found)

    def __setitem__(self, index: Any, value: Any) -> None:
        held = operand(value)
        if isinstance(held, Tensor):
            held = held.to(self.tensor._spec.dtype)
        self.torch[_index(index)] = held

    def __hash__(self) -> int:
        raise TypeError("unhashable type: 'numpy.ndarray'")


ATTRIBUTES = frozenset(("dtype", "shape", "ndim", "size", "itemsize", "nbytes", "T", "real", "imag"))
METHODS: dict[str, Callable[..., Any]] = {}  # of arrays, filled by `array_functions`


def is_array(value: Any) -> bool:
    """Whether a value is an array of the trace."""
    return type(value) is TracedArray


def _index(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple([_index(x) for x in index])
    if type(index) is TracedArray:
        return index.tensor
    if isinstance(index, slice) and isinstance(index.step, int) and index.step < 0:
        raise refused("a slice with a negative step")
    if isinstance(index, np.generic):
        return index.item()
    return index


def operand(value: Any) -> Any:
    """A tensor or a number of Python for what NumPy computes with."""
    if type(value) is TracedArray:
        return value.tensor
    if type(value) in (bool, int, float, complex):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Tensor):
        raise refused("a tensor among the operands")
    if isinstance(value, (list, tuple)):
        return like(value).tensor
    raise refused(f"a {type(value).__name__} among the operands")


def like(values: Any, dtype: Any = None) -> TracedArray:
    """`np.asarray` of numbers, arrays and sequences of them."""
    if isinstance(values, Tensor):
        values = TracedArray(_detached(values))
    if type(values) is TracedArray:
        return values if dtype is None or values.dtype == dtype else TracedArray(values.torch.to(tensor_dtype(dtype)))
    if isinstance(values, (list, tuple)) and _holds_arrays(values):
        rows = [like(x) for x in values]
        wanted = np.result_type(*[row.dtype for row in rows]) if dtype is None else dtype
        stack: Any = HOOKS.public.stack
        return TracedArray(stack([row.torch.to(tensor_dtype(wanted)) for row in rows]))
    made = np.asarray(values, dtype)
    tensor_dtype(made.dtype)
    return TracedArray(HOOKS.public.tensor(made.tolist(), dtype=tensor_dtype(made.dtype)).reshape(made.shape))


def _holds_arrays(values: Any) -> bool:
    return any(type(x) is TracedArray or (isinstance(x, (list, tuple)) and _holds_arrays(x)) for x in values)


def _detached(tensor: Any) -> Any:
    if tensor._rg or tensor._spec.conj or tensor._spec.dtype not in _ARRAY_DTYPES:
        raise refused("such a tensor as an array")
    return tensor.detach()


def sample(value: Any) -> Any:
    """An array of one element with the dtype and the number of dims of another, for NumPy to be asked."""
    if type(value) is not TracedArray:
        return value
    return np.ones((), value.dtype)[()] if value.scalar else np.ones((1,) * value.ndim, value.dtype)


def computed(ufunc: Any, function: Callable[..., Any], *operands: Any) -> TracedArray:
    """Apply a ufunc: operands in the dtypes of NumPy's loop, the result in its dtype."""
    kinds = [_resolved(x) for x in operands]
    *inputs, output = ufunc.resolve_dtypes((*kinds, *[None] * (ufunc.nargs - len(kinds))))[: len(kinds) + 1]
    given = [_cast(operand(x), dtype) for x, dtype in zip(operands, inputs, strict=True)]
    if not any(isinstance(x, Tensor) for x in given):
        given[0] = HOOKS.public.tensor(given[0])
    made = function(*given).to(tensor_dtype(output))
    return TracedArray(made, made._spec.ndim == 0)


def _resolved(value: Any) -> Any:
    if type(value) in (bool, int, float, complex):
        return type(value) if type(value) is not bool else np.dtype(bool)
    return value.dtype if hasattr(value, "dtype") else like(value).dtype


def _cast(value: Any, dtype: Any) -> Any:
    if isinstance(value, Tensor):
        return value.to(tensor_dtype(dtype))
    return dtype.type(value).item()


def given(tracer: Tracer, value: Any, source: Source) -> TracedArray | None:
    """The array of the trace for one from outside; None for those that no tensor can stand for."""
    if type(value) is not np.ndarray or value.dtype not in _DTYPES or not value.flags.writeable or not value.size:
        return None
    if any(stride < 0 or stride % value.itemsize for stride in value.strides) or not value.dtype.isnative:
        return None
    if tracer.settings.backend is not None or not tracer.follows_numpy:
        return None
    tracer.reads.check(source, f"type({{}}) is {tracer.constants.name(np.ndarray)} and {{}}.flags.writeable")
    tracer.unkept = tracer.unkept or "it takes NumPy arrays"
    tracer.outside.kept.append(value)
    place = tracer.reads.source(f"{tracer.constants.name(from_numpy)}({{}})", source)
    tensor = from_numpy(value)
    tracer.kept.append(tensor)
    made = TracedArray(tracer.outside.wrap(tensor, place))
    tracer.outside.arrays[id(made)] = source
    tracer.kept.append(made)
    return made
