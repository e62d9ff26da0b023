"""What scripts do where Python does the same: expected values are Python's own, or PyTorch 2.13's texts."""

from __future__ import annotations

import enum
import io
from typing import Any, Dict, List, Optional, Tuple  # noqa: UP035

import pytest

import rushlight as torch


@torch.jit.script
class Counted:
    def __init__(self, start: int):
        self.count = torch.tensor([start])

    def __enter__(self):  # type: ignore[no-untyped-def]
        self.count.add_(10)
        return self.count

    def __exit__(self, kind: Any, value: Any, trace: Any) -> bool:
        self.count.sub_(10)
        return True


def returns_inside(x, c: Counted):  # type: ignore[no-untyped-def]
    with c as inner:
        y = x + inner
        if bool(y.sum() > 20):
            return y
        y = y * 2
    return y * c.count


def breaks_inside(x, c: Counted, items: list[int]):  # type: ignore[no-untyped-def]
    for i in items:
        with c as inner:
            if i == 0:
                break
            elif i == 1:
                continue
            x = x + i * inner
    return x


def raises_inside(x, c: Counted):  # type: ignore[no-untyped-def]
    with c, Counted(3):
        x = x + 1
        if bool(x.sum() > 0):
            raise ValueError("too large")
    return x


def test_a_with_block_is_left_by_every_way_out() -> None:
    c = Counted(1)
    assert torch.jit.script(returns_inside)(torch.ones(2), c).tolist() == [12.0, 12.0]
    assert torch.jit.script(returns_inside)(-torch.ones(2) * 9, c).tolist() == [4.0, 4.0]
    assert c.count.item() == 1
    assert torch.jit.script(breaks_inside)(torch.ones(1), c, [1, 2, 1, 0, 5]).tolist() == [23.0]
    assert c.count.item() == 1
    with pytest.raises(torch.jit.Error, match="too large"):
        torch.jit.script(raises_inside)(torch.ones(1), c)
    assert c.count.item() == 1


def test_with_blocks_are_saved_and_loaded() -> None:
    class Net(torch.nn.Module):
        def forward(self, x):  # type: ignore[no-untyped-def]
            c = Counted(1)
            with c as inner:
                x = x + inner
                if bool(x.sum() > 20):
                    return x, c.count
            return x * 2, c.count

    net = torch.jit.script(Net())
    file = io.BytesIO()
    torch.jit.save(net, file)
    file.seek(0)
    again = torch.jit.load(file)
    for value in (1.0, 30.0):
        wanted = net(torch.full((1,), value))
        assert [t.tolist() for t in again(torch.full((1,), value))] == [t.tolist() for t in wanted]
        assert wanted[1].item() == 1


def more(x: dict[str, int]):  # type: ignore[no-untyped-def]
    return dict(x, foo=3, z=4)


def listed():  # type: ignore[no-untyped-def]
    return dict([("a", 1), ("b", 2)], foo=3)


def comprehended():  # type: ignore[no-untyped-def]
    return dict({str(i): i for i in range(2)}, b=3)


def zipped():  # type: ignore[no-untyped-def]
    return dict(zip(["a", "b"], [1, 2]))


@pytest.mark.parametrize(("function", "args"), [(more, ({"a": 1},)), (listed, ()), (comprehended, ()), (zipped, ())])
def test_dict_takes_mappings_pairs_and_keywords(function: Any, args: Any) -> None:
    assert torch.jit.script(function)(*args) == function(*args)


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


class Shade(enum.Enum):
    DARK = 1


def parts(c: Colour):  # type: ignore[no-untyped-def]
    return c.name, c.value


def test_members_of_enumerations_have_names_and_values() -> None:
    made = torch.jit.script(parts)
    assert made(Colour.GREEN) == ("GREEN", 2)
    with pytest.raises(RuntimeError, match="Expected a value of type"):
        made(Shade.DARK)


def which(x: float | int | list[str]) -> str:
    if isinstance(x, (int, float)):
        if isinstance(x, int):
            return str(x)
        return "float"
    return x[0]


def test_values_of_unions_are_not_converted() -> None:
    made = torch.jit.script(which)
    assert made(1) == "1" and made(1.0) == "float" and made(["a"]) == "a"
    with pytest.raises(RuntimeError, match="Expected a member of Union.* but instead found type str"):
        made("text")
    assert str(made.schema) == "which(Union(str[], float, int) x) -> str"


def texts(a: list[str], b: dict[str, int], c: list[float], d: complex):  # type: ignore[no-untyped-def]
    return [str(a), str(b), str(c), f"{d} {a}", "%s %s %d" % (a, c[0], 3), str((a, None, True))]  # noqa: UP031


