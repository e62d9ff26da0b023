"""`torch.export.dynamic_shapes`: which sizes of the inputs of an exported program may vary.

>>> import rushlight as torch
>>> batch = torch.export.Dim("batch", min=2, max=64)
>>> batch, 2 * batch + 1
(Dim('batch', min=2, max=64), 2*batch + 1)
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from typing import Any

from rushlight import Tensor
from rushlight._dynamo.exc import UserError, UserErrorType
from rushlight.utils._pytree import (
    MappingKey,
    SequenceKey,
    keystr,
    tree_flatten,
    tree_flatten_with_path,
    tree_map_with_path,
)
from rushlight.utils._sympy.numbers import int_oo as INT_OO

__all__ = [
    "AdditionalInputs", "Constraint", "Dim", "ShapesCollection", "dims", "refine_dynamic_shapes_from_suggested_fixes",
]  # fmt: skip

_PAGE = "https://pytorch.org/docs/main/generated/exportdb/index.html#dynamic-shapes-validation"


# ***** dims *****


class _DimHintType(Enum):
    AUTO = auto()
    STATIC = auto()
    DYNAMIC = auto()


@dataclasses.dataclass
class _DimHint:
    """A dim of which nobody says more than whether it may vary; called with bounds it has these."""

    type: _DimHintType
    min: int | None = None
    max: int | None = None

    def __call__(self, min: int | None = None, max: int | None = None) -> _DimHint:
        if min is not None and min < 0:
            raise AssertionError(f"min must be non-negative, got {min}")
        if max is not None and max < 0:
            raise AssertionError(f"max must be non-negative, got {max}")
        if min is not None and max is not None and min > max:
            raise AssertionError(f"min must be <= max, got min={min}, max={max}")
        return _DimHint(self.type, min, max)

    def __repr__(self) -> str:
        bounds = [f"{word}={n}" for word, n in (("min", self.min), ("max", self.max)) if n is not None]
        return f"DimHint({', '.join([self.type.name, *bounds])})"


class Dim:
    """A size that may vary, with a name and bounds; sizes given by the same name must be equal.

    `2 * dim + 1` is a dim that is computed of another one.  `Dim.AUTO` is a dim that varies if the program lets it,
    `Dim.DYNAMIC` one that must vary, `Dim.STATIC` one that does not.
    """

    AUTO = _DimHint(_DimHintType.AUTO)
    DYNAMIC = _DimHint(_DimHintType.DYNAMIC)
    STATIC = _DimHint(_DimHintType.STATIC)

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        low, high = 0 if min is None else min, INT_OO if max is None else max
        if low > high:
            raise AssertionError(f"Cannot create Dim with inconsistent min={min}, max={max}")
        if not name.isidentifier():
            raise AssertionError(f"Dim name must be a valid identifier, got {name}")
        self.__name__ = name
        self._min, self._max = low, high

    @property
    def min(self) -> Any:
        """The least size."""
        return self._min

    @property
    def max(self) -> Any:
        """The greatest size."""
        return self._max

    def __add__(self, other: int) -> Dim:
        self._check_integer("add", other)
        return self._derived(1, other)

    def __radd__(self, other: int) -> Dim:
        return self + other

    def __sub__(self, other: int) -> Dim:
        self._check_integer("subtract", other)
        return self._derived(1, -other)

    def __rsub__(self, other: int) -> Dim:
        raise NotImplementedError(f"Attempted to negate {self.__name__}. {_LINEAR}")

    def __mul__(self, other: int) -> Dim:
        if type(other) is not int or other <= 0:
            raise NotImplementedError(
                f"Attempted to multiply {other} with {self.__name__}, where a positive integer was expected. {_LINEAR}"
            )
        return self._derived(other, 0)

    def __rmul__(self, other: int) -> Dim:
        return self * other

    def _check_integer(self, verb: str, other: Any) -> None:
        if type(other) is not int:
            words = f"{other} to {self.__name__}" if verb == "add" else f"{other} from {self.__name__}"
            raise NotImplementedError(f"Attempted to {verb} {words}, where an integer was expected. {_LINEAR}")

    def _derived(self, factor: int, offset: int) -> Dim:
        return _DerivedDim(self, factor, offset)

    def __repr__(self) -> str:
        bounds = [f"min={self.min}", *([f"max={self.max}"] if self.max < INT_OO else [])]
        return f"Dim('{self.__name__}', {', '.join(bounds)})"


_LINEAR = "(Only increasing linear operations with integer coefficients are supported.)"


class _DerivedDim(Dim):
    """`factor * root + offset`."""

    def __init__(self, root: Dim, factor: int, offset: int) -> None:
        self.root, self.factor, self.offset = root, factor, offset
        term = root.__name__ if factor == 1 else f"{factor}*{root.__name__}"
        self.__name__ = term if not offset else f"{term} {'+' if offset > 0 else '-'} {abs(offset)}"

    def fn(self, value: int) -> int:
        """The size, of that of the root."""
        return self.factor * value + self.offset

    @property
    def min(self) -> Any:
        """The least size; AssertionError where that is negative."""
        low = self.fn(self.root.min)
        if low < 0:
            raise AssertionError(
                f"Expected derived min value of {self.__name__} to be >= 0. Please specify an appropriate min value for "
                f"{self.root.__name__} (currently {self.root.min})."
            )
        return low

    @property
    def max(self) -> Any:
        """The greatest size."""
        return INT_OO if self.root.max >= INT_OO else self.fn(self.root.max)

    def _derived(self, factor: int, offset: int) -> Dim:
        return _DerivedDim(self.root, self.factor * factor, self.offset * factor + offset)

    def __repr__(self) -> str:
        return self.__name__


class _StaticDim(Dim):
    """A size that is this number."""

    def __init__(self, value: int) -> None:
        self.__name__, self._min, self._max, self.value = str(value), value, value, value


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Several `Dim`s with the same bounds.

    >>> dims("height", "width", min=8)
    (Dim('height', min=8), Dim('width', min=8))
    """
    return tuple(Dim(name, min=min, max=max) for name in names)


