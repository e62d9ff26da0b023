"""Nested containers as a flat list of leaves and a `TreeSpec`, as `torch.utils._pytree`; classes of one's own can be
registered.

>>> import rushlight as torch
>>> leaves, spec = torch.utils._pytree.tree_flatten({"a": 1, "b": [2, (3,)]})
>>> leaves, spec.num_leaves
([1, 2, 3], 3)
>>> torch.utils._pytree.tree_map(lambda x: x + 1, {"a": 1, "b": [2, (3,)]})
{'a': 2, 'b': [3, (4,)]}
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import types
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from rushlight._interface.base import NODES

__all__ = [
    "GetAttrKey", "LeafSpec", "MappingKey", "PyTree", "SequenceKey", "TreeSpec", "arg_tree_leaves", "is_namedtuple", "is_namedtuple_instance",
    "key_get", "keystr", "register_constant", "register_dataclass", "register_pytree_node", "tree_all", "tree_all_only", "tree_any", "tree_any_only", "tree_flatten", "tree_flatten_with_path",
    "tree_is_leaf", "tree_iter", "tree_leaves", "tree_leaves_with_path", "tree_map", "tree_map_", "tree_map_only", "tree_map_only_",
    "tree_map_with_path", "tree_structure", "tree_unflatten", "treespec_dumps", "treespec_leaf", "treespec_loads",
]  # fmt: skip

PyTree = Any
Context = Any
_IsLeaf = Callable[[Any], bool] | None


# ***** keys: how a leaf is reached *****


class SequenceKey(NamedTuple):
    """An element of a list or tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        """The element."""
        return sequence[self.idx]


class MappingKey(NamedTuple):
    """An item of a dict."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        """The item."""
        return mapping[self.key]


class GetAttrKey(NamedTuple):
    """An attribute."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        """The attribute."""
        return getattr(obj, self.name)


def keystr(kp: Iterable[Any]) -> str:
    """A path of keys as Python writes it: `['a'][0]`."""
    return "".join(str(key) for key in kp)


def key_get(obj: Any, kp: Iterable[Any]) -> Any:
    """What a path of keys leads to."""
    return functools.reduce(lambda found, key: key.get(found), kp, obj)


# ***** containers *****


class NodeDef(NamedTuple):
    """How a class is taken apart into (children, context) and put together again."""

    type: Any
    flatten_fn: Callable[[Any], tuple[list[Any], Any]]
    unflatten_fn: Callable[[Iterable[Any], Any], Any]
    keys_fn: Callable[[Any], list[Any]]


class _Written(NamedTuple):
    """How a class stands in the text of a structure: its name, and its context as what JSON can hold, there and back
    (None: as it is).
    """

    type: Any
    name: str
    dumpable: Callable[[Any], Any] | None = None
    loaded: Callable[[Any], Any] | None = None


def _dict_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d.values()), list(d)


def _dict_unflatten(values: Iterable[Any], context: Any) -> Any:
    return dict(zip(context, values, strict=True))


def _dict_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Any]:
    return [(MappingKey(key), value) for key, value in d.items()], list(d)


def _list_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d), None


def _numbered(d: Any) -> list[Any]:
    return [SequenceKey(i) for i in range(len(d))]


def _list_unflatten(values: Iterable[Any], context: Any) -> list[Any]:
    return list(values)


def _list_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Any]:
    return [(SequenceKey(i), value) for i, value in enumerate(d)], None


def _mapping_keys(d: Any) -> list[Any]:
    return [MappingKey(key) for key in d]


SUPPORTED_NODES: dict[Any, NodeDef] = {
    node.type: node
    for node in (
        NodeDef(list, _list_flatten, _list_unflatten, _numbered),
        NodeDef(tuple, _list_flatten, lambda values, _: tuple(values), _numbered),
        NodeDef(dict, _dict_flatten, _dict_unflatten, _mapping_keys),
        NodeDef(OrderedDict, _dict_flatten, lambda values, keys: OrderedDict(zip(keys, values, strict=True)), _mapping_keys),
        NodeDef(
            defaultdict, lambda d: (list(d.values()), [d.default_factory, list(d)]),
            lambda values, context: defaultdict(context[0], zip(context[1], values, strict=True)), _mapping_keys,
        ),
        NodeDef(deque, lambda d: (list(d), d.maxlen), lambda values, longest: deque(values, maxlen=longest), _numbered),
        NodeDef(
            namedtuple, lambda d: (list(d), type(d)), lambda values, kind: kind(*values), lambda d: [GetAttrKey(name) for name in d._fields]
        ),
    )
}  # fmt: skip
BUILTIN_TYPES = frozenset(SUPPORTED_NODES)


def _factory_dumpable(context: Any) -> dict[str, Any]:
    factory, keys = context
    return {
        "default_factory_module": factory.__module__,
        "default_factory_name": factory.__qualname__,
        "dict_context": keys,
    }


def _factory_loaded(context: dict[str, Any]) -> list[Any]:
    module = importlib.import_module(context["default_factory_module"])
    return [getattr(module, context["default_factory_name"]), context["dict_context"]]


def _namedtuple_dumpable(context: Any) -> str:
    if context not in WRITTEN:
        raise NotImplementedError(
            f"Can't serialize TreeSpec of namedtuple class {context} because we didn't register a serializated_type_name. Please register using "
            "`_register_namedtuple`."
        )
    return WRITTEN[context].name


WRITTEN: dict[Any, _Written] = {
    each.type: each
    for each in (
        _Written(list, "builtins.list"),
        _Written(tuple, "builtins.tuple"),
        _Written(dict, "builtins.dict"),
        _Written(OrderedDict, "collections.OrderedDict"),
        _Written(defaultdict, "collections.defaultdict", _factory_dumpable, _factory_loaded),
        _Written(deque, "collections.deque"),
        _Written(namedtuple, "collections.namedtuple", _namedtuple_dumpable, lambda name: _written_as(name).type),
    )
}


def _written_as(name: str) -> _Written:
    for each in WRITTEN.values():
        if each.name == name:
            return each
    raise NotImplementedError(f"Deserializing `{name}` in tree_spec_loads is not supported yet.")


def is_namedtuple_instance(obj: Any) -> bool:
    """Whether an object is of a named tuple's class."""
    return isinstance(obj, tuple) and isinstance(getattr(obj, "_fields", None), tuple)


