"""Trees of `optree` in compiled functions: one graph, and what its native functions give."""

from __future__ import annotations

from collections import OrderedDict, deque, namedtuple
from collections.abc import Callable
from typing import Any

import pytest
from tests.packages.environment import needs

Pair = namedtuple("Pair", "left right")


def _flattened(x: Any) -> Any:
    import optree

    tree = {"b": (x, None), "a": [x + 1, Pair(x, {"z": x, "y": 2})], "c": deque([x]), "d": OrderedDict(k=x)}
    leaves, spec = optree.tree_flatten(tree)
    ended = optree.tree_leaves(tree, is_leaf=lambda node: isinstance(node, tuple))
    kept = optree.tree_leaves(tree, none_is_leaf=True)
    facts = spec.num_leaves, spec.num_nodes, spec == optree.tree_structure(tree), spec == optree.tree_structure([x])
    return optree.tree_unflatten(spec, [leaf * 2 for leaf in leaves]), ended, kept, facts, spec


def _mapped(x: Any) -> Any:
    import optree

    both = optree.tree_map(lambda a, b: a * b, {"k": (x, [x])}, {"k": (x + 1, [x + 2])})
    optree.tree_map_(lambda a: a.add_(1), both)
    total = optree.tree_reduce(lambda a, b: a + b, [x, (x, x)])
    return both, total, optree.tree_max([3, (x.shape[0],)]), optree.tree_transpose_map(lambda a: {"q": a}, [x, x])


@needs("optree")
@pytest.mark.parametrize("function", [_flattened, _mapped])
def test_trees_are_taken_apart_in_one_graph(function: Callable[..., Any]) -> None:
    import optree  # noqa: F401  # before the functions import it
    import torch

    x = torch.tensor([1.0, 2.0])
    for backend in ("inductor", "eager"):
        found = torch.compile(function, fullgraph=True, backend=backend)(x)
        assert repr(found) == repr(function(x))


@needs("optree")
def test_a_structure_is_guarded_by_what_it_equals() -> None:
    import optree
    import torch

    def put_together(spec: Any, x: Any) -> Any:
        return optree.tree_unflatten(spec, (x, x + 1))

    torch._dynamo.utils.counters.clear()
    compiled, x = torch.compile(put_together, fullgraph=True), torch.ones(2)
    for tree in ({"a": 1, "b": 2}, {"a": 3, "b": 4}, [1, 2]):
        spec = optree.tree_structure(tree)
        assert repr(compiled(spec, x)) == repr(put_together(spec, x))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2


@needs("optree")
def test_nodes_of_users_break() -> None:
    import optree
    import torch

    class Held:
        def __init__(self, value: Any) -> None:
            self.value = value

    optree.register_pytree_node(
        Held, lambda held: ((held.value,), None), lambda _, parts: Held(*parts), namespace="held"
    )

    def through(x: Any) -> Any:
        return optree.tree_map(lambda a: a + 1, [Held(x)], namespace="held")[0].value

    x = torch.ones(2)
    assert torch.equal(torch.compile(through)(x), x + 1)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="a node of a user's own"):
        torch.compile(through, fullgraph=True)(x)
