"""Grad modes, inference mode, anomaly mode."""

from __future__ import annotations

import threading
from typing import Any

from tests.engine.recording import Topic, attempt, warned

topic = Topic()


@topic
def contexts(t: Any) -> Any:
    on = t.is_grad_enabled
    found = [on()]
    with t.no_grad():
        found.append(on())
        with t.enable_grad():
            found.append(on())
            with t.no_grad():
                found.append(on())
            found.append(on())
        found.append(on())
    found.append(on())
    with t.set_grad_enabled(False):
        found.append(on())
        with t.set_grad_enabled(True):
            found.append(on())
        found.append(on())
    found.append(on())
    t.set_grad_enabled(False)
    found.append(on())
    t.set_grad_enabled(True)
    found.append(on())
    try:
        with t.no_grad():
            raise KeyError
    except KeyError:
        found.append(on())
    return found


@topic
def decorators(t: Any) -> Any:
    on = t.is_grad_enabled

    @t.no_grad()
    def a(x: Any) -> Any:
        "text"
        return on(), x

    @t.no_grad
    def b() -> Any:
        return on()

    @t.enable_grad()
    def c() -> Any:
        return on()

    @t.set_grad_enabled(False)
    def d() -> Any:
        return on()

    @t.inference_mode()
    def e() -> Any:
        return t.is_inference_mode_enabled()

    @t.inference_mode
    def g() -> Any:
        return t.is_inference_mode_enabled()

    @t.no_grad()
    def recursive(n: int) -> Any:
        return [on()] + (recursive(n - 1) if n else [])

    with t.no_grad():
        inside = c()
    return a(1), a.__name__, a.__doc__, b(), inside, d(), e(), g(), on(), recursive(2)


@topic
def generators(t: Any) -> Any:
    on = t.is_grad_enabled
    seen = []

    @t.no_grad()
    def count() -> Any:
        try:
            got = yield on()
            seen.append([got, on()])
            try:
                yield on()
            except ValueError:
                seen.append(["thrown", on()])
                yield on()
        finally:
            seen.append(["end", on()])
        return 5

    g = count()
    found = [next(g), on(), g.send("x"), on(), g.throw(ValueError()), on()]
    g.close()
    h = count()
    next(h)
    h.close()

    @t.no_grad()
    def whole() -> Any:
        yield 1
        return 7

    def outer() -> Any:
        seen.append((yield from whole()))

    return found, list(outer()), seen, on()


@topic
def decorated_class(t: Any) -> Any:
    class C:
        @t.no_grad()
        def method(self, x: Any) -> Any:
            return x * 2

    return C().method(t.ones(1, requires_grad=True)).requires_grad


@topic
def threads(t: Any) -> Any:
    found = []
    with t.no_grad():
        thread = threading.Thread(target=lambda: found.append(t.is_grad_enabled()))
        thread.start()
        thread.join()
    t.set_grad_enabled(False)
    thread = threading.Thread(target=lambda: found.append(t.is_grad_enabled()))
    thread.start()
    thread.join()
    t.set_grad_enabled(True)
    thread = threading.Thread(target=lambda: t.set_grad_enabled(False))
    thread.start()
    thread.join()
    return found, t.is_grad_enabled()


@topic
def made_inside_no_grad(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    with t.no_grad():
        y = x * 2
        z = t.ones(2, requires_grad=True)
        p = t.nn.Parameter(t.ones(1))
    return y.requires_grad, z.requires_grad, z.is_leaf, y.is_leaf, p.requires_grad, (z * 2).requires_grad


@topic
def inference(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    n = t.ones(2)
    found = []
    with t.inference_mode():
        found += [t.is_inference_mode_enabled(), t.is_grad_enabled()]
        y = x * 2
        found += [y.requires_grad, y.is_inference(), x.is_inference()]
        y.add_(1)
        z = t.zeros(2)
        found.append(attempt(lambda: y._version))
        v = n.view(2)
        found.append(v.is_inference())
        n.add_(1)
        with t.inference_mode(False):
            found += [t.is_inference_mode_enabled(), (x * 2).requires_grad, t.ones(1).is_inference()]
        with t.enable_grad():
            found.append((x * 2).requires_grad)
        found.append(attempt(lambda: (x * 2).sum().backward()))
    found += [
        t.is_inference_mode_enabled(),
        attempt(lambda: y.add_(1)),
        attempt(lambda: z.requires_grad_()),
        attempt(lambda: x * z),
        attempt(lambda: x + z),
        attempt(lambda: z.clone().requires_grad_().requires_grad),
        attempt(lambda: (z + 1).is_inference()),
        attempt(lambda: z.view(2).is_inference()),
        n,
        n.is_inference(),
    ]
    with t.inference_mode():
        z.add_(1)
    found.append(z)
    return found


@topic
def inference_views_of_normal_tensors(t: Any) -> Any:
    n = t.ones(4)
    with t.inference_mode():
        v = n[1:]
        v.mul_(2)
    return n, v.is_inference(), attempt(lambda: v.add_(1)), n


@topic
def set_requires_grad_in_inference(t: Any) -> Any:
    with t.inference_mode():
        a = t.ones(2, requires_grad=True)
        b = a * 2
    return a.requires_grad, b.requires_grad, attempt(lambda: a * 2), attempt(lambda: (a * a).sum().backward())


@topic
def anomaly_nan(t: Any) -> Any:
    x = t.tensor([-1.0, 4.0], requires_grad=True)

    def fails() -> Any:
        with t.autograd.detect_anomaly():
            t.sqrt(x).sum().backward()

    def passes() -> Any:
        with t.autograd.detect_anomaly(check_nan=False):
            t.sqrt(x).sum().backward()
        return x.grad

    with t.autograd.set_detect_anomaly(True):
        inside = t.is_anomaly_enabled()
    return warned(lambda: attempt(fails)), warned(passes), inside, t.is_anomaly_enabled()


@topic
def anomaly_in_functions(t: Any) -> Any:
    class Bad(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            raise ValueError("bad")

    x = t.ones(1, requires_grad=True)

    def fails() -> Any:
        with t.autograd.detect_anomaly():
            Bad.apply(x).sum().backward()

    return warned(lambda: attempt(fails)), warned(lambda: attempt(lambda: Bad.apply(x).sum().backward()))


@topic
def default_dtype(t: Any) -> Any:
    found = [t.get_default_dtype(), t.ones(1).dtype]
    try:
        t.set_default_dtype(t.float64)
        found += [
            t.get_default_dtype(),
            t.ones(1).dtype,
            t.tensor(1.0).dtype,
            t.tensor([1]).float().dtype,
            (t.tensor([1]) * 1.5).dtype,
            (t.tensor([1]) / 2).dtype,
            t.tensor(1j).dtype,
            t.arange(2.0).dtype,
            t.randn(1).dtype,
            t.tensor([1, 2]).exp().dtype,
            repr(t.ones(1)),
            repr(t.ones(1, dtype=t.float32)),
            t.tensor([1]).sum().dtype,
            t.linspace(0, 1, 2).dtype,
            (t.ones(1, dtype=t.float32) * 2.0).dtype,
            t.tensor([True]).mean(dtype=t.get_default_dtype()).dtype,
        ]
        t.set_default_dtype(t.float16)
        found += [t.ones(1).dtype, (t.tensor([1]) * 1.5).dtype, t.tensor(1j).dtype if False else 0]
    finally:
        t.set_default_dtype(t.float32)
    found += [t.ones(1).dtype, (t.tensor([1]) * 1.5).dtype, attempt(lambda: t.set_default_dtype(t.int64))]
    return found