def is_namedtuple(obj: Any) -> bool:
    """Whether an object is a named tuple, or a class of them."""
    return (
        is_namedtuple_instance(obj)
        or isinstance(obj, type)
        and issubclass(obj, tuple)
        and isinstance(getattr(obj, "_fields", None), tuple)
    )


_is_namedtuple_instance = is_namedtuple_instance


def is_structseq_instance(obj: Any) -> bool:
    """Whether an object is one of the named results of operators, such as `torch.return_types.max`."""
    return isinstance(obj, tuple) and type(obj).__module__.endswith("return_types")


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], tuple[list[Any], Any]],
    unflatten_fn: Callable[[Iterable[Any], Any], Any],
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Any = None,
    from_dumpable_context: Any = None,
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Any]] | None = None,
) -> None:
    """From now on objects of exactly this class are containers.  ValueError where the class is registered already."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    if (to_dumpable_context is None) is not (from_dumpable_context is None):
        raise ValueError(f"Both to_dumpable_context and from_dumpable_context for {cls} must be None or registered.")

    def keys(obj: Any) -> list[Any]:
        if flatten_with_keys_fn is None:
            raise ValueError(
                f"Did not find a flatten_with_keys_fn for type: {cls}. Please pass a flatten_with_keys_fn argument to register_pytree_node."
            )
        return [key for key, _ in flatten_with_keys_fn(obj)[0]]

    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, keys)
    NODES[cls] = (flatten_fn, unflatten_fn)  # for transforms, which have a form of their own
    if serialized_type_name is not None:
        WRITTEN[cls] = _Written(cls, serialized_type_name, to_dumpable_context, from_dumpable_context)


def register_dataclass(
    cls: type,
    *,
    field_names: Iterable[str] | None = None,
    drop_field_names: Iterable[str] | None = None,
    serialized_type_name: str | None = None,
) -> None:
    """From now on a dataclass is a container.

    `field_names` must be all fields of `__init__` without `drop_field_names`, whose values are lost by flattening;
    ValueError otherwise, and for another class without `field_names`.  Fields that are None are part of the structure.

    >>> import dataclasses
    >>> Pair = dataclasses.make_dataclass("Pair", [("first", int), ("second", int)])
    >>> register_dataclass(Pair)
    >>> tree_map(lambda x: 2 * x, Pair(1, 2))
    Pair(first=2, second=4)
    """
    names = _fields_of(cls, field_names, set(drop_field_names or ()))

    def apart(value: Any) -> tuple[list[Any], Any]:
        given = [n for n in names if getattr(value, n) is not None]
        return [getattr(value, n) for n in given], [given, [n for n in names if n not in given]]

    def keyed(value: Any) -> tuple[list[Any], Any]:
        parts, context = apart(value)
        return [(GetAttrKey(n), p) for n, p in zip(context[0], parts, strict=True)], context

    def together(values: Any, context: Any) -> Any:
        given, absent = context
        return cls(**dict(zip(given, values, strict=True)), **dict.fromkeys(absent))

    register_pytree_node(cls, apart, together, serialized_type_name=serialized_type_name, flatten_with_keys_fn=keyed)


def _fields_of(cls: type, field_names: Iterable[str] | None, dropped: set[str]) -> list[str]:
    """The fields that are children, checked against those of `__init__`."""
    if not dataclasses.is_dataclass(cls):
        if field_names is None:
            raise ValueError(
                f"field_names must be specified with a list of all fields used to initialize {cls}, as it is not a dataclass."
            )
        return list(field_names)
    fields = [f.name for f in dataclasses.fields(cls) if f.init]
    if field_names is None:
        return [name for name in fields if name not in dropped]
    names = list(field_names)
    missing, unknown = set(fields) - set(names) - dropped, set(names) - set(fields)
    said = "field_names does not include all dataclass fields.\n" if missing or unknown else ""
    if missing:
        said += (
            f"Missing fields in `field_names`: {missing}. If you want to include these fields in the pytree, please add them to "
            "`field_names`, otherwise please add them to `drop_field_names`.\n"
        )
    if unknown:
        said += f"Unexpected fields in `field_names`: {unknown}. Please remove these fields, or add them to `drop_field_names`.\n"
    if said:
        raise ValueError(said)
    return names


def register_constant(cls: type) -> None:
    """A type whose objects hold no values that change: they are the structure itself, compared by `==`."""
    register_pytree_node(cls, lambda x: ([], x), lambda values, context: context)


def _register_namedtuple(cls: type, *, serialized_type_name: str) -> None:
    """Give a class of named tuples the name by which it stands in the text of a structure."""
    WRITTEN[cls] = _Written(cls, serialized_type_name)


def _register_pytree_node(
    cls: type, flatten_fn: Any, unflatten_fn: Any, to_str_fn: Any = None, maybe_from_str_fn: Any = None, **kwargs: Any
) -> None:
    if cls not in SUPPORTED_NODES:
        register_pytree_node(cls, flatten_fn, unflatten_fn, **kwargs)


_private_register_pytree_node = _register_pytree_node


def _deregister_pytree_node(cls: type) -> None:
    del SUPPORTED_NODES[cls], NODES[cls]
    WRITTEN.pop(cls, None)


def _get_node_type(tree: Any) -> Any:
    kind = type(tree)
    if kind not in SUPPORTED_NODES and is_namedtuple_instance(tree):
        return namedtuple
    if kind not in SUPPORTED_NODES and is_structseq_instance(tree):
        name = f"torch.return_types.{kind.__name__}"
        register_pytree_node(kind, lambda t: (list(t), None), lambda values, _: kind(values), serialized_type_name=name)
    return kind


def tree_is_leaf(tree: Any, is_leaf: _IsLeaf = None) -> bool:
    """Whether there is nothing inside."""
    return is_leaf is not None and is_leaf(tree) or _get_node_type(tree) not in SUPPORTED_NODES


_is_leaf = tree_is_leaf


# ***** the structure *****


class TreeSpec:
    """The structure of a tree: the class of its root, what that needs besides its children (`context`), and their
    structures.
    """

    __slots__ = ("_children", "_context", "num_children", "num_leaves", "num_nodes", "type")

    def __init__(self, type: Any, context: Any, children_specs: Iterable[TreeSpec] = ()) -> None:
        self.type, self._context, self._children = type, context, list(children_specs)
        self.num_children = len(self._children)
        self.num_leaves: int = sum(child.num_leaves for child in self._children) if type is not None else 1
        self.num_nodes: int = 1 + sum(child.num_nodes for child in self._children)

    @property
    def context(self) -> Any:
        """What the class needs besides its children: keys of a dict."""
        return self._context

    @property
    def children_specs(self) -> list[TreeSpec]:
        """The structures of the children."""
        return self._children

    def children(self) -> list[TreeSpec]:
        """The structures of the children, in a new list."""
        return list(self._children)

    def child(self, index: int) -> TreeSpec:
        """The structure of one child."""
        return self._children[index]

    def is_leaf(self) -> bool:
        """Whether it is the structure of a leaf."""
        return self.type is None

    def __repr__(self, indent: int = 0) -> str:
        if self.type is None:
            return "*"
        inner = (",\n" + " " * (indent + 2)).join(child.__repr__(indent + 2) for child in self._children)
        return f"TreeSpec({self.type.__name__}, {self._context}, [{inner}])"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TreeSpec):
            return NotImplemented
        mine, theirs = (self.type, self._context, self._children), (other.type, other._context, other._children)
        return mine == theirs

    def __hash__(self) -> int:
        return hash(
            (
                self.type,
                tuple(self._context) if isinstance(self._context, list) else self._context,
                tuple(self._children),
            )
        )

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """A tree of this structure around other leaves."""
        leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(
                f"treespec.unflatten(leaves): `leaves` has length {len(leaves)} but the spec refers to a pytree that holds "
                f"{self.num_leaves} items ({self})."
            )
        return self._build(iter(leaves))

    def _build(self, leaves: Iterator[Any]) -> Any:
        if self.type is None:
            return next(leaves)
        return SUPPORTED_NODES[self.type].unflatten_fn(
            [child._build(leaves) for child in self._children], self._context
        )

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The parts of a larger tree where this one has leaves.  ValueError where the two differ above."""
        if self.type is None:
            return [tree]
        return [
            part
            for spec, child in zip(self._children, _matching(self, tree), strict=True)
            for part in spec.flatten_up_to(child)
        ]


