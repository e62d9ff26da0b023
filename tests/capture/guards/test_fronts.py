"""Compiled functions whose own code takes the place of the search for segments, and when they look for them again."""

from __future__ import annotations

import gc
import random
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rushlight as torch
import rushlight._dynamo as dynamo
from rushlight._native.mutable_objects import own_attributes, word_at

F = torch.nn.functional
X = torch.arange(24.0).reshape(4, 6)
W = torch.ones(4, 6, requires_grad=True)
LARGE = torch.ones(1 << 18)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    dynamo.reset()
    yield
    dynamo.reset()


def took_over(compiled: Any) -> bool:
    """Whether a compiled function has its own code now."""
    front = compiled._compiled._front
    assert front.in_place is (compiled.__code__ is not front._searching)
    return front.in_place  # type: ignore[no-any-return]


def called(compiled: Any, *args: Any, **kwargs: Any) -> Any:
    """Call often enough for the own code to take over, where it may."""
    for _ in range(12):
        found = compiled(*args, **kwargs)
    return found


class Owner:
    def method(self, x: Any) -> Any:
        return x + 1


def helper(x: Any) -> Any:
    return x + 1


def branching(x: Any) -> Any:
    if x.dim() == 2:
        return x + 1
    return x.sum()


def with_defaults(x: Any, y: Any = 2.0, /, z: int = 3) -> Any:
    return x.add(y, alpha=z)


TAKES_OVER: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "an operator": (lambda x: x + 1, (X,)),
    "an operator with a history": (lambda w, x: w + x, (W, X)),
    "operators with a history": (lambda w, x: (w * x + x).sum(), (W, X)),
    "in place": (lambda x, y: x.add_(y, alpha=0.5), (torch.zeros(4, 6), X)),
    "views": (lambda x: x.view(6, 4).t()[1:3].unsqueeze(0), (X,)),
    "an element": (lambda x: x[1, 2], (X,)),
    "a number": (lambda x: x[0, 1].item(), (X,)),
    "a function of a module": (lambda x: torch.cat((x, x)), (X,)),
    "a function of a module with keywords": (lambda x: F.softmax(x, dim=0), (X,)),
    "no arguments": (lambda: torch.zeros(3), ()),
    "a closure": (lambda: X + W, ()),
    "defaults": (with_defaults, (X,)),
    "views of large memory": (lambda x: x[3:5], (LARGE,)),
}
SEARCHES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "two operators": (lambda x: x * x + 1, (X,)),
    "much memory": (lambda x: x + 1, (LARGE,)),
    "branches": (branching, (X,)),
    "functions in Python": (lambda x: helper(x), (X,)),
    "what it is given is called": (lambda f, x: f(x), (torch.sin, X)),
    "many arguments": (lambda *xs: xs[0] + 1, (X,)),
    "methods": (Owner().method, (X,)),
    "what asks whether it is compiled": (lambda x: x * torch.compiler.is_compiling(), (X,)),
}


@pytest.mark.parametrize("name", [*TAKES_OVER, *SEARCHES])
def test_which_functions_take_over(name: str) -> None:
    function, args = {**TAKES_OVER, **SEARCHES}[name]
    compiled = torch.compile(function)
    called(compiled, *args)
    assert took_over(compiled) is (name in TAKES_OVER)


@pytest.mark.parametrize("name", TAKES_OVER)
def test_results_are_those_of_the_function(name: str) -> None:
    function, args = TAKES_OVER[name]
    compiled = torch.compile(function)
    called(compiled, *args)
    held = [x.detach().clone() for x in args]
    mine = compiled(*args)
    for x, before in zip(args, held, strict=True):
        x.detach().copy_(before)
    theirs = function(*args)
    assert type(mine) is type(theirs)
    if isinstance(mine, torch.Tensor):
        assert torch.equal(mine, theirs) and mine.stride() == theirs.stride()
        assert type(mine.grad_fn) is type(theirs.grad_fn)
    else:
        assert mine == theirs


def test_programs_for_all_time_do_not_take_over() -> None:
    for compiled in (torch.compile(lambda x: x + 1, fullgraph=True), torch.compile(lambda x: x + 1, backend="eager")):
        called(compiled, X)
        assert not took_over(compiled)


