"""Classes of `ScriptModule` whose methods are marked or given as text."""

from __future__ import annotations

import copy
import io
import pickle

import pytest

import rushlight as torch


class Inner(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):  # type: ignore[no-untyped-def]
        return x + self.weight


class Marked(torch.jit.ScriptModule):
    __constants__ = ["times"]

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times
        self.inner = Inner()
        self.seen = torch.jit.Attribute([], list[int])
        self.bias = torch.nn.Parameter(torch.ones(2) * 3)

    @torch.jit.script_method
    def helper(self, x, y: int = 2):  # type: ignore[no-untyped-def]
        return x * y

    @torch.jit.script_method
    def forward(self, x):  # type: ignore[no-untyped-def]
        self.seen.append(self.times)
        return self.helper(self.inner(x)) * self.times + self.bias

    def plain(self, x: torch.Tensor) -> torch.Tensor:
        return self.helper(x, y=5)


class Derived(Marked):
    @torch.jit.script_method
    def helper(self, x, y: int = 2):  # type: ignore[no-untyped-def]
        return x * y * 10


def test_marked_methods_are_compiled_behind_init() -> None:
    m = Marked(4)
    assert m(torch.ones(2)).tolist() == [19.0, 19.0] and m.seen == [4]
    assert m.plain(torch.ones(2)).tolist() == [5.0, 5.0], "other methods stay Python"
    assert "torch.append(seen, 4)" in m.code and m.helper.schema.arguments[2].name == "y"
    assert sorted(dict(m.named_parameters())) == ["bias", "inner.weight"]
    assert isinstance(m.inner, torch.jit.ScriptModule) and torch.jit.script(m) is m
    with pytest.raises(AttributeError, match="constant value: 'times'"):
        m.times = 5


def test_derived_classes_replace_methods() -> None:
    assert Derived(1)(torch.ones(2)).tolist() == [43.0, 43.0]
    assert Marked(1)(torch.ones(2)).tolist() == [7.0, 7.0]


def test_objects_are_copied_saved_and_compiled_in_others() -> None:
    m = Marked(4)
    twin = copy.deepcopy(m)
    with torch.no_grad():
        twin.bias.zero_()
    assert twin(torch.ones(2)).tolist() == [16.0, 16.0] and m(torch.ones(2)).tolist() == [19.0, 19.0]
    file = io.BytesIO()
    m.save(file)
    file.seek(0)
    assert torch.jit.load(file)(torch.ones(2)).tolist() == [19.0, 19.0]
    assert torch.jit.script(torch.nn.Sequential(m))(torch.ones(2)).tolist() == [19.0, 19.0]
    with pytest.raises(pickle.PickleError, match="save"):
        pickle.dumps(m)


def hundred_more(x: torch.Tensor) -> torch.Tensor:
    return x + 100


def test_text_may_use_names_of_the_calling_function() -> None:
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    class Text(torch.jit.ScriptModule):
        def __init__(self) -> None:
            super().__init__()
            self.define("""
            def more(self, x, times: int = 3):
                return hundred_more(x) * times
            """)
            self.define("""
            def forward(self, x):
                return self.more(x)
            """)

    m = Text()
    assert m(torch.zeros(1)).tolist() == [300.0]
    m.define("def again(self, x): return hundred_more(self(x))")
    assert m.again(torch.zeros(1)).tolist() == [400.0]
    unit = torch.jit.CompilationUnit("def more(x: Tensor) -> Tensor: return twice(hundred_more(x))")
    assert unit.more(torch.zeros(1)).tolist() == [200.0] and twice is not None


def test_errors_of_marked_methods_name_the_line() -> None:
    class Wrong(torch.jit.ScriptModule):
        @torch.jit.script_method
        def forward(self, x):  # type: ignore[no-untyped-def]
            return x.no_such_method()

    with pytest.raises(RuntimeError, match="no_such_method"):
        Wrong()


def test_an_attribute_of_a_plain_module_keeps_its_value() -> None:
    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.jit.Attribute({}, dict[str, int])

        def forward(self, key: str) -> int:
            self.table[key] = len(self.table)
            return self.table[key]

    m = torch.jit.script(Plain())
    assert m("a") == 0 and m("b") == 1 and m.table == {"a": 0, "b": 1}


@torch.jit.interface
class Part(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pass


class Shift(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.weight


class Through(torch.nn.Module):
    part: Part

    def __init__(self, part: torch.nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part.forward(x) * 2


def test_freezing_goes_through_interfaces() -> None:
    scripted = torch.jit.script(Through(Through(Shift())).eval())
    frozen = torch.jit.freeze(scripted)
    assert "CallMethod" not in str(frozen.graph) and "GetAttr" not in str(frozen.graph)
    assert frozen(torch.ones(2)).tolist() == scripted(torch.ones(2)).tolist() == [8.0, 8.0]
    with pytest.raises(RuntimeError, match="interface attributes"):
        torch._C._freeze_module(scripted._c, [], freezeInterfaces=False)
