"""Details in which compiled functions could differ from eager: shared memory, replaced parameters, modes, processes, signatures."""

from __future__ import annotations

import collections
import copy
import functools
import os
import types
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
from rushlight import nn
from rushlight._capture.trace import CompileSettings, compile_function
from rushlight._engine.core.state import STATE
from rushlight.overrides import TorchFunctionMode


def test_memory_that_arguments_share() -> None:
    def go(x, y):
        x.add_(1)
        return y * 2

    compiled = torch.compile(go)
    for places in ([0, 4], [0, 0], [0, 2], [0, 1], [0, 4]):  # where two rows of three begin in eight elements
        results = []
        for call in (go, compiled):
            memory = torch.arange(8.0)
            results.append((call(*[memory[at : at + 3] for at in places]).tolist(), memory.tolist()))
        assert results[0] == results[1], places
    memory = torch.zeros(4)
    assert compiled(memory, memory).tolist() == [2] * 4


def test_parameters_that_are_replaced() -> None:
    module, x = nn.Linear(2, 2), torch.ones(1, 2)
    compiled = torch.compile(module)
    assert torch.equal(compiled(x), module(x))
    module.weight = nn.Parameter(torch.zeros(2, 2))
    assert torch.equal(compiled(x), module(x))
    module.weight.data = torch.ones(2, 2)
    assert torch.equal(compiled(x), module(x))
    with torch.no_grad():
        module.weight.mul_(3)
    assert torch.equal(compiled(x), module(x))
    module.load_state_dict({key: value * 2 for key, value in module.state_dict().items()})
    assert torch.equal(compiled(x), module(x))
    module.double()
    assert torch.equal(compiled(x.double()), module(x.double()))
    other = copy.deepcopy(compiled)
    assert torch.equal(other(x.double()), module(x.double()))


def test_modes_and_histories() -> None:
    compiled, w = torch.compile(lambda x: x * 2), torch.ones(2, requires_grad=True)
    with torch.no_grad():
        assert not compiled(w).requires_grad
    assert compiled(w).requires_grad
    with torch.inference_mode():
        assert compiled(w).is_inference()
    shown = torch.compile(lambda x: (x.detach(), x[0], x.t()))
    w = torch.ones(2, 3, requires_grad=True)
    detached, row, turned = shown(w)
    assert (
        detached.data_ptr() == w.data_ptr() and not detached.requires_grad and row.requires_grad and turned._base is w
    )
    cube, w = torch.compile(lambda x: (x**3).sum()), torch.tensor([2.0], requires_grad=True)
    (first,) = torch.autograd.grad(cube(w), w, create_graph=True)
    assert torch.autograd.grad(first.sum(), w)[0].item() == 12
    assert torch.vmap(torch.compile(lambda x: x.sum() * 2))(torch.ones(3, 2)).tolist() == [4, 4, 4]


def test_gradients_after_a_break_without_them() -> None:
    def go(u, v):
        with torch.no_grad():
            n = int(u.sum().item()) % 7
            a = u * v
        with torch.enable_grad():
            b = u * v
        return (u + v).sum() * n, a, b

    def inside(u, v):
        with torch.no_grad():
            print(end="")
            with torch.enable_grad():
                a = u * v
            print(end="")
        return a

    u, v = torch.ones(3), torch.ones(3, requires_grad=True)
    for function in (go, inside):
        for grad in (True, False):
            with torch.set_grad_enabled(grad):
                made, expected = torch.compile(function)(u, v), function(u, v)
                for x, y in zip(made, expected, strict=True):
                    assert x.requires_grad == y.requires_grad and x.tolist() == y.tolist()
                assert torch.is_grad_enabled() is grad


def test_addresses_are_real_ones() -> None:
    compiled = torch.compile(lambda x: (x + 1, x.data_ptr(), x.untyped_storage().data_ptr()))
    for _ in range(2):
        x = torch.ones(3)
        made, first, second = compiled(x)
        assert made.tolist() == [2, 2, 2] and first == second == x.data_ptr()


def test_generators_of_random_numbers() -> None:
    generator = torch.Generator().manual_seed(1)
    compiled = torch.compile(lambda: torch.rand(3, generator=generator))
    other = torch.Generator().manual_seed(1)
    for _ in range(3):
        assert torch.equal(compiled(), torch.rand(3, generator=other))