def test_parameters_keep_their_names_and_defaults() -> None:
    compiled = torch.compile(with_defaults)
    called(compiled, X)
    assert took_over(compiled)
    for args, kwargs in (((X,), {}), ((X, 1.0), {}), ((X,), {"z": 5}), ((X, 4.0, 2), {})):
        assert torch.equal(compiled(*args, **kwargs), with_defaults(*args, **kwargs))
    for wrong in ({"y": 1}, {"x": X}, {"other": 1}):
        with pytest.raises(TypeError):
            compiled(X, **wrong)


def test_variables_outside_are_those_of_the_function() -> None:
    scale = torch.full((3,), 2.0)

    def function(x: Any) -> Any:
        return x * scale

    compiled = torch.compile(function)
    called(compiled, torch.ones(3))
    assert took_over(compiled)
    scale = torch.full((3,), 5.0)
    assert compiled(torch.ones(3)).tolist() == [5.0] * 3


def test_work_of_a_new_kind_is_compiled() -> None:
    compiled = torch.compile(lambda x, y: x.double() * y)
    x, y = torch.ones(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    called(compiled, x, y)  # no cast: one operator
    assert took_over(compiled)
    wide = torch.ones(1 << 16, dtype=torch.float16)
    given = wide, torch.ones(1 << 16, dtype=torch.float64)
    assert torch.equal(called(compiled, *given), wide.double() * given[1])
    assert not took_over(compiled) and len(compiled._compiled.entry.segments) == 2
    called(compiled, x, y)
    assert not took_over(compiled)  # it would be wrong for the others


def test_conditions_are_asked_again_after_other_work() -> None:
    compiled = torch.compile(lambda x: x + 1)
    called(compiled, X)
    assert took_over(compiled)
    torch.ones(3, 1, 7, 1, 2).transpose(0, 2).cosh()  # a plan that nobody had
    assert not took_over(compiled)
    compiled(X)
    assert took_over(compiled)  # nothing has changed


def test_other_code_of_the_function_is_noticed() -> None:
    def function(x: Any) -> Any:
        return x + 1

    def other(x: Any) -> Any:
        return x * 3

    compiled = torch.compile(function)
    called(compiled, X)
    assert took_over(compiled)
    with pytest.raises(TypeError):
        function.__code__ = None  # type: ignore[assignment]
    with pytest.raises(ValueError, match="free vars"):
        function.__code__ = (lambda x: other).__code__
    function.__code__ = other.__code__
    assert torch.equal(compiled(X), X * 3)
    assert torch.equal(called(compiled, X), X * 3)


def test_other_code_of_a_function_with_a_program_is_noticed() -> None:
    def function(x: Any) -> Any:
        return x * x + 1

    def other(x: Any) -> Any:
        return x - x * 3

    compiled = torch.compile(function)
    called(compiled, X)
    function.__code__ = other.__code__
    assert torch.equal(compiled(X), X - X * 3)


def test_stances() -> None:
    compiled = torch.compile(lambda x: x + 1)
    called(compiled, X)
    assert took_over(compiled)
    with torch.compiler.set_stance("fail_on_recompile"):
        assert not took_over(compiled)
        assert torch.equal(compiled(X), X + 1)
        with pytest.raises(RuntimeError, match="fail_on_recompile"):
            compiled(torch.ones(3, dtype=torch.int32))
        assert torch.equal(called(compiled, X), X + 1) and not took_over(compiled)
    with torch.compiler.set_stance("force_eager"):
        assert torch.equal(compiled(torch.ones(5)), torch.full((5,), 2.0))
    assert torch.equal(called(compiled, X), X + 1)


def test_errors_instead_of_recompilations() -> None:
    compiled = torch.compile(lambda x: x + 1)
    called(compiled, X)
    assert took_over(compiled)
    with dynamo.config.patch(error_on_recompile=True):
        assert not took_over(compiled)
        with pytest.raises(dynamo.exc.RecompileError):
            compiled(torch.ones(3, dtype=torch.int32))
        called(compiled, X)
        assert not took_over(compiled)


def test_reset_forgets() -> None:
    compiled = torch.compile(lambda x: x + 1)
    called(compiled, X)
    assert took_over(compiled)
    dynamo.reset()
    assert not took_over(compiled) and not compiled._compiled.entry.segments
    compiled(X)
    assert len(compiled._compiled.entry.segments) == 1


def test_other_compiled_functions_follow_them() -> None:
    inner = torch.compile(lambda x: x + 1)
    called(inner, X)
    assert took_over(inner)
    outer = torch.compile(lambda x: inner(x) * 2 - x, fullgraph=True)
    assert torch.equal(outer(X), (X + 1) * 2 - X)
    (segment,) = outer._compiled.entry.segments
    assert segment.finished and len(segment.program.graph.nodes) > 1


def test_errors_are_those_of_the_function() -> None:
    def function(x: Any, y: Any) -> Any:
        return x.add_(y)

    compiled = torch.compile(function)
    called(compiled, torch.zeros(3), torch.ones(3))
    assert took_over(compiled)
    with pytest.raises(RuntimeError, match="leaf") as caught:
        compiled(torch.zeros(3, requires_grad=True), torch.ones(3))
    names = [entry.name for entry in traceback.extract_tb(caught.value.__traceback__)]
    assert names.count("function") == 1


def test_gradients() -> None:
    def function(w: Any, x: Any) -> Any:
        return (w * x + x).sum()

    compiled = torch.compile(function)
    called(compiled, W, X)
    assert took_over(compiled)
    found = []
    for each in (compiled, function):
        w = W.detach().clone().requires_grad_()
        each(w, X).backward()
        found.append(w.grad)
    assert torch.equal(*found)
    with torch.no_grad():
        assert not called(compiled, W, X).requires_grad


def test_own_attributes() -> None:
    for made in (torch.ones(3), torch.nn.Parameter(torch.ones(3)), Owner()):
        assert own_attributes(made) == {}
        made.mark = 1
        assert own_attributes(made) == {"mark": 1}
        del made.mark
        assert own_attributes(made) == {} == vars(made)
        made.other = 2
        assert own_attributes(made) == {"other": 2}


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="looks at a word of CPython 3.11's objects")
def test_tensors_that_are_followed_get_no_dicts() -> None:
    x, w = torch.rand(4), torch.rand(4, requires_grad=True)
    for function in (lambda x: x.sum().item(), lambda x: x * 2 + 1, lambda x: x.view(2, 2)[0]):
        for given in (x, w):
            called(torch.compile(function), given)
    assert not any(word_at(id(each) - 24) for each in (x, w))


