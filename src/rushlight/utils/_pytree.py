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
import json
import sys
import types
import warnings
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any, NamedTuple, Protocol

from rushlight._interface.base import NODES

__all__ = [
    "Context", "DumpableContext", "FlattenFunc", "FlattenWithKeysFunc", "FromDumpableContextFn", "GetAttrKey", "KeyEntry", "KeyPath", "LeafSpec", "MappingKey",
    "PyTree", "PyTreeSpec", "SequenceKey", "ToDumpableContextFn", "TreeSpec", "UnflattenFunc", "arg_tree_leaves", "is_namedtuple", "is_namedtuple_class", "is_namedtuple_instance",
    "is_structseq", "is_structseq_class", "is_structseq_instance",
    "key_get", "keystr", "register_constant", "register_dataclass", "register_pytree_node", "tree_all", "tree_all_only", "tree_any", "tree_any_only", "tree_flatten", "tree_flatten_with_path",
    "tree_is_leaf", "tree_iter", "tree_leaves", "tree_leaves_with_path", "tree_map", "tree_map_", "tree_map_only", "tree_map_only_",
    "tree_map_with_path", "tree_structure", "tree_unflatten", "treespec_dict", "treespec_dumps", "treespec_leaf", "treespec_loads", "treespec_pprint", "treespec_tuple",
]  # fmt: skip

PyTree = Any
Context = Any
DumpableContext = Any
FlattenFunc = Callable[[PyTree], tuple[list[Any], Context]]
UnflattenFunc = Callable[[Iterable[Any], Context], PyTree]
FlattenWithKeysFunc = Callable[[PyTree], tuple[list[tuple[Any, Any]], Context]]
ToDumpableContextFn = Callable[[Context], DumpableContext]
FromDumpableContextFn = Callable[[DumpableContext], Context]
ToStrFunc = Callable[["TreeSpec", list[str]], str]
MaybeFromStrFunc = Callable[[str], Any]
_IsLeaf = Callable[[Any], bool] | None


# ***** keys: how a leaf is reached *****


class KeyEntry(Protocol):
    """One step to a leaf: hashable, comparable, printed as Python writes it."""

    def __hash__(self) -> int: ...

    def __eq__(self, other: object) -> bool: ...

    def __str__(self) -> str: ...

    def get(self, parent: Any) -> Any:
        """The child that the step leads to."""


KeyPath = tuple[KeyEntry, ...]


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
    """The leaf or subtree at a path of keys."""
    return functools.reduce(lambda found, key: key.get(found), kp, obj)


# ***** containers *****


class NodeDef(NamedTuple):
    """How a class is taken apart into (children, context) and put together again."""

    type: Any
    flatten_fn: FlattenFunc
    unflatten_fn: UnflattenFunc
    flatten_with_keys_fn: FlattenWithKeysFunc | None


class _SerializeNodeDef(NamedTuple):
    """How a class stands in the text of a structure: its name, and its context as what JSON can hold, there and back
    (None: as it is).
    """

    typ: Any
    serialized_type_name: str
    to_dumpable_context: ToDumpableContextFn | None = None
    from_dumpable_context: FromDumpableContextFn | None = None


@dataclasses.dataclass(frozen=True)
class ConstantNode:
    """The context of a constant: the object itself."""

    value: Any


def _with_keys(flatten: FlattenFunc, keys: Callable[[Any], Iterable[Any]]) -> FlattenWithKeysFunc:
    """The flattening function that gives each child with its key."""

    def flatten_with_keys(tree: Any) -> tuple[list[tuple[Any, Any]], Any]:
        children, context = flatten(tree)
        return list(zip(keys(tree), children, strict=True)), context

    return flatten_with_keys


def _numbered(tree: Any) -> Iterator[Any]:
    return map(SequenceKey, range(len(tree)))


def _dict_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d.values()), list(d)


def _dict_unflatten(values: Iterable[Any], context: Any) -> Any:
    return dict(zip(context, values, strict=True))


def _ordereddict_unflatten(values: Iterable[Any], context: Any) -> Any:
    return OrderedDict(zip(context, values, strict=True))


