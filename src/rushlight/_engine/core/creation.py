"""Making tensors: from numbers, from memory of others, and filled."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import chain
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._base.errors import warn_once
from rushlight._base.lazy import LazyModule
from rushlight._base.lazy import numpy as np
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.integers import as_flag, integer, too_large
from rushlight._engine.core.memory import empty_spec, from_address, has_memory, is_host_memory, moved, own, zeros_spec
from rushlight._engine.core.packing import array_types, check_number, is_array, number_bounds, pack_numbers
from rushlight._engine.core.state import GRAD, INFERENCE, RECORDING, STATE, new_plan_table
from rushlight._engine.core.tensor import Tensor, alias, make, meta_of
from rushlight._engine.dispatch.executables import executable
from rushlight._engine.dispatch.kept.plan_store import packing, program_key
from rushlight._engine.dispatch.lower import plain_number
from rushlight._engine.dispatch.plans.native_lookup import RUNS, PlanSequence, not_cacheable, ran
from rushlight._engine.dispatch.plans.native_plans import Results, constants_plan, kernel_plan, native_device, ready
from rushlight._engine.dispatch.plans.plan_templates import KernelTemplate
from rushlight._engine.dispatch.plans.shape_classes import ShapeClasses, abstracted, symbolic
from rushlight._graph.core import trace
from rushlight._prims import build
from rushlight._types.device import CPU, Device, as_device
from rushlight._types.dtype import BFLOAT16, BOOL, BY_NAME, FLOAT32, FLOAT64, INT64, DType, from_numpy_name
from rushlight._types.layout import LARGEST, channels_last_strides, dense_strides, memory_order, numel, preserved
from rushlight._types.promotion import default_dtype, number_dtype, promote
from rushlight._types.shape_env import ShapeEnv
from rushlight._types.spec import Spec, check_memory, check_sizes
from rushlight._types.symbols import is_symbolic

__all__ = ["as_shape", "as_tensor", "empty", "from_numpy", "full", "generate", "like_strides", "tensor", "zeros"]

cuda_array: Any = LazyModule("rushlight._engine.core.cuda_array")
kept_programs: Any = LazyModule("rushlight._engine.dispatch.kept.kept_programs")  # with the first tensor that is filled


def as_shape(size: Sequence[Any], name: str = "empty") -> tuple[int, ...]:
    """Sizes as callers of the function `name` give them: loose ints, or one sequence of them."""
    if len(size) == 1 and not isinstance(size[0], int):
        first = size[0]
        if isinstance(first, (tuple, list)):
            size = first
        elif isinstance(first, Tensor) and first._spec.ndim:
            size = first.tolist()
    shape: list[int] = []
    for item in size:
        if type(item) is not int:
            try:
                item = int(item) if shape and isinstance(item, bool) else integer(item, True)
            except TypeError:
                if isinstance(item, Tensor) and item._spec.dtype is BOOL:
                    raise RuntimeError(
                        f"{name}(): argument 'size' must be tuple of ints, but found a tensor of bool"
                    ) from None
                raise TypeError(
                    f"{name}(): argument 'size' must be tuple of ints, but found element of type {type(item).__name__} at pos {len(shape)}"
                ) from None
        if not -LARGEST - 1 <= item <= LARGEST:
            raise too_large(name, "size", size, ValueError("Overflow when unpacking long long"))
        if item < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {item}: {list(size)}")
        shape.append(item)
    return tuple(shape)


def finish(made: Tensor, requires_grad: bool) -> Tensor:
    """Set `requires_grad` on a fresh tensor, and mark it when made in inference mode."""
    if STATE.word & INFERENCE:
        meta_of(made).inference = True
    if requires_grad is not False and requires_grad is not None:
        wanted = as_flag("empty", "requires_grad", requires_grad)
        if wanted and not (made._spec.dtype.is_floating_point or made._spec.dtype.is_complex):
            raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
        made.requires_grad = wanted
    if RUNS.now is not None and (requires_grad or made._autograd_meta is not None):
        runs = RUNS.now
        if made._autograd_meta is not None or not isinstance(runs, PlanSequence) or not runs.leaf(made):
            not_cacheable()  # a plan that only makes the tensor would not do
    return made


def spec_for(shape: tuple[int, ...], dtype: DType | None, device: Any, strides: tuple[int, ...] | None = None) -> Spec:
    """The spec of a fresh tensor; dtype and device as users give them."""
    if dtype is not None and not isinstance(dtype, DType):
        dtype = python_dtype(dtype)
    return Spec.of(default_dtype() if dtype is None else dtype, as_device(device), shape, strides)


def python_dtype(value: Any) -> DType:
    """`float`, `int`, `bool`, `complex` stand for dtypes too."""
    found = (
        {float: "float64", int: "int64", bool: "bool", complex: "complex128"}.get(value)
        if isinstance(value, type)
        else None
    )
    if found is None:
        named = isinstance(value, str) and value in BY_NAME
        raise TypeError(
            f"dtype must be torch.dtype, not {type(value).__name__}{f': write torch.{value}' if named else ''}"
        )
    return from_numpy_name(found)


def empty(
    *size: Any, dtype: DType | None = None, device: Any = None, requires_grad: bool = False, strides: Any = None
) -> Tensor:
    """Memory with whatever is in it."""
    return finish(empty_spec(spec_for(as_shape(size), dtype, device, strides)), requires_grad)


def zeros(*size: Any, dtype: DType | None = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Zeros."""
    return finish(zeros_spec(spec_for(as_shape(size), dtype, device)), requires_grad)