def test_texts_of_values_are_those_of_scripts() -> None:
    numbers = [3.0, 0.1, 1e20, 1e-7, float("inf"), -0.0]
    assert torch.jit.script(texts)(["a", "b c"], {"x": 1}, numbers, 1 - 2.5j) == [
        "[a, b c]", "{x: 1}", "[3., 0.10000000000000001, 1e+20, 9.9999999999999995e-08, inf, -0.]", "1.-2.5j [a, b c]", "[a, b c] 3. 3", "([a, b c], None, True)",
    ]  # fmt: skip


# ***** classes *****


@torch.jit.script
class Bits:
    def __init__(self, x: int):
        self.x = x

    def __and__(self, other: int) -> int:
        return self.x & other

    def __lshift__(self, other: int) -> int:
        return self.x << other

    def __contains__(self, other: int) -> bool:
        return self.x == other

    def __invert__(self) -> int:
        return -self.x - 1

    def __lt__(self, other: Bits) -> bool:
        return self.x > other.x

    def __delitem__(self, at: int) -> None:
        self.x = at

    @staticmethod
    def twice(x: int) -> int:
        return x * 2

    @classmethod
    def of(cls, x: int) -> Bits:
        return Bits(x + 1)


def bits(x: int):  # type: ignore[no-untyped-def]
    b = Bits(x)
    found = [b & 3, b << 2, ~b, b.twice(4), b.of(6).x]
    held = (x in b, 5 in b)
    del b[9]
    many = [Bits(1), Bits(3), Bits(2)]
    many.sort()
    return found, held, b.x, [each.x for each in many]


def test_operators_of_classes_are_their_methods() -> None:
    made = torch.jit.script(bits)
    assert made(6) == ([2, 24, -7, 8, 7], (True, False), 9, [3, 2, 1])


def test_methods_that_cannot_be_compiled_are_refused_with_the_class() -> None:
    class Wrong:
        def __init__(self) -> None:
            self.x = 1

        def method(self) -> int:
            return self.y  # type: ignore[attr-defined,no-any-return]

    with pytest.raises(RuntimeError, match="has no attribute 'y'"):
        torch.jit.script(Wrong)


# ***** traces *****


def test_traces_serve_other_sizes() -> None:
    whole = torch.jit.trace(lambda x: x[0:5, 0] + 1, torch.rand(5, 4))
    assert whole(torch.rand(6, 3)).shape == (5,)
    beside = torch.jit.trace(lambda x, y: x[: y.shape[0], ..., 0:2].sum(), (torch.rand(5, 2, 2), torch.rand(5)))
    assert beside(torch.ones(6, 3, 3), torch.ones(2)).item() == 12

    def stored(x: torch.Tensor) -> torch.Tensor:
        y = x * 1
        y[0:5] = 7
        return y

    assert torch.jit.trace(stored, torch.rand(5, 4))(torch.zeros(6, 3))[:, 0].tolist() == [7, 7, 7, 7, 7, 0]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [({"scale_factor": 3, "mode": "bilinear"}, (18, 9)), ({"scale_factor": 2}, (12, 6)), ({"size": (7, 9)}, (7, 9))],
)
def test_traced_interpolation_keeps_factors(options: Any, wanted: Any) -> None:
    made = torch.jit.trace(lambda x: torch.nn.functional.interpolate(x, **options), torch.rand(1, 1, 5, 4))
    x = torch.rand(1, 1, 6, 3)
    assert made(x).shape[2:] == wanted and torch.equal(made(x), torch.nn.functional.interpolate(x, **options))


# ***** lists, dicts and objects from outside *****


def appended(x: list[int]) -> list[int]:
    x.append(7)
    return x


def test_lists_with_a_type_are_changed_by_scripts() -> None:
    held, plain = torch.jit.script([1]), [1]
    made = torch.jit.script(appended)
    assert made(held) == [1, 7] and list(held) == [1, 7] and type(made(held)) is list
    assert made(plain) == [1, 7] and plain == [1]
    for change in (
        lambda: held.append("a"),
        lambda: held.extend(["a"]),
        lambda: held.__setitem__(0, 1.5),
        lambda: "a" in held,
    ):
        with pytest.raises(TypeError):
            change()
    assert repr(torch.jit.script(["a", "b"])) == "[a, b]" and not torch.jit.script([])
    with pytest.raises(torch.jit.Error, match="Unable to infer type of list"):
        torch.jit.script([1, "a"])