def _defaultdict_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d.values()), [d.default_factory, list(d)]


def _defaultdict_unflatten(values: Iterable[Any], context: Any) -> Any:
    return defaultdict(context[0], zip(context[1], values, strict=True))


def _list_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d), None


def _list_unflatten(values: Iterable[Any], context: Any) -> list[Any]:
    return list(values)


def _tuple_unflatten(values: Iterable[Any], context: Any) -> Any:
    return tuple(values)


def _deque_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d), d.maxlen


def _deque_unflatten(values: Iterable[Any], context: Any) -> Any:
    return deque(values, maxlen=context)


def _namedtuple_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d), type(d)


def _namedtuple_unflatten(values: Iterable[Any], context: Any) -> Any:
    return context(*values)


def _mapping_keys(d: Any) -> Iterator[Any]:
    return map(MappingKey, d)


_tuple_flatten = _list_flatten
_ordereddict_flatten = _dict_flatten
_list_flatten_with_keys = _tuple_flatten_with_keys = _with_keys(_list_flatten, _numbered)
_dict_flatten_with_keys = _ordereddict_flatten_with_keys = _with_keys(_dict_flatten, _mapping_keys)
_defaultdict_flatten_with_keys = _with_keys(_defaultdict_flatten, _mapping_keys)
_deque_flatten_with_keys = _with_keys(_deque_flatten, _numbered)
_namedtuple_flatten_with_keys = _with_keys(_namedtuple_flatten, lambda d: map(GetAttrKey, d._fields))

SUPPORTED_NODES: dict[Any, NodeDef] = {
    node.type: node
    for node in (
        NodeDef(tuple, _tuple_flatten, _tuple_unflatten, _tuple_flatten_with_keys),
        NodeDef(list, _list_flatten, _list_unflatten, _list_flatten_with_keys),
        NodeDef(dict, _dict_flatten, _dict_unflatten, _dict_flatten_with_keys),
        NodeDef(namedtuple, _namedtuple_flatten, _namedtuple_unflatten, _namedtuple_flatten_with_keys),
        NodeDef(OrderedDict, _ordereddict_flatten, _ordereddict_unflatten, _ordereddict_flatten_with_keys),
        NodeDef(defaultdict, _defaultdict_flatten, _defaultdict_unflatten, _defaultdict_flatten_with_keys),
        NodeDef(deque, _deque_flatten, _deque_unflatten, _deque_flatten_with_keys),
    )
}
BUILTIN_TYPES = frozenset(SUPPORTED_NODES)
STANDARD_DICT_TYPES = frozenset({dict, OrderedDict, defaultdict})
CONSTANT_NODES: set[type] = set()


def _defaultdict_serialize(context: Any) -> dict[str, Any]:
    factory, keys = context
    return {
        "default_factory_module": factory.__module__,
        "default_factory_name": factory.__qualname__,
        "dict_context": keys,
    }


def _loaded_module(name: str) -> Any:
    """A module that a text names, which may come from anywhere: TypeError where the program has not loaded it."""
    if name not in sys.modules:
        raise TypeError(
            f"a structure names the module {name}, which is not loaded: import it first, reading imports nothing"
        )
    return sys.modules[name]


def _defaultdict_deserialize(context: dict[str, Any]) -> list[Any]:
    module = _loaded_module(context["default_factory_module"])
    return [getattr(module, context["default_factory_name"]), context["dict_context"]]


def _namedtuple_serialize(context: Any) -> str:
    if context not in SUPPORTED_SERIALIZED_TYPES:
        raise NotImplementedError(
            f"Can't serialize TreeSpec of namedtuple class {context} because we didn't register a serializated_type_name. Please register using "
            "`_register_namedtuple`."
        )
    return SUPPORTED_SERIALIZED_TYPES[context].serialized_type_name


def _namedtuple_deserialize(name: str) -> Any:
    return _type_of_name(name)


SUPPORTED_SERIALIZED_TYPES: dict[Any, _SerializeNodeDef] = {}
SERIALIZED_TYPE_TO_PYTHON_TYPE: dict[str, Any] = {}
NO_SERIALIZED_TYPE_NAME_FOUND = "NO_SERIALIZED_TYPE_NAME_FOUND"