def test_compiled_functions_in_compiled_functions() -> None:
    inner = torch.compile(lambda x: x + 1)
    outer = torch.compile(lambda x: inner(x) * 2, fullgraph=True)
    assert outer(torch.ones(2)).tolist() == [4, 4]
    child = os.fork()
    if not child:
        good = outer(torch.ones(2)).tolist() == [4, 4] and torch.compile(lambda x: x * 5 + 1)(
            torch.ones(2)
        ).tolist() == [6, 6]
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_signatures() -> None:
    def go(a, /, *args, k=1, **named):
        return a * k + sum(args) + sum(named.values())

    compiled = torch.compile(go, fullgraph=True)
    assert compiled(torch.ones(1), 2, 3, k=4, z=5).item() == 14 and compiled(torch.ones(1)).item() == 1
    with pytest.raises(TypeError, match=r"go\(\) missing 1 required positional argument: 'a'"):
        compiled()

    def kept(x, acc: list[int] = []):  # noqa: B006 - the list is what is tested
        acc.append(1)
        return x + len(acc)

    compiled = torch.compile(kept)
    assert [compiled(torch.zeros(1)).item() for _ in range(3)] == [1, 2, 3]

    def generating(x):
        for i in range(3):
            yield x * i

    assert [t.item() for t in torch.compile(generating)(torch.tensor(2.0))] == [0, 2, 4]


def test_hooks_and_subclasses() -> None:
    module, calls = nn.Linear(2, 2), list[int]()
    module.weight.register_hook(lambda grad: calls.append(1))
    torch.compile(module)(torch.ones(1, 2)).sum().backward()
    assert calls == [1]

    class Mine(torch.Tensor):
        pass

    made: Any = torch.compile(lambda x: x + 1)(torch.ones(2).as_subclass(Mine))
    assert type(made) is Mine and made.tolist() == [2, 2]
    dense = torch.compile(lambda s: s.to_dense() * 2)(torch.eye(2).to_sparse())
    assert dense.tolist() == [[2, 0], [0, 2]]


def test_sums_are_added_in_the_order_of_eager() -> None:
    torch.manual_seed(0)
    rows = torch.randn(2, 17, 32)

    def over_a_slice(x):
        return x[:, 1:].transpose(1, 2).view(2, 32, 4, 4).sum((0, 2, 3))

    x, weight, bias = torch.randn(2, 24, 2, 2), torch.ones(24), torch.zeros(24)
    for t in (x, weight, bias):
        t.requires_grad_()

    def normalised(x, weight, bias, grad):  # the gradients of the mean and the deviation are zeros
        y = torch.nn.functional.batch_norm(x, None, None, weight, bias, True)
        return torch.autograd.grad(y, (x, weight, bias), grad)

    for function, args in ((over_a_slice, (rows,)), (normalised, (x, weight, bias, torch.randn(2, 24, 2, 2)))):
        expected, found = function(*args), torch.compile(function, fullgraph=True)(*args)
        pairs = zip(expected, found, strict=True) if isinstance(expected, tuple) else [(expected, found)]
        assert all(torch.equal(a, b) for a, b in pairs)


def test_methods_that_take_their_object_among_their_arguments() -> None:
    def decorated(function):
        @functools.wraps(function)
        def inner(*args, **kwargs):
            return function(*args, **kwargs)

        return inner

    class Model(torch.nn.Module):
        @decorated
        def forward(self, x, by=2):
            return x * by

        @torch.autocast("cpu", enabled=False)
        def other(self, x, f0=1):
            return x + f0

    model, x = Model(), torch.ones(2)
    for compiled in (torch.compile(model), torch.compile(model.forward), compile_function(model.forward)):
        assert torch.equal(compiled(x), x * 2) and torch.equal(compiled(x, by=3), x * 3)
    assert torch.equal(compile_function(model.other, CompileSettings(fullgraph=True))(x, f0=4), x + 4)
    with pytest.raises(TypeError, match="0 positional arguments but 1 was given"):
        compile_function(types.MethodType(lambda: 1, model))()


