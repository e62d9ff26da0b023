"""Updates of many parameters at once: one kernel reads every gradient and writes every parameter and its state.

A call gets a table with one row of `ROW` words for each parameter:

    word      0      1      2         3      4       5      6     7..10                         11     12
    meaning   size   param  gradient  first  second  third  step  numbers that depend on step   rate   weight

(first to third: tensors of the optimizer's state; step, rate, weight: counters of one element) and pieces of work behind the
kernel's constants, four words each: first row, end row, first element, end element (the last two count when a piece is a part of one
row; an end of -1 means: whole rows).

A family is a *body*, which updates `n` elements of one parameter, inside the loop over rows that all of them share, and a *preparation*,
which counts the steps of all rows and computes their numbers before.

Rounding follows PyTorch's chain of element-wise operations, multiply-adds being fused where its vector code fuses them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from rushlight._backends.cpu.stubs import bind, make_kernel_callable, native_address
from rushlight._backends.native import (
    NativeFunction,
    copysign,
    extern,
    f32,
    f64,
    fma,
    load,
    native,
    select,
    sqrt,
    store,
)
from rushlight._backends.native import ptr as ptr_type

__all__ = ["PIECES_AT", "PIECE_WORDS", "ROW", "preparation", "update_kernel"]

ROW = 13
SIZE, PARAM, GRAD, FIRST, SECOND, THIRD, STEP, A, B, C, D, RATE, WEIGHT = range(ROW)
PIECES_AT = 8
PIECE_WORDS = 4
ROW_BYTES = ROW * 8
PIECE_BYTES = PIECE_WORDS * 8

power = extern("pow", "f64(f64, f64)")

# ***** before the update: counting steps *****


@native("f64(ptr)", inline=True)
def counted(row):
    """Count the step of a row."""
    counter = load(ptr_type, row, STEP)
    step = counter.f32[0] + f32(1.0)
    counter.f32[0] = step
    return f64(step)


@native("void(ptr, i64, f64, f64, f64)")
def prepare_adam(table, rows, lr, beta1, beta2):
    """lr / (1 - beta1^t), sqrt(1 - beta2^t)"""
    for i in range(rows):
        row = table + i * ROW_BYTES
        t = counted(row)
        row.f64[A] = lr / (1.0 - power(beta1, t))
        row.f64[B] = power(1.0 - power(beta2, t), 0.5)


@native("void(ptr, i64, f64, f64)")
def prepare_decay(table, rows, lr, decay):
    """The rate, which falls: lr / (1 + (t - 1) decay)"""
    for i in range(rows):
        row = table + i * ROW_BYTES
        row.f64[A] = lr / (1.0 + (counted(row) - 1.0) * decay)


@native("void(ptr, i64, f64, f64, f64, f64)")
def prepare_nadam(table, rows, lr, beta1, beta2, decay):
    """The shares of the gradient and of the average in the step, 1 - beta2^t; the product of the momenta so far goes on."""
    for i in range(rows):
        row = table + i * ROW_BYTES
        t = counted(row)
        now = beta1 * (1.0 - 0.5 * power(0.96, t * decay))
        after = beta1 * (1.0 - 0.5 * power(0.96, (t + 1.0) * decay))
        held = load(ptr_type, row, WEIGHT)
        held.f32[0] = held.f32[0] * f32(now)
        product = f64(held.f32[0])
        row.f64[A] = -lr * (1.0 - now) / (1.0 - product)
        row.f64[B] = -lr * after / (1.0 - product * after)
        row.f64[C] = 1.0 - power(beta2, t)


@native("void(ptr, i64, f64, f64)")
def prepare_radam(table, rows, beta1, beta2):
    """1 - beta1^t, sqrt(1 - beta2^t), and how far the second moment is to be trusted; 0: not yet."""
    longest = 2.0 / (1.0 - beta2) - 1.0
    for i in range(rows):
        row = table + i * ROW_BYTES
        t = counted(row)
        correction = 1.0 - power(beta2, t)
        length = longest - 2.0 * t * power(beta2, t) / correction
        row.f64[A] = 1.0 - power(beta1, t)
        row.f64[B] = power(correction, 0.5)
        row.f64[C] = 0.0
        if length > 5.0:
            row.f64[C] = power((length - 4.0) * (length - 2.0) * longest / ((longest - 4.0) * (longest - 2.0) * length), 0.5)


@native("void(ptr, i64, f64, f64, f64, f64)")
def prepare_asgd(table, rows, lr, shrinking, exponent, begin):
    """Factor of the parameter, minus the rate, weight of the new point in the average; rate and weight go on."""
    for i in range(rows):
        row = table + i * ROW_BYTES
        t = counted(row)
        rate = load(ptr_type, row, RATE)
        weight = load(ptr_type, row, WEIGHT)
        eta = f64(rate.f32[0])
        row.f64[A] = 1.0 - shrinking * eta
        row.f64[B] = -eta
        row.f64[C] = f64(weight.f32[0])
        rate.f32[0] = f32(lr / power(1.0 + shrinking * lr * t, exponent))
        since = t - begin
        weight.f32[0] = f32(1.0 / select(since > 1.0, since, 1.0))


@native("void(ptr, i64, f64, f64)")
def prepare_adafactor(table, rows, lr, decay):
    """t^decay, and the smaller of lr and 1 / sqrt(t)"""
    for i in range(rows):
        row = table + i * ROW_BYTES
        t = counted(row)
        row.f64[A] = power(t, decay)
        least = 1.0 / power(t, 0.5)
        row.f64[B] = select(lr < least, lr, least)


_PREPARATIONS = {
    "adam": prepare_adam, "decay": prepare_decay, "nadam": prepare_nadam, "radam": prepare_radam, "asgd": prepare_asgd,
    "adafactor": prepare_adafactor,
}  # fmt: skip


@cache
def preparation(name: str) -> Callable[..., Any]:
    """What counts the steps of a table's rows and computes what depends on them: `f(table, rows, *numbers)`."""
    return bind(_PREPARATIONS[name])


