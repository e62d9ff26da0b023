"""One kernel call for an optimizer's step over many parameters."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rushlight._backends.registry import backend_of, host
from rushlight._base.trace_marks import runs_apart
from rushlight._engine.core.hooks import HOOKS, bump
from rushlight._engine.core.memory import own
from rushlight._engine.core.state import RECORDING, STATE, new_plan_table
from rushlight._engine.core.tensor import Tensor
from rushlight._graph.core import Graph, GraphBuilder, Value
from rushlight._ops.table import OPERATORS
from rushlight._types.device import CPU, Device
from rushlight._types.dtype import COMPLEX64, COMPLEX128, FLOAT32, FLOAT64, DType
from rushlight._types.spec import Spec

__all__ = [
    "Rule", "count_steps", "factored_update", "flat_dtype", "is_captured", "is_counter", "moved", "on_device", "rule_of",
    "update_elements", "update_recorded",
]  # fmt: skip

# Elements of a piece of work: enough to be worth a thread, few enough to spread one large matrix over all of them.
PIECE = 1 << 15
# Parameters of more elements than this are worth several threads each, where one alone can be treated by one thread
# only.
_ALONE = 1 << 18
# From this many elements on, other Python threads may run meanwhile.
RELEASE = 1 << 17

_COUNTER = Spec.of(FLOAT32, CPU, ())
_FLAT = {FLOAT32: FLOAT32, FLOAT64: FLOAT64, COMPLEX64: FLOAT32, COMPLEX128: FLOAT64}


class Rule:
    """The update of each element of a parameter and of its states, written once and compiled for many parameters at
    once.

    `body(t, x, n)` changes the attributes of `x`, which hold arrays of one shape, in place of whom stand the results:
    `x.param`, and the states. `x.grad` is read. `n` holds numbers, `t` has the operators on what `x` holds: `rushlight`
    itself for tensors, the bodies of the operator table while the rule is traced. `arrays` names the attributes of `x`
    (the parameter and its gradient first), `numbers` those of `n`; all others of `x` and `n` are None, and a rule may
    ask for that.  `written` are the positions of arrays that change: all but the gradient's, which a number `grad_scale` unscales.
    """

    __slots__ = ("_kernels", "arrays", "body", "numbers", "written")

    def __init__(self, body: Callable[[Any, Any, Any], None], arrays: Sequence[str], numbers: Sequence[str]) -> None:
        self.body, self.arrays, self.numbers = body, tuple(arrays), tuple(numbers)
        self.written = tuple(i for i, name in enumerate(self.arrays) if name != "grad" or "grad_scale" in self.numbers)
        self._kernels: dict[tuple[DType, Device, tuple[str, ...]], int] = {}

    def apply(self, t: Any, arrays: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
        """The new values of the arrays that are written."""
        x, n = _Named(self.arrays, arrays), _Named(self.numbers, numbers)
        self.body(t, x, n)
        return [getattr(x, self.arrays[i]) for i in self.written]

    def trace(self, dtype: DType, size: int, read: tuple[str, ...] = ()) -> Graph:
        """The rule on arrays of one dim: a graph of the arrays, of the numbers that are read from memory, then of those
        that are given.
        """
        builder = GraphBuilder()
        arrays = [builder.input((size,), dtype) for _ in self.arrays]
        values = {name: builder.input((), dtype) for name in read}
        given = {name: builder.input((), FLOAT64, weak=True) for name in self.numbers if name not in read}
        values |= given
        with builder:
            made = self.apply(_Bodies(), arrays, [values[name] for name in self.numbers])
        return builder.finish(made)

    def kernel(self, dtype: DType, device: Device, read: tuple[str, ...] = ()) -> int:
        """The address of the kernel: its buffers are the arrays, whose memory the results go to, and the numbers, of
        which those named in `read` lie in memory of the device.
        """
        address = self._kernels.get((dtype, device, read))
        if address is None:
            layouts: list[Any] = [(1,)] * len(self.arrays) + [()] * len(read)
            layouts += [None] * (len(self.numbers) - len(read))
            address = self._kernels[dtype, device, read] = backend_of(device).multi_tensor.element_kernel(
                lambda size: self.trace(dtype, size, read), layouts, dict(enumerate(self.written))
            )
        return address

    @staticmethod
    def is_recorded() -> bool:
        """Whether a program is being recorded that can hold the application of a rule as one call: an fx graph cannot."""
        return bool(STATE.word & RECORDING) and STATE.recording.defers

    @staticmethod
    def is_array(number: Any) -> bool:
        """Whether a number of a rule lies in memory: a tensor, or what stands for one in a trace."""
        return isinstance(number, Tensor) or (isinstance(number, Value) and not number.weak)

    @staticmethod
    def copy_elements(targets: Sequence[Any], sources: Sequence[Any]) -> None:
        """Copy tensors of one element, all of one dtype and device, in as few launches as parameters allow."""
        rows = list(zip(targets, sources, strict=True))
        update_elements(_COPY, targets[0]._spec.dtype, rows, [()] * len(rows))

    def record_rows(self, rows: Sequence[Sequence[Any]], numbers: Sequence[Any], kinds: tuple[type, ...]) -> list[bool]:
        """`update_recorded` for many parameters with the same numbers; which ones it took, all of these `kinds`."""
        return [type(tensors[0]) in kinds and update_recorded(self, tensors, numbers) for tensors in rows]


def _copy(t: Any, x: Any, n: Any) -> None:
    x.target = x.grad


_COPY = Rule(_copy, ("target", "grad"), ())
_RULES: dict[tuple[Any, ...], Rule] = {}


def rule_of(cls: Any, maximize: bool, arrays: tuple[str, ...], numbers: tuple[str, ...]) -> Rule:
    """The rule of a class with a `_rule(t, x, n)`, with what all have in common: the direction, weight decay in its two
    forms, and a `GradScaler`'s two numbers, `grad_scale` and `found_inf`: where the latter is not 0, nothing changes.
    """
    own = cls._rule
    key = own, maximize, arrays, numbers
    found = _RULES.get(key)
    if found is not None:
        return found

    def body(t: Any, x: Any, n: Any) -> None:
        before = {name: getattr(x, name) for name in arrays}
        if n.grad_scale is not None:
            x.grad = x.grad / n.grad_scale
        unscaled = x.grad
        if maximize:
            x.grad = -x.grad
        if n.shrink is not None:
            x.param = x.param * n.shrink
        if n.penalty is not None:
            x.grad = moved(t, x.grad, x.param, n.penalty)
        if n.penalty_apart is not None:
            x.grad = x.grad + x.param * n.penalty_apart
        own(t, x, n)
        x.grad = unscaled
        if n.found_inf is not None:
            for name, value in before.items():
                setattr(x, name, t.where(t.ne(n.found_inf, 0), value, getattr(x, name)))

    return _RULES.setdefault(key, Rule(body, arrays, numbers))


def moved(t: Any, start: Any, way: Any, factor: Any) -> Any:
    """start + factor * way"""
    return start + way * factor if Rule.is_array(factor) else t.add(start, way, alpha=factor)


_RECORDED = new_plan_table()  # (rule, spec) -> the executable of a recorded program


def update_recorded(rule: Rule, tensors: Sequence[Any], numbers: Sequence[Any]) -> bool:
    """Where a program is being recorded: apply a rule to tensors of one layout without gaps as one call of the program.

    False where it takes other tensors.
    """
    spec = tensors[0]._spec
    if not Rule.is_recorded() or spec.dtype not in (FLOAT32, FLOAT64) or spec.conj or not spec.numel:
        return False
    if any(isinstance(n, Tensor) for n in numbers):
        return False
    if not (spec.contiguous or _dense(spec)) or any(t._spec is not spec or t._storage is None for t in tensors):
        return False
    exe = _RECORDED.get((rule, spec))
    if exe is None:
        layouts: list[Any] = [(1,)] * len(rule.arrays) + [None] * len(rule.numbers)
        outputs = [(1,)] * len(rule.written)
        graph = rule.trace(spec.dtype, spec.numel)
        exe = _RECORDED[rule, spec] = backend_of(spec.device).compile(
            graph, layouts, outputs, spec.device, aliases=dict(enumerate(rule.written))
        )
    exe(*[t._ptr for t in tensors], *[n if type(n) is float else n * 1.0 for n in numbers])
    for i in rule.written:
        bump(tensors[i]._storage)
    return True


class _Named:
    """Values by their names; what is not there is None."""

    def __init__(self, names: Sequence[str], values: Sequence[Any]) -> None:
        self.__dict__.update(zip(names, values, strict=True))

    def __getattr__(self, name: str) -> None:
        return None


class _Bodies:
    """The operators of the table, on values of a graph."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return OPERATORS[name].body