@dataclasses.dataclass
class Constraint:
    """Constraint on one dim of an input: the tensor, the dim, its bounds, and its name."""

    t: Any
    dim: int
    lower: int = 0
    upper: Any = INT_OO
    name: str | None = None

    @property
    def serializable_spec(self) -> dict[str, Any]:
        """As numbers and texts."""
        return {"t_id": id(self.t), "dim": self.dim, "min": self.lower, "max": self.upper}


# ***** collections *****


class ShapesCollection:
    """Specs of dims by tensor: `shapes[x] = {0: Dim.DYNAMIC}`, for inputs that lie deep in structures.

    >>> import rushlight as torch
    >>> x, shapes = torch.ones(2, 3), ShapesCollection()
    >>> shapes[x] = {0: Dim.DYNAMIC}
    >>> shapes.dynamic_shapes(torch.nn.ReLU(), (x,))
    {'input': {0: DimHint(DYNAMIC)}}
    """

    def __init__(self) -> None:
        self._shapes: dict[int, Any] = {}
        self._held: list[Any] = []  # so that identities stay theirs

    def __setitem__(self, t: Any, shape: Any) -> None:
        if not isinstance(t, (Tensor, _IntWrapper)):
            raise AssertionError(f"Cannot assign shape to non-tensor or non-_IntWrapper type {type(t)}")
        known = self._shapes.get(id(t))
        if known is not None and known != shape:
            raise AssertionError(f"Shapes assigned to input is a mismatch: {known} vs {shape}")
        self._shapes[id(t)] = shape
        self._held.append(t)

    def __getitem__(self, t: Any) -> Any:
        return self._shapes.setdefault(id(t), {})

    def __len__(self) -> int:
        return len(self._shapes)

    def dynamic_shapes(self, m: Any, args: Any, kwargs: Any = None) -> Any:
        """The specs in the structure of the arguments; ValueError for tensors that are not among them."""
        found: set[int] = set()

        def spec(path: Any, t: Any) -> Any:
            if id(t) in self._shapes:
                found.add(id(t))
                return self._shapes[id(t)]
            return None

        made = tree_map_with_path(spec, combined_args(m, args, kwargs))
        if set(self._shapes) - found:
            raise ValueError(
                f"Some tensors that were assigned shapes were not found in args: {set(self._shapes) - found}"
            )
        return made


@dataclasses.dataclass(eq=False)
class _IntWrapper:
    """An integer of the inputs that `ShapesCollection` can name."""

    val: int
    dynamism: Any = None


