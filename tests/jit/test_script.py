"""`torch.jit.script`: the typed subset of Python, its errors, its graphs and its code."""

import enum
import io
import threading
from typing import Any, Dict, Final, List, NamedTuple, Optional, Tuple, Union  # noqa: UP035

import pytest

import rushlight as torch
from rushlight import Tensor, nn


def loops(x, n: int, ys: List[int]):  # noqa: UP006
    for i in range(n):
        if bool(x.sum() > 10):
            return x, ys
        x = x + i
        ys.append(i)
        if i == 7:
            break
        if i == 3:
            continue
        x = x * 2
    return x, ys


def choices(a: Optional[int], b: Union[int, str], t: Tuple[int, float]) -> Tuple[int, str, float]:  # noqa: UP006, UP045
    if a is None:
        a = 5
    text = ""
    if isinstance(b, int):
        b2 = b + a
        text = str(b2)
    else:
        text = b
    n, f = t
    return a if n > 0 else -a, text + "!", f * n


def containers(xs: List[Tensor], d: Dict[str, int]) -> Tuple[Tensor, List[int], Dict[str, int]]:  # noqa: UP006
    total = torch.zeros(2)
    for i, x in enumerate(xs):
        total += x * i
    sizes = [x.size(0) for x in xs]
    for k in d.keys():
        d[k] = d[k] + 1
    d["new"] = len(xs)
    sizes.sort(reverse=True)
    pairs = [(a, b) for a, b in zip(sizes, sizes)]
    return total, sizes[:2] + [p[0] for p in pairs], d


def words(s: str) -> Tuple[str, int, bool, List[str]]:  # noqa: UP006
    return f"<{s.upper()}>" + f"{3}", s.find("b"), "a" in [s[0]], s.split(",")


def indices(x, at):
    y = x.clone()
    y[0, 1:] = 7.0
    y[:, ::2] += 1
    y[at] = 0.5
    return y, x[..., -1], x[at, 1], x[None, 1], x[1, :, None], 1 - x, 2 / (x + 1), 3 * x > 4


def whiles(n: int) -> List[int]:  # noqa: UP006
    out: List[int] = []  # noqa: UP006
    i = 0
    while i < n and (i != 5 or n > 8):
        i += 1
        if i % 2 == 0:
            continue
        out.append(i // 2 + i * 3)
    assert len(out) < 100, f"too long: {len(out)}"
    return out


def slices(x: Tensor, n: int, numbers: List[int]) -> Any:  # noqa: UP006
    part = slice(0, n)
    n += 1
    y = x.new_zeros(x.shape[slice(None, -1, None)] + (1,))
    z = x.clone()
    z[slice(1), slice(None, None, 2)] = 0
    return (
        x[part],
        x[(slice(None, None, None), part)],
        x[..., slice(n)],
        x[(Ellipsis, slice(n))],
        x[None, slice(n - 1, n), 0],
        y,
        z,
        numbers[part],
        (1, 2, 3)[slice(1, None)],
        "abc"[part],
    )


CALLS: list[tuple[Any, Any]] = [
    (slices, lambda: (torch.arange(12.0).reshape(3, 4), 2, [7, 8, 9])),
    (loops, lambda: (torch.ones(2), 5, [1])),
    (loops, lambda: (torch.zeros(2), 9, [])),
    (choices, lambda: (None, 3, (1, 2.5))),
    (choices, lambda: (4, "x", (-1, 2.5))),
    (containers, lambda: ([torch.ones(2), torch.ones(2) * 3], {"a": 1})),
    (words, lambda: ("a,b",)),
    (indices, lambda: (torch.arange(12.0).reshape(3, 4), torch.tensor([1, 2]))),
    (whiles, lambda: (7,)),
    (whiles, lambda: (20,)),
]


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and bool(a == b)


@pytest.mark.parametrize(("function", "given"), CALLS, ids=[f"{f.__name__}{i}" for i, (f, _) in enumerate(CALLS)])
def test_scripts_give_what_python_gives(function: Any, given: Any) -> None:
    scripted = torch.jit.script(function)
    wanted = function(*given())
    assert equal(scripted(*given()), wanted)
    out = io.BytesIO()
    scripted.save(out)
    out.seek(0)
    assert equal(torch.jit.load(out)(*given()), wanted)


def test_code_is_written_as_pytorch_writes_it() -> None:
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)
            self.k = 3

        def forward(self, x, h: Optional[Tensor] = None):  # noqa: UP045
            if h is None:
                h = torch.zeros_like(x)
            for _i in range(self.k):
                h = torch.tanh(self.lin(x) + h)
                if bool(h.sum() > 0):
                    h = h * 2
                else:
                    h = h - 1
            assert h.dim() == 2, "bad"
            return h, f"{self.k}"

    # What PyTorch 2.13 prints for this module.
    wanted = """def forward(self,
    x: Tensor,
    h: Optional[Tensor]=None) -> Tuple[Tensor, str]:
  if torch.__is__(h, None):
    h0 = torch.zeros_like(x)
  else:
    h0 = unchecked_cast(Tensor, h)
  k = self.k
  h1 = h0
  for _i in range(k):
    lin = self.lin
    h2 = torch.tanh(torch.add((lin).forward(x, ), h1))
    if bool(torch.gt(torch.sum(h2), 0)):
      h3 = torch.mul(h2, 2)
    else:
      h3 = torch.sub(h2, 1)
    h1 = h3
  if torch.eq(torch.dim(h1), 2):
    pass
  else:
    ops.prim.RaiseException("AssertionError: bad")
  k0 = self.k
  return (h1, torch.format("{}", k0))
"""
    assert torch.jit.script(Cell()).code == wanted


