"""Programs whose graphs are compared with those that PyTorch prints: `made(torch)` gives (name, graph) pairs.

Locations are of this file, so lines of it are part of what is stored: `python tests/jit/graphs/store.py` writes that anew, with PyTorch.
"""

from __future__ import annotations

from typing import Any

torch: Any = None


def arithmetic(x, y):
    return x + y * 2


def reused(x, y):
    z = x * x
    x = z - y
    return x + x


def branches(x):
    if x.sum() > 0:
        y = x * 2
    else:
        y = x - 1
    return y


def counted(x, n: int):
    for i in range(n):
        x = x + i
    return x


def while_loop(x, n: int):
    k = 0
    while k < n:
        x = x * 2
        k += 1
    return x, k


def early(x, flag: bool):
    if flag:
        return x
    return -x


def lists(x, n: int):
    out: list[int] = []
    for i in range(n):
        out.append(i)
    return out


def tuples(x: tuple[int, float]):
    a, b = x
    return b, a


def optional(x: int | None) -> int:
    if x is None:
        return 0
    return x + 1


def dictionary(n: int):
    found: dict[str, int] = {"a": n}
    found["b"] = 2
    return found["a"]


def keywords(x):
    return torch.softmax(x, dim=-1).sum(0, keepdim=True)


def strings(a: str, n: int):
    return a + "b" + str(n)


def indexing(x):
    return x[0], x[:, 1], x[1:3]


def assigned(x):
    y = x.clone()
    y[0] = 1
    return y


def shapes(x):
    b, c = x.shape
    return x.view(b * c), x.size(0)


def comparison(a: int, b: int):
    return a < b and b < 10 or a == 0


def ternary(x, flag: bool):
    return x if flag else x + 1


def nested_loops(n: int, m: int):
    total = 0
    for i in range(n):
        for j in range(m):
            total += i * j
    return total


def over_list(xs: list[int]):
    total = 0
    for x in xs:
        total += x
    return total


def broken(n: int):
    k = 0
    for i in range(n):
        if i > 3:
            break
        k = k + i
    return k


def printed(x):
    print("a", x)
    assert x.dim() == 2, "two dims"
    return x


def casts(x, k: float):
    return int(k) + int(x.sum().item())


def formatted(x: float):
    return "{} is {}".format("x", x)


def unpacked(xs: list[int]):
    a, b, c = xs
    return a + b + c


def joined(xs: list[Any]):
    return len(xs)


SCRIPTED = [
    arithmetic, reused, branches, counted, while_loop, early, lists, tuples, optional, dictionary, keywords, strings, indexing, assigned,
    shapes, comparison, ternary, nested_loops, over_list, broken, printed, casts, formatted, unpacked,
]  # fmt: skip


def two_results(x, y):
    return x + y, x.relu()


def in_place(x):
    y = x * 3
    y.add_(1)
    return y[0]


def concatenated(x, y):
    return torch.cat([x, y], 0).view(-1, 2)


def sized(x):
    return x.reshape(x.size(0), -1) * 2.5


TRACED = [arithmetic, reused, keywords, two_results, in_place, concatenated, sized, indexing]


def _modules(torch: Any) -> list[tuple[Any, tuple[Any, ...]]]:
    class Scale(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(3))
            self.k = 2

        def forward(self, x):
            return x * self.w + self.k

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = Scale()
            self.second = Scale()
            self.register_buffer("shift", torch.zeros(3))

        def helper(self, x):
            return x - self.shift

        def forward(self, x):
            y = self.first(x)
            y = self.second(y)
            return self.helper(y)

    class Listed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = torch.nn.ModuleList([Scale(), Scale()])

        def forward(self, x):
            for part in self.parts:
                x = part(x)
            return x

    x = torch.ones(2, 3)
    return [(Scale(), (x,)), (Outer(), (x,)), (Listed(), (x,))]


def made(framework: Any) -> list[tuple[str, str]]:
    """(name, graph) of all programs."""
    global torch
    torch = framework
    found = [(f"scripted {f.__name__}", str(framework.jit.script(f).graph)) for f in SCRIPTED]
    x, y = framework.ones(2, 3), framework.zeros(2, 3)
    for f in TRACED:
        given = (x, y) if f.__code__.co_argcount == 2 else (x,)
        found.append((f"traced {f.__name__}", str(framework.jit.trace(f, given, check_trace=False).graph)))
    for module, given in _modules(framework):
        name = type(module).__name__
        for kind, program in (
            ("scripted", framework.jit.script(module)),
            ("traced", framework.jit.trace(module, given, check_trace=False)),
        ):
            found.append((f"{kind} {name}", str(program.graph)))
            found.append((f"{kind} {name} inlined", str(program.inlined_graph)))
    return found
