"""Backward: accumulation, retained graphs, `grad`, higher derivatives."""

from __future__ import annotations

from typing import Any

from tests.engine.recording import Topic, attempt, warned

topic = Topic()


def leaf(t: Any, *values: float) -> Any:
    return t.tensor(values, dtype=t.float64, requires_grad=True)


@topic
def accumulation(t: Any) -> Any:
    x = leaf(t, 1, 2)
    (x * x).sum().backward()
    held = x.grad
    (x * 3).sum().backward()
    same = held is x.grad
    x.grad = None
    (x * 3).sum().backward()
    return held, same, x.grad, held is x.grad


@topic
def used_twice(t: Any) -> Any:
    x = leaf(t, 2, 3)
    y = x * 2
    z = y * y + y + x * y
    z.sum().backward()
    return x.grad


@topic
def roots(t: Any) -> Any:
    x = leaf(t, 2, 3)
    y = x * x
    found = [
        attempt(lambda: y.backward()),
        attempt(lambda: x.detach().sum().backward()),
        attempt(lambda: t.ones(2).sum().backward()),
    ]
    y.backward(t.ones_like(y))
    t.autograd.backward([(x * 2).sum(), x * 3], [None, t.tensor([1.0, 2.0], dtype=t.float64)])
    found += [
        attempt(lambda: (x * 1).backward(t.ones(3, dtype=t.float64))),
        attempt(lambda: (x * 1).backward(5)),
        attempt(lambda: t.autograd.backward([])),
    ]
    x.sum().backward()
    leaf_root = leaf(t, 4)
    leaf_root.backward()
    return (
        found,
        x.grad,
        leaf_root.grad,
        attempt(lambda: t.autograd.backward([x.sum()], [None, None])),
        attempt(lambda: (x * 1j).sum().backward()),
    )


@topic
def one_element_roots(t: Any) -> Any:
    x = leaf(t, 2)
    (x * 3).backward()
    x.view(1, 1).backward()
    return x.grad


@topic
def freed(t: Any) -> Any:
    x = leaf(t, 2, 3)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    found = [attempt(lambda: y.backward()), x.grad]
    z = (x + 1).sum()
    z.backward()
    found.append(attempt(lambda: z.backward()))
    w = x.exp()
    w.sum().backward()
    found.append(attempt(lambda: w.sum().backward()))
    found.append(attempt(lambda: w.grad_fn._saved_result) if False else 0)
    return found


@topic
def half_freed(t: Any) -> Any:
    x = leaf(t, 2, 3)
    y = x * x
    a, b = y.sum(), y.exp().sum()
    a.backward()
    return attempt(lambda: b.backward()), x.grad


@topic
def grad_function(t: Any) -> Any:
    x, y, unused = leaf(t, 1, 2), leaf(t, 3, 4), leaf(t, 5)
    z = (x * y).sum()
    found = [
        t.autograd.grad(z, x, retain_graph=True),
        t.autograd.grad(z, [x, y], retain_graph=True),
        attempt(lambda: t.autograd.grad(z, unused, retain_graph=True)),
    ]
    found.append(t.autograd.grad(z, [x, unused], allow_unused=True, retain_graph=True))
    found.append(t.autograd.grad(z, [x, unused], materialize_grads=True, retain_graph=True))
    found.append(attempt(lambda: t.autograd.grad(z, x.detach(), retain_graph=True)))
    found.append(attempt(lambda: t.autograd.grad(z, x, allow_unused=False, materialize_grads=True)))
    found.append(t.autograd.grad(x * y, x, grad_outputs=t.tensor([1.0, 10.0], dtype=t.float64)))
    found.append(t.autograd.grad([x.sum(), (x * x).sum()], x))
    found.append([x.grad, y.grad])
    mid = x * 2
    found.append(t.autograd.grad((mid * mid).sum(), mid))
    found.append(t.autograd.grad((x * 2).sum(), (x,))[0])
    found.append(t.autograd.grad(x, x, t.ones_like(x)))
    found.append(t.autograd.grad((x * y).sum(), [x, x]))
    return found