_FILLS, _SHAPE_CLASSES = new_plan_table(), ShapeClasses()


def generate(function: Any, spec: Spec, key: str, numbers: Sequence[Any] = (), rest: tuple[int, ...] = ()) -> Tensor:
    """A fresh tensor whose elements `function(spec, rest, *weak values)` describes as a graph without tensor inputs.

    `key` names the function, `numbers` are arguments of the kernel, `rest` other whole numbers on which it depends;
    they and the sizes of the spec may be symbolic.
    """
    if not has_memory(spec):
        return make(None, spec, 0)
    kinds: tuple[type, ...] = tuple([number.__class__ for number in numbers])  # of symbolic ones those of plain ones
    full_key = (key, rest, spec, kinds)
    exe = _FILLS.get(full_key)
    if exe is None:
        exe = _FILLS[full_key] = _filler(function, spec, key, kinds, rest)
    words: list[Any] = []
    for number in numbers:
        words += [number.real, number.imag] if type(number) is complex else [number]
    storage = exe(*words)
    made = make(storage, spec, storage.ptr)
    if RUNS.now is not None:
        ran(constants_plan(exe, lambda: generate(function, spec, key, numbers, rest), spec, words), (), made)
    return made


def _filler(function: Any, spec: Spec, key: str, kinds: tuple[type, ...], rest: tuple[int, ...]) -> Any:
    """The executable of `generate` for numbers of these types: kept by an earlier process, cast from a template, or
    derived in full.
    """
    check_sizes(spec)
    HOOKS.operator_name = key
    weak = [((), _number_dtype_wide(kind), True) for kind in kinds]
    inputs = [None] * len(weak)

    def derive() -> Any:
        return executable(trace(lambda *values: function(spec, rest, *values), weak), inputs, [spec])

    record = program_key("fill", key, rest, spec, tuple([kind.__name__ for kind in kinds]))
    exe = None if record is None else kept_programs.kept_executable(record, inputs, [spec], derive)
    if exe is not None:
        return exe
    sizes: list[int] = []
    head = abstracted(rest, sizes)

    def make_template(shape_env: ShapeEnv, symbolic_specs: list[Any]) -> KernelTemplate:
        graph = trace(lambda *values: function(symbolic_specs[0], symbolic(head, shape_env.symbols), *values), weak)
        return KernelTemplate(graph, inputs, symbolic_specs, shape_env)

    symbolic_sizes = backend_of(spec.device).symbolic
    found = _SHAPE_CLASSES.find((key, head, kinds), [spec], make_template, sizes) if symbolic_sizes else None
    exe = derive() if found is None else found[0].executable(found[1])
    if record is not None:
        kept_programs.keep_program(
            record, lambda: packing.packed_program(exe, spec.device) if found is None else found[0].packed(found[2])
        )
    return exe


def _number_dtype_wide(kind: type) -> DType:
    return from_numpy_name({bool: "bool", int: "int64", float: "float64", complex: "complex128"}[kind])