def is_captured(tensor: Any) -> bool:
    """Whether what is computed now of a tensor becomes a graph of its device, which is replayed without the host."""
    device = tensor._spec.device
    backend = backend_of(device)
    return backend.asynchronous and bool(backend.is_capturing(backend.current_stream(device)))


def on_device(tensor: Any) -> bool:
    """Whether the host cannot read a tensor's elements without waiting for a device."""
    return not backend_of(tensor._spec.device.real).host_readable


def is_counter(tensor: Any, device: Device | None = None) -> bool:
    """Whether it is one float32 in memory of a device; `count_steps` takes those of the host."""
    spec = _COUNTER if device is None else Spec.of(FLOAT32, device, ())
    return tensor._spec is spec and tensor._storage is not None


def count_steps(counters: Sequence[Any]) -> array[float]:
    """Add one to each counter, a tensor of one float32; returns their values."""
    _own_all(counters)
    addresses, values = array("q", [counter._ptr for counter in counters]), array("d", bytes(8 * len(counters)))
    host().multi_tensor.count_steps(addresses.buffer_info()[0], values.buffer_info()[0], len(counters))
    for counter in counters:
        counter._storage.version += 1
    return values


def _own_all(tensors: Sequence[Any]) -> None:
    """Give tensors that are about to be written memory that no lazy clone shares."""
    if HOOKS.lazy_clones:
        for tensor in tensors:
            own(tensor)