@pytest.mark.parametrize("name", ["no_grad", "inference_mode", "autocast", "autocast off", "record_function"])
def test_decorated_methods_of_modules_inside_are_followed(name: str) -> None:
    """What a decorator of ours wraps is the user's code: with objects among its arguments, and with globals that change."""
    decorate = {
        "no_grad": torch.no_grad(),
        "inference_mode": torch.inference_mode(),
        "autocast": torch.autocast("cpu", torch.bfloat16),
        "autocast off": torch.autocast("cpu", enabled=False),
        "record_function": torch.profiler.record_function("layer"),
    }[name]
    scale = [2.0]

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)

        @decorate
        def forward(self, x: Any) -> Any:
            return self.linear(x) * scale[0]

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(Layer(), Layer())

        def forward(self, x: Any) -> Any:
            return self.layers(x) + 1

    model, x = Model(), torch.arange(6.0).reshape(2, 3)
    compiled = compile_function(model, CompileSettings(fullgraph=True))
    for value in (2.0, 2.0, -3.0):
        scale[0] = value
        found, wanted = compiled(x), model(x)
        assert found.dtype == wanted.dtype and torch.equal(found, wanted)
        assert found.dtype == (torch.bfloat16 if name == "autocast" else torch.float32)
        assert found.requires_grad == (name not in ("no_grad", "inference_mode"))


def test_functions_that_native_code_made_of_followed_ones_are_made_anew() -> None:
    """`__new__` of a class of tuples makes a function of its arguments: these close over values of the trace."""

    class Both(collections.namedtuple("Both", "init")):
        def __new__(cls, *parts: Any) -> Any:
            def init(x: Any) -> Any:
                return [part(x) for part in parts]

            made = super().__new__(cls, init)
            made.parts = parts
            return made

    def scaled(by: float) -> Any:
        return lambda x: x * by

    def go(x: Any, by: float = 0.5) -> Any:
        torch._dynamo.graph_break()
        both = Both(scaled(by))
        torch._dynamo.graph_break()
        return both.init(x)[0] + both.parts[0](x)

    assert torch.compile(go)(torch.ones(2)).tolist() == [1, 1]


def test_objects_with_methods_are_stored_in_dicts() -> None:
    class Cache:
        def __repr__(self):
            return "a cache"

        def __eq__(self, other):
            raise AssertionError("nobody compares")

    class Output(OrderedDict):
        def __setattr__(self, name, value):
            super().__setitem__(name, value)
            super().__setattr__(name, value)

    def go(x, cache):
        out = Output()
        out.logits, out.cache = x * 2, cache
        inner = dict(out.items())
        pairs = [("cache", inner.get("cache", cache))]
        again = dict(pairs)
        again.setdefault("other", cache)
        return out, again

    x, cache = torch.ones(2), Cache()
    out, again = compile_function(go, CompileSettings(fullgraph=True))(x, cache)
    assert torch.equal(out.logits, x * 2) and out["cache"] is out.cache is again["cache"] is again["other"] is cache


def test_a_view_beyond_its_tensor_is_no_part_of_a_program() -> None:
    """What a tensor does not show is not guarded: another one may lie in a smaller storage."""
    base = torch.arange(100.0)

    def function(x: Any) -> Any:
        return torch.as_strided(x, (50,), (1,), 0).sum()

    compiled = torch.compile(function)
    assert compiled(base[:10]).item() == 1225.0
    assert compiled(base[20:30]).item() == 1225.0
    with pytest.raises(RuntimeError, match="out of bounds for storage of size 40"):
        compiled(torch.arange(10.0))


def test_looking_for_changed_numbers_puts_nothing_into_a_dict() -> None:
    def function(x: Any, options: Any, scaled: bool) -> Any:
        return x * options["lr"] if scaled else x

    compiled, empty = torch.compile(function), collections.defaultdict(lambda: 5.0)
    compiled(torch.ones(2), collections.defaultdict(float, lr=0.1), True)
    assert compiled(torch.ones(2), empty, False).tolist() == [1.0, 1.0] and not empty
    assert compiled(torch.ones(2), empty, True).tolist() == [5.0, 5.0] and dict(empty) == {"lr": 5.0}


