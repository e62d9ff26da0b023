"""One kernel call for an optimizer's step over many parameters."""

from __future__ import annotations

from array import array
from typing import Any

from rushlight._types.device import CPU
from rushlight._types.dtype import FLOAT32, FLOAT64
from rushlight._types.spec import Spec

__all__ = ["fused_update"]

# Elements of a piece of work: enough to be worth a thread, few enough to spread one large matrix over all of them.
PIECE = 1 << 15
# From this many elements on, other Python threads may run meanwhile.
RELEASE = 1 << 17

_COUNTER = Spec.of(FLOAT32, CPU, ())


def fused_update(name: str, rows: list[tuple[Any, ...]], scalars: tuple[float, ...]) -> list[int]:
    """Update parameters and their state in place, all rows in one kernel call for each dtype.

    `name` and what a row holds, and the scalars:

    - "sgd": (param, grad); -lr, weight decay, sign of the gradient, momentum, share of the gradient in the buffer, share of the old
      buffer, nesterov (0 or 1)
    - "sgd_momentum": (param, grad, buffer); the same
    - "adam": (param, grad, average, average of squares, step); lr, beta1, beta2, eps, factor for the parameter, penalty, sign
    - "adam_amsgrad": (param, grad, average, average of squares, largest of those, step); the same
    - "adagrad": (param, grad, sum of squares, step); lr, decay of lr, eps, penalty, sign
    - "rmsprop": (param, grad, average of squares, average or None, buffer or None, step); lr, alpha, eps, penalty, sign, momentum

    Returns the positions of the rows that it did not take: other dtypes than float32 and float64, parameters without memory of
    their own or with gaps in it, gradients or states whose layout is not the parameter's. The caller updates those by tensor operations.
    """
    rest: list[int] = []
    chosen: dict[Any, list[tuple[Any, ...]]] = {}
    counted = not name.startswith("sgd")
    for i, row in enumerate(rows):
        spec = row[0]._spec
        dtype = spec.dtype
        states = row[1:-1] if counted else row[1:]
        if (
            (dtype is FLOAT32 or dtype is FLOAT64)
            and spec.device is CPU
            and (spec.contiguous or _dense(spec))
            and all(tensor is None or (tensor._spec is spec and tensor._storage is not None) for tensor in states)
            and row[0]._storage is not None  # kinds of tensor have specs and no memory
            and (not counted or row[-1]._spec is _COUNTER)
        ):
            group = chosen.get(dtype)
            if group is None:
                chosen[dtype] = [row]
            else:
                group.append(row)
        else:
            rest.append(i)
    run = _run_sgd if not counted else _run_adam if name.startswith("adam") else _run_decaying
    for dtype, group in chosen.items():
        run(name, dtype.name, group, scalars)
    return rest


def _dense(spec: Spec) -> bool:
    """Whether the elements fill one stretch of memory without gaps, in any order of dimensions."""
    needed = 1
    for stride, size in sorted((st, n) for n, st in zip(spec.shape, spec.strides, strict=True) if n != 1):
        if stride != needed:
            return False
        needed *= size
    return True


def _run_adam(name: str, dtype: str, rows: list[tuple[Any, ...]], scalars: tuple[float, ...]) -> None:
    from rushlight._backends.cpu.optimizers import adam_prepare, update_kernel

    lr, beta1, beta2, eps, shrink, penalty, sign = scalars
    amsgrad = name == "adam_amsgrad"
    words: list[int] = []
    if amsgrad:
        for p, g, m, v, x, step in rows:
            words += (p._spec.numel, p._ptr, g._ptr, m._ptr, v._ptr, x._ptr, step._ptr, 0, 0)
    else:
        for p, g, m, v, step in rows:
            words += (p._spec.numel, p._ptr, g._ptr, m._ptr, v._ptr, 0, step._ptr, 0, 0)
    table = array("q", words)
    hyper = array("d", (1 - beta1, beta2, 1 - beta2, eps, shrink, penalty, sign))
    address = table.buffer_info()[0]
    adam_prepare(address, len(rows), lr, beta1, beta2)
    kernel = update_kernel("adam", dtype, penalty != 0, amsgrad)
    _launch(kernel, address, [row[0]._spec.numel for row in rows], hyper)
    for row in rows:
        row[0]._storage.version += 1
        for tensor in row[2:]:
            tensor._storage.version += 1


def _run_decaying(name: str, dtype: str, rows: list[tuple[Any, ...]], scalars: tuple[float, ...]) -> None:
    """Adagrad and RMSprop, whose steps count and whose rates may fall with them."""
    from rushlight._backends.cpu.optimizers import decay_prepare, update_kernel

    words: list[int] = []
    for param, grad, *states, step in rows:
        places = [0 if tensor is None else tensor._ptr for tensor in states]
        words += (param._spec.numel, param._ptr, grad._ptr, *places, *[0] * (3 - len(places)), step._ptr, 0, 0)
    table = array("q", words)
    address = table.buffer_info()[0]
    if name == "adagrad":
        lr, decay, eps, penalty, sign = scalars
        hyper = array("d", (eps, penalty, sign))
        kernel = update_kernel("adagrad", dtype, penalty != 0)
    else:
        lr, alpha, eps, penalty, sign, momentum = scalars
        decay = 0.0
        hyper = array("d", (alpha, 1 - alpha, eps, penalty, sign, momentum))
        kernel = update_kernel("rmsprop", dtype, penalty != 0, rows[0][3] is not None, rows[0][4] is not None)
    decay_prepare(address, len(rows), lr, decay)
    _launch(kernel, address, [row[0]._spec.numel for row in rows], hyper)
    for row in rows:
        row[0]._storage.version += 1
        for tensor in row[2:]:
            if tensor is not None:
                tensor._storage.version += 1


def _run_sgd(name: str, dtype: str, rows: list[tuple[Any, ...]], scalars: tuple[float, ...]) -> None:
    from rushlight._backends.cpu.optimizers import update_kernel

    momentum = name == "sgd_momentum"
    words: list[int] = []
    for row in rows:
        buffer = row[2]._ptr if momentum else 0
        words += (row[0]._spec.numel, row[0]._ptr, row[1]._ptr, buffer, 0, 0, 0, 0, 0)
    table = array("q", words)
    kernel = update_kernel("sgd", dtype, scalars[1] != 0, momentum, momentum and bool(scalars[6]))
    _launch(kernel, table.buffer_info()[0], [row[0]._spec.numel for row in rows], array("d", scalars))
    for row in rows:
        row[0]._storage.version += 1
        if momentum:
            row[2]._storage.version += 1


def _launch(kernel: Any, table: int, sizes: list[int], hyper: array[float]) -> None:
    ints = array("q", _work(tuple(sizes)))
    kernel(ints.buffer_info()[0], table, hyper.buffer_info()[0])


_works: dict[tuple[int, ...], list[int]] = {}


def _work(sizes: tuple[int, ...]) -> list[int]:
    """The kernel's constants: its eight words, then the pieces. They depend on the sizes alone."""
    found = _works.get(sizes)
    if found is not None:
        return found
    pieces: list[int] = []
    first, gathered = 0, 0
    for row, size in enumerate(sizes):
        if gathered and gathered + size > PIECE:
            pieces += (first, row, 0, -1)
            first, gathered = row, 0
        if size > PIECE:
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
    _works[sizes] = words
    return words