# ***** the update: bodies *****

_BODY = "void(ptr, ptr, i64, ptr, ptr, ptr, ptr, ptr)"  # numbers, row, n, param, gradient, first, second, third


def _rows(T: Any, name: str, body: NativeFunction) -> NativeFunction:
    """The kernel around a body."""
    width = 4 if T is f32 else 8

    @native("i32(ptr, ptr, i64)", name=name)
    def update(bufs, ints, piece):
        table = load(ptr_type, bufs, 0)
        numbers = load(ptr_type, bufs, 1)
        work = ints + PIECES_AT * 8 + piece * PIECE_BYTES
        r = work.i64[0]
        while r < work.i64[1]:
            row = table + r * ROW_BYTES
            start = work.i64[2]
            n = row.i64[SIZE]
            if work.i64[3] >= 0:
                n = work.i64[3]
            skipped = start * width
            p = load(ptr_type, row, PARAM) + skipped
            g = load(ptr_type, row, GRAD) + skipped
            a = load(ptr_type, row, FIRST) + skipped
            b = load(ptr_type, row, SECOND) + skipped
            c = load(ptr_type, row, THIRD) + skipped
            body(numbers, row, n - start, p, g, a, b, c)
            r += 1
        return 0

    return update


def _lerp(T: Any) -> NativeFunction:
    """Interpolation from the nearer end, as PyTorch's."""

    @native(f"{T}({T}, {T}, {T})", name=f"rl_lerp_{T}", inline=True)
    def lerp(x, end, weight):
        near = abs(weight) < T(0.5)
        return fma(select(near, weight, weight - T(1.0)), end - x, select(near, x, end))

    return lerp