def test_function_transforms_of_a_tensor_with_a_history() -> None:
    """Their results depend on the leaves behind it, which the program does not know."""

    def function(x):
        return torch.func.grad(lambda k: (k**3).sum())(x), torch.func.vmap(torch.func.grad(lambda k: (k * k).sum()))(x)

    found = []
    for call in (function, torch.compile(function)):
        x = torch.arange(6.0).reshape(2, 3).requires_grad_()
        first, second = call(x * 2)
        assert first.requires_grad
        (first.sum() + second.sum()).backward()
        found.append(x.grad.tolist())
    assert found[0] == found[1]


class Passing(torch.overrides.TorchFunctionMode):
    """Changes nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


REGIONS = {
    "device": lambda: torch.device("meta"), "mode": Passing, "autocast": lambda: torch.autocast("cpu"), "no_grad": torch.no_grad,
    "inference": torch.inference_mode, "overrides": torch._C.DisableTorchFunctionSubclass,
}  # fmt: skip


@pytest.mark.parametrize("name", REGIONS)
def test_traces_that_are_given_up_leave_what_they_entered(name: str) -> None:
    """A trace that ends in a region, or is made again because a number changed, changes no state of the thread."""

    def function(x: Any, n: int) -> Any:
        with REGIONS[name]():
            made = torch.ones(n % 3 + 1)
            torch._dynamo.graph_break()
            return x + x[n % 3], made.device.type, torch.is_autocast_enabled("cpu")

    def state() -> list[Any]:
        modes = len(STATE.function_modes), STATE.overrides_off, STATE.cast_depth
        return [
            torch.ones(1).device.type,
            torch.is_grad_enabled(),
            torch.is_autocast_enabled("cpu"),
            STATE.word,
            *modes,
        ]

    before, compiled = state(), torch.compile(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what ends within a region may run as it is, and says so
        for n in (3, 4, 5, 7):
            x = torch.arange(12.0).reshape(3, 4)
            found, wanted = compiled(x, n), function(x, n)
            assert torch.equal(found[0], wanted[0]) and found[1:] == wanted[1:]
            assert state() == before


class Doubling(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        return found * 2 if function is torch.ones else found


# Regions that begin before a break and end behind it, and how many programs a function becomes at least.
OPEN_REGIONS: dict[str, tuple[Callable[[], Any], int]] = {
    "autocast": (lambda: torch.autocast("cpu", torch.bfloat16), 3),
    "device": (lambda: torch.device("cpu"), 3),
    "function mode": (Doubling, 2),
    "saved tensors": (torch.autograd.graph.save_on_cpu, 2),
    "anomaly": (lambda: torch.autograd.set_detect_anomaly(True), 2),
    "subclasses": (torch._C.DisableTorchFunctionSubclass, 2),
}


@pytest.mark.parametrize("name", OPEN_REGIONS)
def test_breaks_inside_of_regions(name: str) -> None:
    """What lies before, behind and, where nobody looks on, inside of the region is compiled."""
    region, least = OPEN_REGIONS[name]

    def function(x: torch.Tensor, log: list[Any]) -> torch.Tensor:
        y = x @ x + 1
        with region():
            y = (y @ x).relu()
            log.append(len(log))
            torch._dynamo.graph_break()
            y = (y @ x).sin() + torch.ones(3)
        return y * 2

    compiled = torch.compile(function)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            x, logs = torch.rand(3, 3), ([], [])
            wanted, found = function(x, logs[0]), compiled(x, logs[1])
            assert torch.equal(wanted, found) and wanted.dtype == found.dtype and logs[0] == logs[1]
    made = compiled._compiled
    assert len(made.entry.segments) + sum(len(p.segments) for p in made.positions.values()) >= least
    assert not torch.is_autocast_enabled("cpu") and torch.ones(1) == 1


RELAID: dict[str, Any] = {
    "squeeze_": lambda x: x.squeeze_(0),
    "unsqueeze_": lambda x: x.unsqueeze_(1),
    "transpose_": lambda x: x.transpose_(1, 2),
    "swapaxes_": lambda x: x.mul_(2).swapaxes_(0, 1),
    "t_": lambda x: x.squeeze_().t_(),
    "as_strided_": lambda x: x.as_strided_((2, 2), (1, 2), 1),
    "resize_": lambda x: x.resize_(2, 3),
    "resize_ to more": lambda x: x.resize_(4, 5).zero_(),
    "set_": lambda x: x.set_(torch.ones(3)),
    "out=": lambda x: torch.add(torch.ones(2), 1, out=x.resize_(0)),
    "several out=": lambda x: torch.sort(torch.ones(2), out=(x.resize_(0), torch.ones(2).long()))[0],
    "data": lambda x: setattr(x, "data", torch.ones(3)),
    "detach_": lambda x: x.detach_(),
    "swapped": lambda x: torch.utils.swap_tensors(x, torch.ones(3)),
}


@pytest.mark.filterwarnings("ignore:.*runs as it is")
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", RELAID)
def test_layouts_of_arguments_are_changed_in_place(name: str, dynamic: bool | None) -> None:
    def function(x: Any) -> Any:
        before = x[0]
        RELAID[name](x)
        return x.shape, before + 1, x * 2, x

    compiled = torch.compile(function, dynamic=dynamic)
    for rows in (3, 3, 4, 5):
        seen = []
        for run in (function, compiled):
            base = torch.arange(4.0 * rows + 1)
            x = base[1:].reshape(1, rows, 4)
            try:
                found = run(x)
            except RuntimeError as error:
                seen.append(str(error))
                continue
            assert found[-1] is x and x._spec.device is base._spec.device and (x.numpy() == x.tolist()).all()
            seen.append(str((found, x.shape, x.stride(), x.storage_offset(), x._version, base)))
        assert seen[0] == seen[1]


@pytest.mark.parametrize(
    "function", [lambda x: x[1:].imag, lambda x: x.unbind(0), lambda x: x[:, 1:].real, lambda x: x.view_as(x)[1:, :0]]
)
def test_views_without_elements_may_begin_behind_their_memory(function: Any) -> None:
    for shape in ((0, 3), (2, 0)):
        x = torch.ones(shape, dtype=torch.complex64)
        found = [run(x) for run in (function, torch.compile(lambda x: function(x), fullgraph=True))]
        assert repr(found[0]) == repr(found[1])


@pytest.mark.parametrize("function", [torch.sum, torch.amax, torch.std, torch.logsumexp, torch.count_nonzero])
def test_dims_that_change_are_no_symbols(function: Any) -> None:
    compiled = torch.compile(lambda x, dims: function(x, dims), fullgraph=True)
    for dims in ((0, 1), (1, 2), (0, 3), (2, 3), (-1, 0)):
        x = torch.arange(60.0).reshape(3, 5, 2, 2)
        assert torch.equal(compiled(x, dims), function(x, dims))


def _beyond(x: Any) -> Any:
    return torch.as_strided(x * 1 + x, (2, 2), (1, 2)), torch.as_strided(x, (2, 2), (1, 2), 0) * 2


def _sampled(*args: Any) -> Any:
    return torch.sparse.sampled_addmm(*args).to_dense() * 2


def _compressed(*args: Any) -> Any:
    return torch.sparse.mm(*args, "sum") * 2


@pytest.mark.parametrize(
    ("go", "make"),
    [
        (_beyond, lambda: (torch.arange(20.0)[5:15],)),
        (_sampled, lambda: (torch.eye(2).to_sparse_csr(), torch.ones(2, 2), torch.ones(2, 2))),
        (_compressed, lambda: (torch.eye(2).to_sparse_csr(), torch.ones(2, 2))),
    ],
)
@pytest.mark.parametrize("backend", ["inductor", "eager"])
def test_what_no_program_is_given_breaks(go: Any, make: Any, backend: str) -> None:
    torch._dynamo.utils.counters.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # "runs as it is"
        found, wanted = torch.compile(go, backend=backend)(*make()), go(*make())
    for a, b in zip(torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(wanted), strict=True):
        assert a.tolist() == b.tolist()
    if backend == "inductor" or go is not _beyond:  # the graph of another backend calls the operator
        assert torch._dynamo.utils.counters["graph_break"]
        with pytest.raises(torch._dynamo.exc.Unsupported):
            torch.compile(go, backend=backend, fullgraph=True)(*make())


def test_parts_between_views_of_one_storage_stay_in_the_program() -> None:
    def go(x: Any, y: Any) -> Any:
        return torch.as_strided(x, (4,), (2,), 1) + y

    made = torch.arange(12.0)
    found = torch.compile(go, fullgraph=True)(made[1:5], made[7:11])
    assert found.tolist() == [8.0, 11.0, 14.0, 17.0]