def _takes_rows(spec: Spec) -> bool:
    """Whether the backend of a spec's device has optimizer steps over many parameters."""
    return backend_of(spec.device).multi_tensor is not None


def flat_dtype(tensors: Sequence[Any]) -> DType | None:
    """The dtype of the elements if a kernel can change these tensors side by side as flat arrays, else None.

    They must have one layout without gaps, memory of their own, and floats of 32 or 64 bits; complex numbers are two of
    those.
    """
    spec = tensors[0]._spec
    dtype = _FLAT.get(spec.dtype)
    if dtype is None or spec.conj or spec.released or not _takes_rows(spec) or not (spec.contiguous or _dense(spec)):
        return None
    for tensor in tensors:
        if tensor._spec is not spec or tensor._storage is None:  # kinds of tensor have specs and no memory
            return None
    return dtype


def update_elements(
    rule: Rule,
    dtype: DType,
    rows: Sequence[Sequence[Any]],
    numbers: Sequence[Sequence[float]],
    read: Mapping[str, Any] | None = None,
) -> None:
    """Apply a rule in place to many parameters in one call.

    A row holds the tensors that `rule.arrays` names, for which `flat_dtype` found `dtype`, its numbers those that
    `rule.numbers` names.  All are on one device.  `read` are numbers that lie there, by their names: tensors of `dtype`
    with an element for each row or one for all; `numbers` are then the others.
    """
    read = read or {}
    columns = [_addresses(values, len(rows)) for values in read.values()]
    addresses: Sequence[Sequence[int]] = list(zip(*columns, strict=True)) if columns else [()] * len(rows)
    words: list[int] = []
    # A complex number is two of its elements; complex and real parameters may lie in one list.
    specs = [tensors[0]._spec for tensors in rows]
    sizes = tuple([spec.numel if spec.dtype is dtype else 2 * spec.numel for spec in specs])
    work = _works.get((sizes, False)) or _work(sizes, False)
    last: Any = None
    for tensors, values, constants, places in zip(rows, numbers, work.constants, addresses, strict=True):
        _own_all(tensors)
        words += [tensor._ptr for tensor in tensors]
        words += places
        if values is not last:  # rows that have counted as many steps share one object of numbers
            last, packed = values, array("q", array("d", values).tobytes())
        words += packed
        words.append(constants)
    table = array("q", words)
    buffers = len(rule.arrays) + len(rule.numbers)
    device = rows[0][0]._spec.device
    update_rows = backend_of(device).multi_tensor.update_rows
    update_rows(work.address, table.buffer_info()[0], rule.kernel(dtype, device, (*read,)), buffers)
    for tensors in rows:
        for i in rule.written:
            tensors[i]._storage.version += 1


def _addresses(values: Any, rows: int) -> Sequence[int]:
    """Where the elements of a tensor lie, or for each row the only one."""
    if values._spec.shape == ():
        return [values._ptr] * rows
    (step,) = values._spec.strides
    return [values._ptr + row * step * values._spec.dtype.itemsize for row in range(rows)]