def test_graphs_print_nodes_types_and_places() -> None:
    def f(x, n: int):
        return x + n

    text = str(torch.jit.script(f).graph)
    assert text.startswith(("graph(%x.1 : Tensor,\n      %n.1 : int):\n", "graph(%x : Tensor,\n      %n : int):\n"))
    assert "Tensor = aten::add(" in text and f"# {__file__}:" in text and text.rstrip().endswith(")")


def undefined(x):
    return x + unknown_name  # noqa: F821


def retyped(x):
    y = x
    if bool(x.sum() > 0):
        y = 1
    return y


def no_attribute(x):
    return x.no_such_method()


def attempts(x):
    try:
        return x
    except ValueError:
        return x


def wrong_argument(x):
    return torch.add(x, "a")


def not_all_paths(x) -> Tensor:
    if bool(x.sum() > 0):
        return x


@pytest.mark.parametrize(
    ("function", "message", "line"),
    [
        (undefined, "undefined value unknown_name", "return x + unknown_name"),
        (retyped, "previously had type Tensor but is now being assigned to a value of type int", "y = 1"),
        (no_attribute, "'Tensor' object has no attribute or method 'no_such_method'", "x.no_such_method"),
        (attempts, "try blocks aren't supported", "try:"),
        (wrong_argument, "Arguments for call are not valid", 'torch.add(x, "a")'),
        (not_all_paths, "does not return along all paths", "def not_all_paths"),
    ],
)
def test_errors_show_the_line_with_a_caret(function: Any, message: str, line: str) -> None:
    with pytest.raises((RuntimeError, torch.jit.frontend.FrontendError)) as caught:
        torch.jit.script(function)
    text = str(caught.value)
    shown = [
        a for a, b in zip(text.splitlines(), text.splitlines()[1:], strict=False) if b.strip().endswith("<--- HERE")
    ]
    assert message in text and f'File "{__file__}", line ' in text and line in shown[0] and "~ <--- HERE" in text


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Pair(NamedTuple):
    first: Tensor
    second: int


class Counter:
    def __init__(self, start: int):
        self.value = start

    def add(self, n: int) -> int:
        self.value += n
        return self.value


@torch.jit.interface
class Shape(nn.Module):
    def area(self, x: Tensor) -> Tensor:
        pass  # type: ignore[return-value]