@topic
def grad_of_intermediate_and_leaf(t: Any) -> Any:
    x = leaf(t, 1, 2)
    y = x * 3
    z = (y**3).sum()
    return t.autograd.grad(z, [y, x]), x.grad


@topic
def grad_of_view_not_used(t: Any) -> Any:
    x = leaf(t, 1, 2, 3)
    v = x[0]
    z = (x * x).sum()
    return attempt(lambda: t.autograd.grad(z, v, retain_graph=True)), t.autograd.grad(z, v, allow_unused=True)


@topic
def backward_inputs(t: Any) -> Any:
    x, y = leaf(t, 1, 2), leaf(t, 3, 4)
    m = x * y
    z = (m * m).sum()
    z.backward(inputs=[x], retain_graph=True)
    found = [x.grad, y.grad]
    z.backward(inputs=y, retain_graph=True)
    z.backward(inputs=[m])
    found += [x.grad, y.grad]
    found.append(warned(lambda: m.grad)[0])
    return found, attempt(lambda: z.backward(inputs=[])), attempt(lambda: (x * 1).sum().backward(inputs=[t.ones(2)]))


@topic
def higher(t: Any) -> Any:
    x = leaf(t, 0.5, 2)
    found = []
    for f in (
        lambda x: x**5,
        t.exp,
        t.sin,
        t.log,
        t.sigmoid,
        t.tanh,
        lambda x: 1 / x,
        lambda x: x.sqrt() * x.cos(),
        lambda x: t.nn.functional.softplus(x),
        lambda x: t.nn.functional.gelu(x),
        lambda x: x.prod() * x,
        lambda x: t.softmax(x, 0),
        lambda x: x.logsumexp(0),
        lambda x: t.outer(x, x) @ x,
        lambda x: x.norm(),
        lambda x: x.var(),
        lambda x: x.cumsum(0) * x.flip(0),
    ):
        y = f(x)
        orders = []
        for _ in range(3 if y.requires_grad else 0):
            (y,) = t.autograd.grad(
                (y * t.tensor([1.0, 2.0], dtype=t.float64) if y.numel() > 1 else y).sum(), x, create_graph=True
            )
            orders.append(y.detach())
            if not y.requires_grad:
                break
        found.append(orders)
    return found


@topic
def fourth_derivative(t: Any) -> Any:
    x = leaf(t, 1.5)
    y = (x**6).sum()
    found = []
    for _ in range(6):
        (y,) = t.autograd.grad(y, x, create_graph=True)
        found.append(y.item())
    return found, y.requires_grad


@topic
def create_graph_in_backward(t: Any) -> Any:
    x = leaf(t, 2.0)
    (x**3).sum().backward(create_graph=True)
    g = x.grad
    names = [g.requires_grad, g.is_leaf]
    x.grad = None
    g.sum().backward()
    return names, g.detach(), x.grad


@topic
def gradient_penalty(t: Any) -> Any:
    w, x = leaf(t, 1, -2, 3), leaf(t, 0.1, 0.2, 0.3)
    score = (w * x).tanh().sum()
    (g,) = t.autograd.grad(score, x, create_graph=True)
    ((g.norm() - 1) ** 2).backward()
    return g, w.grad, x.grad