def _adagrad(T: Any, l2: bool) -> NativeFunction:
    """Numbers: eps, penalty, sign."""

    @native(_BODY, name=f"rl_adagrad_body_{T}", inline=True)
    def body(numbers, row, n, p, g, v, b, c):
        eps = T(numbers.f64[0])
        penalty = T(numbers.f64[1])
        sign = T(numbers.f64[2])
        size = T(-row.f64[A])
        for i in range(n):
            grad = load(T, g, i) * sign
            old = load(T, p, i)
            if l2:
                grad = fma(old, penalty, grad)
            total = fma(grad, grad, load(T, v, i))
            store(T, v, i, total)
            store(T, p, i, old + (size * grad) / (sqrt(total) + eps))

    return body


def _rmsprop(T: Any, l2: bool, centered: bool, momentum: bool) -> NativeFunction:
    """Numbers: alpha, 1 - alpha, eps, penalty, sign, momentum."""
    lerp = _lerp(T)

    @native(_BODY, name=f"rl_rmsprop_body_{T}", inline=True)
    def body(numbers, row, n, p, g, v, m, b):
        alpha = T(numbers.f64[0])
        rest = T(numbers.f64[1])
        eps = T(numbers.f64[2])
        penalty = T(numbers.f64[3])
        sign = T(numbers.f64[4])
        mu = T(numbers.f64[5])
        size = T(-row.f64[A])
        for i in range(n):
            grad = load(T, g, i) * sign
            old = load(T, p, i)
            if l2:
                grad = fma(old, penalty, grad)
            square = fma(rest * grad, grad, load(T, v, i) * alpha)
            store(T, v, i, square)
            spread = square
            if centered:
                mean = lerp(load(T, m, i), grad, rest)
                store(T, m, i, mean)
                spread = fma(-mean, mean, square)
            root = sqrt(spread) + eps
            if momentum:
                buffer = load(T, b, i) * mu + grad / root
                store(T, b, i, buffer)
                store(T, p, i, fma(buffer, size, old))
            else:
                store(T, p, i, old + (size * grad) / root)

    return body


def _adam(T: Any, l2: bool, amsgrad: bool) -> NativeFunction:
    """Numbers: 1 - beta1, beta2, 1 - beta2, eps, shrink, penalty, sign."""
    lerp = _lerp(T)

    @native(_BODY, name=f"rl_adam_body_{T}", inline=True)
    def body(numbers, row, n, p, g, m, v, x):
        weight = T(numbers.f64[0])
        beta2 = T(numbers.f64[1])
        rest2 = T(numbers.f64[2])
        eps = T(numbers.f64[3])
        shrink = T(numbers.f64[4])
        penalty = T(numbers.f64[5])
        sign = T(numbers.f64[6])
        size = T(-row.f64[A])
        root = T(row.f64[B])
        for i in range(n):
            grad = load(T, g, i) * sign
            old = load(T, p, i) * shrink
            if l2:
                grad = fma(old, penalty, grad)
            first = lerp(load(T, m, i), grad, weight)
            second = fma(rest2 * grad, grad, load(T, v, i) * beta2)
            store(T, m, i, first)
            store(T, v, i, second)
            if amsgrad:
                best = load(T, x, i)
                # A NaN in either is kept, as PyTorch's maximum keeps it.
                second = select((second > best) or (second != second), second, best)
                store(T, x, i, second)
            store(T, p, i, old + (size * first) / (sqrt(second) / root + eps))

    return body


def _sgd(T: Any, l2: bool, momentum: bool, nesterov: bool) -> NativeFunction:
    """Numbers: -lr, weight decay, sign, momentum, share of the gradient, share of the old buffer."""

    @native(_BODY, name=f"rl_sgd_body_{T}", inline=True)
    def body(numbers, row, n, p, g, b, second, third):
        rate = T(numbers.f64[0])
        penalty = T(numbers.f64[1])
        sign = T(numbers.f64[2])
        mu = T(numbers.f64[3])
        share = T(numbers.f64[4])
        keep = T(numbers.f64[5])
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

    return body


