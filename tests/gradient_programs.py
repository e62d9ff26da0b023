"""Random programs of differentiable calls, and random uses of their gradients: the same bits are expected of a compiled program.

python tools/compiled/random_programs.py --by gradients --programs 1000
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import rushlight as torch
from rushlight.nn import functional as F

__all__ = ["USES", "Program", "disagreement"]

SIZE = 6


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x.tanh()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * (x.tanh() + x * (1 - x.tanh() ** 2))


def _turned(p: Any, q: Any) -> Any:
    rows = p.unbind(0)
    return torch.stack([rows[(k + 1) % len(rows)] for k in range(len(rows))])


def _changed(p: Any, q: Any) -> Any:
    made = p.clone()
    made[1:3].mul_(q[1:3])
    made[:, 0].tanh_()
    return made


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "mul": lambda p, q: p * q,
    "add": lambda p, q: p + q,
    "sub": lambda p, q: p - q * 0.5,
    "div": lambda p, q: p / (q * q + 1.5),
    "tanh": lambda p, q: torch.tanh(p),
    "sin": lambda p, q: torch.sin(p),
    "exp": lambda p, q: torch.exp(p * 0.1),
    "gelu": lambda p, q: F.gelu(p),
    "relu": lambda p, q: torch.relu(p),
    "mm": lambda p, q: p @ q * 0.3,
    "linear": lambda p, q: F.linear(p, q * 0.4, q[0]),
    "softmax": lambda p, q: p.softmax(-1),
    "norm": lambda p, q: F.layer_norm(p, (SIZE,)),
    "centered": lambda p, q: p - p.mean(1, keepdim=True),
    "cumsum": lambda p, q: p.cumsum(0) * 0.2,
    "scale": lambda p, q: p * 1.5,
    "transposed": lambda p, q: p.t(),
    "cat": lambda p, q: torch.cat([p[:2], q[2:]]),
    "where": lambda p, q: torch.where(p > 0, p * 1.1, q),
    "max": lambda p, q: torch.maximum(p, q),
    "expanded": lambda p, q: p[0].expand(SIZE, SIZE) * q,
    "turned": _turned,
    "changed": _changed,
    "function": lambda p, q: Doubled.apply(p),
    "half": lambda p, q: p.to(torch.bfloat16).to(torch.float32),
    "indexed": lambda p, q: p[torch.tensor([0, 2, 2, 1, 5, 3])],
}


class Program:
    """A function of two matrices that gives one to four."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.seed = seed
        self.calls: list[tuple[str, int, int]] = []
        for count in range(2, 2 + draw.randint(2, 10)):
            self.calls.append((draw.choice(list(CALLS)), draw.randrange(count), draw.randrange(count)))
        last = 2 + len(self.calls)
        self.results = sorted({draw.randrange(2, last) for _ in range(draw.randint(1, 4))}, key=lambda _: draw.random())

    def __call__(self, x: Any, w: Any) -> tuple[Any, ...]:
        values = [x, w]
        for name, p, q in self.calls:
            values.append(CALLS[name](values[p], values[q]))
        return tuple([values[k] for k in self.results])

    def __str__(self) -> str:
        lines = [f"v{k} = {name}(v{p}, v{q})" for k, (name, p, q) in enumerate(self.calls, 2)]
        return "\n".join([f"program {self.seed}", *lines, f"return {', '.join([f'v{k}' for k in self.results])}"])


class Use:
    """What is done with the results: hooks, and sums whose gradients are taken."""

    def __init__(self, function: Any, seed: int) -> None:
        torch.manual_seed(seed)
        self.draw = random.Random(seed)
        self.x, self.w = [torch.randn(SIZE, SIZE).requires_grad_() for _ in range(2)]
        self.outs = function(self.x, self.w)
        self.seen: list[Any] = []
        for out in self.outs:
            self._look_at(out)

    def _look_at(self, out: Any) -> None:
        way = self.draw.random()
        if way < 0.25:
            out.register_hook(lambda grad: self.seen.append(grad.detach().clone()))
        elif way < 0.4:
            out.register_hook(lambda grad: grad * 1.5)
        elif way < 0.5:
            out.retain_grad()

    def loss(self) -> Any:
        taken = [o for o in self.outs if self.draw.random() < 0.75] or [self.outs[0]]
        return sum((o * o.cos()).sum() * (self.draw.random() + 0.5) for o in taken)

    def some(self) -> list[Any]:
        return [self.x, self.w, *[o for o in self.outs if self.draw.random() < 0.4]]

    def grad(self, loss: Any, again: bool) -> list[Any]:
        found = torch.autograd.grad(loss, self.some(), create_graph=again, allow_unused=True)
        return [g for g in found if g is not None]

    def left(self) -> list[Any]:
        return [*self.outs, *self.seen, self.x.grad, self.w.grad, *[o.grad for o in self.outs if o.retains_grad]]


def _backward(use: Use) -> list[Any]:
    use.loss().backward()
    return []


def _one_after_another(use: Use) -> list[Any]:
    use.loss().backward(retain_graph=True)
    for out in use.outs[1:]:
        out.sum().backward(retain_graph=True)
    return []


def _second(use: Use) -> list[Any]:
    first = use.grad(use.loss(), True)
    (sum((g * g).sum() for g in first) + use.loss()).backward()
    return first


def _third(use: Use) -> list[Any]:
    first = use.grad(use.loss(), True)
    second = use.grad(sum(g.sin().sum() for g in first) + use.loss(), True)
    sum((g * g).mean() for g in second).backward()
    return [*first, *second]


USES: list[Callable[[Use], list[Any]]] = [
    _backward,
    lambda use: use.grad(use.loss(), False),
    _one_after_another,
    _second,
    _third,
]


def _facts(x: Any) -> Any:
    return None if x is None else (x.requires_grad, tuple(x.shape), x.detach().numpy().tobytes())


def _run(function: Any, seed: int, way: Callable[[Use], list[Any]]) -> Any:
    try:
        use = Use(function, seed)
        return [_facts(x) for x in [*way(use), *use.left()]]
    except RuntimeError as error:
        return f"{type(error).__name__}: {str(error)[:100]}"


def disagreement(program: Program, number: int) -> str:
    """What differs between a program and the same compiled, in use `number`; nothing where all bits are the same."""
    way = USES[number]
    expected, found = _run(program, program.seed, way), _run(torch.compile(program.__call__), program.seed, way)
    if expected == found:
        return ""
    if isinstance(expected, str) or isinstance(found, str):
        return f"{program}\nuse {number}: eager {expected if isinstance(expected, str) else 'runs'}, compiled {found if isinstance(found, str) else 'runs'}"
    places = [k for k, (a, b) in enumerate(zip(expected, found, strict=True)) if a != b]
    return f"{program}\nuse {number}: values {places} of {len(expected)}"
