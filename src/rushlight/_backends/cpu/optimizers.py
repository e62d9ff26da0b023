"""Updates of many parameters at once: one kernel reads every gradient and writes every parameter and its state.

A call gets a table with one row of `ROW` words for each parameter:

    word      0      1      2         3      4      5        6     7          8
    meaning   size   param  gradient  first  second maximum  step  step size  root of the second correction

and pieces of work behind the kernel's constants, four words each: first row, end row, first element, end element (the last
two count when a piece is a part of one row; an end of -1 means: whole rows).

Rounding follows PyTorch's chain of element-wise operations, multiply-adds being fused where its vector code fuses them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._backends.cpu.stubs import bind, make_kernel_callable, native_address
from rushlight._backends.native import NativeFunction, extern, f32, f64, fma, load, native, select, sqrt, store
from rushlight._backends.native import ptr as ptr_type

__all__ = ["PIECES_AT", "PIECE_WORDS", "ROW", "adam_prepare", "decay_prepare", "update_kernel"]

ROW = 9
SIZE, PARAM, GRAD, FIRST, SECOND, MAXIMUM, STEP, STEP_SIZE, ROOT = range(ROW)
PIECES_AT = 8
PIECE_WORDS = 4
ROW_BYTES = ROW * 8
PIECE_BYTES = PIECE_WORDS * 8

power = extern("pow", "f64(f64, f64)")


@native("void(ptr, i64, f64, f64, f64)")
def prepare_adam(table, rows, lr, beta1, beta2):
    """Count the step of each row and compute what depends on it."""
    for i in range(rows):
        row = table + i * ROW_BYTES
        counter = load(ptr_type, row, STEP)
        step = counter.f32[0] + f32(1.0)
        counter.f32[0] = step
        t = f64(step)
        row.f64[STEP_SIZE] = lr / (1.0 - power(beta1, t))
        row.f64[ROOT] = power(1.0 - power(beta2, t), 0.5)


@native("void(ptr, i64, f64, f64)")
def prepare_decay(table, rows, lr, decay):
    """Count the step of each row and let its rate fall: lr / (1 + (step - 1) decay)."""
    for i in range(rows):
        row = table + i * ROW_BYTES
        counter = load(ptr_type, row, STEP)
        step = counter.f32[0] + f32(1.0)
        counter.f32[0] = step
        row.f64[STEP_SIZE] = lr / (1.0 + (f64(step) - 1.0) * decay)


def _adagrad(T: Any, l2: bool) -> NativeFunction:
    """Hyper-parameters: eps, penalty, sign."""
    width = 4 if T is f32 else 8

    @native("i32(ptr, ptr, i64)", name=f"rl_adagrad_{T}_{int(l2)}")
    def adagrad(bufs, ints, piece):
        table = load(ptr_type, bufs, 0)
        hyper = load(ptr_type, bufs, 1)
        work = ints + PIECES_AT * 8 + piece * PIECE_BYTES
        eps = T(hyper.f64[0])
        penalty = T(hyper.f64[1])
        sign = T(hyper.f64[2])
        r = work.i64[0]
        while r < work.i64[1]:
            row = table + r * ROW_BYTES
            start = work.i64[2]
            n = row.i64[SIZE]
            if work.i64[3] >= 0:
                n = work.i64[3]
            n -= start
            p = load(ptr_type, row, PARAM) + start * width
            g = load(ptr_type, row, GRAD) + start * width
            v = load(ptr_type, row, FIRST) + start * width
            size = T(-row.f64[STEP_SIZE])
            for i in range(n):
                grad = load(T, g, i) * sign
                old = load(T, p, i)
                if l2:
                    grad = fma(old, penalty, grad)
                total = fma(grad, grad, load(T, v, i))
                store(T, v, i, total)
                store(T, p, i, old + (size * grad) / (sqrt(total) + eps))
            r += 1
        return 0

    return adagrad


def _rmsprop(T: Any, l2: bool, centered: bool, momentum: bool) -> NativeFunction:
    """Hyper-parameters: alpha, 1 - alpha, eps, penalty, sign, momentum."""
    width = 4 if T is f32 else 8

    @native("i32(ptr, ptr, i64)", name=f"rl_rmsprop_{T}_{int(l2)}_{int(centered)}_{int(momentum)}")
    def rmsprop(bufs, ints, piece):
        table = load(ptr_type, bufs, 0)
        hyper = load(ptr_type, bufs, 1)
        work = ints + PIECES_AT * 8 + piece * PIECE_BYTES
        alpha = T(hyper.f64[0])
        rest = T(hyper.f64[1])
        eps = T(hyper.f64[2])
        penalty = T(hyper.f64[3])
        sign = T(hyper.f64[4])
        mu = T(hyper.f64[5])
        near = abs(rest) < T(0.5)
        coefficient = select(near, rest, rest - T(1.0))
        r = work.i64[0]
        while r < work.i64[1]:
            row = table + r * ROW_BYTES
            start = work.i64[2]
            n = row.i64[SIZE]
            if work.i64[3] >= 0:
                n = work.i64[3]
            n -= start
            p = load(ptr_type, row, PARAM) + start * width
            g = load(ptr_type, row, GRAD) + start * width
            v = load(ptr_type, row, FIRST) + start * width
            m = load(ptr_type, row, SECOND)
            b = load(ptr_type, row, MAXIMUM)
            if centered:
                m += start * width
            if momentum:
                b += start * width
            size = T(-row.f64[STEP_SIZE])
            for i in range(n):
                grad = load(T, g, i) * sign
                old = load(T, p, i)
                if l2:
                    grad = fma(old, penalty, grad)
                square = fma(rest * grad, grad, load(T, v, i) * alpha)
                store(T, v, i, square)
                spread = square
                if centered:
                    mean = load(T, m, i)
                    mean = fma(coefficient, grad - mean, select(near, mean, grad))
                    store(T, m, i, mean)
                    spread = fma(-mean, mean, square)
                root = sqrt(spread) + eps
                if momentum:
                    buffer = load(T, b, i) * mu + grad / root
                    store(T, b, i, buffer)
                    store(T, p, i, fma(buffer, size, old))
                else:
                    store(T, p, i, old + (size * grad) / root)
            r += 1
        return 0

    return rmsprop


def _adam(T: Any, l2: bool, amsgrad: bool) -> NativeFunction:
    """Hyper-parameters: 1 - beta1, beta2, 1 - beta2, eps, shrink, penalty, sign."""
    width = 4 if T is f32 else 8

    @native("i32(ptr, ptr, i64)", name=f"rl_adam_{T}_{int(l2)}_{int(amsgrad)}")
    def adam(bufs, ints, piece):
        table = load(ptr_type, bufs, 0)
        hyper = load(ptr_type, bufs, 1)
        work = ints + PIECES_AT * 8 + piece * PIECE_BYTES
        weight = T(hyper.f64[0])
        beta2 = T(hyper.f64[1])
        rest2 = T(hyper.f64[2])
        eps = T(hyper.f64[3])
        shrink = T(hyper.f64[4])
        penalty = T(hyper.f64[5])
        sign = T(hyper.f64[6])
        # Interpolation starts from the nearer end, as PyTorch's lerp does.
        near = abs(weight) < T(0.5)
        coefficient = select(near, weight, weight - T(1.0))
        r = work.i64[0]
        while r < work.i64[1]:
            row = table + r * ROW_BYTES
            start = work.i64[2]
            n = row.i64[SIZE]
            if work.i64[3] >= 0:
                n = work.i64[3]
            n -= start
            p = load(ptr_type, row, PARAM) + start * width
            g = load(ptr_type, row, GRAD) + start * width
            m = load(ptr_type, row, FIRST) + start * width
            v = load(ptr_type, row, SECOND) + start * width
            x = load(ptr_type, row, MAXIMUM)
            if amsgrad:
                x += start * width
            size = T(-row.f64[STEP_SIZE])
            root = T(row.f64[ROOT])
            for i in range(n):
                grad = load(T, g, i) * sign
                old = load(T, p, i) * shrink
                if l2:
                    grad = fma(old, penalty, grad)
                first = load(T, m, i)
                first = fma(coefficient, grad - first, select(near, first, grad))
                second = fma(rest2 * grad, grad, load(T, v, i) * beta2)
                store(T, m, i, first)
                store(T, v, i, second)
                if amsgrad:
                    best = load(T, x, i)
                    # A NaN in either is kept, as PyTorch's maximum keeps it.
                    second = select((second > best) or (second != second), second, best)
                    store(T, x, i, second)
                store(T, p, i, old + (size * first) / (sqrt(second) / root + eps))
            r += 1
        return 0

    return adam


def _sgd(T: Any, l2: bool, momentum: bool, nesterov: bool) -> NativeFunction:
    """Hyper-parameters: -lr, weight decay, sign, momentum, share of the gradient, share of the old buffer."""
    width = 4 if T is f32 else 8

    @native("i32(ptr, ptr, i64)", name=f"rl_sgd_{T}_{int(l2)}_{int(momentum)}_{int(nesterov)}")
    def sgd(bufs, ints, piece):
        table = load(ptr_type, bufs, 0)
        hyper = load(ptr_type, bufs, 1)
        work = ints + PIECES_AT * 8 + piece * PIECE_BYTES
        rate = T(hyper.f64[0])
        penalty = T(hyper.f64[1])
        sign = T(hyper.f64[2])
        mu = T(hyper.f64[3])
        share = T(hyper.f64[4])
        keep = T(hyper.f64[5])
        r = work.i64[0]
        while r < work.i64[1]:
            row = table + r * ROW_BYTES
            start = work.i64[2]
            n = row.i64[SIZE]
            if work.i64[3] >= 0:
                n = work.i64[3]
            n -= start
            p = load(ptr_type, row, PARAM) + start * width
            g = load(ptr_type, row, GRAD) + start * width
            b = load(ptr_type, row, FIRST)
            if momentum:
                b += start * width
            for i in range(n):
                grad = load(T, g, i) * sign
                old = load(T, p, i)
                if l2:
                    grad = fma(old, penalty, grad)
                if momentum:
                    buffer = fma(grad, share, load(T, b, i) * keep)
                    store(T, b, i, buffer)
                    if nesterov:
                        grad = fma(buffer, mu, grad)
                    else:
                        grad = buffer
                store(T, p, i, fma(grad, rate, old))
            r += 1
        return 0

    return sgd


_TYPES = {"float32": f32, "float64": f64}
_FAMILIES: dict[str, Callable[..., NativeFunction]] = {"adam": _adam, "sgd": _sgd, "adagrad": _adagrad, "rmsprop": _rmsprop}
_kernels: dict[tuple[Any, ...], Callable[..., Any]] = {}


def update_kernel(family: str, dtype: str, *options: bool) -> Callable[..., Any]:
    """The callable kernel of a family for float32 or float64.

    "adam": l2, amsgrad; "sgd": l2, momentum, nesterov; "adagrad": l2; "rmsprop": l2, centered, momentum.
    """
    key = (family, dtype, *options)
    found = _kernels.get(key)
    if found is None:
        function = _FAMILIES[family](_TYPES[dtype], *options)
        found = _kernels[key] = make_kernel_callable(native_address(function), function.symbol, function, 2)
    return found


_prepare: list[Callable[..., Any]] = []
_prepare_decay: list[Callable[..., Any]] = []


def decay_prepare(table: int, rows: int, lr: float, decay: float) -> None:
    """Count the steps of the rows of a table and compute their rates."""
    if not _prepare_decay:
        _prepare_decay.append(bind(prepare_decay))
    _prepare_decay[0](table, rows, lr, decay)


def adam_prepare(table: int, rows: int, lr: float, beta1: float, beta2: float) -> None:
    """Count the steps of the rows of a table and compute their corrections."""
    if not _prepare:
        _prepare.append(bind(prepare_adam))
    _prepare[0](table, rows, lr, beta1, beta2)
