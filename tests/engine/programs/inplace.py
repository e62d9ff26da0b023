"""In-place changes and autograd: versions, what is forbidden, rebased history."""

from __future__ import annotations

from typing import Any

from tests.engine.recording import Topic, attempt

topic = Topic()


def leaf(t: Any, *shape: int) -> Any:
    n = 1
    for s in shape:
        n *= s
    return (t.arange(1.0, n + 1, dtype=t.float64) / 3).reshape(shape).requires_grad_()


@topic
def versions(t: Any) -> Any:
    x = t.zeros(2, 3)
    found = [x._version]
    x.add_(1)
    found.append(x._version)
    x[0] = 5
    found.append(x._version)
    x.t().mul_(2)
    found.append(x._version)
    x.zero_()
    x.fill_(2)
    x.copy_(t.ones(3))
    x += 1
    found.append(x._version)
    x.view(6)[2:].exp_()
    found.append(x._version)
    x.clamp_(0, 1)
    x[x > 0] = 3
    x.masked_fill_(x > 1, 2)
    found.append(x._version)
    t.add(x, 1, out=x)
    found.append(x._version)
    with t.no_grad():
        x.sub_(1)
    x.detach().sub_(1)
    found.append(x._version)
    x.data.sub_(1)
    found.append(x._version)
    return found, x, x[0]._version, x.clone()._version, (x + 1)._version


@topic
def leaves_are_protected(t: Any) -> Any:
    x = leaf(t, 2, 3)
    found = [
        attempt(lambda: x.add_(1)),
        attempt(lambda: x.zero_()),
        attempt(lambda: x[0].mul_(2)),
        attempt(lambda: x.__setitem__(0, 1.0)),
        attempt(lambda: x.view(6).exp_()),
        attempt(lambda: x.__iadd__(1)),
        attempt(lambda: x.t_()),
        attempt(lambda: x[0].t().fill_(3)),
        attempt(lambda: x.masked_fill_(x > 1, 0.0)),
        attempt(lambda: x.copy_(t.zeros(2, 3))),
        attempt(lambda: x.detach_()) if False else 0,
        attempt(lambda: t.zeros(2, 3, dtype=t.float64).copy_(x)),
        attempt(lambda: x.requires_grad_(False)),
    ]
    x.requires_grad_()
    with t.no_grad():
        x.add_(1)
        x[0] = 0
    x.detach().mul_(2)
    x.data[1] = 7
    return found, x, x._version


@topic
def plain_takes_history(t: Any) -> Any:
    x, y = leaf(t, 3), t.zeros(3, dtype=t.float64)
    y.add_(x)
    y.mul_(2)
    y.sum().backward()
    return y, x.grad


@topic
def saved_and_changed(t: Any) -> Any:
    found = []
    x = leaf(t, 3)
    y = x * 2
    z = y * y
    y.add_(1)
    found.append(attempt(lambda: z.sum().backward()))
    y = x.exp()
    y.add_(1)
    found.append(attempt(lambda: y.sum().backward()))
    y = x.sin()
    y.add_(1)
    found.append(attempt(lambda: y.sum().backward()))
    y = x * 2
    z = y.sum()
    y.mul_(5)
    found.append(attempt(lambda: z.backward()))
    w = t.ones(3, dtype=t.float64)
    z = x * w
    w.add_(1)
    found.append(attempt(lambda: z.sum().backward()))
    w = t.ones(3, dtype=t.float64)
    z = x * w
    w[1:].add_(1)
    found.append(attempt(lambda: z.sum().backward()))
    w = t.ones(3, dtype=t.float64)
    z = x * w
    w.data.add_(1)
    z.sum().backward()
    found.append(x.grad)
    y = (x * 1).sigmoid_()
    y.sum().backward()
    return found, x.grad


@topic
def unary_in_place(t: Any) -> Any:
    found = {}
    for name in (
        "exp_",
        "sigmoid_",
        "tanh_",
        "relu_",
        "sqrt_",
        "neg_",
        "abs_",
        "sin_",
        "cos_",
        "log_",
        "reciprocal_",
        "square_",
        "zero_",
        "floor_",
        "rsqrt_",
    ):
        x = leaf(t, 3)
        y = x * 1
        getattr(y, name)()
        (y * t.arange(1.0, 4.0, dtype=t.float64)).sum().backward()
        found[name] = [y, x.grad, y._version]
    return found


