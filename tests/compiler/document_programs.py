"""Small programs whose fx graphs are compared with those that PyTorch's capture makes of them.

Each is a function of a package (`torch`) that gives what is compiled and its arguments.  `tools/compiled/fx_documents.py` asks PyTorch and stores its answers.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import operator
from collections.abc import Callable
from typing import Any

PROGRAMS: dict[str, Callable[[Any], tuple[Any, tuple[Any, ...]]]] = {}


def program(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    PROGRAMS[make.__name__] = make
    return make


def simple(name: str, body: Callable[..., Any], *shapes: tuple[int, ...]) -> None:
    """A program whose body takes the package and tensors of these shapes."""

    def make(torch: Any) -> tuple[Any, tuple[Any, ...]]:
        arguments = tuple(torch.ones(*shape) for shape in shapes)
        if len(shapes) == 1:
            return (lambda x: body(torch, x)), arguments
        if len(shapes) == 2:
            return (lambda x, y: body(torch, x, y)), arguments
        return (lambda x, y, z: body(torch, x, y, z)), arguments

    PROGRAMS[name] = make


S = (3, 4)
# ***** arithmetic of Python's operators *****
simple("add", lambda t, x, y: x + y, S, S)
simple("add number", lambda t, x: x + 1, S)
simple("number add", lambda t, x: 1 + x, S)
simple("sub and mul", lambda t, x, y: (x - y) * 2.5, S, S)
simple("divisions", lambda t, x, y: (x / y, x // y, x % y), S, S)
simple("power and negation", lambda t, x: -(x**2), S)
simple("reversed", lambda t, x: (2 - x, 2 / x, 2**x), S)
simple("matmul operator", lambda t, x, y: x @ y, (3, 4), (4, 5))
simple("comparisons", lambda t, x, y: (x < y, x <= y, x == y, x != y, x > y, x >= y), S, S)
simple("logic", lambda t, x, y: ((x > 0) & (y > 0), (x > 0) | (y > 0), ~(x > 0), (x > 0) ^ (y > 0)), S, S)
simple("abs and pos", lambda t, x: abs(x) + +x, S)
simple("twice the same", lambda t, x: (x + 1) * (x + 1), S)
simple("unused result", lambda t, x: (x * 3, x + 1)[1], S)
# ***** functions and methods *****
simple("function", lambda t, x: t.sin(x), S)
simple("method", lambda t, x: x.sin().cos(), S)
simple("keyword", lambda t, x: t.sum(x, dim=1, keepdim=True), S)
simple("method with keyword", lambda t, x: x.mean(dim=-1), S)
simple("two results", lambda t, x: t.max(x, 1), S)
simple("named results", lambda t, x: t.max(x, 1).values + x.min(1).indices, (3, 3))
simple("chunks", lambda t, x: t.chunk(x, 2, dim=1), S)
simple("split sum", lambda t, x: sum(x.split(2, dim=1)), S)
simple("cat", lambda t, x, y: t.cat([x, y], dim=0), S, S)
simple("stack", lambda t, x, y: t.stack((x, y)), S, S)
simple("where", lambda t, x, y: t.where(x > 0, x, y), S, S)
simple("einsum", lambda t, x, y: t.einsum("ij,kj->ik", x, y), S, S)
simple("matmul", lambda t, x, y: t.matmul(x, y.t()), S, S)
simple("addmm", lambda t, x, y, z: t.addmm(x, y, z), (3, 5), (3, 4), (4, 5))
simple("clamp", lambda t, x: x.clamp(min=0, max=1), S)
simple("softmax", lambda t, x: t.softmax(x, dim=-1), S)
simple("linalg", lambda t, x: t.linalg.norm(x), S)
simple("special", lambda t, x: t.special.expit(x), S)
simple("fft", lambda t, x: t.fft.fft(x).abs(), S)
simple("cumsum", lambda t, x: x.cumsum(0), S)
simple("topk", lambda t, x: x.topk(2)[0], S)
simple("gather", lambda t, x: x.gather(1, t.zeros(3, 1, dtype=t.int64)), S)
simple("masked fill", lambda t, x: x.masked_fill(x > 0, -1.0), S)
simple("type conversions", lambda t, x: x.to(t.float64).long().float(), S)
simple("type as", lambda t, x, y: x.type_as(y) + y, S, S)
simple("functional", lambda t, x: t.nn.functional.relu(x) + t.nn.functional.gelu(x), S)
simple("functional softmax", lambda t, x: t.nn.functional.log_softmax(x, dim=1), S)
simple("functional linear", lambda t, x, y: t.nn.functional.linear(x, y), (3, 4), (5, 4))
simple("functional layer norm", lambda t, x: t.nn.functional.layer_norm(x, (4,)), S)
simple("functional attention", lambda t, x: t.nn.functional.scaled_dot_product_attention(x, x, x), (2, 3, 4))
simple("functional pad", lambda t, x: t.nn.functional.pad(x, (1, 1)), S)
simple("losses", lambda t, x, y: t.nn.functional.mse_loss(x, y), S, S)
simple("convolution", lambda t, x, y: t.nn.functional.conv2d(x, y, padding=1), (1, 2, 5, 5), (3, 2, 3, 3))
simple("pooling", lambda t, x: t.nn.functional.max_pool2d(x, 2), (1, 2, 4, 4))
simple("interpolate", lambda t, x: t.nn.functional.interpolate(x, scale_factor=2), (1, 2, 4, 4))
# ***** shapes and views *****
simple("view", lambda t, x: x.view(-1), S)
simple("reshape by shape", lambda t, x: x.reshape(x.shape[0], -1), S)
simple("size", lambda t, x: x * x.size(0) + x.dim(), S)
simple("permute", lambda t, x: x.permute(1, 0).contiguous(), S)
simple("transpose attribute", lambda t, x: x.T + x.mT, (3, 3))
simple("unsqueeze and expand", lambda t, x: x.unsqueeze(0).expand(2, 3, 4), S)
simple("index", lambda t, x: x[0] + x[-1], S)
simple("slice", lambda t, x: x[:, 1:3], S)
simple("fancy index", lambda t, x: x[None, ..., 0], S)
simple("index by tensor", lambda t, x: x[t.tensor([0, 2])], S)
simple("flatten", lambda t, x: t.flatten(x, 1), (2, 3, 4))
simple("new tensors", lambda t, x: x + x.new_zeros(3, 4), S)
simple("factories", lambda t, x: x + t.ones(4) + t.arange(4), S)
simple("like", lambda t, x: t.zeros_like(x) + t.full_like(x, 2), S)
# ***** in place *****
simple("in place method", lambda t, x: x.add(1).mul_(2), S)
simple("detach and clone", lambda t, x: x.detach().clone(), S)


@program
def augmented_assignment(torch: Any) -> Any:
    def f(x: Any) -> Any:
        y = x + 1
        y += x
        y *= 2
        return y

    return f, (torch.ones(3),)


@program
def item_assignment(torch: Any) -> Any:
    def f(x: Any) -> Any:
        y = x.clone()
        y[0] = 3.0
        y[1:] = x[1:] * 2
        return y

    return f, (torch.ones(3, 2),)


@program
def input_changed(torch: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        x.add_(y)
        return x * 2

    return f, (torch.ones(3), torch.ones(3))


# ***** Python around tensors *****


@program
def loop(torch: Any) -> Any:
    def f(x: Any) -> Any:
        for i in range(3):
            x = x * i + 1
        return x

    return f, (torch.ones(3),)


@program
def list_of_inputs(torch: Any) -> Any:
    def f(tensors: Any) -> Any:
        return tensors[0] + tensors[1]

    return f, ([torch.ones(3), torch.ones(3)],)


@program
def dict_of_inputs(torch: Any) -> Any:
    def f(given: Any) -> Any:
        return {"sum": given["a"] + given["b"], "a": given["a"]}

    return f, ({"a": torch.ones(3), "b": torch.ones(3)},)


@program
def tuple_result_with_input(torch: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        return x, x + y, [y, y * 2]

    return f, (torch.ones(3), torch.ones(3))


@program
def keyword_only_and_defaults(torch: Any) -> Any:
    def f(x: Any, scale: float = 2.0, *, shift: int = 1) -> Any:
        return x * scale + shift

    return f, (torch.ones(3),)


@program
def star_arguments(torch: Any) -> Any:
    def f(*tensors: Any) -> Any:
        return sum(tensors)

    return f, (torch.ones(3), torch.ones(3), torch.ones(3))


@program
def inlined_calls(torch: Any) -> Any:
    def square(x: Any) -> Any:
        return x * x

    def f(x: Any) -> Any:
        return square(square(x) + 1)

    return f, (torch.ones(3),)


@program
def closure_tensor(torch: Any) -> Any:
    weight = torch.ones(3)

    def f(x: Any) -> Any:
        return x * weight

    return f, (torch.ones(3),)


@program
def comprehension(torch: Any) -> Any:
    def f(x: Any) -> Any:
        return torch.stack([x * i for i in range(2)])

    return f, (torch.ones(3),)


@program
def generator(torch: Any) -> Any:
    def parts(x: Any) -> Any:
        yield x + 1
        yield x + 2

    def f(x: Any) -> Any:
        return sum(parts(x))

    return f, (torch.ones(3),)


@program
def named_tuple(torch: Any) -> Any:
    Pair = collections.namedtuple("Pair", "a b")

    def f(pair: Any) -> Any:
        return Pair(pair.a + pair.b, pair.b)

    return f, (Pair(torch.ones(3), torch.ones(3)),)


@program
def data_class(torch: Any) -> Any:
    @dataclasses.dataclass
    class State:
        x: Any
        steps: int

    def f(x: Any) -> Any:
        state = State(x, 2)
        for _ in range(state.steps):
            state.x = state.x.relu()
        return state.x

    return f, (torch.ones(3),)


@program
def partial_function(torch: Any) -> Any:
    def f(x: Any) -> Any:
        return functools.reduce(operator.add, [x, functools.partial(torch.mul, x)(2), x])

    return f, (torch.ones(3),)


@program
def constants_of_math(torch: Any) -> Any:
    def f(x: Any) -> Any:
        return x / math.sqrt(x.shape[-1]) + math.pi

    return f, (torch.ones(3, 4),)


@program
def no_grad_context(torch: Any) -> Any:
    def f(x: Any) -> Any:
        with torch.no_grad():
            y = x * 2
        return y + x

    return f, (torch.ones(3, requires_grad=True),)


@program
def branches_on_shapes(torch: Any) -> Any:
    def f(x: Any) -> Any:
        if x.shape[0] > 2 and x.dtype == torch.float32 and x.is_floating_point():
            return x.sin()
        return x.cos()

    return f, (torch.ones(3),)


@program
def same_input_twice(torch: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        return x + y

    x = torch.ones(3)
    return f, (x, x)


@program
def unused_input(torch: Any) -> Any:
    def f(x: Any, y: Any, z: Any) -> Any:
        return z + x

    return f, (torch.ones(3), torch.ones(3), torch.ones(3))


@program
def graph_break_between(torch: Any) -> Any:
    breaks = torch._dynamo.graph_break

    def f(x: Any) -> Any:
        y = x + 1
        breaks()
        return y * 2 + x

    return f, (torch.ones(3),)


@program
def branch_on_data(torch: Any) -> Any:
    def f(x: Any) -> Any:
        y = x * 2
        if y.sum() > 0:
            return y.sin()
        return y.cos()

    return f, (torch.ones(3),)


# ***** modules *****


@program
def linear(torch: Any) -> Any:
    return torch.nn.Linear(4, 5), (torch.ones(3, 4),)


@program
def sequential(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)), (torch.ones(3, 4),)


@program
def own_module(torch: Any) -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.scale = torch.nn.Linear(4, 4), torch.nn.Parameter(torch.ones(4))
            self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(2)])
            self.register_buffer("shift", torch.zeros(4))

        def forward(self, x: Any) -> Any:
            x = self.first(x) * self.scale + self.shift
            for layer in self.layers:
                x = x + torch.relu(layer(x))
            return x

    return Net(), (torch.ones(3, 4),)


@program
def shared_parameter(torch: Any) -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = torch.nn.Embedding(5, 4), torch.nn.Linear(4, 5, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, i: Any) -> Any:
            return self.head(self.embed(i))

    return Net(), (torch.arange(3),)


@program
def layer_norm(torch: Any) -> Any:
    return torch.nn.LayerNorm(4), (torch.ones(3, 4),)


@program
def batch_norm(torch: Any) -> Any:
    return torch.nn.BatchNorm1d(4), (torch.ones(3, 4),)


@program
def batch_norm_evaluated(torch: Any) -> Any:
    return torch.nn.BatchNorm1d(4).eval(), (torch.ones(3, 4),)


@program
def dropout(torch: Any) -> Any:
    return torch.nn.Dropout(0.5), (torch.ones(3, 4),)


@program
def convolutional(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3, 2)), (
        torch.ones(1, 2, 5, 5),
    )


@program
def attention(torch: Any) -> Any:
    return torch.nn.MultiheadAttention(4, 2, batch_first=True), (torch.ones(1, 3, 4),) * 3


@program
def module_with_loss(torch: Any) -> Any:
    model, loss = torch.nn.Linear(4, 2), torch.nn.CrossEntropyLoss()

    def f(x: Any, y: Any) -> Any:
        return loss(model(x), y)

    return f, (torch.ones(3, 4), torch.zeros(3, dtype=torch.int64))


@program
def module_with_hook(torch: Any) -> Any:
    module = torch.nn.Linear(4, 4)
    module.register_forward_hook(lambda m, args, out: out * 2)

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, x: Any) -> Any:
            return self.inner(x)

    return Outer(), (torch.ones(3, 4),)


@program
def transformer_block(torch: Any) -> Any:
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.qkv, self.out = nn.LayerNorm(4), nn.Linear(4, 12), nn.Linear(4, 4)
            self.mlp = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))

        def forward(self, x: Any) -> Any:
            b, n, d = x.shape
            q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
            q, k, v = (y.view(b, n, 2, d // 2).transpose(1, 2) for y in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, n, d))
            return x + self.mlp(x)

    return Block(), (torch.ones(1, 3, 4),)


@program
def cond_of_operands(torch: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda a, b: a + b, lambda a, b: a - b, (x, y))

    return f, (torch.ones(2, 3), torch.ones(2, 3))


@program
def cond_of_a_closure(torch: Any) -> Any:
    inner = torch.nn.Linear(3, 3)

    def f(x: Any, y: Any) -> Any:
        z = y * 2

        def true_fn(a: Any) -> Any:
            return inner(a) + z

        def false_fn(a: Any) -> Any:
            return a.sin() * y + z

        r = torch.cond(x.sum() > 0, true_fn, false_fn, (x,))
        return r + 1

    return f, (torch.ones(2, 3), torch.ones(2, 3))


@program
def cond_in_a_cond(torch: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        a = torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,))
        return torch.cond(
            y.sum() > 9,
            lambda a: torch.cond(a.sum() > 1, lambda q: q * 2, lambda q: q * 3, (a,)),
            lambda a: a - 1,
            (a,),
        )

    return f, (torch.ones(2, 3), torch.ones(2, 3))


@program
def cond_of_two_results(torch: Any) -> Any:
    def f(x: Any) -> Any:
        def true_fn() -> Any:
            b = x + 1
            return b, b * 2

        u, v = torch.cond(x.sum() > 0, true_fn, lambda: (x - 1, x.sin()))
        return u + v

    return f, (torch.ones(2),)
