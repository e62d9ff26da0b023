"""Function transforms against loops, closed forms and each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight import nn
from rushlight._engine.dispatch.watch import Observer, observe, unobserve
from rushlight.func import (
    debug_unwrap,
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    rearrange,
    replace_all_batch_norm_modules_,
    stack_module_state,
    vjp,
    vmap,
)


def arange(*shape: int) -> torch.Tensor:
    return torch.arange(1.0, 1.0 + int(np.prod(shape)), dtype=torch.float64).reshape(*shape) / 7.0


def close(a: torch.Tensor, b: torch.Tensor | np.ndarray) -> None:
    np.testing.assert_allclose(
        a.detach().numpy(), b if isinstance(b, np.ndarray) else b.detach().numpy(), rtol=1e-9, atol=1e-12
    )


def loop(function, *batches):
    return torch.stack([function(*items) for items in zip(*batches, strict=True)])


# ***** vmap *****


@pytest.mark.parametrize("in_dim", [0, 1, -1])
@pytest.mark.parametrize("out_dim", [0, 1, -1])
def test_a_batch_along_any_dim(in_dim: int, out_dim: int) -> None:
    x = arange(3, 4)

    def f(v):
        return torch.softmax(v, 0) * v.sum()

    want = torch.stack([f(v) for v in x.unbind(in_dim)], out_dim)
    close(vmap(f, in_dims=in_dim, out_dims=out_dim)(x), want)
    close(vmap(f, in_dims=in_dim, out_dims=out_dim, chunk_size=2)(x), want)


def test_nested_arguments_and_results() -> None:
    x, y = arange(3, 2), arange(2)

    def f(d, pair):
        return {"a": d["x"] + pair[0], "b": [d["x"].sum(), pair[0]]}

    made = vmap(f, in_dims=({"x": 0}, (None,)), out_dims={"a": 1, "b": [0, None]})({"x": x}, (y,))
    close(made["a"], (x + y).T)
    close(made["b"][0], x.sum(1))
    assert made["b"][1] is y


def test_batches_in_batches() -> None:
    x, y = arange(3, 4), arange(5, 4)
    outer = vmap(vmap(torch.dot, in_dims=(None, 0)), in_dims=(0, None))(x, y)
    close(outer, x @ y.T)
    close(vmap(vmap(lambda v: v * 2))(arange(2, 3, 4)), arange(2, 3, 4) * 2)


def test_what_is_not_batched_is_repeated() -> None:
    assert vmap(lambda v: torch.ones(2))(arange(3, 2)).shape == (3, 2)


def test_indexing_and_composites() -> None:
    x, i = arange(3, 4, 5), torch.tensor([2, 0, 3])
    close(vmap(lambda v: v[1:, ::2])(x), x[:, 1:, ::2])
    close(vmap(lambda v, k: v[k])(x, i), torch.stack([v[k] for v, k in zip(x, i)]))
    close(vmap(lambda k: x[0][k])(i), x[0][i])
    assert vmap(lambda k: nn.functional.one_hot(k, 4))(i).tolist() == nn.functional.one_hot(i, 4).tolist()
    close(vmap(lambda v: torch.einsum("ij,kj->ik", v, v))(x), loop(lambda v: v @ v.T, x))
    close(vmap(lambda v: torch.linalg.det(v[:4, :4]))(x), loop(lambda v: torch.linalg.det(v[:4, :4]), x))
    close(vmap(lambda v: torch.fft.rfft(v).abs())(x), torch.fft.rfft(x).abs())
    close(
        vmap(lambda v: torch.cat([v, v.flip(0)]).reshape(-1))(x),
        loop(lambda v: torch.cat([v, v.flip(0)]).reshape(-1), x),
    )


def test_changes_in_place_reach_the_memory_outside() -> None:
    x = arange(3, 2)
    before = x.clone()

    def f(v):
        v.mul_(2)
        v[0] = 7
        v[1:].add_(1)
        return v.sum()

    close(vmap(f)(x), 7 + before[:, 1] * 2 + 1)
    close(x[:, 1], before[:, 1] * 2 + 1)
    with pytest.raises(RuntimeError, match="inplace arithmetic"):
        vmap(lambda v, w: w.add_(v), in_dims=(0, None))(x, torch.ones(2, dtype=torch.float64))


def written_to_zeros(x):
    return torch.zeros(3, dtype=x.dtype).add_(x) ** 2


def written_to_a_view(x):
    z = torch.zeros(4, dtype=x.dtype)
    z[1:] += x
    z[:2] *= x[0]
    return z


def written_row_by_row(x):
    made = torch.zeros(3, 3, dtype=x.dtype)
    for i in range(3):
        made[i] = x * x[i]
    return made


def written_to_a_turned_view(x):
    z = torch.zeros(2, 3, dtype=x.dtype)
    z.t()[1] = x[:2]
    return z.sum(0) * x


def written_to_itself(x):
    z = x.clone()
    z[0] = x[2]
    return z.mul_(x)


def seen_before_the_base_was_written(x):
    z = torch.zeros(4, dtype=x.dtype)
    early = z[1:]
    z.add_((x * x).sum())
    return early * x


def a_view_of_a_view(x):
    z = torch.zeros(3, 4, dtype=x.dtype).t()  # a base that is not contiguous comes first among its views
    row, first = z[1], z[1][:2]
    z[1:].add_(x.sum() * x[0])
    first.mul_(x[1])
    return z[1:3].sum(0) * row * x


def written_through_another_view(x):
    z = torch.ones(2, 3, dtype=x.dtype)
    low, turned, flat = z[1], z.t(), z.view(-1)
    flat[2:5].mul_(x)
    turned[0] += x[1]
    return (z.sum(0) + low + turned[:, 1]) * x


def a_captured_copy(x):
    c = torch.full((3,), 2.0, dtype=torch.float64)
    z = c.clone()
    part = z[:2]
    z.mul_(x).add_(1)
    part.exp_()
    return z * c


def by_index(x):
    z = torch.zeros(5, dtype=x.dtype)
    z.index_put_((torch.tensor([0, 2, 2]),), x * x, accumulate=True)
    z[torch.tensor([1, 3])] = x[:2] ** 3
    z[4].copy_(x.prod())
    return z.index_add_(0, torch.tensor([1, 0, 4]), x)


def by_mask(x):
    z = x.clone() ** 2
    z[x > 0.2] = 1.5
    z[x > 0.4] *= x[0]
    return z * x


def with_running_statistics(x):
    mean, count = torch.zeros(1, dtype=x.dtype), torch.zeros((), dtype=torch.int64)
    for part in (x[:2], x[1:]):
        mean.lerp_((part**3).mean(), 0.25)
        count.add_(1)
    return (x - mean) * mean / count


def by_what_it_reads(x):
    z = torch.zeros(3, dtype=x.dtype)
    if x.sum() > 0 and float(x[0]) < 1:
        z[int(x.argmax())] = x.prod()
    return z.clamp_(min=0.01).sin_() + x[x.detach().nonzero()].sum()


def on_a_diagonal(x):
    z = torch.zeros(3, 3, dtype=x.dtype)
    d = z.diagonal()
    z.copy_(x * x[:, None])
    d.mul_(x)
    return z @ x


WRITERS = [
    written_to_zeros, written_to_a_view, written_row_by_row, written_to_a_turned_view, written_to_itself, seen_before_the_base_was_written,
    a_view_of_a_view, written_through_another_view, a_captured_copy, by_index, by_mask, with_running_statistics, by_what_it_reads, on_a_diagonal,
]  # fmt: skip


def slope_of(f, x, step=1e-6):
    """The Jacobian by central differences."""
    return torch.stack([(f(x + step * e) - f(x - step * e)) / (2 * step) for e in torch.eye(len(x), dtype=x.dtype)], -1)


@pytest.mark.parametrize("f", WRITERS)
def test_second_derivatives_follow_what_is_written(f) -> None:
    def scalar(x):
        return (f(x) ** 3).sum()

    x = arange(3)
    # a plain step of differences through the gradient, whose own values are checked by the first derivatives
    curve = slope_of(lambda x: grad(scalar)(x), x)
    both = [hessian(scalar)(x), jacrev(jacfwd(scalar))(x), jacfwd(jacfwd(scalar))(x), jacrev(jacrev(scalar))(x)]
    rows = [jvp(grad(scalar), (x,), (e,))[1] for e in torch.eye(3, dtype=x.dtype)]
    for found in (*both, torch.stack(rows, -1)):
        np.testing.assert_allclose(found.detach().numpy(), curve.numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("f", [written_to_itself, lambda x: (x.clone().mul_(x)[1:].add_(1) ** 2) * x[1:]])
def test_hessians_of_a_batch_follow_what_is_written(f) -> None:
    def scalar(x):
        return (f(x) ** 3).sum()

    rows = arange(2, 3)
    close(vmap(hessian(scalar))(rows), torch.stack([hessian(scalar)(r) for r in rows]))


def changing(what):
    """A function that changes a captured tensor of three ones by `what(captured, x)`."""

    def make():
        held = torch.ones(3, dtype=torch.float64)

        def f(x):
            what(held, x)
            return (held * x).sum()

        return f

    return make


def without_recording(held, x):
    with torch.no_grad():
        held.add_(1)


CHANGES = {
    "by an argument": lambda held, x: held.mul_(x),
    "by a number": lambda held, x: held.mul_(2),
    "of a part": lambda held, x: held[1:].fill_(3),
    "by assignment": lambda held, x: held.__setitem__(0, x[1]),
    "by an index": lambda held, x: held.index_put_((torch.tensor([0]),), x[:1]),
    "of the data": lambda held, x: held.data.zero_(),
    "unrecorded": without_recording,
    "by detached values": lambda held, x: held.copy_(x.detach()),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_is_differentiated_changes_no_captured_tensor(what) -> None:
    make, x = changing(CHANGES[what]), arange(3)
    for run in (
        lambda: grad(make())(x),
        lambda: vjp(make(), x),
        lambda: jvp(make(), (x,), (x,)),
        lambda: jacrev(make())(x),
        lambda: jacfwd(make())(x),
        lambda: hessian(make())(x),
        lambda: grad(lambda y: grad(make())(y).sum())(x),
        lambda: vmap(grad(make()))(torch.stack([x, x])),
    ):
        with pytest.raises(RuntimeError, match="would mutate a captured Tensor"):
            run()
    with pytest.raises(RuntimeError, match="would mutate a captured Tensor"):
        grad(changing(lambda held, x: held.uniform_())())(x)
    held = torch.ones(3)  # and what was forbidden has left nothing behind
    held.add_(1)
    assert held.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    "seen", [lambda y: y.detach(), lambda y: y.detach().view(3), lambda y: y.view(3).detach(), lambda y: y.detach()[:]]
)
@pytest.mark.parametrize(
    "transform", [hessian, lambda f: jacrev(grad(f)), lambda f: jacfwd(jacfwd(f)), lambda f: jacfwd(grad(f))]
)
def test_what_is_detached_shows_what_is_written_to_its_memory(seen, transform) -> None:
    def by_its_base(x):
        y = torch.ones(3, dtype=x.dtype)
        d = seen(y)
        y.add_(x)
        return (d * x * x).sum()  # constants, as far as derivatives know: 1 + x

    def by_itself(x):
        y = torch.ones(3, dtype=x.dtype)
        d = seen(y)
        y.mul_(x)
        d.add_(x.detach())
        return (y * x * x).sum()  # x + a constant, which is x as well

    x = arange(3)
    close(transform(by_its_base)(x), torch.diag(2 * (1 + x)))
    close(transform(by_itself)(x), torch.diag(6 * x + 2 * x))


def test_gradients_by_what_a_batch_shares_belong_to_no_batch() -> None:
    """`grad` inside of `vmap` repeats its arguments; what depends on nothing else is one for all items again."""
    w, rows = arange(2), arange(3, 2)
    expected = 2 * w * rows

    def written_to_a_plain_tensor(x, w):
        z = torch.zeros(2, dtype=w.dtype)
        z.add_(grad(lambda w: (w * w).sum())(w))
        z[0] = z[0] * 1
        return z * x

    def written_inside(x, w):
        def f(w):
            z = torch.zeros(2, dtype=w.dtype)
            z.add_(w).mul_(w)
            return (z * x).sum()

        return grad(f)(w)

    def pulled(x, w):
        z = torch.zeros(2, dtype=w.dtype)
        value, back = vjp(lambda w: w * w, w)
        z.copy_(back(torch.ones_like(w))[0])
        assert z.add_(value).sub_(value).shape == (2,)
        return z * x

    for f in (written_to_a_plain_tensor, written_inside, pulled):
        close(vmap(f, (0, None))(rows, w), expected)
        close(grad(lambda w, f=f: vmap(f, (0, None))(rows, w).sum())(w), 2 * rows.sum(0))
        close(vmap(jacrev(f, argnums=1), (0, None))(rows, w), torch.diag_embed(2 * rows))
    seen = []
    vmap(lambda x: seen.append(grad(lambda w: (w * w).sum())(w)) or x)(rows)
    close(seen[0], 2 * w)  # it may leave the batch
    close(vmap(lambda x: grad(lambda w: (w * w * x).sum())(w))(rows), expected)

    def mixed(x, w):
        z = torch.zeros(2, dtype=w.dtype)
        return z.add_(grad(lambda w: (w * w * x).sum())(w))

    with pytest.raises(RuntimeError, match="inplace arithmetic"):
        vmap(mixed, (0, None))(rows, w)
    with pytest.raises(RuntimeError, match="inplace arithmetic"):
        vmap(lambda x, w: grad(lambda w: w.clone().add_(x).sum())(w), (0, None))(rows, w)


def test_lists_of_captured_tensors_change_where_nothing_in_them_is_differentiated() -> None:
    held, others = [torch.ones(3, dtype=torch.float64), torch.ones(2, dtype=torch.float64)], [arange(3), arange(2)]

    def f(x):
        torch._foreach_mul_(held, 2.0)
        torch._foreach_add_(held, others)
        return (held[0] * x).sum()

    for _ in range(2):
        grad(f)(arange(3))
    close(held[0], 2 * (2 + others[0]) + others[0])
    close(held[1], 2 * (2 + others[1]) + others[1])
    with pytest.raises(RuntimeError, match="would mutate a captured Tensor"):
        grad(lambda x: torch._foreach_mul_(held, [x, x[:2]])[0].sum())(arange(3))


def test_slopes_of_prelu_know_nothing_of_infinite_inputs_that_they_do_not_scale() -> None:
    x, w = torch.tensor([np.inf, 2.0, -3.0]), torch.tensor([0.25])
    value, moved = jvp(torch.nn.functional.prelu, (x, w), (torch.ones(3), torch.ones(1)))
    assert value.tolist() == [np.inf, 2.0, -0.75]
    assert moved.tolist() == [1.0, 1.0, 0.25 - 3.0]


def test_what_is_made_inside_and_arguments_may_change() -> None:
    x = arange(3)

    def counted(x, count):
        count.add_(1)
        return (x * count).sum()

    for derivative in (grad, jacrev, jacfwd):
        count = torch.ones(3, dtype=x.dtype)
        close(derivative(counted)(x, count), count)
        assert count.tolist() == [2.0, 2.0, 2.0]
    close(grad(lambda x, *, state: counted(x, state["count"]))(x, state={"count": count}), count)

    def nested(x):
        total = torch.zeros(3, dtype=x.dtype)
        total.add_(grad(lambda y: (y**3).sum())(x))
        return (total * x).sum()

    close(grad(nested)(x), 9 * x**2)

    def inner_changes_outer(x):
        total = torch.zeros(3, dtype=x.dtype)
        return grad(lambda y: (total.add_(y) * y).sum())(x).sum()

    with pytest.raises(RuntimeError, match="would mutate a captured Tensor"):
        grad(inner_changes_outer)(x)
    out = torch.empty(3, dtype=x.dtype)
    close(grad(lambda x: (torch.add(x.detach(), 1, out=out) * x).sum())(x), x + 1)
    _, push = linearize(lambda x: x.clone().mul_(x)[1:].add_(1) ** 2, x)
    close(push(torch.ones_like(x)), (4 * x * (x * x + 1))[1:])


KINKED = {
    "clamp": (lambda x: x.clamp(-1, 2), [0.0, 2.0, 2.0, 2.0, 0.0]),
    "clamp by tensors": (lambda x: x.clamp(torch.full_like(x, -1), torch.full_like(x, 2)), [0.0, 2.0, 2.0, 2.0, 0.0]),
    "clamp_": (lambda x: (x * 1).clamp_(max=2.0), [2.0, 2.0, 2.0, 2.0, 0.0]),
    "clamp to a point": (lambda x: x.clamp(2, 2), [0.0, 0.0, 0.0, 2.0, 0.0]),
    "relu": (torch.relu, [0.0, 0.0, 0.0, 2.0, 2.0]),
    "hardtanh": (lambda x: torch.nn.functional.hardtanh(x, -1, 2), [0.0, 0.0, 2.0, 0.0, 0.0]),
    "max over a dim": (lambda x: torch.stack([x, x.abs()]).max(0).values, [2.0, 2.0, 2.0, 2.0, 2.0]),
    "elu": (lambda x: torch.nn.functional.elu(x[2:4]), [2.0, 2.0]),
    "softplus": (lambda x: torch.nn.functional.softplus(x[3:], threshold=2.0), [2 / (1 + np.exp(-2)) ** 2, 2.0]),
    "huber": (
        lambda x: torch.nn.functional.huber_loss(
            x[2:4], torch.tensor([0.0, 0.0], dtype=x.dtype), reduction="none", delta=2.0
        ),
        [0.0, 12.0],
    ),
    "smooth l1": (
        lambda x: torch.nn.functional.smooth_l1_loss(x[2:4], x[2:4].detach() - 1e-3, reduction="none"),
        [3e-6, 3e-6],
    ),
    "hardswish": (lambda x: torch.nn.functional.hardswish(x[4:]), [2.0]),
}


@pytest.mark.parametrize("name", KINKED)
def test_second_derivatives_at_corners_are_those_of_the_side_that_the_first_one_takes(name) -> None:
    """The diagonal of the second derivative of the squares, as PyTorch has it, whichever mode finds it."""
    f, expected = KINKED[name]
    x = torch.tensor([-3.0, -1.0, 0.0, 2.0, 3.0], dtype=torch.float64)

    def squares(x):
        return (f(x) ** 2).sum()

    for outer, inner in ((jacrev, jacrev), (jacfwd, jacrev), (jacrev, jacfwd), (jacfwd, jacfwd)):
        found = (
            outer(inner(squares))(x)
            .detach()
            .diagonal()[{"elu": 2, "huber": 2, "smooth l1": 2}.get(name, 5 - len(expected)) :][: len(expected)]
        )
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


def test_a_tangent_without_a_batch_gets_one_where_it_is_written() -> None:
    x = arange(3)

    def f(x, y):
        z = torch.zeros(3, dtype=x.dtype)
        part = z[1:]
        z.add_(x)  # a tangent that all share
        z.mul_(y)  # and one for each item
        return part * x[1:]

    def push(t):
        return jvp(f, (x, x), (torch.ones_like(x), t))[1]

    basis = torch.eye(3, dtype=x.dtype)
    close(vmap(push)(basis), torch.stack([push(e) for e in basis]))


@pytest.mark.parametrize("f", WRITERS)
def test_forward_mode_follows_what_is_written(f) -> None:
    x = arange(3)
    slope = slope_of(f, x)
    for jacobian in (
        jacfwd(f)(x),
        jacrev(f)(x),
        torch.stack([jvp(f, (x,), (e,))[1] for e in torch.eye(3, dtype=x.dtype)], -1),
    ):
        np.testing.assert_allclose(jacobian.detach().numpy(), slope.numpy(), rtol=1e-7, atol=1e-8)


def test_gradients_flow_through_a_batch() -> None:
    x = arange(3, 2).requires_grad_()
    vmap(lambda v: (v**3).sum())(x).sum().backward()
    close(x.grad, 3 * x**2)


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        (lambda: vmap(lambda v: v.sum().item()), RuntimeError, "calling .item"),
        (lambda: vmap(lambda v: v if v.sum() > 0 else -v), RuntimeError, "data-dependent control flow"),
        (lambda: vmap(lambda v: v.nonzero()), RuntimeError, "dynamic shape"),
        (lambda: vmap(lambda v: v[v > 0]), RuntimeError, "boolean mask"),
        (lambda: vmap(lambda v: v + torch.randn(2)), RuntimeError, "randomness error mode"),
        (lambda: vmap(lambda v: 3), ValueError, "must only return Tensors"),
        (lambda: vmap(lambda v: v, in_dims=2), ValueError, "-2 <= in_dim < 2"),
        (lambda: vmap(lambda v: v, in_dims=(0, 0)), ValueError, "in_dims is not compatible"),
        (lambda: vmap(lambda v: v, in_dims=None), ValueError, "expected `in_dims` to be int"),
        (lambda: vmap(lambda v: v, out_dims=(0, 0)), ValueError, "out_dims is not compatible"),
        (lambda: vmap(lambda v: v, out_dims=None), ValueError, "can not return a BatchedTensor"),
        (lambda: vmap(lambda v: v.requires_grad_()), RuntimeError, "requires_grad_"),
        (lambda: vmap(lambda v: v.backward()), RuntimeError, "backward\\(\\) called inside"),
        (lambda: vmap(lambda v: v.numpy()), RuntimeError, "doesn't have storage"),
        (lambda: vmap(lambda v: v, randomness="x"), RuntimeError, "Only allowed values"),
        (lambda: vmap(lambda v: v, chunk_size=0), ValueError, "chunk_size"),
    ],
)
def test_what_cannot_be_batched(function, error, text) -> None:
    with pytest.raises(error, match=text):
        function()(arange(3, 2))


def test_sizes_must_agree() -> None:
    with pytest.raises(ValueError, match="same size in the mapped dimension, got sizes"):
        vmap(torch.add)(arange(3, 2), arange(2, 2))


def test_random_numbers() -> None:
    x = torch.zeros(4, 50)
    for draw in (lambda v: torch.randn(50), lambda v: torch.rand_like(v), lambda v: torch.bernoulli(torch.full((50,), 0.5)),
                 lambda v: torch.randperm(50), lambda v: nn.functional.dropout(v + 1.0), lambda v: v.clone().normal_()):  # fmt: skip
        same, different = vmap(draw, randomness="same")(x), vmap(draw, randomness="different")(x)
        assert same.shape == different.shape == (4, 50)
        assert all(torch.equal(same[0], row) for row in same) and not torch.equal(different[0], different[1])
    for drop in (nn.Dropout(0.0), nn.Dropout(0.5).eval(), nn.Dropout2d(0.5).eval(), nn.RReLU().eval()):
        assert torch.equal(vmap(drop)(x + 1), x + 1)  # nothing is drawn
    torch.manual_seed(3)
    whole = torch.randn(4, 50)
    torch.manual_seed(3)
    assert torch.equal(vmap(lambda v: torch.randn(50), randomness="different")(x), whole)


# ***** derivatives *****


def test_gradients_of_gradients() -> None:
    x = torch.tensor(0.7, dtype=torch.float64)
    close(grad(torch.sin)(x), torch.cos(x))
    close(grad(grad(torch.sin))(x), -torch.sin(x))
    close(grad(grad(grad(lambda t: t**4)))(x), 24 * x)
    # d/dx of x * d/dy (x + y): the inner derivative must not see the outer variable
    close(
        grad(lambda u: u * grad(lambda y: u + y)(torch.ones((), dtype=torch.float64)))(x),
        torch.ones((), dtype=torch.float64),
    )


def test_values_and_more() -> None:
    x = arange(3)
    found, (value, aux) = grad_and_value(lambda v: ((v * v).sum(), {"twice": v * 2}), has_aux=True)(x)
    close(found, 2 * x)
    close(value, (x * x).sum())
    close(aux["twice"], 2 * x)
    assert not (found.requires_grad or value.requires_grad or aux["twice"].requires_grad)
    first, second = grad(lambda a, b: (a * b["w"]).sum(), argnums=(0, 1))(x, {"w": x + 1})
    close(first, x + 1)
    close(second["w"], x)


def test_the_outer_graph_stays_connected() -> None:
    w = arange(3).requires_grad_()
    x = arange(3) + 1
    g = grad(lambda v: (v**2 * w).sum())(x)
    assert g.requires_grad
    g.sum().backward()
    close(w.grad, 2 * x)
    with torch.no_grad():
        assert not grad(lambda v: (v * w).sum())(x).requires_grad
    assert not grad(lambda v: (v.detach() * 2 + v).sum())(x).requires_grad


def test_jacobians_agree() -> None:
    x, a = arange(4), arange(3, 4)

    def f(v):
        return torch.tanh(a @ v)

    want = torch.diag(1 - torch.tanh(a @ x) ** 2) @ a
    for made in (jacrev(f)(x), jacfwd(f)(x), jacrev(f, chunk_size=2)(x)):
        close(made, want)
    nested = jacrev(lambda p: {"s": p["x"] * 2, "t": (p["x"] * p["y"]).sum()})({"x": x, "y": x + 1})
    close(nested["s"]["x"], 2 * torch.eye(4, dtype=torch.float64))
    close(nested["t"]["y"], x)
    close(nested["s"]["y"], torch.zeros(4, 4, dtype=torch.float64))


@pytest.mark.parametrize("outer", [jacfwd, jacrev])
@pytest.mark.parametrize("inner", [jacfwd, jacrev])
def test_second_derivatives_in_every_order(outer, inner) -> None:
    a = arange(3, 3)
    x = arange(3)
    quadratic = a + a.T

    def f(v):
        return v @ a @ v

    close(outer(inner(f))(x), quadratic)
    batch = torch.stack([x, x * 2])
    close(vmap(outer(inner(lambda v: (v**3).sum())))(batch), torch.stack([torch.diag(6 * v) for v in batch]))


def test_hessian_of_a_softmax_loss() -> None:
    x = arange(5)
    p = torch.softmax(x, 0)
    close(hessian(lambda v: torch.logsumexp(v, 0))(x), torch.diag(p) - torch.outer(p, p))


def test_products_and_duality() -> None:
    x, v, a = arange(4), torch.cos(arange(4)), arange(3, 4)
    u = torch.sin(arange(3))

    def f(t):
        return torch.exp(a @ t) / (1 + t.sum())

    value, moved = jvp(f, (x,), (v,))
    close(value, f(x))
    (pulled,) = vjp(f, x)[1](u)
    close((u * moved).sum(), (pulled * v).sum())
    step = 1e-6
    np.testing.assert_allclose(moved.numpy(), ((f(x + step * v) - f(x - step * v)) / (2 * step)).numpy(), rtol=1e-7)
    value, push = linearize(f, x)
    close(value, f(x))
    close(push(v), moved)
    close(vmap(push)(torch.stack([v, 2 * v])), torch.stack([moved, 2 * moved]))


def test_forward_over_reverse_over_forward() -> None:
    x = torch.tensor(0.3, dtype=torch.float64)
    one = torch.ones((), dtype=torch.float64)

    def slope(f):
        return lambda t: jvp(f, (t,), (one,))[1]

    close(slope(grad(slope(torch.sin)))(x), -torch.cos(x))
    close(grad(slope(grad(torch.sin)))(x), -torch.cos(x))
    close(vmap(slope(grad(torch.sin)))(torch.stack([x, x * 2])), -torch.sin(torch.stack([x, x * 2])))


def test_tangents_of_dropouts() -> None:
    x = torch.ones(40)
    for drop in (nn.Dropout(0.5), nn.AlphaDropout(0.5)):
        value, moved = jvp(drop, (x,), (x * 2,))
        torch.manual_seed(0)
        low = drop(x * 0)
        torch.manual_seed(0)
        slope = drop(x) - low
        assert (
            sorted(set(moved.tolist())) == pytest.approx(sorted(set((2 * slope).tolist())), abs=1e-6)
            and len(set(value.tolist())) == 2
        )


def test_perturbations_are_not_confused() -> None:
    """d/dx of x * (d/dy of x y at 1) is 2 x: Siskind and Pearlmutter, "Nesting forward-mode AD in a functional framework" (2008)."""
    one = torch.ones((), dtype=torch.float64)

    def slope(f, t):
        return jvp(f, (t,), (one,))[1]

    x = torch.tensor(3.0, dtype=torch.float64)
    close(slope(lambda u: u * slope(lambda y: u * y, one), x), 2 * x)


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        (lambda x: grad(lambda v: v)(x), RuntimeError, "return a scalar Tensor, got tensor with 2 dims"),
        (lambda x: grad(lambda v: 3)(x), RuntimeError, "return a Tensor, got <class 'int'>"),
        (lambda x: grad(lambda v: v.sum(), argnums=1)(x), RuntimeError, "argnum=1, but only 1"),
        (lambda x: grad(lambda v: v.sum(), argnums=(0, 0))(x), RuntimeError, "must be unique"),
        (lambda x: grad(lambda v: v.sum())(x.long()), RuntimeError, "floating point and complex dtype"),
        (lambda x: grad(lambda v: v.sum())(3), ValueError, "must be Tensor, got <class 'int'>"),
        (lambda x: grad(lambda v: v.sum(), has_aux=True)(x), RuntimeError, "\\(output, aux\\) if has_aux"),
        (lambda x: vjp(lambda v: v * 2, x)[1](x[0]), RuntimeError, "Mismatch in shape"),
        (lambda x: vjp(lambda v: (v, v), x)[1](x), RuntimeError, "Expected pytree structure of cotangents"),
        (lambda x: jvp(lambda v: v, x, x), RuntimeError, "Expected primals to be a tuple"),
        (lambda x: jvp(lambda v: v, (x,), (x, x)), RuntimeError, "same python structure"),
        (lambda x: jvp(lambda v: v, (x,), (x[0],)), RuntimeError, "different size"),
        (lambda x: jvp(lambda v: v, (x.long(),), (x,)), ValueError, "Expected primal to be floating point or complex"),
        (lambda x: jacrev(lambda v: v, chunk_size=0)(x), ValueError, "chunk_size"),
        (lambda x: linearize(lambda v: v, x)[1](x[0]), RuntimeError, "tangent:0 with shape"),
        (lambda x: functionalize(lambda v: v, remove="x"), RuntimeError, "invalid argument for remove"),
    ],
)
def test_bad_arguments(function, error, text) -> None:
    with pytest.raises(error, match=text):
        function(arange(2, 3))


# ***** modules *****


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.norm = nn.GroupNorm(1, 2)
        self.out = nn.Linear(2 * 4, 3)

    def forward(self, x):
        return self.out(torch.relu(self.norm(self.conv(x))).flatten(1))


def test_gradients_of_each_sample() -> None:
    torch.manual_seed(0)
    net, x, y = Net(), torch.randn(4, 1, 4, 4), torch.tensor([0, 2, 1, 1])
    params = {k: v.detach() for k, v in net.named_parameters()}

    def loss(p, sample, label):
        return nn.functional.cross_entropy(functional_call(net, p, (sample[None],)), label[None])

    found = vmap(grad(loss), in_dims=(None, 0, 0))(params, x, y)
    for k in range(4):
        net.zero_grad()
        nn.functional.cross_entropy(net(x[k : k + 1]), y[k : k + 1]).backward()
        for name, p in net.named_parameters():
            np.testing.assert_allclose(found[name][k].numpy(), p.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_ensembles() -> None:
    torch.manual_seed(1)
    models = [nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)) for _ in range(3)]
    params, buffers = stack_module_state(models)
    assert params["0.weight"].shape == (3, 4, 3) and params["0.weight"].requires_grad and params["0.weight"].is_leaf
    x = torch.randn(5, 3)
    made = vmap(lambda p, b: functional_call(models[0], (p, b), x))(params, buffers)
    np.testing.assert_allclose(
        made.detach().numpy(), torch.stack([m(x) for m in models]).detach().numpy(), rtol=1e-5, atol=1e-6
    )
    with pytest.raises(RuntimeError, match="at least one model"):
        stack_module_state([])


def test_functional_call() -> None:
    layer = nn.Linear(2, 1)
    held = layer.weight
    made = functional_call(layer, {"weight": torch.ones(1, 2), "bias": torch.zeros(1)}, torch.tensor([3.0, 4.0]))
    assert made.tolist() == [7.0] and layer.weight is held
    functional_call(layer, {"other": held}, torch.ones(2))
    with pytest.raises(RuntimeError, match="Missing key"):
        functional_call(layer, {"weight": held}, torch.ones(2), strict=True)
    tied = nn.Module()
    tied.a = nn.Linear(2, 2, bias=False)
    tied.b = nn.Linear(2, 2, bias=False)
    tied.b.weight = tied.a.weight
    tied.forward = lambda x: tied.b(tied.a(x))
    assert functional_call(tied, {"a.weight": 2 * torch.eye(2)}, torch.ones(2)).tolist() == [4.0, 4.0]


def test_batch_norm_without_running_statistics() -> None:
    net = replace_all_batch_norm_modules_(nn.Sequential(nn.BatchNorm1d(3)))
    assert net[0].running_mean is None and not net[0].track_running_stats
    x = torch.randn(2, 5, 3)
    np.testing.assert_allclose(
        vmap(net)(x).detach().numpy(), torch.stack([net(v) for v in x]).detach().numpy(), rtol=1e-4, atol=1e-5
    )


# ***** custom functions *****


class Cube(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x * x * g

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return 3 * x * x * t


class Product(torch.autograd.Function):
    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y, g * x

    @staticmethod
    def vmap(info, in_dims, x, y):
        assert info.batch_size == 3 and info.randomness == "error" and in_dims == (0, None)
        return Product.apply(x, y.expand(3, *y.shape)), 0


class Old(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g


def test_custom_functions() -> None:
    x = arange(3, 2)
    close(vmap(Cube.apply)(x), x**3)
    close(grad(lambda v: Cube.apply(v).sum())(x), 3 * x**2)
    close(vmap(grad(lambda v: Cube.apply(v).sum()))(x), 3 * x**2)
    close(grad(lambda v: vmap(Cube.apply)(v).sum())(x), 3 * x**2)
    close(jvp(Cube.apply, (x,), (x,))[1], 3 * x**3)
    close(vmap(Product.apply, in_dims=(0, None))(x, x[0]), x * x[0])
    with pytest.raises(RuntimeError, match="must override the setup_context"):
        grad(lambda v: Old.apply(v).sum())(x)
    with pytest.raises(RuntimeError, match="it does not have vmap support"):
        vmap(_bare().apply)(x)
    with pytest.raises(NotImplementedError, match="implement the jvp function"):
        jvp(lambda v: Product.apply(v, v), (x,), (x,))


def _bare():
    class Bare(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, g):
            return g * 2

    return Bare


# ***** the rest *****


def test_looking_inside() -> None:
    x = arange(2, 3)
    seen = []
    vmap(lambda v: seen.append((repr(v), debug_unwrap(v).shape)) or v)(x)
    assert seen[0][0].startswith("BatchedTensor(lvl=1, bdim=0, value=") and seen[0][1] == (2, 3)


def test_rearranged() -> None:
    x = torch.arange(24).reshape(2, 3, 4)
    assert torch.equal(rearrange(x, "a b c -> c (a b)"), x.permute(2, 0, 1).reshape(4, 6))
    assert torch.equal(rearrange(x, "... (h w) -> ... h w", h=2), x.reshape(2, 3, 2, 2))
    assert rearrange(x, "a ... -> ... a").shape == (3, 4, 2)
    for pattern in ("a b -> b a", "a b c -> a b", "a a b -> b a", "a b c", "(a b c -> c", "a b (c d) -> a b c d"):
        with pytest.raises(ValueError, match="rearrange"):
            rearrange(x, pattern)


# ***** functionalize *****


class Names(Observer):
    """The operators that are called."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def enter(self, kind: str, name: str, given: Any, subject: Any) -> Any:
        if kind == "operator":
            self.names.append(name)

    def leave(self, mark: Any, made: Any) -> None:
        """Nothing to do."""