@runs_apart("runs the kernel of Adafactor, which no program holds")
def factored_update(rows: list[tuple[Any, ...]], scalars: tuple[float, ...]) -> list[int]:
    """Adafactor's update in place, all rows in one kernel call for each dtype.

    A row: (param, grad, averages of rows, averages of columns, None, step) for two dims and more, (param, grad, None,
    None, averages, step) for others.  Scalars: lr, exponent of the decay, the least mean of averages, the least scale
    of a parameter, d, the least second moment, the factor of the parameter, the gradient's sign.  Returns the positions
    of the rows that it did not take, as `fused_update`.
    """
    rest: list[int] = []
    chosen: dict[Any, list[tuple[Any, ...]]] = {}
    for i, row in enumerate(rows):
        spec = row[0]._spec
        held = [tensor for tensor in row[:-1] if tensor is not None]
        if (
            spec.dtype in (FLOAT32, FLOAT64)
            and _takes_rows(spec)
            and backend_of(spec.device).multi_tensor.adafactor is not None
            and 0 < spec.numel <= _ALONE
            and all(
                x._spec.dtype is spec.dtype
                and x._spec.contiguous
                and not x._spec.conj
                and not x._spec.released
                and x._storage is not None
                for x in held
            )
            and row[1]._spec is spec
            and row[-1]._spec is _COUNTER
        ):
            chosen.setdefault(spec.dtype, []).append(row)
        else:
            rest.append(i)
    for dtype, group in chosen.items():
        _run_factored(dtype, group, scalars)
    return rest


# Compiled steps run it outside of their programs: operators would take sums in another order than the kernel.


def _run_factored(dtype: DType, rows: list[tuple[Any, ...]], scalars: tuple[float, ...]) -> None:
    steps = backend_of(rows[0][0]._spec.device).multi_tensor
    lr, decay, least, scale, d, floor, shrink, sign = scalars
    table = array("q")
    for row, t in zip(rows, count_steps([row[-1] for row in rows]), strict=True):
        _own_all([tensor for tensor in row if tensor is not None])
        matrix = row[2] is not None
        shape = row[0]._spec.shape[-2:] if matrix else (0, 0)
        table.extend([row[0]._spec.numel, *(0 if tensor is None else tensor._ptr for tensor in row[:-1]), *shape])
        table += array("q", array("d", (t**decay, min(lr, 1 / t**0.5))).tobytes())
    assert len(table) == steps.adafactor_row * len(rows)
    work = _work(tuple([row[0]._spec.numel for row in rows]), True)
    numbers = array("d", (least, scale, d, floor, shrink, -sign))
    steps.adafactor(dtype)(work.address, table.buffer_info()[0], numbers.buffer_info()[0])
    for row in rows:
        for tensor in (row[0], *row[2:-1]):
            if tensor is not None:
                tensor._storage.version += 1


def _dense(spec: Spec) -> bool:
    """Whether the elements fill one stretch of memory without gaps, in any order of dimensions."""
    needed = 1
    for stride, size in sorted((st, n) for n, st in zip(spec.shape, spec.strides, strict=True) if n != 1):
        if stride != needed:
            return False
        needed *= size
    return True


class _Work:
    """Constants of a call over rows of these sizes: the address of its own constants, and those of the kernel's for
    each row.
    """

    __slots__ = ("address", "constants", "held")

    def __init__(self, words: Sequence[int], sizes: Sequence[int]) -> None:
        ints = array("q", words)
        of_size = {size: array("q", (0, 0, 0, 0, 0, 0, 0, 0, size, PIECE)) for size in set(sizes)}
        self.held = ints, of_size
        self.address = ints.buffer_info()[0]
        self.constants = [of_size[size].buffer_info()[0] for size in sizes]


_works: dict[tuple[tuple[int, ...], bool], _Work] = {}


def _work(sizes: tuple[int, ...], whole: bool) -> _Work:
    """The kernel's constants: its eight words, then the pieces, which depend on the sizes alone.

    A piece is a first and an end row, and which `PIECE` elements of them; with `whole` no row is cut.
    """
    found = _works.get((sizes, whole))
    if found is not None:
        return found
    pieces: list[int] = []
    first, gathered = 0, 0
    for row, size in enumerate(sizes):
        if gathered and gathered + size > PIECE:
            pieces += (first, row, 0)
            first, gathered = row, 0
        if size > PIECE and not whole:
            for part in range(-(-size // PIECE)):
                pieces += (row, row + 1, part)
            first = row + 1
        else:
            gathered += size
    if first < len(sizes):
        pieces += (first, len(sizes), 0)
    words = [len(pieces) // 3, int(sum(sizes) >= RELEASE), 0, 0, 0, 0, 0, 0, *pieces]
    if len(_works) > 64:
        _works.clear()
    found = _works[sizes, whole] = _Work(words, sizes)
    return found
