"""One kernel call for an optimizer's step over many parameters."""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

from rushlight._types.device import CPU
from rushlight._types.dtype import FLOAT32, FLOAT64
from rushlight._types.spec import Spec

__all__ = ["factored_update", "fused_update"]

# Elements of a piece of work: enough to be worth a thread, few enough to spread one large matrix over all of them.
PIECE = 1 << 15
# Parameters of more elements than this are worth several threads each, where one alone can be treated by one thread only.
_ALONE = 1 << 18
# From this many elements on, other Python threads may run meanwhile.
RELEASE = 1 << 17

_COUNTER = Spec.of(FLOAT32, CPU, ())


class _Step(NamedTuple):
    """What a family makes of its scalars: arguments of its preparation and which (None: no steps are counted), numbers, options."""

    preparation: str | None
    arguments: tuple[float, ...]
    numbers: tuple[float, ...]
    options: tuple[bool, ...]


def _sgd(row: tuple[Any, ...], s: tuple[float, ...]) -> _Step:
    momentum = len(row) == 3
    return _Step(None, (), s[:6], (s[1] != 0, momentum, momentum and bool(s[6])))


def _adam(row: tuple[Any, ...], s: tuple[float, ...]) -> _Step:
    lr, beta1, beta2, eps, shrink, penalty, sign = s
    return _Step("adam", (lr, beta1, beta2), (1 - beta1, beta2, 1 - beta2, eps, shrink, penalty, sign), (penalty != 0, len(row) == 6))


def _adagrad(row: tuple[Any, ...], s: tuple[float, ...]) -> _Step:
    return _Step("decay", s[:2], s[2:], (s[3] != 0,))


def _rmsprop(row: tuple[Any, ...], s: tuple[float, ...]) -> _Step:
    lr, alpha, eps, penalty, sign, momentum = s
    return _Step("decay", (lr, 0.0), (alpha, 1 - alpha, eps, penalty, sign, momentum), (penalty != 0, row[3] is not None, row[4] is not None))


def _adadelta(row: tuple[Any, ...], s: tuple[float, ...]) -> _Step:
    lr, rho, eps, penalty, sign = s
    return _Step("decay", (0.0, 0.0), (-lr, rho, 1 - rho, eps, penalty, sign), (penalty != 0,))


def _adamax(row: tuple[Any, ...], s: tuple[float, ...]) -> _Step:
    lr, beta1, beta2, eps, penalty, sign = s
    return _Step("adam", (lr, beta1, 0.0), (1 - beta1, beta2, eps, penalty, sign), (penalty != 0,))


def _nadam(row: tuple[Any, ...], s: tuple[float, ...]) -> _Step:
    lr, beta1, beta2, eps, shrink, penalty, sign, decay = s
    return _Step("nadam", (lr, beta1, beta2, decay), (1 - beta1, beta2, 1 - beta2, eps, shrink, penalty, sign), (penalty != 0,))


def _radam(row: tuple[Any, ...], s: tuple[float, ...]) -> _Step:
    lr, beta1, beta2, eps, shrink, penalty, sign = s
    return _Step("radam", (beta1, beta2), (1 - beta1, beta2, 1 - beta2, eps, shrink, penalty, sign, lr), (penalty != 0,))


def _rprop(row: tuple[Any, ...], s: tuple[float, ...]) -> _Step:
    return _Step("decay", (0.0, 0.0), s, ())


def _asgd(row: tuple[Any, ...], s: tuple[float, ...]) -> _Step:
    lr, shrinking, exponent, begin, penalty, sign = s
    return _Step("asgd", (lr, shrinking, exponent, begin), (penalty, sign), (penalty != 0,))


# How a family reads its scalars, and the counters at the end of its rows (step first): the words of a row where they go.
_FAMILIES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "adadelta": (_adadelta, (6,)), "adagrad": (_adagrad, (6,)), "adam": (_adam, (6,)), "adamax": (_adamax, (6,)), "asgd": (_asgd, (6, 11, 12)),
    "nadam": (_nadam, (6, 12)), "radam": (_radam, (6,)), "rmsprop": (_rmsprop, (6,)), "rprop": (_rprop, (6,)), "sgd": (_sgd, ()),
}  # fmt: skip


def fused_update(name: str, rows: list[tuple[Any, ...]], scalars: tuple[float, ...]) -> list[int]:
    """Update parameters and their state in place, all rows in one kernel call for each dtype.

    `name` and what a row holds, and the scalars:

    - "sgd": (param, grad) or (param, grad, buffer); -lr, weight decay, sign of the gradient, momentum, share of the gradient in the buffer,
      share of the old buffer, nesterov (0 or 1)
    - "adam": (param, grad, average, average of squares, step), or with the largest of those before step; lr, beta1, beta2, eps, factor for
      the parameter, penalty, sign
    - "adagrad": (param, grad, sum of squares, step); lr, decay of lr, eps, penalty, sign
    - "rmsprop": (param, grad, average of squares, average or None, buffer or None, step); lr, alpha, eps, penalty, sign, momentum
    - "adadelta": (param, grad, average of squares, average of squared steps, step); lr, rho, eps, penalty, sign
    - "adamax": (param, grad, average, largest, step); lr, beta1, beta2, eps, penalty, sign
    - "nadam": (param, grad, average, average of squares, step, product of momenta); as "adam", and the decay of momentum
    - "radam": (param, grad, average, average of squares, step); as "adam"
    - "rprop": (param, grad, gradient before, step sizes, step); shrinking and growing factor, smallest and largest step size, sign
    - "asgd": (param, grad, average, step, rate, weight); lr, lambd, alpha, t0, penalty, sign

    All rows of a call have the same form.  Returns the positions of the rows that it did not take: other dtypes than float32 and float64,
    parameters without memory of their own or with gaps in it, gradients or states whose layout is not the parameter's. The caller updates
    those by tensor operations.
    """
    rest: list[int] = []
    chosen: dict[Any, list[tuple[Any, ...]]] = {}
    read, places = _FAMILIES[name]
    counters = len(places)
    for i, row in enumerate(rows):
        spec = row[0]._spec
        dtype = spec.dtype
        if (
            (dtype is FLOAT32 or dtype is FLOAT64)
            and spec.device is CPU
            and (spec.contiguous or _dense(spec))
            and all(tensor is None or (tensor._spec is spec and tensor._storage is not None) for tensor in row[1 : len(row) - counters])
            and row[0]._storage is not None  # kinds of tensor have specs and no memory
            and (not counters or all(counter._spec is _COUNTER for counter in row[-counters:]))
        ):
            group = chosen.get(dtype)
            if group is None:
                chosen[dtype] = [row]
            else:
                group.append(row)
        else:
            rest.append(i)
    for dtype, group in chosen.items():
        _run(name, dtype.name, group, places, read(group[0], scalars))
    return rest