def aliases_and_changes(x: Any) -> Any:
    y = x.clone()
    y[0].mul_(10)
    y.t()[1].add_(x.sum())
    z = y.view(-1)
    z[::2] = 0
    y[y > 30] = -1.0
    made = torch.zeros(2, 2)
    made.diagonal().copy_(z[:2])
    return torch.relu_(made - 1), y, z


def changes_its_argument(x: Any) -> Any:
    a, b = x.chunk(2)
    a.add_(b)
    torch.mul(x, 2, out=x)
    return x


@pytest.mark.parametrize("remove", ["mutations", "mutations_and_views"])
@pytest.mark.parametrize("function", [aliases_and_changes, changes_its_argument])
def test_functionalize_computes_the_same_without_changes(function: Any, remove: str) -> None:
    start = torch.arange(1.0, 5.0).reshape(2, 2)
    eager, given = start.clone(), start.clone()
    expected, names = function(eager), Names()
    observe(names)
    try:
        found = torch.func.functionalize(function, remove=remove)(given)
    finally:
        unobserve(names)
    assert torch.equal(given, eager)
    for got, wanted in zip(
        found if isinstance(found, tuple) else [found],
        expected if isinstance(expected, tuple) else [expected],
        strict=True,
    ):
        assert torch.equal(got, wanted)
    # `index_put` works on a copy of its own; an argument is written once, at the end.
    changed = [n for n in names.names if n.endswith("_") and n not in ("copy_", "index_put_core_")]
    assert not changed and "mul" in names.names and given._version == (function is changes_its_argument)


