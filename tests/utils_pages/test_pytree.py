"""`torch.utils._pytree`: constants, enumerations, named tuples, printed structures, older names; expected values are PyTorch 2.13's."""

from __future__ import annotations

import enum
import json
import sys
from collections import namedtuple
from typing import Any

import pytest

import rushlight as torch
from rushlight.fx.immutable_collections import immutable_dict, immutable_list
from rushlight.utils import _pytree as pytree


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


Point = namedtuple("Point", "x y")


class Constant:
    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


class OnlyEqual:
    def __eq__(self, other: object) -> bool:
        return True


def test_members_of_enumerations_are_keys_in_texts() -> None:
    spec = pytree.tree_structure({Colour.RED: 1, "x": [Colour.BLUE]})
    text = pytree.treespec_dumps(spec)
    assert r"{\"__enum__\": true, \"fqn\": \"" + __name__ + r":Colour\", \"name\": \"RED\"}, \"x\"" in text
    assert pytree.treespec_loads(text) == spec
    assert pytree.enum_object_hook({"a": 1}) == {"a": 1}
    with pytest.raises(TypeError, match="no enumeration"):
        pytree.enum_object_hook({"__enum__": True, "fqn": f"{__name__}:Constant", "name": "RED"})


def test_texts_of_structures_import_nothing() -> None:
    """They come with files of others, and a module runs code when it is imported."""
    assert "antigravity" not in sys.modules
    with pytest.raises(TypeError, match="antigravity, which is not loaded"):
        pytree.enum_object_hook({"__enum__": True, "fqn": "antigravity:Colour", "name": "RED"})
    named = {"default_factory_module": "antigravity", "default_factory_name": "open", "dict_context": []}
    text = json.dumps([1, {"type": "collections.defaultdict", "context": named, "children_spec": []}])
    with pytest.raises(TypeError, match="antigravity, which is not loaded"):
        pytree.treespec_loads(text)
    assert "antigravity" not in sys.modules


def test_constants_are_part_of_the_structure() -> None:
    pytree.register_constant(Constant)
    try:
        leaves, spec = pytree.tree_flatten([1, Constant(3)])
        assert leaves == [1]
        assert spec.child(1).context == pytree.ConstantNode(Constant(3))
        assert pytree._is_constant_holder(spec.child(1)) and not pytree._is_constant_holder(spec)
        assert pytree.tree_map(lambda x: x + 1, [1, Constant(3)]) == [2, Constant(3)]
        assert pytree.tree_flatten_with_path([Constant(3)])[0] == []
        assert pytree.is_constant_class(Constant) and not pytree.is_constant_class(int)
    finally:
        pytree._deregister_pytree_node(Constant)
    assert not pytree.is_constant_class(Constant)


@pytest.mark.parametrize(
    ("cls", "method"), [(object, "__eq__"), (type("Plain", (), {}), "__eq__"), (OnlyEqual, "__hash__")]
)
def test_constants_compare_by_value(cls: type, method: str) -> None:
    with pytest.raises(TypeError, match=f"non-default `{method}`"):
        pytree.register_constant(cls)


@pytest.mark.parametrize(
    ("value", "named_tuple", "named_results"),
    [
        (Point(1, 2), (True, False, True), (False, False, False)),
        (Point, (True, True, False), (False, False, False)),
        ((1, 2), (False, False, False), (False, False, False)),
        (tuple, (False, False, False), (False, False, False)),
        (torch.ones(2).max(0), (False, False, False), (True, False, True)),
        (torch.return_types.max, (False, False, False), (True, True, False)),
    ],
)
def test_named_tuples_and_results(value: Any, named_tuple: tuple[bool, ...], named_results: tuple[bool, ...]) -> None:
    for kind, expected in (("namedtuple", named_tuple), ("structseq", named_results)):
        for form, answer in zip(("", "_class", "_instance"), expected, strict=True):
            assert getattr(pytree, f"is_{kind}{form}")(value) is answer


def test_structures_are_made_and_printed() -> None:
    leaf = pytree.treespec_leaf()
    spec = pytree.treespec_tuple([leaf, pytree.treespec_dict({"a": leaf}, b=pytree.treespec_tuple())])
    assert spec == pytree.tree_structure((1, {"a": 2, "b": ()}))
    assert pytree.treespec_pprint(spec) == "(*, {'a': *, 'b': ()})"
    with pytest.raises(ValueError, match="TreeSpec"):
        pytree.treespec_tuple([1])


def test_immutable_containers_have_keys_and_names() -> None:
    tree = immutable_list([1, immutable_dict(a=2)])
    paths, spec = pytree.tree_flatten_with_path(tree)
    assert [pytree.keystr(path) for path, _ in paths] == ["[0]", "[1]['a']"]
    assert pytree.treespec_loads(pytree.treespec_dumps(spec)) == spec


def test_older_names_warn() -> None:
    spec = pytree.tree_structure([1])
    with pytest.warns(FutureWarning, match="treespec_dumps"):
        text = pytree.pytree_to_str(spec)
    with pytest.warns(FutureWarning, match="treespec_loads"):
        assert pytree.str_to_pytree(text) == spec

    class Box:
        pass

    with pytest.warns(FutureWarning, match="register_pytree_node"):
        pytree._register_pytree_node(Box, lambda box: ([], None), lambda values, _: Box())
    with pytest.warns(UserWarning, match="already registered"), pytest.warns(FutureWarning):
        pytree._register_pytree_node(Box, lambda box: ([7], None), lambda values, _: Box())
    assert pytree.tree_leaves(Box()) == [7]
    pytree._deregister_pytree_node(Box)