def full(shape: tuple[int, ...], value: Any, spec: Spec, varies: bool = True) -> Tensor:
    """Every element equal to `value`, which is the same in all calls like this one unless it `varies`."""
    if type(value) is int and value >= 1 << 63 and not spec.dtype.is_integer:
        value = float(value)  # kernels take ints of 64 bits with a sign
    known = _FILLS.get((type(value), spec))
    if known is not None and RUNS.now is None:
        storage = known(value)
        return make(storage, spec, storage.ptr)
    if not isinstance(value, float) and not value and (RUNS.now is None or not varies):
        return zeros_spec(spec)
    made = generate(
        lambda spec, _, v: build.broadcast_to(build.convert(v, spec.dtype), spec.shape), spec, "full", (value,)
    )
    exe = _FILLS.get(("full", (), spec, (type(value),)))  # not of symbolic numbers, which are formulas
    if exe is not None and type(value) is not complex:
        _FILLS[type(value), spec] = exe
        if RUNS.now and varies:
            RUNS.now[-1] = (_filling(exe, value, spec), (value,), made, None)
    return made


def _filling(exe: Any, value: Any, spec: Spec) -> Any:
    """The plan that fills a fresh tensor with its argument, a number like `value`."""

    def again(value: Any) -> Tensor:
        check_number(value, spec.dtype)
        return full(tuple(spec.shape), value, spec)

    bounds = number_bounds(spec.dtype)
    return (
        again
        if bounds is not None and type(value) is not int
        else kernel_plan(exe, again, [None], Results([spec], 1, False), bounds=bounds)
    )


# ***** from data *****


TO_A_NUMBER = "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.\nConsider using tensor.detach() first."