def test_functionalize_composes() -> None:
    x = torch.arange(1.0, 5.0).reshape(2, 2)

    def total(x: Any) -> Any:
        y = x.clone()
        y[0].mul_(x[1])
        return y.sum()

    slope = [[3.0, 4.0], [2.0, 3.0]]
    assert grad(functionalize(total))(x).tolist() == functionalize(grad(total))(x).tolist() == slope

    def square(r: Any) -> Any:
        return r.clone().mul_(r)

    assert vmap(functionalize(square))(x).tolist() == functionalize(vmap(square))(x).tolist() == (x * x).tolist()
    assert (
        functionalize(jacrev(square))(x[0]).tolist()
        == jacrev(functionalize(square))(x[0]).tolist()
        == [[2.0, 0.0], [0.0, 4.0]]
    )
    w = x.clone().requires_grad_()
    functionalize(total)(w).backward()
    assert w.grad.tolist() == slope
    with pytest.raises(RuntimeError, match="from outside"):
        functionalize(lambda r: x.add_(r))(x.clone())


def test_grad_inside_of_vmap_by_what_all_items_share() -> None:
    w, m = torch.tensor([1.0, 2.0, 3.0], requires_grad=True), torch.arange(1.0, 7.0).reshape(2, 3)
    found = vmap(lambda r: torch.autograd.grad((w**3 * r).sum(), w, create_graph=True)[0])(m)
    assert torch.allclose(found, 3 * w**2 * m)
    assert torch.allclose(torch.autograd.grad(found.sum(), w)[0], 6 * w * m.sum(0))
    rows = m.clone().requires_grad_()
    by_w, by_row = vmap(lambda r: torch.autograd.grad((w * r * r).sum(), (w, r)))(rows)
    assert torch.allclose(by_w, m**2) and torch.allclose(by_row, 2 * w * m)


