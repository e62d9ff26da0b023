"""Small programs whose operators below autograd are compared with PyTorch's; `torch` is the library to run on.

Each program is a function of (torch, tensors); its inputs are float tensors of the shapes, filled alike in both libraries.  `tools/sweeps/dispatch_traces.py`
writes what PyTorch 2.13 runs for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["PROGRAMS", "function_of", "inputs", "lines", "sized_lines"]

Program = tuple[Callable[..., Any], list[tuple[int, ...]]]


def _f(torch: Any) -> Any:
    return torch.nn.functional


def _attention(torch: Any, q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return torch.softmax(scores, -1) @ v


def _lstm_cell(torch: Any, x: Any, h: Any, c: Any, w: Any, u: Any) -> Any:
    gates = x @ w + h @ u
    i, f, g, o = gates.chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c)


def _update(torch: Any, x: Any, y: Any) -> Any:
    z = x * 1
    z.add_(y)
    z.mul_(2)
    return z


PROGRAMS: dict[str, Program] = {
    "add a number": (lambda t, x: x + 2, [(2, 3)]),
    "multiply broadcast": (lambda t, x, y: x * y, [(2, 3), (3,)]),
    "subtract scaled": (lambda t, x, y: t.sub(x, y, alpha=3), [(2, 3), (2, 3)]),
    "divide": (lambda t, x, y: x / y, [(2, 3), (2, 1)]),
    "number over": (lambda t, x: 2 / x, [(2, 3)]),
    "number minus": (lambda t, x: 2 - x, [(2, 3)]),
    "power": (lambda t, x: x**3, [(2, 3)]),
    "exp of sin": (lambda t, x: x.sin().exp(), [(4,)]),
    "sigmoid, tanh": (lambda t, x: t.sigmoid(x) * t.tanh(x), [(4,)]),
    "mean over a dim": (lambda t, x: x.mean(1), [(2, 3)]),
    "sum over dims, kept": (lambda t, x: x.sum((0, 1), keepdim=True), [(2, 3)]),
    "variance": (lambda t, x: x.var(1), [(2, 3)]),
    "deviation of all": (lambda t, x: x.std(), [(2, 3)]),
    "greatest along a dim": (lambda t, x: x.max(1).values, [(2, 3)]),
    "greatest": (lambda t, x: x.max(), [(2, 3)]),
    "logsumexp": (lambda t, x: x.logsumexp(1), [(2, 3)]),
    "norm": (lambda t, x: x.norm(), [(2, 3)]),
    "cumulative sum": (lambda t, x: x.cumsum(0), [(3, 2)]),
    "sort": (lambda t, x: x.sort(0).values, [(3, 2)]),
    "where": (lambda t, x, y: t.where(x > 0, x, y), [(2, 3), (2, 3)]),
    "clamp": (lambda t, x: x.clamp(-0.5, 0.5), [(2, 3)]),
    "view, transpose": (lambda t, x: x.view(3, 2).t().contiguous(), [(2, 3)]),
    "reshape a transpose": (lambda t, x: x.t().reshape(-1), [(2, 3)]),
    "slice": (lambda t, x: x[:, 1:], [(2, 3)]),
    "select": (lambda t, x: x[1], [(2, 3)]),
    "index by a list": (lambda t, x: x[[0, 1, 0]], [(2, 3)]),
    "split and join": (lambda t, x: t.cat([p * 2 for p in x.split(1)]), [(2, 3)]),
    "stack": (lambda t, x, y: t.stack([x, y], 1), [(2, 3), (2, 3)]),
    "unbind": (lambda t, x: x.unbind(0)[0] * 2, [(2, 3)]),
    "expand": (lambda t, x: x.expand(4, 3) * 1, [(1, 3)]),
    "flatten": (lambda t, x: x.flatten(1), [(2, 3, 2)]),
    "matmul 1-1": (lambda t, x, y: x @ y, [(3,), (3,)]),
    "matmul 2-1": (lambda t, x, y: x @ y, [(2, 3), (3,)]),
    "matmul 2-2": (lambda t, x, y: x @ y, [(2, 3), (3, 4)]),
    "matmul 3-2": (lambda t, x, y: x @ y, [(2, 2, 3), (3, 4)]),
    "matmul 3-3": (lambda t, x, y: x @ y, [(2, 2, 3), (2, 3, 4)]),
    "matmul 4-4": (lambda t, x, y: x @ y, [(2, 1, 2, 3), (2, 3, 4)]),
    "addmm": (lambda t, b, x, y: t.addmm(b, x, y, alpha=2), [(4,), (2, 3), (3, 4)]),
    "einsum": (lambda t, x, y: t.einsum("bik,bkj->bij", x, y), [(2, 2, 3), (2, 3, 4)]),
    "outer by einsum": (lambda t, x, y: t.einsum("i,j->ij", x, y), [(3,), (4,)]),
    "linear": (lambda t, x, w, b: _f(t).linear(x, w, b), [(2, 3), (4, 3), (4,)]),
    "linear of a batch": (lambda t, x, w, b: _f(t).linear(x, w, b), [(2, 2, 3), (4, 3), (4,)]),
    "linear without bias": (lambda t, x, w: _f(t).linear(x, w), [(2, 3), (4, 3)]),
    "relu": (lambda t, x: t.relu(x), [(2, 3)]),
    "relu in place": (lambda t, x: _f(t).relu(x * 1, inplace=True), [(2, 3)]),
    "gelu": (lambda t, x: _f(t).gelu(x, approximate="tanh"), [(2, 3)]),
    "silu": (lambda t, x: _f(t).silu(x), [(2, 3)]),
    "softplus": (lambda t, x: _f(t).softplus(x), [(2, 3)]),
    "leaky relu": (lambda t, x: _f(t).leaky_relu(x, 0.2), [(2, 3)]),
    "softmax": (lambda t, x: t.softmax(x, 1), [(2, 3)]),
    "log softmax": (lambda t, x: t.log_softmax(x, 1), [(2, 3)]),
    "layer norm": (lambda t, x, w, b: _f(t).layer_norm(x, (3,), w, b), [(2, 3), (3,), (3,)]),
    "group norm": (lambda t, x, w, b: _f(t).group_norm(x, 2, w, b), [(2, 4, 3), (4,), (4,)]),
    "batch norm": (lambda t, x, w, b: _f(t).batch_norm(x, None, None, w, b, True), [(4, 3), (3,), (3,)]),
    "convolution": (lambda t, x, w, b: _f(t).conv2d(x, w, b, padding=1), [(1, 2, 4, 4), (3, 2, 3, 3), (3,)]),
    "transposed convolution": (lambda t, x, w: _f(t).conv_transpose2d(x, w, stride=2), [(1, 2, 3, 3), (2, 3, 2, 2)]),
    "max pool": (lambda t, x: _f(t).max_pool2d(x, 2), [(1, 2, 4, 4)]),
    "average pool": (lambda t, x: _f(t).avg_pool2d(x, 2), [(1, 2, 4, 4)]),
    "adaptive pool": (lambda t, x: _f(t).adaptive_avg_pool2d(x, 1), [(1, 2, 4, 4)]),
    "pad": (lambda t, x: _f(t).pad(x, (1, 2)), [(2, 3)]),
    "interpolate": (lambda t, x: _f(t).interpolate(x, scale_factor=2, mode="nearest"), [(1, 2, 3, 3)]),
    "mse": (lambda t, x, y: _f(t).mse_loss(x, y), [(2, 3), (2, 3)]),
    "cross entropy": (lambda t, x: _f(t).cross_entropy(x, t.tensor([0, 2])), [(2, 3)]),
    "cross entropy, smoothed": (lambda t, x: _f(t).cross_entropy(x, t.tensor([0, 2]), label_smoothing=0.1), [(2, 3)]),
    "embedding": (lambda t, w: _f(t).embedding(t.tensor([0, 2, 0]), w), [(4, 3)]),
    "attention by hand": (_attention, [(2, 3, 4), (2, 5, 4), (2, 5, 4)]),
    "long short-term memory": (_lstm_cell, [(2, 3), (2, 4), (2, 4), (3, 16), (4, 16)]),
    "changes in place": (_update, [(2, 3), (2, 3)]),
    "detached": (lambda t, x: x.detach() * x, [(2, 3)]),
    "cast": (lambda t, x: x.double() * 2, [(2, 3)]),
    "gather": (lambda t, x: x.gather(1, t.tensor([[0], [2]])), [(2, 3)]),
    "masked fill": (lambda t, x: x.masked_fill(x > 0, 0.5), [(2, 3)]),
    "triangle": (lambda t, x: x.tril(), [(3, 3)]),
    "inverse": (lambda t, x: t.linalg.inv(x @ x.mT + 2 * t.eye(2)), [(2, 2)]),
    "residual block": (
        lambda t, x, w, v: x + _f(t).linear(_f(t).gelu(_f(t).linear(x, w)), v), [(2, 4), (8, 4), (4, 8)],
    ),
}  # fmt: skip


def inputs(torch: Any, shapes: list[tuple[int, ...]]) -> list[Any]:
    """The inputs of a program: the same numbers in every library, none of them zero, equal or extreme."""
    made = []
    for k, shape in enumerate(shapes):
        count = 1
        for n in shape:
            count *= n
        numbers = [((7 * i + 3 * k + 1) % 23 - 11.5) / 8 for i in range(count)]
        made.append(torch.tensor(numbers, dtype=torch.float32).reshape(shape).requires_grad_())
    return made


def function_of(torch: Any, program: Callable[..., Any], count: int) -> Callable[..., Any]:
    """A program as a function of its tensors alone, with names for them."""
    return (
        lambda a: program(torch, a), lambda a, b: program(torch, a, b), lambda a, b, c: program(torch, a, b, c),
        lambda a, b, c, d: program(torch, a, b, c, d), lambda a, b, c, d, e: program(torch, a, b, c, d, e),
    )[count - 1]  # fmt: skip


def lines(graph: Any) -> list[str]:
    """A graph as text: kind, name, target and arguments of every node, in order."""
    return [
        f"{n.op} {n.name} {getattr(n.target, '__name__', n.target)} {n.args} {n.kwargs}".replace("rushlight.", "torch.")
        for n in graph.nodes
    ]


def sized_lines(graph: Any) -> list[str]:
    """A graph with symbolic sizes as text: shapes of inputs, target and arguments of every call, in order.

    Numbers are shown as they are computed, `mul(sym_size.int(a_1, 0), 2)`: so neither their names nor where they stand
    matter.  Calls are named by their place.
    """
    calls: dict[Any, str] = {}
    numbers: set[Any] = set()

    def shown(value: Any) -> str:
        if value in numbers:
            return f"{target(value)}({', '.join(map(shown, value.args))})"
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(shown, value))}]"
        return calls.get(value, str(value)) if hasattr(value, "op") else str(value)

    def target(node: Any) -> str:
        return str(getattr(node.target, "__name__", node.target))

    found = []
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op == "call_function" and not hasattr(value, "dtype") and not isinstance(value, (list, tuple)):
            numbers.add(node)
            continue
        if node.op == "call_function":
            calls[node] = f"%{len(calls)}"
        kwargs = ", ".join(f"{k}={shown(v)}" for k, v in node.kwargs.items() if k != "pin_memory")
        shape = f" {list(value.shape)}" if node.op in ("placeholder", "get_attr") else ""
        found.append(
            f"{node.op} {target(node)} {', '.join(map(shown, node.args))} {kwargs}{shape}".replace(
                "rushlight.", "torch."
            )
        )
    return found