class Square(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = 2.0

    @torch.jit.export
    def area(self, x: Tensor) -> Tensor:
        return x * self.side

    def forward(self, x):
        return x


class Whole(nn.Module):
    shape: Shape
    scale: Final[int]

    def __init__(self):
        super().__init__()
        self.shape = Square()
        self.scale = 3
        self.layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(2)])
        self.named = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
        self.color = Color.GREEN

    @torch.jit.unused
    def slow(self, x):
        import os

        return os.getcwd()

    @torch.jit.ignore
    def python(self, x: Tensor, n: int) -> Tensor:
        return x * len([n] * n)

    @torch.jit.export
    def pair(self, x: Tensor, n: int = 2) -> Pair:
        return Pair(x * n, n)

    def forward(self, x, use: bool = False):
        counter = Counter(self.scale)
        counter.add(2)
        for i, layer in enumerate(self.layers):
            x = layer(x) + i
        for _name, layer in self.named.items():
            x = layer(x)
        if use and torch.jit.is_scripting():
            x = self.python(x, 3)
        if self.color == Color.GREEN:
            x = x * counter.value
        future = torch.jit.fork(self.shape.area, x)
        return self.layers[0](torch.jit.wait(future)), self.pair(x).second


def test_modules_classes_enums_interfaces_and_marks() -> None:
    module = Whole()
    scripted = torch.jit.script(module)
    x = torch.randn(3, 2)
    assert equal(scripted(x), module(x)) and torch.equal(scripted(x, True)[0], scripted(x, use=True)[0])
    assert scripted.pair(x).second == 2 and isinstance(scripted.pair(x, n=4), Pair) and scripted.scale == 3
    assert [n for n, _ in scripted.named_parameters()] == [n for n, _ in module.named_parameters()]
    assert scripted.layers[0].weight is module.layers[0].weight and len(scripted.layers) == 2
    with pytest.raises(AttributeError):
        scripted.scale = 4


def test_state_changes_and_hooks() -> None:
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(1))
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            self.total = self.total + x.sum()
            return x * self.calls

    def before(self, args: Tuple[Tensor]):  # noqa: UP006
        return (args[0] + 1,)

    def after(self, args: Tuple[Tensor], result: Tensor):  # noqa: UP006
        return result * 10

    module = Counting()
    module.register_forward_pre_hook(before)
    module.register_forward_hook(after)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = module

        def forward(self, x):
            return self.inner(x)

    scripted = torch.jit.script(Outer())
    assert torch.equal(scripted(torch.ones(2)), torch.full((2,), 20.0)) and scripted.inner.calls == 1
    assert torch.equal(scripted.inner(torch.ones(2)), torch.full((2,), 40.0)) and scripted.inner.total.item() == 8


def test_freeze_folds_and_keeps_what_is_asked() -> None:
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU()).eval()
    x = torch.randn(2, 1, 6, 6)
    scripted = torch.jit.script(net)
    with pytest.raises(RuntimeError, match="eval mode"):
        torch.jit.freeze(torch.jit.script(nn.Linear(1, 1)))
    frozen = torch.jit.freeze(scripted)
    assert (
        "batch_norm" not in str(frozen.graph) and "GetAttr" not in str(frozen.graph) and not list(frozen.parameters())
    )
    assert torch.allclose(frozen(x), net(x), atol=1e-6)
    exact = torch.jit.freeze(scripted, optimize_numerics=False)
    assert torch.equal(exact(x), net(x)) and "aten::conv2d" in torch.jit.export_opnames(exact)
    out = io.BytesIO()
    frozen.save(out)
    out.seek(0)
    assert torch.equal(torch.jit.load(out)(x), frozen(x))
    assert torch.equal(torch.jit.optimize_for_inference(torch.jit.script(net))(x), frozen(x))


def test_text_can_be_compiled() -> None:
    unit = torch.jit.CompilationUnit(
        """
        def half(x):
            return x / 2
        def quarter(x, n: int = 1):
            return half(half(x)) * n
        """
    )
    assert torch.equal(unit.quarter(torch.full((2,), 8.0), 2), torch.full((2,), 4.0))
    module = torch.jit.script(nn.Linear(2, 2))
    module.define("def doubled(self, x): return self.forward(x) * 2")
    x = torch.ones(1, 2)
    assert torch.equal(module.doubled(x), module(x) * 2)


def test_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_JIT", "0")
    assert torch.jit.script(loops) is loops and torch.jit.trace(loops, ()) is loops