def test_what_belongs_outside_of_transforms_is_refused() -> None:
    x = torch.ones(2)
    for function in (lambda a: a.sum().backward(), lambda a: a.requires_grad_().sum()):
        with pytest.raises(RuntimeError, match="functorch transform"):
            grad(function)(x)
    with pytest.raises(RuntimeError, match="floating-point or complex"):
        torch.func.vjp(lambda a: a.long(), x)
    with pytest.raises(RuntimeError, match="only contain Tensors"):
        torch.func.jvp(lambda a: a, (3.0,), (3.0,))


def test_what_a_finished_transform_made_takes_no_gradient() -> None:
    x, ct = arange(3), arange(3) + 1
    found = grad(lambda c: (vjp(torch.sin, x)[1](c)[0] ** 2).sum())(ct)
    assert not found.requires_grad
    close(found, 2 * ct * x.cos() ** 2)


def test_cotangents_that_are_none_are_ones_for_scalars() -> None:
    x = arange(3)
    _, pull = vjp(lambda x: (x.sin(), (x**2).sum()), x)
    close(pull((torch.ones_like(x), None))[0], x.cos() + 2 * x)
    with pytest.raises(RuntimeError, match="only for scalar outputs"):
        pull((None, torch.ones((), dtype=x.dtype)))