def _name_in_text(
    cls: Any, name: str, dumpable: ToDumpableContextFn | None = None, loaded: FromDumpableContextFn | None = None
) -> None:
    SUPPORTED_SERIALIZED_TYPES[cls] = _SerializeNodeDef(cls, name, dumpable, loaded)
    SERIALIZED_TYPE_TO_PYTHON_TYPE[name] = cls


for _kind in (list, tuple, dict, OrderedDict, deque):
    _name_in_text(_kind, f"{_kind.__module__}.{_kind.__name__}")
_name_in_text(defaultdict, "collections.defaultdict", _defaultdict_serialize, _defaultdict_deserialize)
_name_in_text(namedtuple, "collections.namedtuple", _namedtuple_serialize, _namedtuple_deserialize)


def _type_of_name(name: str) -> Any:
    if name not in SERIALIZED_TYPE_TO_PYTHON_TYPE:
        raise NotImplementedError(f"Deserializing `{name}` in tree_spec_loads is not supported yet.")
    return SERIALIZED_TYPE_TO_PYTHON_TYPE[name]


def is_namedtuple_class(cls: Any) -> bool:
    """Whether it is a class of named tuples."""
    fields = getattr(cls, "_fields", None)
    return (
        isinstance(cls, type)
        and issubclass(cls, tuple)
        and isinstance(fields, tuple)
        and all(type(name) is str for name in fields)
        and callable(getattr(cls, "_make", None))
        and callable(getattr(cls, "_asdict", None))
    )


def is_namedtuple_instance(obj: Any) -> bool:
    """Whether an object is of a named tuple's class."""
    return is_namedtuple_class(type(obj))


def is_namedtuple(obj: Any) -> bool:
    """Whether an object is a named tuple, or a class of them."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


_is_namedtuple_instance = is_namedtuple_instance


def is_structseq_class(cls: Any) -> bool:
    """Whether it is the class of an operator's named results, such as `torch.return_types.max`."""
    return isinstance(cls, type) and issubclass(cls, tuple) and cls.__module__.endswith("return_types")


def is_structseq(obj: Any) -> bool:
    """Whether an object holds named results of an operator, or is a class of them."""
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_instance(obj: Any) -> bool:
    """Whether an object is one of the named results of operators, such as `torch.return_types.max`."""
    return is_structseq_class(type(obj))


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
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)
    NODES[cls] = (flatten_fn, unflatten_fn)  # for transforms, which have a form of their own
    if serialized_type_name is not None:
        _name_in_text(cls, serialized_type_name, to_dumpable_context, from_dumpable_context)


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
    """A type whose objects hold no values that change: they are part of the structure.

    TypeError where the type compares or hashes by identity: structures are compared by `==` and are keys.
    """
    for method, inherited in (("__eq__", object.__eq__), ("__hash__", object.__hash__)):
        if getattr(cls, method) in (inherited, None):
            raise TypeError(f"register_constant(cls) expects `cls` to have a non-default `{method}` implementation.")
    register_pytree_node(cls, _constant_flatten, _retrieve_constant, flatten_with_keys_fn=_constant_flatten)
    CONSTANT_NODES.add(cls)


def _constant_flatten(value: Any) -> tuple[list[Any], ConstantNode]:
    return [], ConstantNode(value)


def _retrieve_constant(values: Iterable[Any], context: Any) -> Any:
    return context.value


def is_constant_class(cls: type) -> bool:
    """Whether `register_constant` knows the class."""
    return isinstance(cls, type) and cls in CONSTANT_NODES


def _is_constant_holder(spec: TreeSpec) -> bool:
    """Whether a structure is that of a constant."""
    return isinstance(spec.context, ConstantNode)


def _register_namedtuple(cls: type, *, serialized_type_name: str) -> None:
    """Give a class of named tuples the name by which it stands in the text of a structure."""
    _name_in_text(cls, serialized_type_name)


def _warn_deprecated(what: str) -> None:
    warnings.warn(what, FutureWarning, stacklevel=3)