def entered(x: dict[str, int]) -> dict[str, int]:
    x["n"] = 1
    return x


def test_dicts_with_a_type_are_changed_by_scripts() -> None:
    held = torch.jit.script({"a": 1})
    assert torch.jit.script(entered)(held) == {"a": 1, "n": 1} == dict(held)
    with pytest.raises(TypeError):
        held["b"] = "text"
    with pytest.raises(KeyError):
        5 in held


def sliced(x: list[int], t, s: str):  # type: ignore[no-untyped-def]
    return x[slice(1)], x[slice(1, 5, 2)], x[slice(None)], t[slice(None, 3, 1), 0], s[slice(None, 3)]


def test_slices_as_calls() -> None:
    found = torch.jit.script(sliced)(list(range(8)), torch.arange(12).view(4, 3), "hello")
    assert found[:3] == ([0], [1, 3], list(range(8))) and found[3].tolist() == [0, 3, 6] and found[4] == "hel"


def mixed():  # type: ignore[no-untyped-def]
    return [1, "a", 2.0]


def test_lists_of_several_types_are_lists_of_a_union() -> None:
    made = torch.jit.script(mixed)
    assert made() == [1, "a", 2.0] and str(made.schema) == "mixed() -> Union(float, int, str)[]"


class Recipe:
    def __init__(self, x: int):
        self.items = [x]

    def first(self) -> int:
        return self.items[0]


def test_objects_in_modules_are_copied_with_their_lists() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.recipe = Recipe(7)

        def forward(self, x):  # type: ignore[no-untyped-def]
            self.recipe.items.append(3)
            return x + self.recipe.first() + len(self.recipe.items)

    net = Net()
    made = torch.jit.script(net)
    assert made(torch.ones(1)).item() == 10 and made(torch.ones(1)).item() == 11
    assert net.recipe.items == [7]
    recipe = Recipe(3)
    assert torch.jit.script(recipe) is recipe


def popped(x: list[int]) -> int:
    return x.pop()


def test_errors_mark_what_is_called() -> None:
    with pytest.raises(RuntimeError) as met:
        torch.jit.script(popped)([])
    assert "RuntimeError: pop from empty list" in str(met.value) and "           ~~~~~ <--- HERE" in str(met.value)


def comprehensions(n: int):  # type: ignore[no-untyped-def]
    i, k = 6, 9
    made = [i * 2 for i in range(n)]
    table = {str(k): k for k in range(n)}
    return i, k, made, table, [i + j for j in range(n)]


def test_variables_of_comprehensions_stay_inside() -> None:
    assert torch.jit.script(comprehensions)(2) == comprehensions(2)


@pytest.mark.parametrize("kind", [List, Dict, Tuple, Optional, list, dict, tuple], ids=str)  # noqa: UP006
def test_questions_for_containers_without_types_are_refused(kind: Any) -> None:
    with pytest.raises(RuntimeError, match=r"Attempted to use .* without .*contained type"):
        torch.jit.isinstance([1], kind)


def test_questions_for_containers() -> None:
    with pytest.raises(RuntimeError, match="must be a type or a tuple of types"):
        torch.jit.isinstance([1], [int, str])
    for empty, kind in (([], list[int]), ({}, dict[str, int]), ([], list[list[int]])):
        with pytest.warns(UserWarning, match="inner type of a container is lost"):
            assert torch.jit.isinstance(empty, kind)
    assert torch.jit.isinstance((1, "a"), (list[int], tuple[int, str])) and torch.jit.isinstance(None, Optional[int])  # noqa: UP045
    assert not torch.jit.isinstance([1, "a"], list[int])


class Named(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleDict({"one": torch.nn.Tanh(), "three": torch.nn.Sigmoid()})

    def forward(self, x: torch.Tensor, name: str):
        lengths = [len(key) for key in self.parts]
        for place, key in enumerate(self.parts):
            x = x + place * len(key)
        return self.parts["one"](x), lengths, "one" in self.parts, "two" in self.parts, name in self.parts


class Holding(torch.nn.ModuleDict):
    def __contains__(self, key: str) -> bool:
        return key == "all"


class Overridden(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = Holding({"one": torch.nn.Tanh()})

    def forward(self):
        return "all" in self.parts, "one" in self.parts


def test_dicts_of_modules_are_asked_by_their_keys() -> None:
    net, x = Named(), torch.ones(2)
    scripted = torch.jit.script(net)
    for name in ("three", "four"):
        (found, *rest), (want, *others) = scripted(x, name), net(x, name)
        assert torch.equal(found, want) and rest == others
    assert torch.jit.script(Overridden())() == (True, False)
