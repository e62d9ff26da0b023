"""What models call of the standard library inside of compiled functions: logging, warnings, the environment, copies, memoized functions."""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import os
import re
import typing
import warnings
import weakref
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight._capture.trace import CompileSettings, compile_function

X = torch.arange(4.0).view(2, 2)
LOG = logging.getLogger(__name__)


def whole(function: Any) -> Any:
    """A function compiled as one graph."""
    return compile_function(function, CompileSettings(fullgraph=True))


def test_log_records_are_those_of_the_line(caplog: pytest.LogCaptureFixture) -> None:
    def go(x):
        LOG.warning("size %s", x.shape[0])
        LOG.debug("not shown")
        return x + 1

    compiled = whole(go)
    with caplog.at_level(logging.INFO, logger=__name__):
        assert torch.equal(go(X), compiled(X)) and torch.equal(compiled(X), X + 1)
    first, *others = [(r.pathname, r.lineno, r.funcName, r.getMessage(), r.levelno) for r in caplog.records]
    assert len(others) == 2 and all(each == first for each in others)


def test_warnings_are_those_of_the_line() -> None:
    def go(x):
        warnings.warn("here", DeprecationWarning)  # noqa: B028
        warnings.warn("above", stacklevel=2)
        return x * 2

    compiled, found = whole(go), []
    for call in (go, compiled, compiled):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call(X)
        found.append([(str(w.message), w.category, w.filename, w.lineno) for w in caught])
    assert found[0] == found[1] == found[2] and len(found[0]) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DeprecationWarning):
            compile_function(go)(X)


def test_environment_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    def go(x):
        return (
            x * 2 if os.environ.get("RUSHLIGHT_TEST_A", "no") == "yes" else x,
            "RUSHLIGHT_TEST_A" in os.environ,
            os.getenv("RUSHLIGHT_TEST_B"),
        )

    compiled = whole(go)
    for name, value in (("C", "0"), ("A", "yes"), ("A", "no"), ("B", "7")):
        monkeypatch.setenv(f"RUSHLIGHT_TEST_{name}", value)
        expected, found = go(X), compiled(X)
        assert torch.equal(expected[0], found[0]) and expected[1:] == found[1:]


@functools.lru_cache
def mask(size: int) -> Any:
    LOG.warning("made")
    return torch.ones(size, size).triu()


def test_memoized_functions_keep_real_values(caplog: pytest.LogCaptureFixture) -> None:
    mask.cache_clear()
    compiled = whole(lambda x: (x @ mask(2), mask(2)))
    first, held = compiled(X)
    assert torch.equal(first, X @ mask(2)) and held is mask(2) and len(caplog.records) == 1


class Early:
    def go(self) -> int:
        return 2


class Late(Early):
    def go(self) -> int:
        return 3


def test_what_a_memoized_function_holds_may_change() -> None:
    numbers, weight, thing = [1], torch.ones(2), Early()
    numbers_of, weight_of, thing_of = [functools.cache(lambda x=x: x) for x in (numbers, weight, thing)]

    def read(x: Any) -> Any:
        return x * len(numbers_of()) * thing_of().go() + weight_of().sum()

    def write(x: Any) -> Any:
        numbers_of().append(len(numbers_of()))
        return x * len(numbers_of())

    compiled, writing = torch.compile(read), torch.compile(write)
    x = torch.ones(1)
    assert compiled(x).item() == 2 + 2
    assert not compiled(x).requires_grad
    numbers.append(7)
    assert compiled(x).item() == 4 + 2
    weight.requires_grad_()
    assert compiled(x).requires_grad
    weight.detach_()
    weight.resize_(3).fill_(2.0)
    assert compiled(x).item() == 4 + 6
    thing.__class__ = Late
    assert compiled(x).item() == 6 + 6
    assert [writing(x).item() for _ in range(3)] == [3, 4, 5]
    assert numbers == [1, 7, 2, 3, 4]


class Config:
    def __init__(self) -> None:
        self.sizes = [1, 2, {"k": 3}]
        self.name = "x"

    def __getattribute__(self, name):
        return super().__getattribute__("name" if name == "alias" else name)

    def __getattr__(self, name):
        if name == "size":
            return 5
        raise AttributeError(name)


CONFIG = Config()


def test_getattribute_and_copies() -> None:
    def go(x):
        mine = copy.deepcopy(CONFIG)
        mine.sizes[2]["k"] = 9
        return (
            x + CONFIG.size,
            CONFIG.alias,
            hasattr(CONFIG, "other"),
            mine.sizes,
            CONFIG.sizes,
            copy.copy(CONFIG).sizes is CONFIG.sizes,
        )

    compiled = whole(go)
    expected, found = go(X), compiled(X)
    assert torch.equal(expected[0], found[0]) and expected[1:] == found[1:]
    CONFIG.name = "y"
    assert compiled(X)[1] == "y"


