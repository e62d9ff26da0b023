"""Ensembles of decision trees: the three operators of `ai.onnx.ml`, walked level by level for all rows at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import rushlight as torch
from rushlight.onnx.importing.operators.ml.learning import labels_of, transformed
from rushlight.onnx.importing.table import ML, operator
from rushlight.onnx.importing.values import tensor

__all__: list[str] = []

_MODES = {
    "BRANCH_LEQ": 0,
    "BRANCH_LT": 1,
    "BRANCH_GTE": 2,
    "BRANCH_GT": 3,
    "BRANCH_EQ": 4,
    "BRANCH_NEQ": 5,
    "BRANCH_MEMBER": 6,
    "LEAF": 7,
}
_LEAF, _MEMBER = 7, 6
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


class _Forest(NamedTuple):
    """Nodes of all trees in one table; a leaf leads to itself."""

    features: Any
    splits: Any
    modes: Any
    missing: Any
    yes: Any
    no: Any
    roots: Any
    members: dict[int, set[float]]

    def leaves(self, x: Any) -> Any:
        """The leaf that each row reaches in each tree: (rows, trees)."""
        at = self.roots.reshape(1, -1).expand(x.shape[0], -1)
        for _ in range(len(self.modes)):
            modes = self.modes[at]
            if bool((modes == _LEAF).all()):
                return at
            given = torch.gather(x, 1, self.features[at])
            splits = self.splits[at]
            holds = [given <= splits, given < splits, given >= splits, given > splits, given == splits, given != splits]
            taken = torch.isnan(given) & self.missing[at]
            for mode, one in enumerate(holds):
                taken = taken | ((modes == mode) & one)
            for node, members in self.members.items():
                found = torch.isin(given, torch.tensor(sorted(members), dtype=given.dtype))
                taken = taken | ((at == node) & found)
            at = torch.where(taken, self.yes[at], self.no[at])
        raise ValueError("a tree runs in a circle")


def _checked(links: Any, count: int, what: str) -> Any:
    if links.numel() and not bool(((links >= 0) & (links < count)).all()):
        raise ValueError(f"{what} of a tree leads outside its {count} nodes")
    return links


def _aggregate(x: Any, leaves: Any, targets: Any, weights: Any, shape: tuple[int, str]) -> Any:
    """Sum (or ...) the weights of the leaves by target; `targets` and `weights` hold (leaf) -> list of pairs."""
    count, how = shape
    result = torch.zeros(x.shape[0], count, dtype=weights.dtype)
    if how in ("MIN", "MAX"):
        kind = "amin" if how == "MIN" else "amax"
        return torch.scatter_reduce(result, 1, targets[leaves], weights[leaves], kind, include_self=False)
    total = torch.scatter_reduce(result, 1, targets[leaves], weights[leaves], "sum")
    return total / leaves.shape[1] if how == "AVERAGE" else total


@operator("TreeEnsemble", since=5, domain=ML)
def tree_ensemble(
    x: Any,
    *,
    aggregate_function: int = 1,
    leaf_targetids: list[int],
    leaf_weights: Any,
    membership_values: Any = None,
    n_targets: int,
    nodes_falseleafs: list[int],
    nodes_falsenodeids: list[int],
    nodes_featureids: list[int],
    nodes_hitrates: Any = None,
    nodes_missing_value_tracks_true: list[int] | None = None,
    nodes_modes: Any,
    nodes_splits: Any,
    nodes_trueleafs: list[int],
    nodes_truenodeids: list[int],
    post_transform: int = 0,
    tree_roots: list[int],
) -> Any:
    """Leaves follow the nodes in one table."""
    count, leaves = len(nodes_truenodeids), len(leaf_targetids)
    weights = tensor(leaf_weights).to(x.dtype)

    def linked(places: list[int], flags: list[int]) -> Any:
        links = torch.tensor(places, dtype=torch.int64) + torch.tensor(flags, dtype=torch.int64) * count
        return _checked(torch.cat([links, torch.arange(count, count + leaves)]), count + leaves, "a branch")

    modes = torch.cat([tensor(nodes_modes).to(torch.int64), torch.full((leaves,), _LEAF)])
    missing = torch.tensor([bool(one) for one in nodes_missing_value_tracks_true or [0] * count] + [False] * leaves)
    forest = _Forest(
        torch.tensor([*nodes_featureids, *[0] * leaves]), torch.cat([tensor(nodes_splits).to(x.dtype), torch.zeros(leaves, dtype=x.dtype)]),
        modes, missing, linked(nodes_truenodeids, nodes_trueleafs), linked(nodes_falsenodeids, nodes_falseleafs),
        torch.tensor(tree_roots), _members(modes.tolist(), membership_values),
    )  # fmt: skip
    # A tree of one leaf names it as both branches of its root, which no row has to satisfy.
    reached = forest.leaves(x) - count
    total = _aggregate(x, reached, torch.tensor(leaf_targetids), weights, (n_targets, _AGGREGATES[aggregate_function]))
    return transformed(total, _TRANSFORMS[post_transform])


def _members(modes: list[int], values: Any) -> dict[int, set[float]]:
    """The sets of nodes that ask for membership, which stand one after the other with NaN between."""
    found: dict[int, set[float]] = {}
    rest = iter([] if values is None else tensor(values).tolist())
    for node, mode in enumerate(modes):
        if mode == _MEMBER:
            found[node] = set()
            for value in rest:
                if value != value:
                    break
                found[node].add(value)
    return found


class _Old(NamedTuple):
    """The nodes of the older operators, which name them by tree and number."""

    forest: _Forest
    places: dict[tuple[int, int], int]


def _old_forest(a: dict[str, Any], dtype: Any) -> _Old:
    names = list(zip(a["nodes_treeids"], a["nodes_nodeids"], strict=True))
    places = {name: i for i, name in enumerate(names)}
    modes = [_MODES[mode] for mode in a["nodes_modes"]]
    count = len(names)

    def linked(ids: list[int]) -> Any:
        found = [i if modes[i] == _LEAF else places[names[i][0], ids[i]] for i in range(count)]
        return torch.tensor(found, dtype=torch.int64)

    yes, no = linked(a["nodes_truenodeids"]), linked(a["nodes_falsenodeids"])
    # The first node of a tree is its root.
    roots = [i for i, (tree, _) in enumerate(names) if i == 0 or tree != names[i - 1][0]]
    values = a.get("nodes_values_as_tensor")
    splits = torch.tensor(a["nodes_values"], dtype=torch.float32) if values is None else tensor(values)
    missing = torch.tensor([bool(one) for one in a.get("nodes_missing_value_tracks_true") or [0] * count])
    features = torch.tensor(a["nodes_featureids"], dtype=torch.int64)
    return _Old(
        _Forest(features, splits.to(dtype), torch.tensor(modes), missing, yes, no, torch.tensor(roots), {}), places
    )


def _old_scores(x: Any, a: dict[str, Any], prefix: str, count: int, how: str) -> Any:
    old = _old_forest(a, x.dtype)
    leaves = old.forest.leaves(x)
    given = a.get(f"{prefix}_weights_as_tensor")
    numbers = a[f"{prefix}_weights"] if given is None else tensor(given).tolist()
    table = torch.zeros(len(old.places), count, dtype=x.dtype)
    present = torch.zeros(len(old.places), count, dtype=torch.bool)
    rows = zip(a[f"{prefix}_treeids"], a[f"{prefix}_nodeids"], a[f"{prefix}_ids"], numbers, strict=True)
    for tree, node, target, weight in rows:
        place = old.places[tree, node]
        table[place, target] += weight
        present[place, target] = True
    chosen = table[leaves]
    if how in ("MIN", "MAX"):
        bound = float("inf") if how == "MIN" else -float("inf")
        chosen = torch.where(present[leaves], chosen, torch.full_like(chosen, bound))
        scores = chosen.amin(1) if how == "MIN" else chosen.amax(1)
    else:
        scores = chosen.sum(1) if how == "SUM" else chosen.mean(1)
    base = a.get("base_values_as_tensor")
    base = a.get("base_values") if base is None else tensor(base).tolist()
    return scores + torch.tensor(base, dtype=x.dtype) if base else scores


@operator("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(
    x: Any, *, aggregate_function: str = "SUM", n_targets: int = 1, post_transform: str = "NONE", **attributes: Any
) -> Any:
    wide = x if x.is_floating_point() else x.to(torch.float32)
    scores = _old_scores(wide, attributes, "target", n_targets, aggregate_function)
    return transformed(scores, post_transform).to(torch.float32)


@operator("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(
    x: Any,
    *,
    classlabels_int64s: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    post_transform: str = "NONE",
    **attributes: Any,
) -> Any:
    """Labels and scores; where one class alone has weights, the score of the other of two follows from it."""
    labels: list[Any] = list(classlabels_strings or classlabels_int64s or [])
    wide = x if x.is_floating_point() else x.to(torch.float32)
    named = set(attributes["class_ids"])
    scores = _old_scores(wide, attributes, "class", max(len(labels), max(named) + 1), "SUM")
    if len(named) == 1 and len(labels) == 2:
        score = scores[:, min(named)]
        other = 1 - score if post_transform in ("NONE", "PROBIT") else -score
        scores = torch.stack([other, score], 1)
    scores = transformed(scores, post_transform).to(torch.float32)
    return labels_of(torch.argmax(scores, 1), classlabels_int64s, classlabels_strings), scores