class LeafSpec(TreeSpec):
    """The structure of a leaf."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None, None)


_LEAF_SPEC = LeafSpec()


def treespec_leaf() -> LeafSpec:
    """The structure of a leaf.

    >>> treespec_leaf().num_leaves
    1
    """
    return _LEAF_SPEC


_DICTS = (dict, OrderedDict, defaultdict)


def _matching(spec: TreeSpec, tree: Any) -> list[Any]:
    """The children of a tree whose root must be as `spec` says, in that order."""
    kind = _get_node_type(tree)
    if kind is not spec.type and not (kind in _DICTS and spec.type in _DICTS):
        raise ValueError(f"Node type mismatch; expected {spec.type!r}, but got {type(tree)!r}.")
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    if len(children) != spec.num_children:
        raise ValueError(f"Node arity mismatch; expected {spec.num_children}, but got {len(children)}.")
    if kind in _DICTS:
        wanted = spec.context[1] if spec.type is defaultdict else spec.context
        lacking, more = set(wanted) - set(tree), set(tree) - set(wanted)
        if lacking or more:
            texts = [f"missing key(s): {lacking}"] * bool(lacking) + [f"extra key(s): {more}"] * bool(more)
            raise ValueError(f"Node keys mismatch; {'; '.join(texts)}.")
        return [tree[key] for key in wanted]
    if context != spec.context and kind is not deque:
        raise ValueError(f"Node context mismatch for {spec.type!r}: expected {spec.context!r}, but got {context!r}.")
    return list(children)


# ***** structures as text *****

_PROTOCOL = 1


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """The structure as JSON: `[protocol, structure]`, of protocol 1.

    TypeError for what is no structure, ValueError for another protocol, NotImplementedError for a class that was
    registered without a `serialized_type_name`, TypeError for a context that JSON cannot hold and for which no
    `to_dumpable_context` was given.

        >>> import rushlight as torch
        >>> torch.utils._pytree.treespec_dumps(torch.utils._pytree.tree_structure([1]))
        '[1, {"type": "builtins.list", "context": "null", "children_spec": [{"type": null, "context": null, "children_spec": []}]}]'
    """
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"Expected `treespec` to be an instance of PyTreeSpec but got item of type {type(treespec)}.")
    _check_protocol(_PROTOCOL if protocol is None else protocol)
    return json.dumps([_PROTOCOL, _dumped(treespec)])


def treespec_loads(serialized: str) -> TreeSpec:
    """The structure that `treespec_dumps` wrote.  ValueError for another protocol, NotImplementedError for a name that
    no class has.
    """
    protocol, structure = json.loads(serialized)
    _check_protocol(protocol)
    return _loaded(structure)


def _check_protocol(protocol: Any) -> None:
    if protocol != _PROTOCOL:
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [{_PROTOCOL}]")


def _dumped(spec: TreeSpec) -> dict[str, Any]:
    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    written = WRITTEN.get(spec.type)
    if written is None:
        raise NotImplementedError(
            f"No registered serialization name for {spec.type} found. Please update your _register_pytree_node call with a `serialized_type_name` kwarg."
        )
    try:
        context = json.dumps(spec.context) if written.dumpable is None else written.dumpable(spec.context)
    except TypeError as error:
        raise TypeError(
            "Unable to serialize context. Please make the context json dump-able, or register a custom serializer using _register_pytree_node."
        ) from error
    return {
        "type": written.name,
        "context": context,
        "children_spec": [_dumped(child) for child in spec.children_specs],
    }


def _loaded(structure: dict[str, Any]) -> TreeSpec:
    if structure["type"] is None:
        return _LEAF_SPEC
    written, context = _written_as(structure["type"]), structure["context"]
    context = json.loads(context) if written.loaded is None else written.loaded(context)
    return TreeSpec(written.type, context, [_loaded(child) for child in structure["children_spec"]])


# ***** taking apart, putting together, mapping *****


def _flatten(tree: Any, is_leaf: _IsLeaf, leaves: list[Any]) -> TreeSpec:
    if tree_is_leaf(tree, is_leaf):
        leaves.append(tree)
        return _LEAF_SPEC
    kind = _get_node_type(tree)
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    return TreeSpec(kind, context, [_flatten(child, is_leaf, leaves) for child in children])


def tree_flatten(tree: Any, is_leaf: _IsLeaf = None) -> tuple[list[Any], TreeSpec]:
    """The leaves in order, and the structure."""
    leaves: list[Any] = []
    return leaves, _flatten(tree, is_leaf, leaves)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """A tree of this structure around these leaves.  ValueError for another number of them."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"Expected `treespec` to be an instance of PyTreeSpec but got item of type {type(treespec)}.")
    return treespec.unflatten(leaves)