class Output(OrderedDict[str, Any]):
    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def __reduce__(self):
        return Output, (), self.__dict__


def test_outputs_with_methods_for_pickling() -> None:
    def go(x):
        found = Output()
        found["y"] = x * 2
        return found, f"{x.shape}{x.dtype}", bool(re.match("a+", "aab")), len(inspect.signature(go).parameters)

    found = whole(go)(X)
    assert type(found[0]) is Output and found[0].y is found[0]["y"] and torch.equal(found[0].y, X * 2)
    assert found[1:] == ("torch.Size([2, 2])torch.float32", True, 1)


def test_endless_recursion_is_left_to_python() -> None:
    def go(x):
        return go(x)

    with pytest.raises(RecursionError):
        compile_function(go)(X)


class Registry(OrderedDict[str, Any]):
    def __getitem__(self, key):
        kind, options = super().__getitem__(key)
        return kind(**options)


REGISTRY = Registry(
    linear=(torch.nn.Linear, {"in_features": 2, "out_features": 2, "bias": False}), relu=(torch.nn.ReLU, {})
)


def test_registries_make_modules() -> None:
    compiled = whole(lambda x: REGISTRY["relu"](-x) + ("relu" in REGISTRY) + len(REGISTRY))
    assert torch.equal(compiled(X), torch.full((2, 2), 3.0))
    OrderedDict.__setitem__(REGISTRY, "relu", (torch.nn.Identity, {}))
    assert torch.equal(compiled(X), 3.0 - X)


def test_numpy_functions_of_numbers() -> None:
    compiled = whole(lambda x, n: (x / np.sqrt(n), np.sqrt(n)))
    found = compiled(X, 4)
    assert torch.equal(found[0], X / 2) and type(found[1]) is np.float64 and compiled(X, 9)[1] == 3.0


def scaled(x, scale=2, *, shift=1):
    return x * scale + shift


def test_signatures_are_looked_into() -> None:
    def go(x, **options):
        known = set(inspect.signature(scaled).parameters.keys())
        return scaled(
            x, **{k: v for k, v in options.items() if k in known and k in inspect.signature(scaled).parameters}
        )

    assert torch.equal(whole(go)(X, scale=3, other=7), X * 3 + 1)


def test_annotations_and_late_imports() -> None:
    def go(x):
        from rushlight._higher_order_ops import associative_scan  # noqa: F401

        found = torch.jit.annotate(typing.List[torch.Tensor], [])  # noqa: UP006
        found.append(x + 1)
        return found

    assert torch.equal(whole(go)(X)[0], X + 1)


def test_filters_of_warnings_in_a_region_of_the_program() -> None:
    def go(x, loud):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("always", message="loud")
            y = x * 2
            warnings.warn("quiet")  # noqa: B028
            if loud:
                warnings.warn("loud")  # noqa: B028
        warnings.warn("behind")  # noqa: B028
        return y + 1

    compiled, found = whole(go), []
    for call, loud in ((go, False), (go, True), *[(compiled, loud) for loud in (False, True, False, True)]):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            before = list(warnings.filters)
            assert torch.equal(call(X, loud), X * 2 + 1) and warnings.filters == before
        found.append([(str(w.message), w.lineno) for w in caught])
    assert found[:2] * 2 == found[2:] and [len(each) for each in found[:2]] == [1, 2]


@pytest.mark.parametrize("action", ["error", "ignore"])
def test_breaks_in_a_region_of_warnings(action: str) -> None:
    def go(x):
        y = x + 1
        with warnings.catch_warnings():
            warnings.simplefilter(action)
            y = y * 2
            torch._dynamo.graph_break()
            try:
                warnings.warn("told")  # noqa: B028
            except UserWarning:
                y = y + 10
        return y

    compiled, before = compile_function(go), list(warnings.filters)
    for _ in range(2):
        assert torch.equal(compiled(X), go(X)) and warnings.filters == before


class Holder:
    def __init__(self, value: Any) -> None:
        self.value = value


def test_weak_references_to_what_the_program_made() -> None:
    def go(x):
        holder = Holder(x + 1)
        reference = weakref.ref(holder)
        return reference().value * 2, holder, reference

    value, holder, reference = whole(go)(X)
    assert torch.equal(value, (X + 1) * 2) and reference() is holder and torch.equal(holder.value, X + 1)
    del holder
    assert reference() is None

    def let_go(x):
        reference = weakref.ref(Holder(x))
        return x * 2 if reference() is None else x

    assert torch.equal(compile_function(let_go)(X), let_go(X))