def tensor(data: Any, dtype: DType | None = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A new tensor that copies numbers, nested sequences, arrays or another tensor."""
    if dtype is not None and not isinstance(dtype, DType):
        dtype = python_dtype(dtype)
    if type(data) in _COUNTED and RUNS.now is None:
        made = _of_numbers(data, dtype, device)
        if made is not None:
            return finish(made, requires_grad)
    if is_symbolic(data):
        return finish(full((), data, spec_for((), dtype or number_dtype(data), device)), requires_grad)
    if is_array(data):
        made = _copy_of(data, dtype, device)
        if made is not None:
            return finish(made, requires_grad)
    if (type(data) is list or type(data) is tuple) and data and type(data[0]) is Tensor and RUNS.now is None:
        found = data[0]._spec.dtype
        if all(type(v) is Tensor and not v._spec.shape and v._spec.dtype is found and not v._rg for v in data):
            return tensor([v.item() for v in data], found if dtype is None else dtype, device, requires_grad)
    if isinstance(data, Tensor):
        made = data.detach().clone()
        made = made.to(dtype=dtype or made.dtype, device=as_device(device) if device is not None else made.device)
        return finish(alias(made), requires_grad)
    values: Any = data
    if hasattr(data, "__cuda_array_interface__"):
        made = cuda_array.shared(data).clone()
        return finish(made.to(dtype=dtype or made.dtype, device=as_device(device)), requires_grad)
    if not hasattr(data, "__len__") and hasattr(data, "__array__"):
        data = np.asarray(data)
        made = _copy_of(data, dtype, device)
        if made is not None:
            return finish(made, requires_grad)
    elif not hasattr(data, "__len__") and hasattr(data, "__dlpack__"):
        data = np.from_dlpack(data)
    plain = _plain_numbers(data) if type(data) is list or type(data) is tuple else None
    if plain is not None:
        values, kind, shape = plain
        found = number_dtype(kind) if dtype is None else dtype
    else:
        values, found, shape = _numbers_of(data, dtype)
    spec = Spec.of(found, as_device(device), shape)
    if not has_memory(spec):
        return finish(make(None, spec, 0), requires_grad)
    if values is not None:
        made = finish(_from_numbers(values, spec), requires_grad)
        return made if RUNS.now is None else ran(lambda: _from_numbers(values, spec), (), made)
    array = _numpy_array(data, found)
    whole = _over(array, Spec.of(found, CPU, shape), array.nbytes)
    return finish(whole if is_host_memory(spec) else moved(whole, spec.device), requires_grad)


_COUNTED = frozenset((float, int, bool, list, tuple))  # what is measured natively
# (kind of numbers and sizes, dtype, device) -> the device's `of_numbers` and its arguments; None where it fills no such
# tensors
_MEASURED = new_plan_table()
# By the kind of numbers: of which dtypes are tensors filled natively
_FILLED_BY = ((FLOAT32, FLOAT64), (INT64, FLOAT32, FLOAT64), (BOOL,))


def _of_numbers(data: Any, dtype: DType | None, device: Any) -> Tensor | None:
    """A tensor of nested lists and tuples of nothing but floats, ints or bools, of one of these types; None for all
    else.
    """
    measured = None if STATE.word & RECORDING else ready().measure(data)
    if measured is None:
        return None
    key = (measured, dtype, device)
    if key in _MEASURED:
        told = _MEASURED[key]
    else:
        kind, *shape = measured
        found = number_dtype((0.0, 0, False)[kind]) if dtype is None else dtype
        spec = Spec.of(found, as_device(device), tuple(shape))
        native = native_device(spec.device) if found in _FILLED_BY[kind] else None
        told = None
        if native is not None and found.name in native.codes:
            told = (native.of_numbers, (spec, spec.nbytes, spec.numel, kind, native.codes[found.name]))
        _MEASURED[key] = told
    return None if told is None else told[0](data, *told[1])


# (NumPy's dtype and shape, dtype, device) -> spec of the copy and its dtype in NumPy; None for the rarer ones
_COPIED = new_plan_table()


def _copy_of(array: Any, dtype: DType | None, device: Any) -> Tensor | None:
    """A tensor of an array's elements; None where NumPy lacks the dtype, and away from the host's memory."""
    key = (array.dtype, array.shape, dtype, device)
    if key in _COPIED:
        told = _COPIED[key]
    else:
        found = from_numpy_name(array.dtype.name) if dtype is None else dtype
        spec = Spec.of(found, as_device(device), array.shape)
        told = _COPIED[key] = (
            (spec, np.dtype(found.numpy_name)) if is_host_memory(spec) and found.numpy_name is not None else None
        )
    if told is None:
        return None
    spec, kind = told
    return _over(np.array(array, kind, order="C"), spec, spec.nbytes)


MAX_DIMS = 128  # of what is made from nested sequences, as in PyTorch


def _too_deep(level: Any) -> ValueError:
    return ValueError(f"too many dimensions '{type(level).__name__}'")


def _check_depth(item: Any) -> None:
    """ValueError if an item of the second dim has more dims within than a tensor may, as a list that holds itself."""
    for _ in range(MAX_DIMS):
        if type(item) not in (list, tuple) or not item:
            return
        item = item[0]
    raise _too_deep(item)


def _plain_numbers(data: Any) -> tuple[list[Any], Any, tuple[int, ...]] | None:
    """(numbers, one of them, shape) of nested lists and tuples of nothing but floats, ints or bools, of one of these
    types; None for all else.
    """
    shape, level = (len(data),), data
    while True:
        kinds = set(map(type, level))
        if len(kinds) != 1:
            return None
        kind = kinds.pop()
        if kind is float or kind is int or kind is bool:
            return level if type(level) is list else list(level), level[0], shape
        if kind is not list and kind is not tuple:
            return None
        if len(shape) == 2:  # a list that holds itself twice would double at every dim
            _check_depth(level[0])
        sizes = set(map(len, level))
        if len(sizes) != 1:
            return None
        shape = (*shape, sizes.pop())
        level = list(chain.from_iterable(level))


_SHORT = {float: (FLOAT32, "f"), int: (INT64, "q")}  # what `struct` can write at once


def _from_numbers(values: list[Any], spec: Spec) -> Tensor:
    """A contiguous tensor of these Python numbers."""
    if not is_host_memory(spec):
        made, host = empty_spec(spec), _from_numbers(values, Spec.of(spec.dtype, CPU, spec.shape))
        if spec.nbytes:
            backend_of(spec.device).copy_in(made._ptr, host._ptr, spec.nbytes)
        return made
    made = empty_spec(spec)
    if 0 < spec.numel <= 64:
        kinds = set(map(type, values))
        dtype, code = _SHORT.get(kinds.pop(), (None, ""))
        if dtype is spec.dtype and not kinds:
            try:
                struct.pack_into(f"{len(values)}{code}", made._storage, 0, *values)
                return made
            except (struct.error, OverflowError):
                pass  # the careful way knows what becomes of it
    if spec.numel:
        packed = memoryview(pack_numbers(values, spec.dtype)).cast("B")
        memoryview(made._storage)[: len(packed)] = packed
    return made


_NUMBERS: tuple[Any, ...] = (bool, int, float, complex)


class _NoNumberError(Exception):
    """An item among numbers is no number: (text, its type)."""


def _numbers_of(data: Any, dtype: DType | None) -> tuple[list[Any] | None, DType, tuple[int, ...]]:
    """The numbers in `data` in order (None for a NumPy array or scalar: its memory is copied), their dtype, and the
    shape.
    """
    if type(data) in (bool, int, float, complex):
        return [data], number_dtype(data) if dtype is None else dtype, ()
    if isinstance(data, array_types()):
        return None, from_numpy_name(data.dtype.name) if dtype is None else dtype, tuple(data.shape)
    if isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    if _is_sequence(data):
        try:
            values, shape, kinds = _walk(data)
        except _NoNumberError as error:
            if dtype is None:
                raise RuntimeError(
                    f"Could not infer dtype of {error.args[1].__name__}; a tensor holds numbers"
                ) from None
            raise TypeError(error.args[0]) from None
        if dtype is None:
            dtype = default_dtype()
            if kinds:
                dtype = kinds[0]
                for kind in kinds[1:]:
                    dtype = promote(dtype, kind)
        return values, dtype, shape
    for number in _NUMBERS:
        if isinstance(data, number):
            return _numbers_of(number(data), dtype)
    raise RuntimeError(f"Could not infer dtype of {type(data).__name__}")


def _numpy_array(values: Any, dtype: DType) -> Any:
    """A fresh contiguous copy of a NumPy array or scalar in `dtype`."""
    if dtype.numpy_name is None and dtype is not BFLOAT16:
        packed = pack_numbers(np.asarray(values).ravel().tolist(), dtype)
        return np.frombuffer(packed, dtype=np.uint8).copy()
    if dtype is BFLOAT16:
        wide = np.array(values, dtype=np.float32)
        bits = wide.view(np.uint32)
        rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        return np.ascontiguousarray(np.where(np.isnan(wide), np.uint16(0x7FC0), rounded)).reshape(wide.shape)
    return np.array(values, dtype=dtype.numpy_name, order="C")


def _is_sequence(data: Any) -> bool:
    """Whether it holds items by number.  Dicts and sets do not; texts, tensors and arrays are looked at as what they
    are.
    """
    if isinstance(data, (list, tuple, range)):
        return True
    kind = type(data)
    return (
        hasattr(kind, "__len__")
        and hasattr(kind, "__getitem__")
        and not isinstance(data, (dict, str, bytes, Tensor))
        and not is_array(data)
    )


def _walk(data: Any) -> tuple[list[Any], tuple[int, ...], list[DType]]:
    """Leaves of a nested sequence in order, its shape, and the dtypes met.  ValueError where it is ragged."""
    shape: list[int] = []
    level: Any = data
    while _is_sequence(level):
        shape.append(len(level))
        if len(shape) > MAX_DIMS:
            raise _too_deep(level)
        if not len(level):
            return [], tuple(shape), []
        try:
            level = level[0]
        except Exception:
            raise ValueError(f"could not determine the shape of object type '{type(level).__name__}'") from None
    inner: tuple[int, ...] = ()
    if is_array(level):
        inner = tuple(level.shape)
        if inner:
            warn_once(
                "Creating a tensor from a list of numpy.ndarrays is extremely slow. Please consider converting the list to a single numpy.ndarray "
                "with numpy.array() before converting to a tensor."
            )
    values: list[Any] = []
    kinds: dict[Any, DType] = {}

    def visit(item: Any, depth: int) -> None:
        if depth == len(shape):
            _leaf(item, inner, values, kinds)
            return
        if not hasattr(item, "__len__") or isinstance(item, Tensor) and item.ndim == 0:
            raise TypeError(f"not a sequence: {type(item).__name__} at dim {depth}")
        if len(item) != shape[depth]:
            raise ValueError(f"expected sequence of length {shape[depth]} at dim {depth} (got {len(item)})")
        for part in item:
            if part is item:
                raise TypeError("new(): self-referential lists are incompatible")
            visit(part, depth + 1)

    if len(shape) == 1 and not inner and all(type(v) is float for v in data):
        return list(data), tuple(shape), [default_dtype()]
    visit(data, 0)
    return values, (*shape, *inner), list(kinds.values())


def _leaf(item: Any, inner: tuple[int, ...], values: list[Any], kinds: dict[Any, DType]) -> None:
    kind = type(item)
    if kind in (bool, int, float, complex):
        if inner:
            raise ValueError(f"expected a sequence of shape {inner}, got a number")
        values.append(item)
        if kind not in kinds:
            kinds[kind] = number_dtype(item)
    elif isinstance(item, Tensor):  # a number, of whatever shape
        if item._spec.numel != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        if inner:
            raise ValueError(f"expected a sequence of shape {inner}, got a tensor of one element")
        if item.requires_grad and STATE.word & GRAD:
            warn_once(TO_A_NUMBER)
        kinds[item.dtype] = item.dtype
        values.append(item.item())
    elif isinstance(item, array_types()):
        if tuple(item.shape) != inner:
            raise ValueError(f"expected all arrays to be of shape {inner} (got {tuple(item.shape)})")
        dtype = from_numpy_name(item.dtype.name)
        kinds[dtype] = dtype
        found = item.tolist()
        stack = [found]
        flat: list[Any] = []
        while stack:
            top = stack.pop()
            if isinstance(top, list):
                stack.extend(reversed(top))
            else:
                flat.append(top)
        values.extend(flat)
    elif isinstance(item, (bool, int, float, complex)):
        _leaf(next(t(item) for t in _NUMBERS if isinstance(item, t)), inner, values, kinds)
    elif _is_sequence(item):
        raise TypeError(
            f"expected a number, got a sequence of length {len(item)}: the nested sequences have different depths"
        )
    elif isinstance(item, str) and not values:
        raise ValueError(f"too many dimensions '{kind.__name__}'; a tensor holds numbers")
    elif isinstance(item, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{kind.__name__}'; a tensor holds numbers")
    elif (number := plain_number(item)) is not item:
        _leaf(number, inner, values, kinds)
    else:
        raise _NoNumberError(f"must be real number, not {kind.__name__}", kind)


def chosen_device() -> Device | None:
    """The default device where a program chose one that is not the CPU: what exists moves there, too."""
    place = as_device(None)
    return None if place is as_device(CPU) else place


def as_tensor(data: Any, dtype: DType | None = None, device: Any = None) -> Tensor:
    """The same as `tensor`, but without a copy where memory can be shared."""
    if device is None:
        device = chosen_device()
    if isinstance(data, Tensor):
        if dtype is None and device is None:
            return data
        return data.to(dtype=dtype or data.dtype, device=as_device(device) if device is not None else data.device)
    if hasattr(data, "__cuda_array_interface__"):
        made = cuda_array.shared(data)
        return made.to(dtype=dtype or made.dtype, device=made.device if device is None else as_device(device))
    if is_array(data):
        place = as_device(device)
        moves = place is not as_device(CPU)
        known = over_known(data) if dtype is None and not moves else None
        if known is not None:
            return known
        shares = data.flags.writeable and (
            (data.dtype, data.shape, data.strides) in _ARRAYS or min(data.strides, default=0) >= 0
        )
        made = _shared(data) if shares else tensor(data, device=CPU)
        return made.to(dtype=dtype, device=place) if moves else made if dtype is None else made.to(dtype=dtype)
    return tensor(data, dtype=dtype, device=device)


def over_known(array: Any) -> Tensor | None:
    """A tensor over an array that can be written to, of a form that was met before; None for all else."""
    if _OVER and type(array) is _OVER[2]:
        known = _FORMS.get(_OVER[1](array))
        if known is not None and RUNS.now is None and not STATE.word & INFERENCE:
            return _OVER[0](array, known[0], known[1])
    return None


def from_numpy(array: Any) -> Tensor:
    """A tensor that shares an array's memory.  TypeError for dtypes that we lack, ValueError for negative strides."""
    known = over_known(array)
    if known is not None:
        return known
    if not is_array(array):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    if not array.flags.writeable:
        warn_once(
            "The given NumPy array is not writable, and PyTorch does not support non-writable tensors. This means writing to this tensor will result in "
            "undefined behavior. You may want to copy the array to protect its data or make it writable before converting it to a tensor. This type of "
            "warning will be suppressed for the rest of this program."
        )
        return _shared(array)
    made = _shared(array)
    if _OVER and type(array) is _OVER[2]:
        # kept, so that its address stays its own
        _FORMS[_OVER[1](array)] = (*_ARRAYS[array.dtype, array.shape, array.strides], array.dtype)
    return made


def _shared(array: Any) -> Tensor:
    """A tensor over the memory of an array."""
    key = (array.dtype, array.shape, array.strides)
    known = _ARRAYS.get(key)
    if known is None:
        known = _ARRAYS[key] = _array_spec(array)
    spec, span = known
    made: Tensor = _OVER[0](array, spec, span) if _OVER else _over(array, spec, span)
    return made if RUNS.now is None and not STATE.word & INFERENCE else finish(made, False)


# The native functions that know where an array's elements lie, and what it is, once they were seen to be right; then
# the class of such arrays.
_OVER: list[Any] = []
_FORMS = new_plan_table()  # what arrays are, if they can be written to -> spec, bytes, dtype


def _over(array: Any, spec: Spec, nbytes: int) -> Tensor:
    """A tensor over the memory of an array, which it keeps alive."""
    if _OVER:
        return _OVER[0](array, spec, nbytes)
    address = array.__array_interface__["data"][0]
    made, over, form = from_address(address, spec, nbytes, array), ready().over_array, ready().array_form
    known = memoryview(form(array)).cast("q").tolist() if type(array) is np.ndarray and array.ndim else None
    if over(array, spec, nbytes)._ptr == address and known == [
        id(array.dtype),
        array.flags.num,
        *array.shape,
        *array.strides,
    ]:
        _OVER.extend((over, form, np.ndarray))
    return made


_ARRAYS = new_plan_table()  # layouts of arrays -> spec, bytes


def _array_spec(array: Any) -> tuple[Spec, int]:
    """The spec of a tensor over an array's memory, and how many bytes it spans."""
    dtype = from_numpy_name(array.dtype.name)
    if array.dtype.byteorder not in "=|" and not array.dtype.isnative:
        raise ValueError(
            "given numpy array has byte order different from the native byte order. Conversion between byte orders is currently not supported."
        )
    if any(s < 0 for s in array.strides):
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative strides are not currently supported. (You can "
            "probably work around this by making a copy of your array  with array.copy().) "
        )
    if any(s % dtype.itemsize for s in array.strides):
        raise ValueError(
            "given numpy array strides not a multiple of the element byte size. Copy the numpy array to reallocate the memory."
        )
    spec = Spec.of(dtype, CPU, array.shape, tuple(s // dtype.itemsize for s in array.strides))
    span = (
        sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) + dtype.itemsize if array.size else 0
    )
    return spec, span


_TYPESTR = {"b": "|b1", "u": "u", "i": "i", "f": "f", "c": "c"}


def to_array(x: Tensor) -> Any:
    """A NumPy array over the tensor's memory (dtypes that NumPy lacks as their bits, unsigned integers)."""
    if HOOKS.lazy_clones:
        own(x)
    spec, storage = x._spec, x._storage
    known = _EXPORTS.get(spec)
    if known is None:
        check_memory(spec)
        known = _EXPORTS[spec] = _array_form(spec)
    shape, dtype, strides = known
    if not spec.numel:
        return np.zeros(shape, dtype)
    return np.ndarray(shape, dtype, storage, x._ptr - storage.ptr, strides)


_EXPORTS = new_plan_table()  # specs -> shape, NumPy's dtype, bytes between elements


def _array_form(spec: Spec) -> tuple[tuple[int, ...], Any, tuple[int, ...]]:
    dtype, size = spec.dtype, spec.dtype.itemsize
    if dtype is BOOL:
        code = "|b1"
    else:
        code = ("|" if size == 1 else "<") + ("u" if dtype.numpy_name is None else _TYPESTR[dtype.kind]) + str(size)
    steps = [s * size if n > 1 or s * size <= LARGEST else 0 for n, s in zip(spec.shape, spec.strides, strict=True)]
    return tuple(spec.shape), np.dtype(code), tuple(steps)


def like_strides(x: Tensor, memory_format: Any) -> tuple[int, ...] | None:
    """Strides for `empty_like` and its kin."""
    word = str(memory_format) if memory_format is not None else "torch.preserve_format"
    spec = x._spec
    if word.endswith("preserve_format"):
        return preserved(spec.shape, spec.strides)
    if word.endswith("contiguous_format"):
        return None
    return channels_last_strides(spec.shape)


__all__ += [
    "Device",
    "INT64",
    "dense_strides",
    "finish",
    "memory_order",
    "numel",
    "python_dtype",
    "spec_for",
    "to_array",
]
