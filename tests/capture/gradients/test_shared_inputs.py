"""Tensors that are used by a compiled program and elsewhere: their gradients are added in eager's order."""

import random

import pytest

import rushlight as torch


def same(function, *tensors, grad=lambda y, xs: torch.autograd.grad(y.square().sum(), xs)):
    """Gradients of a function of two stages, eager and with the first or both compiled, have the same bits."""

    def gradients(wrap):
        xs = [x.clone().requires_grad_() for x in tensors]
        return grad(function(wrap, *xs), xs)

    expected = gradients(lambda f: f)
    for _ in range(2):
        for one, other in zip(gradients(torch.compile), expected, strict=True):
            assert torch.equal(one, other)


def several(x, y):
    return x * y + x.sin() + torch.relu(x) + x * x


@pytest.mark.parametrize(
    "then", [lambda x, y: x.cos() + y, lambda x, y: several(x, y) * x, lambda x, y: (x + x) @ y.T], ids="one several twice".split()
)  # fmt: skip
def test_an_input_of_two_programs(then):
    def function(wrap, x, y):
        first = wrap(several)(x, y)
        return first.sum() + wrap(then)(x, y).sum()

    same(function, torch.randn(40, 30), torch.randn(40, 30))


def test_inputs_that_are_no_leaves_and_uses_outside():
    def function(wrap, x, y):
        x, y = x.tanh(), y.exp()
        z = wrap(several)(x, y)
        return z * x.cos() + y * x

    same(function, torch.randn(500), torch.randn(500))


def test_gradients_that_are_accumulated():
    def backward(y, xs):
        y.sum().backward(retain_graph=True)
        (y * y).sum().backward()
        return [x.grad for x in xs]

    def function(wrap, x, y):
        return wrap(several)(x, y) * x.cos() + x

    same(function, torch.randn(500), torch.randn(500), grad=backward)


def test_second_derivatives():
    def twice(y, xs):
        first = torch.autograd.grad(y.sin().sum(), xs, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), xs)

    def function(wrap, x, y):
        return wrap(several)(x, y) * x.cos() + x

    xs = [torch.randn(50, dtype=torch.float64) for _ in range(2)]
    leaves = [x.clone().requires_grad_() for x in xs]
    expected = twice(function(lambda f: f, *leaves), leaves)
    for one, other in zip(twice(function(torch.compile, *leaves), leaves), expected, strict=True):
        torch.testing.assert_close(one, other)


def test_only_some_outputs_have_gradients():
    def two(x, y):
        return x * y + x.sin(), x * x + x.cos() * y

    def function(wrap, x, y):
        return wrap(two)(x, y)[1] + x.exp() * y

    same(function, torch.randn(300), torch.randn(300))


@pytest.mark.slow
def test_breaks_of_random_programs():
    """A value is used by the parts before and after a break."""
    unary = (torch.sin, torch.cos, torch.tanh, torch.relu, lambda x: x * x, lambda x: x + x)
    for seed in range(12):
        choose = random.Random(seed)
        parts = [[(choose.choice(unary), choose.randrange(3), choose.randrange(3)) for _ in range(3)] for _ in range(3)]

        def program(x, y, parts=parts):
            values = [x, y, x * y]
            for number, part in enumerate(parts):
                if number:
                    torch._dynamo.graph_break()
                for f, i, j in part:
                    values[j] = f(values[i]) + values[j] * values[i]
            return values[0] + values[1] + values[2]

        torch.manual_seed(seed)
        same(lambda wrap, x, y, p=program: wrap(p)(x, y), torch.randn(64), torch.randn(64), grad=lambda y, xs: torch.autograd.grad(y.sum(), xs))  # fmt: skip


def test_a_drawn_tensor_between_two_uses():
    """The gradients of an input are not added up first, though what backward reads was drawn."""

    def function(wrap, u, v):
        def drawn(u, v):
            u = u * 1
            u.add_(v)
            return torch.rand(3, 4) * v, u

        torch.manual_seed(3)
        return sum((y.double() * y.double()).sum() for y in (*wrap(drawn)(u, v), v)) + u.sum()

    same(function, torch.rand(3, 4), torch.rand(3, 4), grad=lambda y, xs: torch.autograd.grad(y, xs))