def _register_pytree_node(
    cls: type, flatten_fn: Any, unflatten_fn: Any, to_str_fn: Any = None, maybe_from_str_fn: Any = None, **kwargs: Any
) -> None:
    """The older name of `register_pytree_node`; a class that is registered is registered anew."""
    _warn_deprecated(
        "`torch.utils._pytree._register_pytree_node` is deprecated. Please use `torch.utils._pytree.register_pytree_node` instead."
    )
    if to_str_fn is not None or maybe_from_str_fn is not None:
        _warn_deprecated(
            "`to_str_fn` and `maybe_from_str_fn` is deprecated. Please use `to_dumpable_context` and `from_dumpable_context` instead."
        )
    if cls in SUPPORTED_NODES:
        warnings.warn(
            f"{cls} is already registered as pytree node. Overwriting the previous registration.", stacklevel=2
        )
        _deregister_pytree_node(cls)
    register_pytree_node(cls, flatten_fn, unflatten_fn, **kwargs)


_private_register_pytree_node = register_pytree_node


def _deregister_pytree_node(cls: type) -> None:
    del SUPPORTED_NODES[cls], NODES[cls]
    CONSTANT_NODES.discard(cls)
    if (written := SUPPORTED_SERIALIZED_TYPES.pop(cls, None)) is not None:
        SERIALIZED_TYPE_TO_PYTHON_TYPE.pop(written.serialized_type_name, None)


def _get_node_type(tree: Any) -> Any:
    kind = type(tree)
    if kind not in SUPPORTED_NODES and is_namedtuple_instance(tree):
        return namedtuple
    if kind not in SUPPORTED_NODES and is_structseq_instance(tree):
        name = f"torch.return_types.{kind.__name__}"
        register_pytree_node(
            kind,
            _list_flatten,
            lambda values, _: kind(values),
            serialized_type_name=name,
            flatten_with_keys_fn=_list_flatten_with_keys,
        )
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
        """The class's context besides its children: keys of a dict."""
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


PyTreeSpec = TreeSpec
_LEAF_SPEC = LeafSpec()


def treespec_leaf() -> LeafSpec:
    """The structure of a leaf.

    >>> treespec_leaf().num_leaves
    1
    """
    return _LEAF_SPEC


def treespec_tuple(iterable: Iterable[TreeSpec] = (), /) -> TreeSpec:
    """The structure of a tuple of parts with these structures.

    >>> treespec_pprint(treespec_tuple([treespec_leaf(), treespec_dict(a=treespec_leaf())]))
    "(*, {'a': *})"
    """
    return TreeSpec(tuple, None, _structures(iterable, "treespec_tuple"))


def treespec_dict(mapping: Any = (), /, **kwargs: TreeSpec) -> TreeSpec:
    """The structure of a dict whose values have these structures."""
    parts = dict(mapping, **kwargs)
    return TreeSpec(dict, list(parts), _structures(parts.values(), "treespec_dict"))


def _structures(parts: Iterable[Any], name: str) -> list[TreeSpec]:
    parts = list(parts)
    for part in parts:
        if not isinstance(part, TreeSpec):
            raise ValueError(f"{name}() expects values of type TreeSpec, got {part!r}.")
    return parts


class _Asterisk:
    """Placeholder of a leaf in a printed structure."""

    def __repr__(self) -> str:
        return "*"


def treespec_pprint(treespec: TreeSpec) -> str:
    """The containers as they print, with `*` for each leaf.

    >>> treespec_pprint(tree_structure([1, {"a": 2}]))
    "[*, {'a': *}]"
    """
    return repr(tree_unflatten([_Asterisk()] * treespec.num_leaves, treespec))


def _matching(spec: TreeSpec, tree: Any) -> list[Any]:
    """The children of a tree whose root must be as `spec` says, in that order."""
    kind = _get_node_type(tree)
    if kind is not spec.type and not (kind in STANDARD_DICT_TYPES and spec.type in STANDARD_DICT_TYPES):
        raise ValueError(f"Node type mismatch; expected {spec.type!r}, but got {type(tree)!r}.")
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    if len(children) != spec.num_children:
        raise ValueError(f"Node arity mismatch; expected {spec.num_children}, but got {len(children)}.")
    if kind in STANDARD_DICT_TYPES:
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

DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL = _PROTOCOL = 1


class EnumEncoder(json.JSONEncoder):
    """JSON with members of enumerations, as the module, the class and the name of each."""

    def encode(self, o: Any) -> str:
        return super().encode(_enums_named(o))


def _enums_named(value: Any) -> Any:
    if isinstance(value, Enum):
        kind = type(value)
        return {"__enum__": True, "fqn": f"{kind.__module__}:{kind.__qualname__}", "name": value.name}
    if isinstance(value, (list, tuple)):
        return [_enums_named(part) for part in value]
    if isinstance(value, dict):
        return {key: _enums_named(part) for key, part in value.items()}
    return value


def enum_object_hook(obj: dict[str, Any]) -> Any:
    """The member of an enumeration that `EnumEncoder` wrote; another dict as it is.

    TypeError where its module is not loaded, or where the text names something else.
    """
    if obj.get("__enum__") is not True:
        return obj
    module, _, path = obj["fqn"].partition(":")
    found: Any = functools.reduce(getattr, path.split("."), _loaded_module(module))
    if not (isinstance(found, type) and issubclass(found, Enum)):
        raise TypeError(f"{obj['fqn']} is no enumeration.")
    return found[obj["name"]]


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
    return json.dumps([_PROTOCOL, _dumped(treespec)], cls=EnumEncoder)


def treespec_loads(serialized: str) -> TreeSpec:
    """The structure that `treespec_dumps` wrote.  ValueError for another protocol, NotImplementedError for a name that
    no class has.
    """
    protocol, structure = json.loads(serialized, object_hook=enum_object_hook)
    _check_protocol(protocol)
    return _loaded(structure)


def _check_protocol(protocol: Any) -> None:
    if protocol != _PROTOCOL:
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [{_PROTOCOL}]")


def _dumped(spec: TreeSpec) -> dict[str, Any]:
    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    written = SUPPORTED_SERIALIZED_TYPES.get(spec.type)
    if written is None:
        raise NotImplementedError(
            f"No registered serialization name for {spec.type} found. Please update your _register_pytree_node call with a `serialized_type_name` kwarg."
        )
    try:
        if written.to_dumpable_context is None:
            context = json.dumps(spec.context, cls=EnumEncoder)
        else:
            context = written.to_dumpable_context(spec.context)
    except TypeError as error:
        raise TypeError(
            "Unable to serialize context. Please make the context json dump-able, or register a custom serializer using _register_pytree_node."
        ) from error
    return {
        "type": written.serialized_type_name,
        "context": context,
        "children_spec": [_dumped(child) for child in spec.children_specs],
    }


def _loaded(structure: dict[str, Any]) -> TreeSpec:
    if structure["type"] is None:
        return _LEAF_SPEC
    kind, context = _type_of_name(structure["type"]), structure["context"]
    loaded = SUPPORTED_SERIALIZED_TYPES[kind].from_dumpable_context
    context = json.loads(context, object_hook=enum_object_hook) if loaded is None else loaded(context)
    return TreeSpec(kind, context, [_loaded(child) for child in structure["children_spec"]])


def pytree_to_str(treespec: TreeSpec) -> str:
    """The older name of `treespec_dumps`."""
    _warn_deprecated("`pytree_to_str` is deprecated. Please use `treespec_dumps` instead.")
    return treespec_dumps(treespec)


def str_to_pytree(json: str) -> TreeSpec:
    """The older name of `treespec_loads`."""
    _warn_deprecated("`str_to_pytree` is deprecated. Please use `treespec_loads` instead.")
    return treespec_loads(json)


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
    kind = _get_node_type(tree)
    flatten_with_keys = SUPPORTED_NODES[kind].flatten_with_keys_fn
    if flatten_with_keys is None:
        raise ValueError(
            f"Did not find a flatten_with_keys_fn for type: {kind}. Please pass a flatten_with_keys_fn argument to register_pytree_node."
        )
    for key, child in flatten_with_keys(tree)[0]:
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