@topic
def names(t: Any) -> Any:
    x = t.ones(2, 2, requires_grad=True)
    made = [
        x + 1,
        1 + x,
        x - 1,
        1 - x,
        x * 2,
        x / 2,
        1 / x,
        x**2,
        2**x,
        -x,
        x @ x,
        x.mm(x),
        x.sum(),
        x.sum(0),
        x.mean(),
        x.mean(1),
        x.exp(),
        x.log(),
        x.relu(),
        x.sigmoid(),
        x.tanh(),
        x.t(),
        x.view(4),
        x.reshape(4),
        x[0],
        x[:, 1],
        x[0:1],
        x[[0]],
        x.transpose(0, 1),
        x.permute(1, 0),
        x.unsqueeze(0),
        x.expand(2, 2, 2),
        x.squeeze(),
        x.max(),
        x.max(0)[0],
        x.min(),
        x.abs(),
        x.sqrt(),
        x.softmax(0),
        x.log_softmax(1),
        x.std(),
        x.var(),
        x.norm(),
        x.prod(),
        x.cumsum(0),
        x.clone(),
        x.double(),
        x.to(x.dtype),
        t.cat([x, x]),
        t.stack([x, x]),
        t.where(x > 0, x, x),
        x.clamp(0, 1),
        x.flatten(),
        t.einsum("ij,jk->ik", x, x),
        x.gather(0, t.zeros(1, 2, dtype=t.long)),
        x.index_select(0, t.tensor([0])),
        x.masked_fill(x > 0, 1.0),
        x.repeat(2, 1),
        x.flip(0),
        x.roll(1),
        x.tril(),
        x.diag(),
        x.sin(),
        x.cos(),
        x.pow(x),
        x.lerp(x, 0.5),
        x.contiguous(),
        x.select(0, 1),
        x.narrow(0, 0, 1),
        x.split(1)[0],
        x.chunk(2)[1],
        x.unbind()[0],
        x.topk(1)[0],
        x.sort()[0],
        x.argmax(),
        x.addmm(x, x),
        x.bmm(x) if False else x,
        x.unsqueeze(0).bmm(x.unsqueeze(0)),
        x.mv(x[0]),
        x[0].dot(x[1]),
        x.view_as(x),
        x.as_strided((2,), (1,)),
        x.fill_(1) if False else x,
        x.logsumexp(0),
        x.amax(0),
        x.T,
    ]
    return [type(m.grad_fn).__name__ for m in made]


@topic
def next_functions(t: Any) -> Any:
    x, y = t.ones(2, requires_grad=True), t.ones(2)
    z = (x * 2 + y) * x
    walk = []
    stack = [(z.grad_fn, 0)]
    while stack:
        node, depth = stack.pop()
        if node is not None:
            walk.append([depth, node.name().split("::")[-1]])
            stack += [(n, depth + 1) for n, _ in reversed(node.next_functions)]
    last = z.grad_fn.next_functions[1][0]
    return walk, last.variable is x, [n for _, n in z.grad_fn.next_functions]