def test_numbers_are_taken_out_of_tensors_where_numbers_are_wanted() -> None:
    def f(x, b: bool):
        y = torch.zeros(x.sum(), 2).to("cpu")
        return y.size(0) + max(x[0], 1), torch.dropout(x.float(), x[0] - x[0], False), torch.full([2], 1.0 * b)

    scripted = torch.jit.script(f)
    count, same, filled = scripted(torch.tensor([1, 2]), True)
    assert count == 4 and torch.equal(same, torch.tensor([1.0, 2.0])) and torch.equal(filled, torch.ones(2))
    with pytest.raises(RuntimeError, match="dimension other than 0"):
        torch.jit.script(lambda_free)(torch.ones(2))


def lambda_free(x):
    return torch.zeros(x, 2)


def test_no_grad_ends_where_its_block_ends() -> None:
    def f(x, n: int):
        with torch.no_grad():
            y = x * 2
            if n > 3:
                return y
            if n > 2:
                raise ValueError("three")
        return x * y

    scripted = torch.jit.script(f)
    x = torch.ones(2, requires_grad=True)
    assert scripted(x, 1).requires_grad and not scripted(x, 5).requires_grad and torch.is_grad_enabled()
    with pytest.raises(torch.jit.Error, match="three"):
        scripted(x, 3)
    assert torch.is_grad_enabled()


TOGETHER = threading.Barrier(2)


@torch.jit.ignore
def meet(x: Tensor) -> Tensor:
    TOGETHER.wait(20)  # both tasks must be here at once
    return x + 1


@torch.jit.ignore
def grad_mode(x: Tensor) -> bool:
    return torch.is_grad_enabled()


def met(x):
    return meet(x)


def mode(x) -> bool:
    return grad_mode(x)


def many(x, n: int):
    futures = torch.jit.annotate(list[torch.jit.Future[Tensor]], [])
    for i in range(n):
        y = x * i
        futures.append(torch.jit.fork(torch.add, y, i))
    total = torch.zeros_like(x)
    for future in futures:
        total = total + torch.jit.wait(future)
    return total


def failing(x):
    future = torch.jit.fork(torch.cat, [x, x[:, :1]])
    return x, torch.jit.wait(future)


def test_tasks_run_beside_each_other() -> None:
    def both(x):
        future = torch.jit.fork(met, x)
        return meet(x * 2) + torch.jit.wait(future)

    def asked(x) -> bool:
        return torch.jit.wait(torch.jit.fork(mode, x))

    x = torch.ones(3)
    assert torch.equal(torch.jit.script(both)(x), x * 5)
    assert torch.equal(torch.jit.script(many)(x, 20), x * 190 + 190)  # each with the values of its turn
    with pytest.raises(RuntimeError):
        torch.jit.script(failing)(torch.ones(2, 3))
    assert torch.jit.script(asked)(x)
    with torch.no_grad():
        assert not torch.jit.script(asked)(x)
    given = torch.ones(3, requires_grad=True)
    torch.jit.script(many)(given, 3).sum().backward()
    assert torch.equal(given.grad, torch.full((3,), 3.0))


class Recipe:
    def __init__(self, order: List[int], lengths: Dict[str, int]) -> None:  # noqa: UP006
        self.order: List[int] = order  # noqa: UP006
        self.lengths: Dict[str, int] = lengths  # noqa: UP006

    def total(self) -> int:
        return self.order[0] + len(self.lengths)


class Spread:
    def __init__(self) -> None:
        self.x = 1

    def call(self, *args: Any) -> Any:
        return args


class Holder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.recipes = {2: Recipe([1], {"a": 1}), 3: Recipe([5], {"b": 2, "c": 3})}
        self.one, self.more = Recipe([10], {"d": 4}), [Recipe([20], {"e": 5}), Recipe([30], {"f": 6})]
        self.spread = Spread()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.recipes[x.ndim].total() + self.one.total() + self.more[1].order[0]


class Spreading(Holder):
    def forward(self, x: Tensor) -> Tensor:
        return x + self.spread.x


def test_classes_that_only_values_of_a_module_name() -> None:
    scripted = torch.jit.script(Holder())
    held = io.BytesIO()
    torch.jit.save(scripted, held)
    held.seek(0)
    for module in (scripted, torch.jit.load(held)):
        assert module(torch.zeros(1, 1, 1)).item() == 7 + 11 + 30 and module(torch.zeros(1, 1)).item() == 2 + 11 + 30
    with pytest.raises(RuntimeError, match="'Spread'"):
        torch.jit.script(Spreading())