@topic
def binary_in_place(t: Any) -> Any:
    found = {}
    for name in ("add_", "sub_", "mul_", "div_", "pow_", "atan2_", "copy_", "maximum" + "_" if False else "lerp_"):
        x, y = leaf(t, 3), (leaf(t, 3) + 1).detach().requires_grad_()
        z = x * 1
        args = (y, 0.25) if name == "lerp_" else (y,)
        getattr(z, name)(*args)
        (z * t.arange(1.0, 4.0, dtype=t.float64)).sum().backward()
        found[name] = [z, x.grad, y.grad]
    return found


@topic
def with_itself(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * 1
    y += y
    y.sum().backward()
    w = x * 1
    w *= w
    z = x.detach().clone()
    z += z
    z -= z * 2
    z.div_(z)
    return y, x.grad, z, attempt(lambda: w.sum().backward())


@topic
def operators(t: Any) -> Any:
    x = t.arange(1, 5)
    held = x
    x += 2
    x -= 1
    x *= 3
    x //= 2
    x %= 4
    x |= 8
    x &= 13
    x ^= 1
    x <<= 2
    x >>= 1
    y = t.arange(1.0, 4.0)
    y /= 2
    y **= 2
    return (
        held is x,
        x,
        y,
        attempt(lambda: x.__itruediv__(2)),
        attempt(lambda: x.add_(1.5)),
        attempt(lambda: x.__iadd__(t.ones(4))),
        (attempt(lambda: t.ones(2, dtype=t.bool).add_(1))),
        attempt(lambda: t.ones(2, 1).add_(t.ones(2, 2))),
    )


@topic
def expanded(t: Any) -> Any:
    x = t.zeros(3, 1)
    e = x.expand(3, 4)
    s = t.arange(6.0).as_strided((3, 2), (1, 1))
    return (
        attempt(lambda: e.add_(1)),
        attempt(lambda: e.__setitem__(0, 1.0)),
        attempt(lambda: s.mul_(2)),
        attempt(lambda: e[:, 0].add_(1)),
        x,
        attempt(lambda: t.add(t.ones(3, 4), 1, out=e)),
        attempt(lambda: t.zeros(1).expand(5).fill_(3)),
        attempt(lambda: e.copy_(t.ones(3, 4))),
    )


@topic
def overlapping_operands(t: Any) -> Any:
    x = t.arange(6.0)
    y = t.arange(6.0)
    z = t.arange(6.0)
    m = t.arange(9.0).reshape(3, 3)
    return [
        attempt(lambda: x[1:].add_(x[:-1])),
        attempt(lambda: t.add(y[:-1], 1, out=y[1:])),
        attempt(lambda: m.add_(m.t())),
        attempt(lambda: z[:3].add_(z[3:])),
        attempt(lambda: z[::2].add_(z[1::2])),
        attempt(lambda: z.add_(z[0])),
        attempt(lambda: z.view(2, 3).add_(z.view(2, 3))),
    ]


@topic
def part_of_a_result(t: Any) -> Any:
    x = leaf(t, 3, 4)
    y = x * 2
    y[1] = 0
    y[:, 2] *= 3
    y[0, 0].add_(7)
    name = type(y.grad_fn).__name__
    (y * y).sum().backward()
    return name, y, x.grad


@topic
def assigned_values_get_gradients(t: Any) -> Any:
    x, v, s = leaf(t, 3, 4), leaf(t, 4), leaf(t)
    y = x * 1
    y[1] = v
    y[:, 0] = s
    y[2, 1:3] = v[:2] * s
    (y * t.arange(12.0, dtype=t.float64).view(3, 4)).sum().backward()
    return y, x.grad, v.grad, s.grad


@topic
def fresh_buffer(t: Any) -> Any:
    x = leaf(t, 3)
    out = t.zeros(3, 2, dtype=t.float64)
    for i in range(3):
        out[i, 0] = x[i] * i
        out[i, 1] = x[i] ** 2
    (out * out).sum().backward()
    return out, x.grad, type(out.grad_fn).__name__


@topic
def chain_of_views(t: Any) -> Any:
    x = leaf(t, 2, 3, 4)
    y = x * 1
    a = y[1]
    b = a.t()
    c = b[1:, ::2]
    c.mul_(5)
    b[0].add_(b[1].detach())
    a.add_(1)
    (y * y).sum().backward()
    return (
        [attempt(lambda v=v: type(v.grad_fn).__name__) for v in (y, a, b, c)],
        y,
        x.grad,
        [v._version for v in (y, a, b, c)],
    )


@topic
def views_see_changes(t: Any) -> Any:
    x = leaf(t, 4)
    y = x * 1
    a, b = y[:2], y[1:]
    y.mul_(3)
    first = [type(a.grad_fn).__name__, type(b.grad_fn).__name__]
    a.mul_(2)
    (b**2).sum().backward()
    return first, a, b, x.grad, type(a.grad_fn).__name__, type(b.grad_fn).__name__


@topic
def view_made_before_history(t: Any) -> Any:
    base = t.zeros(4, dtype=t.float64)
    v = base[1:3]
    x = leaf(t, 2)
    before = v.requires_grad
    v.copy_(x)
    base.mul_(2)
    inside = v.requires_grad
    v.sum().backward()
    return before, inside, base, x.grad, v.is_leaf, base.is_leaf


@topic
def base_changed_after_view(t: Any) -> Any:
    base = t.zeros(4, dtype=t.float64)
    v = base.view(2, 2)
    x = leaf(t, 4)
    base.add_(x)
    (v * v).sum().backward()
    return v, x.grad, v.requires_grad


@topic
def several_views_in_place(t: Any) -> Any:
    x = leaf(t, 6)
    y = x * 1
    parts = [y[i : i + 2] for i in range(0, 6, 2)]
    for i, p in enumerate(parts):
        p.mul_(i + 1)
    parts[0].add_(parts[2])
    (parts[0] * parts[1]).sum().backward()
    return y, x.grad


@topic
def second_derivative_through_part(t: Any) -> Any:
    x = leaf(t, 4)
    y = x**2
    y[1:3].mul_(x[:2])
    y[0] = x[3] ** 3
    (g,) = t.autograd.grad((y * y).sum(), x, create_graph=True)
    (h,) = t.autograd.grad((g * t.arange(1.0, 5.0, dtype=t.float64)).sum(), x)
    return y, g, h


@topic
def gradcheck_of_parts(t: Any) -> Any:
    def f(x: Any, v: Any) -> Any:
        y = x * 1
        y.t()[1].mul_(v)
        y[0, :2] = v[0].exp()
        y.view(-1)[::2].sin_()
        return y

    x, v = leaf(t, 2, 3), leaf(t, 2)
    return t.autograd.gradcheck(f, (x, v)), t.autograd.gradgradcheck(f, (x, v))


@topic
def noncontiguous_base(t: Any) -> Any:
    x = leaf(t, 3, 4)
    y = x.t() * 2
    y[1:, 0].mul_(5)
    y.t()[2] += 1
    (y * y).sum().backward()
    return y, x.grad


@topic
def multi_output_views(t: Any) -> Any:
    x = leaf(t, 4)
    found = []
    for name, many in {
        "split": lambda y: y.split(2),
        "chunk": lambda y: y.chunk(2),
        "unbind": lambda y: y.unbind(),
        "tensor_split": lambda y: y.tensor_split(2),
    }.items():
        y = x * 1
        parts = many(y)
        found.append(
            [
                name,
                attempt(lambda p=parts: p[0].add_(1)),
                attempt(lambda p=parts: p[0][:1].add_(1) if p[0].dim() else 0),
            ]
        )
        plain = t.zeros(4).split(2)
        plain[0].add_(1)
        found.append(plain[0])
        found.append(attempt(lambda: many(t.zeros(4, dtype=t.float64))[0].add_(x[0])))
    y = x * 1
    parts = y.split(2)
    y.mul_(3)
    found.append(attempt(lambda: (parts[0] ** 2).sum().backward()))
    return found, x.grad


@topic
def no_grad_views(t: Any) -> Any:
    x = leaf(t, 4)
    y = x * 1
    with t.no_grad():
        v = y[:2]
        v.mul_(2)
    found = [attempt(lambda: v.mul_(2)), v.requires_grad, attempt(lambda: v.detach().mul_(2))]
    plain = t.zeros(4)
    with t.no_grad():
        w = plain[:2]
    found.append(attempt(lambda: w.add_(1)))
    found.append(attempt(lambda: w.add_(x[:2])))
    return found


@topic
def in_no_grad(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * 2
    with t.no_grad():
        y.add_(1)
        y[0] = 9
    y.sum().backward()
    return y, x.grad, y._version


@topic
def indexed_assignment(t: Any) -> Any:
    x, v = leaf(t, 4, 3), leaf(t, 2, 3)
    y = x * 1
    y[t.tensor([0, 2])] = v
    y[t.tensor([1, 3]), t.tensor([0, 1])] = v[0, :2] * 2
    (y * t.arange(12.0, dtype=t.float64).view(4, 3)).sum().backward()
    return y, x.grad, v.grad, type(y.grad_fn).__name__


@topic
def masked_assignment(t: Any) -> Any:
    x, v, s = leaf(t, 4, 3), leaf(t, 3), leaf(t)
    y = x * 1
    y[y > 3] = s
    y[t.tensor([True, False, False, True])] = v
    y[:, 1][t.tensor([True, False, True, False])] *= 2
    y = y.masked_fill(y < 1, 5.0)
    y.masked_fill_(y == 5, 0.5)
    (y * t.arange(12.0, dtype=t.float64).view(4, 3)).sum().backward()
    return y, x.grad, v.grad, s.grad


@topic
def accumulating_index(t: Any) -> Any:
    x, v = leaf(t, 4), leaf(t, 3)
    y = x * 1
    y.index_add_(0, t.tensor([1, 1, 3]), v)
    y.index_put_((t.tensor([0, 0]),), v[:2], accumulate=True)
    y.scatter_(0, t.tensor([2]), v[2:] * 3)
    (y * y).sum().backward()
    return y, x.grad, v.grad


@topic
def retained_before_change(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * 2
    y.retain_grad()
    y.mul_(3)
    (y * y).sum().backward()
    return y.grad, x.grad


@topic
def detach_in_place(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * 2
    y.detach_()
    v = (x * 1)[0]
    return y, attempt(lambda: v.detach_()), x.is_leaf, y.is_leaf, (x * 2).detach().requires_grad_()


@topic
def requires_grad_rules(t: Any) -> Any:
    x = leaf(t, 2)
    y = x * 1
    return [
        attempt(lambda: y.requires_grad_(False)),
        attempt(lambda: setattr(y, "requires_grad", False)),
        attempt(lambda: t.ones(2, dtype=t.int64).requires_grad_()),
        y.requires_grad_().requires_grad,
        attempt(lambda: setattr(x, "grad", t.ones(3, dtype=t.float64))),
        attempt(lambda: setattr(x, "grad", t.ones(2))),
        attempt(lambda: setattr(x, "grad", 1.0)),
        attempt(lambda: setattr(x, "grad", t.ones(2, dtype=t.float64))),
        x.grad,
        t.ones(2).requires_grad_().is_leaf,
        (x.detach() + 1).is_leaf,
        y.is_leaf,
        x.is_leaf,
        x.to(t.float64) is x,
        x.float().is_leaf,
        t.ones(2, dtype=t.complex64, requires_grad=True).requires_grad,
    ]


@topic
def inplace_on_saved_view(t: Any) -> Any:
    x = leaf(t, 4)
    y = x * 1
    z = y[:2] * y[2:]
    y[:1].add_(1)
    return attempt(lambda: z.sum().backward())


@topic
def output_saved_then_changed_through_view(t: Any) -> Any:
    x = leaf(t, 2, 2)
    y = x.tanh()
    y.view(4)[0] = 3
    return attempt(lambda: y.sum().backward())


@topic
def relu_chain(t: Any) -> Any:
    x = leaf(t, 4)
    y = t.relu_(x - 0.5)
    y = t.nn.functional.relu(y * 2, inplace=True)
    y.sum().backward()
    return y, x.grad


@topic
def cast_on_write(t: Any) -> Any:
    x = leaf(t, 3)
    y = t.zeros(3)
    y.copy_(x)
    i = t.zeros(3, dtype=t.int64)
    i.copy_(x * 10)
    h = t.zeros(3, dtype=t.float16)
    h += x.detach()
    y.sum().backward()
    return y, x.grad, i, h


@topic
def broadcast_write(t: Any) -> Any:
    x, v = leaf(t, 2, 3), leaf(t, 3)
    y = x * 1
    y.copy_(v)
    y[0] += v
    y[:] = y.clone() * v.sum()
    (y * y).sum().backward()
    return y, x.grad, v.grad


@topic
def random_fills_forget_history(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * 2
    y.mul_(0)
    z = x * 2
    z.zero_()
    y.sum().backward()
    z.sum().backward()
    return y, z, x.grad


@topic
def parts_of_complex_numbers(t: Any) -> Any:
    z = t.tensor([1 + 2j, 3 - 1j], dtype=t.complex128, requires_grad=True)
    x = leaf(t, 2)
    y = z * 2
    y.real.mul_(x)
    t.view_as_real(y)[0, 1] = x[1]
    seen = y.imag
    y.mul_(3)
    (seen * t.tensor([1.0, 2.0], dtype=t.float64) + y.real).sum().backward()
    return y, seen, z.grad, x.grad


@topic
def wide_chain_of_inplace(t: Any) -> Any:
    x = leaf(t, 2)
    y = x * 1
    for i in range(20):
        y[i % 2] *= 1.1
        y += 0.1
    y.sum().backward()
    return y, x.grad