def test_jacobians_are_of_real_tensors_alone() -> None:
    x = arange(3)
    for jacobian in (jacrev, jacfwd):
        with pytest.raises(
            RuntimeError, match="all inputs to be real but received complex tensor at flattened input idx: 0"
        ):
            jacobian(torch.sin)(torch.complex(x, x))
        with pytest.raises(
            RuntimeError, match="all outputs to be real but received complex tensor at flattened output idx: 1"
        ):
            jacobian(lambda x: (x, torch.complex(x, x)))(x)
        with pytest.raises(RuntimeError, match="Expected tensors, got unsupported type <class 'int'>"):
            jacobian(lambda x: (x, 3), has_aux=True)(x)


def test_dims_of_dictionaries_go_by_their_keys() -> None:
    rows = {"a": arange(2, 3), "b": arange(3, 2)}
    found = vmap(lambda d: d["a"] * d["b"], in_dims=({"b": 1, "a": 0},))(rows)
    close(found, rows["a"] * rows["b"].T)


def test_windows_by_strides_begin_where_they_are_told() -> None:
    x = arange(3, 4)
    whole = x.reshape(-1)
    close(vmap(lambda row: row.as_strided((2,), (2,), 1))(x), torch.stack([whole[4 * k + 1 :][:3:2] for k in range(3)]))
    close(vmap(lambda row: row[1:].as_strided((2,), (1,)))(x), x[:, 1:3])
    tangent = x.t().contiguous().t() ** 2
    close(
        jvp(lambda x: x.as_strided((2, 2), (5, 1), 2), (x,), (tangent,))[1],
        tangent.contiguous().as_strided((2, 2), (5, 1), 2),
    )