def test_nothing_holds_compiled_functions() -> None:
    def made() -> list[weakref.ref[Any]]:
        def function(x: Any) -> Any:
            return x + 1

        compiled = torch.compile(function)
        called(compiled, X)
        assert took_over(compiled)
        return [weakref.ref(x) for x in (function, compiled, compiled._compiled)]

    held = made()
    gc.collect()
    assert [each() for each in held] == [None] * 3


def test_threads() -> None:
    compiled, wrong = torch.compile(lambda x, y: x * y), []

    def work(seed: int) -> None:
        choose = random.Random(seed)
        for _ in range(150):
            n = choose.choice((3, 3, 3, 3, 5, 1 << 15))
            if not torch.equal(compiled(torch.full((n,), 2.0), torch.full((n,), 3.0)), torch.full((n,), 6.0)):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_random_calls() -> None:
    choose = random.Random(7)
    names = ("an operator", "a function of a module", "a function of a module with keywords", "an element", "a number")
    functions = [TAKES_OVER[name][0] for name in names]
    compiled = [torch.compile(f) for f in functions]
    for _ in range(400):
        k = choose.randrange(len(functions))
        shape = choose.choice([(4, 6)] * 20 + [(5, 6), (2, 4), (40, 2000)])
        kind = choose.choice([torch.float32] * 20 + [torch.float64])
        x = torch.ones(shape, dtype=kind, requires_grad=choose.random() < 0.1)
        mine, theirs = compiled[k](x), functions[k](x)
        if isinstance(theirs, torch.Tensor):
            assert torch.equal(mine, theirs) and mine.dtype is theirs.dtype
            assert mine.requires_grad is theirs.requires_grad
        else:
            assert mine == theirs
        for each in compiled:
            took_over(each)


def test_a_function_that_searches_for_attributes_runs_as_a_program():
    layer, x = torch.nn.Linear(4, 4).requires_grad_(False), torch.ones(2, 4)
    weight = layer.weight

    def searches(x):
        return x @ layer.weight

    def has_it(x):
        return x @ weight

    for function, own in ((searches, False), (has_it, True)):
        compiled = torch.compile(function)
        assert torch.equal(called(compiled, x), function(x))
        assert took_over(compiled) is own