class AdditionalInputs:
    """Further inputs for which the program is to hold: sizes in which they differ may vary.

    >>> import rushlight as torch
    >>> inputs = AdditionalInputs()
    >>> inputs.add((torch.ones(2, 3),)); inputs.add((torch.ones(5, 3),))
    >>> inputs.dynamic_shapes(torch.nn.ReLU(), (torch.ones(4, 3),))
    {'input': (DimHint(DYNAMIC), None)}
    """

    def __init__(self) -> None:
        self._examples: list[tuple[Any, Any]] = []

    def add(self, args: Any, kwargs: Any = None) -> None:
        """One more set of inputs."""
        if type(args) is not tuple:
            raise AssertionError(f"Representative args {args} must be a tuple")
        if kwargs is not None and type(kwargs) is not dict:
            raise AssertionError(f"Representative kwargs {kwargs} must be None or a dict")
        self._examples.append((args, kwargs))

    def dynamic_shapes(self, m: Any, args: Any, kwargs: Any = None) -> Any:
        """Specs of dims: dynamic where the inputs differ.  ValueError where something else than sizes differs."""
        sets = [combined_args(m, args, kwargs), *(combined_args(m, a, k) for a, k in self._examples)]
        flat, structure = tree_flatten(sets[0])
        others = [tree_flatten(each) for each in sets[1:]]
        if any(each[1] != structure for each in others):
            raise ValueError("Expected additional inputs to have the structure of the inputs")
        columns = list(zip(flat, *(each[0] for each in others), strict=True))
        return structure.unflatten([_spec_of_examples(column) for column in columns])

    def verify(self, ep: Any) -> None:
        """Run the program on all inputs: an error says which sizes it does not take."""
        module = ep.module()
        for args, kwargs in self._examples:
            module(*args, **(kwargs or {}))


def _spec_of_examples(values: Sequence[Any]) -> Any:
    if all(isinstance(v, Tensor) for v in values):
        if len({v.dim() for v in values}) != 1:
            raise ValueError(f"Expected all inputs to have the same number of dims, got {[v.dim() for v in values]}")
        sizes = zip(*(v.shape for v in values), strict=True)
        return tuple([None if len(set(n)) == 1 else Dim.DYNAMIC for n in sizes])
    if all(type(v) is int for v in values):
        return None if len(set(values)) == 1 else Dim.DYNAMIC
    if any(v != values[0] for v in values[1:]):
        raise ValueError(f"The following inputs were found to have differing values, which is not supported: {values}")
    return None


# ***** from the user's specs to leaves *****


def combined_args(f: Any, args: Any, kwargs: Any = None) -> dict[str, Any]:
    """The arguments of a call by the names of the function's parameters, in the order of the call; of `*args` as one
    tuple.
    """
    target = f.forward if hasattr(f, "forward") else f
    signature = inspect.signature(target)
    signature.bind(*args, **(kwargs or {}))
    found: dict[str, Any] = {}
    left = list(args)
    for parameter in signature.parameters.values():
        if not left or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD):
            break
        if parameter.kind is parameter.VAR_POSITIONAL:
            found[parameter.name], left = tuple(left), []
        else:
            found[parameter.name] = left.pop(0)
    return {**found, **(kwargs or {})}


@dataclasses.dataclass
class LeafSpec:
    """One leaf of the arguments: where it is, its value, and what is said of its dims (of a number: of itself)."""

    path: tuple[Any, ...]
    value: Any
    dims: dict[int, Any]

    @property
    def source(self) -> str:
        """As conditions name it: `L['x'][0]`."""
        return f"L{keystr(self.path)}"


def specs_of_leaves(f: Any, args: Any, kwargs: Any, dynamic_shapes: Any) -> list[LeafSpec]:
    """The leaves of the arguments with their specs, in the order of `combined_args`; UserError for specs that fit no
    argument.
    """
    combined = combined_args(f, args, kwargs)
    if isinstance(dynamic_shapes, (ShapesCollection, AdditionalInputs)):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(f, args, kwargs)
    leaves = [LeafSpec(tuple(path), value, {}) for path, value in tree_flatten_with_path(combined)[0]]
    if not dynamic_shapes:
        return leaves
    at = {leaf.path: leaf for leaf in leaves}
    for path, value, spec in _paired(combined, _by_name(f, combined, dynamic_shapes)):
        leaf = at.get(path)
        if leaf is None or spec is None:
            continue
        leaf.dims = _dims_of(path, value, spec)
    _check_same_bounds(leaves)
    return leaves


