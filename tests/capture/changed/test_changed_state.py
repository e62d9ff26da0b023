"""What a compiled function read is changed, by all means that Python and PyTorch have: each world once, in one of the places.

`tools/compiled/changed_state.py` goes through all places, as long as one likes.
"""

from __future__ import annotations

import copyreg
from collections import OrderedDict, defaultdict

import pytest
from tests.capture.changed.journeys import PLACES, WORLDS, differs
from tests.capture.changed.worlds import Plain

import rushlight as torch
from rushlight._capture.trace.process_settings import REPLACED
from rushlight._native.mutable_objects import supported

pytestmark = pytest.mark.skipif(not supported(), reason="this version of Python was not tried")


@pytest.mark.parametrize("name", WORLDS)
def test_compiled_sees_what_eager_sees(name, monkeypatch):
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 1000)
    place = PLACES[[*WORLDS].index(name) % len(PLACES)]
    assert differs(name, place, 5) is None


@pytest.mark.parametrize(
    "call",
    [lambda o: getattr(o, 4, None), lambda o: hasattr(o, 4), lambda o: setattr(o, 4, 1), lambda o: delattr(o, 4)],
)
def test_names_of_attributes_are_texts(call):
    held = Plain()
    with pytest.raises(TypeError, match="attribute name must be string, not 'int'"):
        torch.compile(lambda x: (x + 1, call(held)))(torch.ones(2))


def test_a_class_that_is_given_to_an_object_is_its_class_at_once():
    class Other(Plain):
        pass

    held = Plain(v=1)

    def go(x):
        held.__class__ = type("Made", (Other,), {})
        type(held).by = 3
        held.__dict__ = {"w": 5}
        return x * held.by + held.w

    assert torch.compile(go)(torch.ones(2)).tolist() == [8.0, 8.0]
    assert vars(type(held))["by"] == 3 and not hasattr(Other, "by") and not hasattr(Plain, "by")


def test_the_offset_of_a_tensor_from_outside_is_its_own():
    base, held = torch.arange(12.0).reshape(4, 3), Plain(t=torch.ones(3))
    compiled = torch.compile(lambda x: (x * held.t, held.t.storage_offset()))
    assert compiled(torch.ones(3))[1] == 0
    held.t = base[1]
    assert compiled(torch.ones(3))[1] == 3


def test_what_python_keeps_in_a_class_replaces_nothing():
    compiled = torch.compile(lambda x, factor: x * factor, fullgraph=True)
    assert compiled(torch.ones(2), 2).tolist() == [2.0, 2.0]
    for made in (torch.Tensor, torch.nn.Parameter):
        if "__slotnames__" in vars(made):  # copied before
            type.__delattr__(made, "__slotnames__")
        copyreg._slotnames(made)  # as copies and pickles of objects of any class do
    torch._dynamo.reset()
    assert compiled(torch.ones(2), 3).tolist() == [3.0, 3.0]


def test_defaults_of_a_call_that_lacked_them():
    def inner(x, by, *, plus):
        return x * by + plus

    def go(x):
        try:
            return inner(x)
        except TypeError as error:
            return str(error)

    compiled, one = torch.compile(go), torch.ones(1)
    assert "'by'" in compiled(one)
    inner.__defaults__ = (2,)
    assert "'plus'" in compiled(one)
    inner.__kwdefaults__ = {"other": 3}
    assert "'plus'" in compiled(one)
    inner.__kwdefaults__["plus"] = 3
    assert compiled(one).tolist() == [5]


def test_attributes_of_containers_from_outside_are_their_own():
    held, named = defaultdict(lambda: 3), OrderedDict()

    def go(x):
        held.default_factory = lambda: 8
        named.note = 1
        return x + held["a"]

    assert torch.compile(go)(torch.ones(1)).tolist() == [9]
    assert held["b"] == 8 and named.note == 1


def test_a_programs_own_method_of_tensors_is_guarded_where_it_is_read(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "own_scale", lambda x: x * 2, raising=False)
    assert REPLACED == [None]  # what never reads it is kept for other processes as before
    compiled = torch.compile(lambda x: x.own_scale() + 1)
    assert compiled(torch.ones(2)).tolist() == [3.0, 3.0]
    monkeypatch.setattr(torch.Tensor, "own_scale", lambda x: x * 3)
    assert compiled(torch.ones(2)).tolist() == [4.0, 4.0]
    monkeypatch.delattr(torch.Tensor, "own_scale")
    with pytest.raises(AttributeError, match="own_scale"):
        compiled(torch.ones(2))