def test_arguments_of_distributions_are_checked_for_a_batch() -> None:
    torch.manual_seed(0)
    scale = arange(4).exp()
    drawn = vmap(lambda s: torch.distributions.Normal(0 * s, s).rsample(), randomness="different")(scale)
    torch.manual_seed(0)
    close(drawn, torch.randn(4, dtype=scale.dtype) * scale)
    with pytest.raises(ValueError, match="satisfy the constraint"):
        vmap(lambda s: torch.distributions.Normal(0 * s, s).rsample(), randomness="different")(-scale)


@pytest.mark.parametrize(
    "draw", [torch.bernoulli, torch.poisson, lambda p: torch.multinomial(p, 1), lambda p: torch.normal(p, 1.0)]
)
def test_one_draw_cannot_serve_items_that_differ(draw) -> None:
    with pytest.raises(RuntimeError, match="same randomness with a batched tensor input"):
        vmap(draw, randomness="same")(arange(2, 3) / 2)


@pytest.mark.parametrize("loss", [torch.nn.functional.huber_loss, torch.nn.functional.smooth_l1_loss])
def test_losses_are_round_where_prediction_and_target_agree(loss) -> None:
    x = torch.tensor([0.0, 0.5, 3.0], dtype=torch.float64)
    for second in (hessian, lambda f: jacrev(jacrev(f)), lambda f: jacfwd(jacfwd(f))):
        assert second(lambda v: loss(v, torch.zeros_like(x), reduction="sum"))(x).diagonal().tolist() == [1.0, 1.0, 0.0]