def _by_name(f: Any, combined: dict[str, Any], dynamic_shapes: Any) -> dict[str, Any]:
    """The specs by the names of arguments, in the order of the arguments.

    A list of specs follows the parameters of the function, whatever the order in which a call named its arguments.
    """
    if isinstance(dynamic_shapes, dict):
        names = list(combined)
        if set(dynamic_shapes) != set(names):
            words = (
                f"When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg names {names} of `inputs`, "
                f"but here they are {list(dynamic_shapes)}. "
            )
            if (
                len(names) == 1
                and isinstance(combined[names[0]], dict)
                and set(combined[names[0]]) == set(dynamic_shapes)
            ):
                words += "Since here `inputs` is a list/tuple enclosing a single dict, maybe you just forgot to enclose `dynamic_shapes` in a list/tuple?"
            else:
                words += (
                    "Alternatively, you could also ignore arg names entirely and specify `dynamic_shapes` as a list/tuple "
                    "matching `inputs`."
                )
            raise UserError(UserErrorType.INVALID_INPUT, f"{words} For more information about this error, see: {_PAGE}")
        return {name: dynamic_shapes[name] for name in combined}
    if not isinstance(dynamic_shapes, (list, tuple)):
        raise UserError(UserErrorType.INVALID_INPUT, f"dynamic_shapes: {dynamic_shapes!r} is no dict, list or tuple")
    if len(dynamic_shapes) != len(combined):
        _mismatch("inputs", combined, len(combined), "dynamic_shapes", len(dynamic_shapes))
    declared = [n for n in inspect.signature(getattr(f, "forward", f)).parameters if n in combined]
    ordered = [*declared, *(n for n in combined if n not in declared)]
    found = dict(zip(ordered, dynamic_shapes, strict=True))
    return {name: found[name] for name in combined}


def _mismatch(one: str, value: Any, count: int, two: str, others: int) -> None:
    raise UserError(
        UserErrorType.INVALID_INPUT,
        f"Detected mismatch between the structure of `inputs` and `dynamic_shapes`: `{one}` has {count} elements, but "
        f"`{two}` has {others} elements\nFor more information about this error, see: {_PAGE}",
    )