def factored_update(rows: list[tuple[Any, ...]], scalars: tuple[float, ...]) -> list[int]:
    """Adafactor's update in place, all rows in one kernel call for each dtype.

    A row: (param, grad, averages of rows, averages of columns, None, step) for two dims and more, (param, grad, None, None, averages, step) for
    others.  Scalars: lr, exponent of the decay, the least mean of averages, the least scale of a parameter, d, the least second moment, the
    factor of the parameter, the gradient's sign.  Returns the positions of the rows that it did not take, as `fused_update`.
    """
    rest: list[int] = []
    chosen: dict[Any, list[tuple[Any, ...]]] = {}
    for i, row in enumerate(rows):
        spec = row[0]._spec
        held = [tensor for tensor in row[:-1] if tensor is not None]
        if (
            spec.dtype in (FLOAT32, FLOAT64)
            and spec.device is CPU
            and 0 < spec.numel <= _ALONE
            and all(x._spec.dtype is spec.dtype and x._spec.contiguous and x._storage is not None for x in held)
            and row[1]._spec is spec
            and row[-1]._spec is _COUNTER
        ):
            chosen.setdefault(spec.dtype, []).append(row)
        else:
            rest.append(i)
    lr, decay, least, scale, d, floor, shrink, sign = scalars
    step = _Step("adafactor", (lr, decay), (least, scale, d, floor, shrink, -sign), ())
    for dtype, group in chosen.items():
        _run("adafactor", dtype.name, group, (6,), step)
    return rest


def _dense(spec: Spec) -> bool:
    """Whether the elements fill one stretch of memory without gaps, in any order of dimensions."""
    needed = 1
    for stride, size in sorted((st, n) for n, st in zip(spec.shape, spec.strides, strict=True) if n != 1):
        if stride != needed:
            return False
        needed *= size
    return True


def _run(name: str, dtype: str, rows: list[tuple[Any, ...]], places: tuple[int, ...], step: _Step) -> None:
    from rushlight._backends.cpu.optimizers import ROW, C, D, preparation, update_kernel

    table = array("q", bytes(8 * ROW * len(rows)))
    tensors = len(rows[0]) - len(places)
    at = 0
    for row in rows:
        table[at] = row[0]._spec.numel
        for i in range(tensors):
            tensor = row[i]
            if tensor is not None:
                table[at + 1 + i] = tensor._ptr
        for i, place in enumerate(places, tensors):
            table[at + place] = row[i]._ptr
        if name == "adafactor" and row[2] is not None:
            table[at + C], table[at + D] = row[0]._spec.shape[-2:]
        at += ROW
    address = table.buffer_info()[0]
    if step.preparation is not None:
        preparation(step.preparation)(address, len(rows), *step.arguments)
    whole = name == "adafactor"
    if whole:
        from rushlight._backends.cpu.adafactor_native import adafactor_kernel

        kernel = adafactor_kernel(dtype)
    else:
        kernel = update_kernel(name, dtype, *step.options)
    ints = array("q", _work(tuple([row[0]._spec.numel for row in rows]), whole))
    numbers = array("d", step.numbers)
    kernel(ints.buffer_info()[0], address, numbers.buffer_info()[0])
    for row in rows:
        row[0]._storage.version += 1
        for tensor in row[2:]:
            if tensor is not None:
                tensor._storage.version += 1


_works: dict[tuple[tuple[int, ...], bool], list[int]] = {}


def _work(sizes: tuple[int, ...], whole: bool) -> list[int]:
    """The kernel's constants: its eight words, then the pieces, which depend on the sizes alone; with `whole` no row is cut."""
    found = _works.get((sizes, whole))
    if found is not None:
        return found
    pieces: list[int] = []
    first, gathered = 0, 0
    for row, size in enumerate(sizes):
        if gathered and gathered + size > PIECE:
            pieces += (first, row, 0, -1)
            first, gathered = row, 0
        if size > PIECE and not whole:
            for start in range(0, size, PIECE):
                pieces += (row, row + 1, start, min(start + PIECE, size))
            first = row + 1
        else:
            gathered += size
    if first < len(sizes):
        pieces += (first, len(sizes), 0, -1)
    words = [len(pieces) // 4, int(sum(sizes) >= RELEASE), 0, 0, 0, 0, 0, 0, *pieces]
    if len(_works) > 64:
        _works.clear()
    _works[sizes, whole] = words
    return words