def _adadelta(T: Any, l2: bool) -> NativeFunction:
    """Numbers: -lr, rho, 1 - rho, eps, penalty, sign."""

    @native(_BODY, name=f"rl_adadelta_body_{T}", inline=True)
    def body(numbers, row, n, p, g, v, u, c):
        rate = T(numbers.f64[0])
        rho = T(numbers.f64[1])
        rest = T(numbers.f64[2])
        eps = T(numbers.f64[3])
        penalty = T(numbers.f64[4])
        sign = T(numbers.f64[5])
        for i in range(n):
            grad = load(T, g, i) * sign
            old = load(T, p, i)
            if l2:
                grad = fma(old, penalty, grad)
            square = fma(rest * grad, grad, load(T, v, i) * rho)
            store(T, v, i, square)
            moved = load(T, u, i)
            delta = sqrt(moved + eps) / sqrt(square + eps) * grad
            store(T, u, i, fma(rest * delta, delta, moved * rho))
            store(T, p, i, fma(delta, rate, old))

    return body


def _adamax(T: Any, l2: bool) -> NativeFunction:
    """Numbers: 1 - beta1, beta2, eps, penalty, sign."""
    lerp = _lerp(T)

    @native(_BODY, name=f"rl_adamax_body_{T}", inline=True)
    def body(numbers, row, n, p, g, m, u, c):
        weight = T(numbers.f64[0])
        beta2 = T(numbers.f64[1])
        eps = T(numbers.f64[2])
        penalty = T(numbers.f64[3])
        sign = T(numbers.f64[4])
        size = T(-row.f64[A])
        for i in range(n):
            grad = load(T, g, i) * sign
            old = load(T, p, i)
            if l2:
                grad = fma(old, penalty, grad)
            first = lerp(load(T, m, i), grad, weight)
            store(T, m, i, first)
            kept = load(T, u, i) * beta2
            now = abs(grad) + eps
            largest = select((now > kept) or (now != now), now, kept)
            store(T, u, i, largest)
            store(T, p, i, old + (size * first) / largest)

    return body


def _nadam(T: Any, l2: bool) -> NativeFunction:
    """Numbers: 1 - beta1, beta2, 1 - beta2, eps, shrink, penalty, sign."""
    lerp = _lerp(T)

    @native(_BODY, name=f"rl_nadam_body_{T}", inline=True)
    def body(numbers, row, n, p, g, m, v, c):
        weight = T(numbers.f64[0])
        beta2 = T(numbers.f64[1])
        rest2 = T(numbers.f64[2])
        eps = T(numbers.f64[3])
        shrink = T(numbers.f64[4])
        penalty = T(numbers.f64[5])
        sign = T(numbers.f64[6])
        now = T(row.f64[A])
        average = T(row.f64[B])
        correction = T(row.f64[C])
        for i in range(n):
            grad = load(T, g, i) * sign
            old = load(T, p, i) * shrink
            if l2:
                grad = fma(old, penalty, grad)
            first = lerp(load(T, m, i), grad, weight)
            second = fma(rest2 * grad, grad, load(T, v, i) * beta2)
            store(T, m, i, first)
            store(T, v, i, second)
            root = sqrt(second / correction) + eps
            store(T, p, i, old + (now * grad) / root + (average * first) / root)

    return body