def _paired(value: Any, spec: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """Each leaf of the arguments with the spec that lies at its place."""
    if spec is None:
        return
    children, _ = tree_flatten_with_path(value, is_leaf=lambda v: v is not value)
    if isinstance(value, Tensor) or len(children) == 1 and children[0][0] == ():
        yield path, value, spec
        return
    if isinstance(value, dict):
        if not isinstance(spec, dict) or set(spec) != set(value):
            keys = list(spec) if isinstance(spec, dict) else spec
            raise UserError(
                UserErrorType.INVALID_INPUT,
                f"Detected mismatch between the structure of `inputs` and `dynamic_shapes`: `inputs{keystr(path)}` has keys "
                f"{list(value)}, but `dynamic_shapes{keystr(path)}` has keys {keys}\nFor more information about this error, see: {_PAGE}",
            )
        for key, child in value.items():
            yield from _paired(child, spec[key], (*path, MappingKey(key)))
        return
    given = (
        list(tree_flatten(spec, is_leaf=lambda s: s is not spec)[0])
        if not isinstance(spec, (list, tuple))
        else list(spec)
    )
    if len(given) != len(children):
        name = keystr(path)
        _mismatch(f"inputs{name}", value, len(children), f"dynamic_shapes{name}", len(given))
    for (key, child), each in zip(children, given, strict=True):
        yield from _paired(child, each, (*path, *key))


def _dims_of(path: tuple[Any, ...], value: Any, spec: Any) -> dict[int, Any]:
    """Declarations for each dim of a tensor, as a dict; of a number under the key -1."""
    if not isinstance(value, Tensor):
        if isinstance(spec, (_DimHint, Dim)) and type(value) is int:
            return {-1: spec}
        if isinstance(spec, (_DimHint, Dim)) or spec:
            raise UserError(
                UserErrorType.INVALID_INPUT,
                f"Cannot associate shape {spec} specified at `dynamic_shapes{keystr(path)}` to non-tensor type "
                f"{type(value)} at `inputs{keystr(path)}` (expected None)\nFor more information about this error, see: {_PAGE}",
            )
        return {}
    where, shape = f"`dynamic_shapes{keystr(path)}`", value.shape
    if isinstance(spec, dict):
        for d in spec:
            if type(d) is not int or not 0 <= d < len(shape):
                raise UserError(
                    UserErrorType.INVALID_INPUT,
                    f"Unexpected key {d} in dynamic shape spec {spec} specified at {where} (expected keys 0 to {len(shape) - 1})\n"
                    f"For more information about this error, see: {_PAGE}",
                )
        pairs = dict(spec)
    elif isinstance(spec, (list, tuple)):
        if len(spec) != len(shape):
            raise UserError(
                UserErrorType.INVALID_INPUT,
                f"Expected dynamic shape spec {spec} specified at {where} to have the same length as the actual tensor shape "
                f"{shape} (expected {len(shape)}, but got {len(spec)} instead)\nFor more information about this error, see: {_PAGE}",
            )
        pairs = dict(enumerate(spec))
    else:
        raise UserError(
            UserErrorType.INVALID_INPUT,
            f"Unexpected dynamic shape spec {spec} specified at {where} (expected either a list/tuple of dimensions, or a "
            f"dict mapping indices to dimensions, where each dimension is an int, a Dim, Dim.AUTO, Dim.STATIC, or Dim.DYNAMIC)\n"
            f"For more information about this error, see: {_PAGE}",
        )
    for d, each in pairs.items():
        if not (each is None or type(each) is int or isinstance(each, (Dim, _DimHint))):
            raise UserError(
                UserErrorType.INVALID_INPUT,
                f"Unexpected dimension mapped to index {d} in input tensor shape {spec} specified at {where} (expected None, "
                f"an int, a Dim, Dim.AUTO, Dim.STATIC, or Dim.DYNAMIC,  but got {each!r} instead)\nFor more information about this error, see: {_PAGE}",
            )
    return {d: each for d, each in pairs.items() if each is not None}


def _check_same_bounds(leaves: Sequence[LeafSpec]) -> None:
    known: dict[str, tuple[Any, Any]] = {}
    for leaf in leaves:
        for each in leaf.dims.values():
            if isinstance(each, Dim) and known.setdefault(each.__name__, (each.min, each.max)) != (each.min, each.max):
                low, high = known[each.__name__]
                raise UserError(
                    UserErrorType.INVALID_INPUT,
                    f"Found different definitions Dim('{each.__name__}', min={low}, max={high}) and {each!r} for the same "
                    f"symbolic dimension {each.__name__}!",
                )


# ***** suggested fixes *****


def refine_dynamic_shapes_from_suggested_fixes(msg: str, dynamic_shapes: Any) -> Any:
    """The specs with what an error of `export` suggests: `batch = 4`, `batch = 2*_batch`, `batch = Dim('batch', max=9)`.

    ValueError where the text suggests nothing.

    >>> text = "Suggested fixes:\\n  batch = Dim('batch', max=9)\\n"
    >>> refine_dynamic_shapes_from_suggested_fixes(text, {"x": {0: Dim("batch")}})
    {'x': {0: Dim('batch', min=0, max=9)}}
    """
    _, found, text = msg.partition("Suggested fixes:")
    if not found:
        raise ValueError("the message has no suggested fixes")
    lines = [line.strip() for line in text.strip().split("\n")]
    fixes = dict(line.split(" = ", 1) for line in lines[: next((i for i, t in enumerate(lines) if not t), len(lines))])
    roots: dict[str, Dim] = {}

    def root(name: str, old: Dim | None = None) -> Dim:
        if name not in roots:
            low, high = (0, None) if old is None else (old.min, old.max)
            bounds = (
                dict(part.split("=") for part in fixes[name][4:-1].split(", ")[1:])
                if fixes.get(name, "").startswith("Dim(")
                else {}
            )
            least = int(bounds["min"]) if bounds.get("min", "oo").isdigit() else low
            most = int(bounds["max"]) if bounds.get("max", "oo").isdigit() else high
            roots[name] = Dim(name, min=least, max=most)
        return roots[name]

    def fixed(dim: Any) -> Any:
        if isinstance(dim, (list, tuple)):
            return type(dim)([fixed(d) for d in dim])
        if isinstance(dim, dict):
            return {k: fixed(d) for k, d in dim.items()}
        if not isinstance(dim, Dim):
            return dim
        if isinstance(dim, _DerivedDim) and dim.__name__ not in fixes:
            made = fixed(dim.root)
            return made if type(made) is int else dim.factor * made + dim.offset if dim.offset else dim.factor * made
        text = fixes.get(dim.__name__)
        if text is None:
            return dim
        if text.isdigit():
            return int(text)
        return root(dim.__name__, dim) if text.startswith("Dim(") else _linear(text, root)

    return fixed(dynamic_shapes)


def _linear(text: str, root: Callable[[str], Dim]) -> Dim:
    """`2*b + 1` as a dim."""
    product, sign, offset = text.replace(" - ", " + -").partition(" + ")
    factor, times, name = product.rpartition("*")
    made = root(name)
    made = int(factor) * made if times else made
    return made + int(offset) if sign else made


def finite(bound: Any) -> Any:
    """A bound as a float: infinite where there is none."""
    return math.inf if bound is None or bound >= INT_OO else bound


# Keys of paths, for those who build paths of their own.
PATH_KEYS = (MappingKey, SequenceKey)