def tree_iter(tree: Any, is_leaf: _IsLeaf = None) -> Iterator[Any]:
    """The leaves, one by one."""
    yield from tree_flatten(tree, is_leaf)[0]


def tree_leaves(tree: Any, is_leaf: _IsLeaf = None) -> list[Any]:
    """The leaves."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: _IsLeaf = None) -> TreeSpec:
    """The structure."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: _IsLeaf = None) -> Any:
    """`func` of every leaf, and of what other trees have in its place."""
    leaves, spec = tree_flatten(tree, is_leaf)
    return spec.unflatten(map(func, leaves, *[spec.flatten_up_to(rest) for rest in rests]))


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: _IsLeaf = None) -> Any:
    """As `tree_map` for what `func` does; returns the tree."""
    leaves, spec = tree_flatten(tree, is_leaf)
    deque(map(func, leaves, *[spec.flatten_up_to(rest) for rest in rests]), maxlen=0)
    return tree


def _chosen(types_or_test: Any) -> Callable[[Any], bool]:
    if isinstance(types_or_test, (type, tuple, types.UnionType)):
        return lambda x: isinstance(x, types_or_test)
    if callable(types_or_test):
        return types_or_test
    raise TypeError("Argument must be a type, a tuple of types, or a callable.")


def map_only(type_or_types_or_pred: Any, /) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function applies to leaves of these types, and others stay."""
    test = _chosen(type_or_types_or_pred)
    return lambda func: lambda x: func(x) if test(x) else x


def tree_map_only(type_or_types_or_pred: Any, /, func: Callable[..., Any], tree: Any, is_leaf: _IsLeaf = None) -> Any:
    """`func` of the leaves of these types (or that pass a test); others stay."""
    return tree_map(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_map_only_(type_or_types_or_pred: Any, /, func: Callable[..., Any], tree: Any, is_leaf: _IsLeaf = None) -> Any:
    """As `tree_map_only` for what `func` does."""
    return tree_map_(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: _IsLeaf = None) -> bool:
    """Whether all leaves pass a test."""
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: _IsLeaf = None) -> bool:
    """Whether a leaf passes a test."""
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(type_or_types: Any, /, pred: Callable[[Any], bool], tree: Any, is_leaf: _IsLeaf = None) -> bool:
    """Whether all leaves of these types pass a test."""
    return all(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, type_or_types))


def tree_any_only(type_or_types: Any, /, pred: Callable[[Any], bool], tree: Any, is_leaf: _IsLeaf = None) -> bool:
    """Whether a leaf of these types passes a test."""
    return any(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, type_or_types))


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """The leaves of all arguments."""
    return [leaf for each in (*args, *kwargs.values()) for leaf in tree_leaves(each)]


def _paths(tree: Any, is_leaf: _IsLeaf, before: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if tree_is_leaf(tree, is_leaf):
        yield before, tree
        return
    node = SUPPORTED_NODES[_get_node_type(tree)]
    for key, child in zip(node.keys_fn(tree), node.flatten_fn(tree)[0], strict=True):
        yield from _paths(child, is_leaf, (*before, key))


def tree_leaves_with_path(tree: Any, is_leaf: _IsLeaf = None) -> list[tuple[tuple[Any, ...], Any]]:
    """The leaves, each with the keys that lead to it."""
    return list(_paths(tree, is_leaf, ()))


def tree_flatten_with_path(tree: Any, is_leaf: _IsLeaf = None) -> tuple[list[tuple[tuple[Any, ...], Any]], TreeSpec]:
    """`tree_leaves_with_path`, and the structure."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: _IsLeaf = None) -> Any:
    """`func(path, leaf)` of every leaf, and of what other trees have in its place."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    return spec.unflatten(
        func(path, leaf, *more)
        for (path, leaf), *more in zip(pairs, *[spec.flatten_up_to(rest) for rest in rests], strict=True)
    )


def _broadcast_to_and_flatten(tree: Any, treespec: TreeSpec, is_leaf: _IsLeaf = None) -> list[Any] | None:
    """The leaves of a smaller tree, each as often as the larger one has leaves in its place; None where they do not
    fit.
    """
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    if treespec.type is None or _get_node_type(tree) is not treespec.type:
        return None
    children, context = SUPPORTED_NODES[treespec.type].flatten_fn(tree)
    if len(children) != treespec.num_children or context != treespec.context:
        return None
    parts = [
        _broadcast_to_and_flatten(child, spec, is_leaf)
        for child, spec in zip(children, treespec.children_specs, strict=True)
    ]
    return None if any(part is None for part in parts) else [leaf for part in parts for leaf in part or ()]