def test_running_log_sums_bend_where_a_cotangent_is_zero() -> None:
    """out[0] = x[0], whose square has the second derivative 2, though the cotangent 2 * out[0] is zero at x[0] = 0."""
    x = np.array([0.0, -1.2, 2.0])
    share = np.tril(np.tile(np.exp(x), (3, 1)))
    share /= share.sum(1, keepdims=True)
    out = np.log(np.cumsum(np.exp(x)))
    bends = np.stack([np.diag(s) - np.outer(s, s) for s in share])  # the second derivatives of each logarithm
    want = sum(2 * np.outer(s, s) + 2 * o * b for s, o, b in zip(share, out, bends, strict=True))
    at = torch.tensor(x)
    for outer, inner in ((jacfwd, jacrev), (jacrev, jacrev), (jacfwd, jacfwd)):
        found = outer(inner(lambda x: (torch.logcumsumexp(x, 0) ** 2).sum()))(at)
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-12, atol=1e-14)
        second = outer(inner(lambda x: torch.logcumsumexp(x, 0)))(at)
        np.testing.assert_allclose(second.numpy(), bends, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("size", "reverse"), [(1, False), (2, False), (5, True), (8, False), (9, True)])
def test_associative_scan_is_a_running_result(size: int, reverse: bool) -> None:
    from rushlight._higher_order_ops.associative_scan import associative_scan

    a, b = torch.rand(3, size, 2, dtype=torch.float64, requires_grad=True), torch.rand(3, size, 2, dtype=torch.float64)

    def step(left: Any, right: Any) -> Any:  # x -> a x + b, one after another
        return left["a"] * right["a"], right["a"] * left["b"] + right["b"]

    def tree(left: Any, right: Any) -> Any:
        return dict(zip("ab", step(left, right), strict=True))

    made = associative_scan(tree, {"a": a, "b": b}, 1, reverse=reverse, combine_mode="generic")
    x, steps = torch.zeros(3, 2, dtype=torch.float64), []
    for k in range(size)[:: -1 if reverse else 1]:
        x = a[:, k] * x + b[:, k]
        steps.append(x)
    wanted = torch.stack(steps[:: -1 if reverse else 1], 1)
    torch.testing.assert_close(made["b"], wanted)
    if size > 1:
        torch.testing.assert_close(torch.autograd.grad(made["b"].sum(), a), torch.autograd.grad(wanted.sum(), a))


