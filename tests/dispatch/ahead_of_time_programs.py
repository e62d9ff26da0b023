"""Functions whose graphs ahead of time are compared with PyTorch's: each takes the library and gives a function and its
arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["PROGRAMS", "graphs"]

PROGRAMS: dict[str, Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...]]]] = {}


def program(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    PROGRAMS[function.__name__] = function
    return function


def of_one(name: str, make: Callable[[Any], Callable[[Any], Any]], *shape: int) -> None:
    """A function of one tensor with a gradient."""
    PROGRAMS[name] = lambda torch: (make(torch), (torch.ones(*(shape or (3, 4)), requires_grad=True),))


of_one("sine", lambda torch: lambda x: x.sin().cos().sum())
of_one("gelu", lambda torch: lambda x: torch.nn.functional.gelu(x).sum(0))
of_one("silu_times", lambda torch: lambda x: torch.nn.functional.silu(x) * x)
of_one("softmax", lambda torch: lambda x: torch.softmax(x, -1) * 2)
of_one("log_softmax", lambda torch: lambda x: torch.log_softmax(x, 1).mean())
of_one("normed", lambda torch: lambda x: x / (x.var(1, keepdim=True) + 1e-5).sqrt())
of_one("sigmoid_tanh", lambda torch: lambda x: torch.sigmoid(x).tanh().sum())
of_one("views", lambda torch: lambda x: x.view(2, 6).t()[1:].reshape(-1) * 3)
of_one("clamped", lambda torch: lambda x: x.clamp(-1, 1).pow(2).sum())
of_one("greatest", lambda torch: lambda x: x.max(1)[0] + x.amin(1))
of_one("joined", lambda torch: lambda x: torch.cat([x, x * 2], 1).split(4, 1)[1])
of_one("two_results", lambda torch: lambda x: (x.exp(), x.log1p().sum()))
of_one("cumulative", lambda torch: lambda x: x.cumsum(1) * x)
of_one("indexed", lambda torch: lambda x: x[torch.tensor([0, 2])] * 2)
of_one("masked", lambda torch: lambda x: x.masked_fill(x > 0, 2.0) + torch.where(x > 1, x, x * x))
of_one("norm", lambda torch: lambda x: torch.linalg.vector_norm(x, dim=1))
of_one("pooled", lambda torch: lambda x: torch.nn.functional.max_pool2d(x, 2), 1, 2, 4, 4)
of_one("averaged", lambda torch: lambda x: torch.nn.functional.adaptive_avg_pool2d(x, 1), 1, 2, 4, 4)
of_one("padded", lambda torch: lambda x: torch.nn.functional.pad(x, (1, 2)) * 2)
of_one("changed", lambda torch: lambda x: (x * 2).add_(1).mul_(x).sum())
of_one("detached", lambda torch: lambda x: x * x.detach())


@program
def linear(torch: Any) -> Any:
    f = lambda x, w, b: torch.nn.functional.linear(x, w, b).relu()
    return f, (torch.ones(2, 3), torch.ones(4, 3, requires_grad=True), torch.ones(4, requires_grad=True))


@program
def two_layers(torch: Any) -> Any:
    f = lambda x, a, b: ((x @ a).tanh() @ b).sum()
    return f, (
        torch.ones(2, 3, requires_grad=True),
        torch.ones(3, 5, requires_grad=True),
        torch.ones(5, 1, requires_grad=True),
    )


@program
def layer_norm(torch: Any) -> Any:
    f = lambda x, w, b: torch.nn.functional.layer_norm(x, (4,), w, b)
    return f, (
        torch.ones(2, 4, requires_grad=True),
        torch.ones(4, requires_grad=True),
        torch.ones(4, requires_grad=True),
    )


@program
def convolution(torch: Any) -> Any:
    f = lambda x, w, b: torch.nn.functional.conv2d(x, w, b, padding=1).relu()
    return f, (torch.ones(1, 2, 4, 4), torch.ones(3, 2, 3, 3, requires_grad=True), torch.ones(3, requires_grad=True))


@program
def attention(torch: Any) -> Any:
    f = lambda q, k, v: torch.softmax(q @ k.transpose(-2, -1) / 2, -1) @ v
    return f, tuple(torch.ones(1, 2, 3, 4, requires_grad=True) for _ in range(3))


@program
def cross_entropy(torch: Any) -> Any:
    f = lambda x, y: torch.nn.functional.cross_entropy(x, y)
    return f, (torch.ones(3, 5, requires_grad=True), torch.tensor([0, 2, 1]))


@program
def embedded(torch: Any) -> Any:
    f = lambda i, w: torch.nn.functional.embedding(i, w).sum(1)
    return f, (torch.tensor([[0, 1], [2, 0]]), torch.ones(4, 3, requires_grad=True))


@program
def mean_squares(torch: Any) -> Any:
    f = lambda x, y: torch.nn.functional.mse_loss(x, y)
    return f, (torch.ones(3, requires_grad=True), torch.zeros(3))


@program
def broadcast(torch: Any) -> Any:
    f = lambda x, y: (x + y) * y - x / y
    return f, (torch.ones(3, 1, requires_grad=True), torch.ones(4, requires_grad=True))


@program
def without_gradients(torch: Any) -> Any:
    f = lambda x, y: torch.relu(x @ y).sum(1).view(-1, 1)
    return f, (torch.ones(2, 3), torch.ones(3, 2))


def graphs(torch: Any, name: str, aot_function: Any, partition: Any) -> list[list[list[str]]]:
    """The graphs of a program: of each node its kind, target and name."""
    found: list[list[list[str]]] = []

    def keep(graph: Any, _: Any) -> Any:
        found.append([[n.op, str(n.target) if n.op == "call_function" else "", n.name] for n in graph.graph.nodes])
        return graph.forward

    f, args = PROGRAMS[name](torch)
    out = aot_function(f, fw_compiler=keep, bw_compiler=keep, partition_fn=partition)(*args)
    outs = [o for o in (out if isinstance(out, (tuple, list)) else (out,)) if o.requires_grad]
    if outs:
        sum(o.sum() for o in outs).backward()  # type: ignore[union-attr]
    return found