@topic
def leaf_facts(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    y = x * 2
    return [
        x.is_leaf,
        y.is_leaf,
        (x.detach()).is_leaf,
        t.ones(2).is_leaf,
        warned(lambda: y.grad),
        warned(lambda: x.grad),
        x.grad_fn,
        y.retains_grad,
        x.output_nr,
        x.max(0)[0].output_nr,
        x.max(0)[1].requires_grad,
        (x > 1).requires_grad,
        x.argmax().requires_grad,
        x.long().requires_grad,
    ]


@topic
def broadcast_gradients(t: Any) -> Any:
    a, b, c = (
        t.ones(2, 1, 3, dtype=t.float64, requires_grad=True),
        t.ones(4, 1, dtype=t.float64, requires_grad=True),
        t.tensor(2.0, dtype=t.float64, requires_grad=True),
    )
    ((a + b) * c * t.arange(24.0, dtype=t.float64).view(2, 4, 3)).sum().backward()
    return a.grad, b.grad, c.grad


@topic
def mixed_dtypes(t: Any) -> Any:
    a = t.ones(2, requires_grad=True)
    b = t.ones(2, dtype=t.float64, requires_grad=True)
    c = t.ones(2, dtype=t.bfloat16, requires_grad=True)
    (a * b + c).sum().backward()
    d = t.ones(2, dtype=t.float16, requires_grad=True)
    (d.float() * 3).sum().backward()
    return a.grad, b.grad, c.grad, d.grad


@topic
def layout_of_gradients(t: Any) -> Any:
    x = t.randn(3, 4).t().detach().requires_grad_()
    (x * x).sum().backward()
    y = t.ones(2, 3, 2, 2).contiguous(memory_format=t.channels_last).requires_grad_()
    (y * 2).sum().backward()
    z = t.zeros(3, requires_grad=True)
    z.sum().backward()
    w = t.zeros(2, 3, requires_grad=True)
    w.t().sum(0).sum().backward()
    e = t.zeros(1).expand(3).detach().requires_grad_()
    (e * 2).sum().backward()
    return x.grad.stride(), y.grad.stride(), z.grad.stride(), w.grad.stride(), e.grad.stride()


@topic
def complex_gradients(t: Any) -> Any:
    z = t.tensor([1 + 2j, 3 - 1j], dtype=t.complex128, requires_grad=True)
    (z * z.conj()).real.sum().backward()
    first = z.grad
    z.grad = None
    (z**2).abs().sum().backward()
    r = t.tensor([1.0, 2.0], dtype=t.float64, requires_grad=True)
    (r * z.detach()).imag.sum().backward()
    return (
        first,
        z.grad,
        r.grad,
        t.autograd.gradcheck(lambda z: z * z.exp(), (z,)),
        t.autograd.gradgradcheck(lambda z: z * z * z, (z,)),
    )


@topic
def undefined_points(t: Any) -> Any:
    x = t.tensor([-1.0, 0.0, 2.0], requires_grad=True)
    found = []
    for f in (
        t.relu,
        t.abs,
        t.sqrt,
        t.sign,
        lambda x: x.clamp(0, 2),
        lambda x: t.max(x, t.zeros(3)),
        lambda x: x.norm(),
        lambda x: t.nn.functional.leaky_relu(x),
        t.nn.functional.hardtanh,
        lambda x: t.minimum(x, x),
        lambda x: x.max(),
        lambda x: x * 0 / x,
        lambda x: x.pow(0),
        lambda x: x.pow(0.5),
        t.floor,
        lambda x: x % 1,
        lambda x: t.zeros(3, requires_grad=True).norm() + x.sum(),
        lambda x: x.prod(),
        lambda x: x.median(),
        lambda x: t.where(x > 0, x.log(), x),
    ):
        found.append(t.autograd.grad(f(x).sum(), x))
    return found


@topic
def gradients_of_leaves_are_apart(t: Any) -> Any:
    a, b, c = (t.zeros(2, 2, requires_grad=True) for _ in range(3))
    (a + b + c.t()).sum().backward()
    apart = len({a.grad.data_ptr(), b.grad.data_ptr(), c.grad.data_ptr()})
    a.grad.add_(1)
    (a + b).sum().backward()
    return apart, a.grad, b.grad, c.grad


@topic
def held_by_a_hook(t: Any) -> Any:
    x, held = t.zeros(3, requires_grad=True), []
    y = x * 1
    y.register_hook(lambda g: held.append(g))
    x.register_hook(lambda g: held.append(g))
    y.retain_grad()
    y.backward(t.ones(3))
    x.grad.add_(10)
    y.grad.add_(100)
    (x * 2).sum().backward()
    return held, x.grad, y.grad


@topic
def results_of_grad_are_apart(t: Any) -> Any:
    g = t.ones(3)
    x, y = t.zeros(3, requires_grad=True), t.zeros(3, requires_grad=True)
    a, b = t.autograd.grad(x + y, (x, y), g)
    a = a.clone().add_(1)
    m = x * 1
    c, d = t.autograd.grad((m + 0).sum(), (m, x))
    return g, a, b, c, d


@topic
def same_leaf_many_times(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    sum([x] * 50).sum().backward()
    return x.grad


@topic
def long_chain(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    y = x
    for _ in range(3000):
        y = y + 0.001
    y.sum().backward()
    return x.grad


@topic
def wide_sum(t: Any) -> Any:
    xs = [t.full((2,), float(i), requires_grad=True) for i in range(20)]
    t.stack(xs).prod(0).sum().backward()
    t.cat(xs).sum().backward()
    return [x.grad for x in xs]


@topic
def partial_graph_without_grad(t: Any) -> Any:
    x, w = t.ones(2), t.ones(2, requires_grad=True)
    y = x * 3
    z = y * w
    with t.no_grad():
        q = z * 2
    z.sum().backward()
    return y.requires_grad, q.requires_grad, w.grad, x.grad


@topic
def integer_and_bool_inputs(t: Any) -> Any:
    x = t.ones(3, requires_grad=True)
    mask = t.tensor([True, False, True])
    (x * mask * t.tensor([1, 2, 3])).sum().backward()
    return x.grad


@topic
def functional(t: Any) -> Any:
    f = t.autograd.functional
    x, y = t.tensor([1.0, 2.0], dtype=t.float64), t.tensor([3.0, 4.0], dtype=t.float64)
    v = t.tensor([1.0, -1.0], dtype=t.float64)
    return [
        f.jacobian(lambda x: x**2, x),
        f.jacobian(lambda x, y: (x * y, x.sum()), (x, y)),
        f.hessian(lambda x: (x**3).sum(), x),
        f.hessian(lambda x, y: (x * y * y).sum(), (x, y)),
        f.vjp(lambda x: x**2, x, v),
        f.jvp(lambda x: x**2, x, v),
        f.vhp(lambda x: (x**3).sum(), x, v),
        f.hvp(lambda x: (x**3).prod(), x, v),
        f.jacobian(lambda x: x.sum(), x),
        f.vjp(lambda x: x.sum(), x),
        f.jacobian(lambda x: x.new_ones(2) * 3, x),
        attempt(lambda: f.jacobian(lambda x: x.new_ones(2) * 3, x, strict=True)),
        f.jacobian(lambda x: x**2, x, create_graph=True).requires_grad,
        f.jacobian(lambda x: x**2, x.clone().requires_grad_(), create_graph=True).requires_grad,
        attempt(lambda: f.vjp(lambda x: x, x)),
        attempt(lambda: f.hessian(lambda x: x, x)),
        attempt(lambda: f.jacobian(lambda x: 3, x)),
        f.jvp(lambda x, y: x * y, (x, y), (v, v)),
        f.hvp(lambda x, y: (x * y).sum() ** 2, (x, y), (v, v)),
        attempt(lambda: f.jvp(lambda x: x, x)),
    ]


@topic
def batched_gradients(t: Any) -> Any:
    x, unused = leaf(t, 1, 2, 3), leaf(t, 1)
    y = x**2
    rows = t.eye(3, dtype=t.float64)
    found = [t.autograd.grad(y, x, rows, is_grads_batched=True, retain_graph=True)]
    found.append(t.autograd.grad(y, (x, unused), rows, is_grads_batched=True, retain_graph=True, allow_unused=True))
    found.append(
        t.autograd.grad((y, x.sum()), x, (rows, t.ones(3, dtype=t.float64)), is_grads_batched=True, retain_graph=True)
    )
    (g,) = t.autograd.grad(y, x, rows[:2], is_grads_batched=True, create_graph=True)
    found.append(t.autograd.grad(g.sum(), x))
    return found


@topic
def checks(t: Any) -> Any:
    class Wrong(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.saved_tensors[0]

    class WrongTwice(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * (3 * ctx.saved_tensors[0] ** 2).detach()

    x = t.tensor([0.5, 1.5], dtype=t.float64, requires_grad=True)
    c = t.autograd
    return [
        c.gradcheck(t.sin, x),
        attempt(lambda: c.gradcheck(Wrong.apply, x)),
        c.gradcheck(Wrong.apply, x, raise_exception=False),
        c.gradcheck(WrongTwice.apply, x),
        c.gradgradcheck(WrongTwice.apply, x, raise_exception=False),
        c.gradgradcheck(lambda x: x.exp() * x, x),
        attempt(lambda: c.gradcheck(t.sin, x.detach())),
        c.gradcheck(lambda a, b: (a * b, a + b), (x, x.detach().clone().requires_grad_())),
        c.gradcheck(lambda x: x[0].expand(3) * x[1], x),
        c.gradcheck(t.sin, x, fast_mode=True),
        attempt(lambda: c.gradcheck(Wrong.apply, x, fast_mode=True)),
        c.gradcheck(lambda x: x.t() if x.dim() == 2 else x * 2, x),
        c.gradcheck(lambda x: (x.view(2, 1) * x).t(), x),
    ]