def _radam(T: Any, l2: bool) -> NativeFunction:
    """Numbers: 1 - beta1, beta2, 1 - beta2, eps, shrink, penalty, sign, lr."""
    lerp = _lerp(T)

    @native(_BODY, name=f"rl_radam_body_{T}", inline=True)
    def body(numbers, row, n, p, g, m, v, c):
        weight = T(numbers.f64[0])
        beta2 = T(numbers.f64[1])
        rest2 = T(numbers.f64[2])
        eps = T(numbers.f64[3])
        shrink = T(numbers.f64[4])
        penalty = T(numbers.f64[5])
        sign = T(numbers.f64[6])
        rate = T(numbers.f64[7])
        correction = T(row.f64[A])
        root = T(row.f64[B])
        trust = T(row.f64[C])
        trusted = row.f64[C] > 0.0
        for i in range(n):
            grad = load(T, g, i) * sign
            old = load(T, p, i) * shrink
            if l2:
                grad = fma(old, penalty, grad)
            first = lerp(load(T, m, i), grad, weight)
            second = fma(rest2 * grad, grad, load(T, v, i) * beta2)
            store(T, m, i, first)
            store(T, v, i, second)
            plain = first / correction * rate
            store(T, p, i, old - select(trusted, plain * (root / (sqrt(second) + eps)) * trust, plain))

    return body


def _rprop(T: Any) -> NativeFunction:
    """Numbers: shrinking and growing factor, smallest and largest step, sign."""

    @native(_BODY, name=f"rl_rprop_body_{T}", inline=True)
    def body(numbers, row, n, p, g, before, sizes, c):
        shrink = T(numbers.f64[0])
        grow = T(numbers.f64[1])
        low = T(numbers.f64[2])
        high = T(numbers.f64[3])
        sign = T(numbers.f64[4])
        for i in range(n):
            grad = load(T, g, i) * sign
            agreement = grad * load(T, before, i)
            turned = agreement < T(0.0)
            size = load(T, sizes, i) * select(agreement > T(0.0), grow, select(turned, shrink, T(1.0)))
            size = select(size < low, low, size)
            size = select(size > high, high, size)
            grad = select(turned, T(0.0), grad)
            store(T, sizes, i, size)
            store(T, before, i, grad)
            one = select((grad > T(0.0)) or (grad < T(0.0)), copysign(T(1.0), grad), T(0.0))
            store(T, p, i, fma(-one, size, load(T, p, i)))

    return body


def _asgd(T: Any, l2: bool) -> NativeFunction:
    """Numbers: penalty, sign."""

    @native(_BODY, name=f"rl_asgd_body_{T}", inline=True)
    def body(numbers, row, n, p, g, averages, b, c):
        penalty = T(numbers.f64[0])
        sign = T(numbers.f64[1])
        shrink = T(row.f64[A])
        rate = T(row.f64[B])
        weight = T(row.f64[C])
        for i in range(n):
            grad = load(T, g, i) * sign
            old = load(T, p, i)
            if l2:
                grad = fma(old, penalty, grad)
            new = fma(grad, rate, old * shrink)
            store(T, p, i, new)
            average = load(T, averages, i)
            store(T, averages, i, select(weight == T(1.0), new, average + (new - average) * weight))

    return body


_TYPES = {"float32": f32, "float64": f64}
_FAMILIES: dict[str, Callable[..., NativeFunction]] = {
    "adadelta": _adadelta, "adagrad": _adagrad, "adam": _adam, "adamax": _adamax, "asgd": _asgd, "nadam": _nadam, "radam": _radam,
    "rmsprop": _rmsprop, "rprop": _rprop, "sgd": _sgd,
}  # fmt: skip


@cache
def update_kernel(family: str, dtype: str, *options: bool) -> Callable[..., Any]:
    """The callable kernel of a family for float32 or float64.

    Options: "adam": l2, amsgrad; "sgd": l2, momentum, nesterov; "rmsprop": l2, centered, momentum; "rprop": none; the others: l2.
    """
    kind = _TYPES[dtype]
    name = "_".join(["rl", family, str(kind), *(str(int(option)) for option in options)])
    function = _rows(kind, name, _FAMILIES[family](kind, *options))
    return make_kernel_callable(native_address(function), function.symbol, function, 2)