@pytest.mark.parametrize("wanted", [torch.int64, "torch.DoubleTensor", torch.DoubleTensor])
def test_type_casts_under_transforms(wanted: Any) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    cast = torch.func.vmap(lambda t: t.type(wanted))(x)
    assert cast.dtype is x.type(wanted).dtype and torch.equal(cast, x.type(wanted))
    value, tangent = torch.func.jvp(lambda t: t.type(wanted).double() * 2, (x,), (x,))
    assert torch.equal(value, x.double() * 2)
    assert torch.equal(tangent, x.double() * (0 if wanted is torch.int64 else 2))


def test_linearize_is_differentiable_by_tangents_and_primals() -> None:
    x, t = torch.tensor([0.3, 0.7]), torch.tensor([1.0, 2.0])
    _, push = torch.func.linearize(torch.sin, x)
    by_tangents = torch.func.grad(lambda v: push(v).square().sum())(t)
    assert np.allclose(by_tangents, 2 * np.cos(x.numpy()) ** 2 * t.numpy())

    def product(y: torch.Tensor) -> torch.Tensor:
        value, push = torch.func.linearize(torch.sin, y)
        return (value * push(value)).sum()

    s, c = np.sin(x.numpy()), np.cos(x.numpy())
    assert np.allclose(torch.func.grad(product)(x), 2 * s * c * c - s**3)
    t.requires_grad_()
    assert push(t).requires_grad
    assert not push(t.detach()).requires_grad
