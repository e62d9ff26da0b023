"""Argument checks of Python functions over tensors: types from annotations or forms, and valid `out=`.

Rows of the operator table are bound by their schemas (`_engine.dispatch.plans.bind`).  Composites are plain Python; they say
the same in their signatures, and where PyTorch's own parser stands before a function, what does not fit is a TypeError
before its body runs.

    @forms("(input: Tensor, dim: int, keepdim: bool = False) -> Tensor")      # checked: int is no float, no True, no list

A type in other words than `_ACCEPTED` knows says nothing.  A call whose types alone settle the matter is remembered by
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rushlight._base.lazy import LazyModule, require
from rushlight._engine.core.creation import python_dtype
from rushlight._engine.core.integers import integer, is_numpy_scalar
from rushlight._engine.core.tensor import Tensor, plain_classes
from rushlight._engine.dispatch.lower import ask_numbers
from rushlight._engine.dispatch.out import check_outs
from rushlight._engine.dispatch.plans.bind import NUMPY_WORDS, argument_error, is_native
from rushlight._ops.forms import forms_of
from rushlight._types.dtype import DType

if TYPE_CHECKING:
    import ast
else:
    ast = LazyModule("ast")

__all__ = ["Accepting", "tensors_among"]

_Kinds = frozenset[str] | None  # words, one of which must hold; None: anything


class _Form:
    """One way to call a function: its parameters in order, those by name alone, and whether it takes more of either."""

    __slots__ = ("any_keyword", "more", "named", "order", "required", "text")

    def __init__(self, parameters: ast.arguments, text: str, loose: bool) -> None:
        self.text = text
        _kinds = partial(_words, loose=loose)
        defaults = [None] * (len(parameters.posonlyargs) + len(parameters.args) - len(parameters.defaults)) + list(
            parameters.defaults
        )
        self.order: list[tuple[str, _Kinds]] = []
        self.named: dict[str, _Kinds] = {}
        self.required: set[str] = set()
        for i, (each, default) in enumerate(zip([*parameters.posonlyargs, *parameters.args], defaults, strict=True)):
            kinds = _kinds(each.annotation, default)
            self.order.append((each.arg, kinds))
            if i >= len(parameters.posonlyargs):
                self.named[each.arg] = kinds
            if default is None:
                self.required.add(each.arg)
        for each, default in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True):
            open_dtype = each.arg == "dtype" and isinstance(each.annotation, ast.Name) and each.annotation.id == "Any"
            self.named[each.arg] = _OPTIONS["dtype"] if open_dtype else _kinds(each.annotation, default)
            if default is None:
                self.required.add(each.arg)
        self.more: tuple[_Kinds] | None = (
            (_kinds(parameters.vararg.annotation, None),) if parameters.vararg is not None else None
        )
        options = parameters.kwarg
        group = options.annotation.id if options is not None and isinstance(options.annotation, ast.Name) else ""
        self.any_keyword = options is not None and group not in _GROUPS
        for name in _GROUPS.get(group, ()):
            self.named.setdefault(name, _OPTIONS.get(name))

    def mismatch(
        self, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[str, frozenset[str], Any, int] | str | None:
        """The first mismatch: (argument, words, value, position from 1 or 0) for a wrong type, a text otherwise; None
        where everything fits.
        """
        order = self.order
        if len(args) > len(order) and self.more is None:
            return f"takes {len(order)} positional arguments but {len(args)} were given"
        for i, value in enumerate(args):
            name, kinds = order[i] if i < len(order) else ("", self.more[0] if self.more is not None else None)
            if kinds is not None and not _accepted(kinds, value) and not (i > len(order) and isinstance(value, bool)):
                return name or "size", kinds, value, i + 1
        given = {name for name, _ in order[: len(args)]}
        for name, value in kwargs.items():
            if name in given:
                return f"got multiple values for argument '{name}'"
            if name not in self.named:
                if self.any_keyword:
                    continue
                return f"got an unexpected keyword argument '{name}'"
            kinds = self.named[name]
            if kinds is not None and not _accepted(kinds, value):
                return name, kinds, value, 0
        left = self.required - given - kwargs.keys()
        if left:
            return "missing 1 required argument: " + ", ".join(repr(name) for name in sorted(left))
        return None

    def plain(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        """The arguments, with stand-ins of numbers and dtypes replaced by plain ones."""
        order, more = self.order, self.more[0] if self.more is not None else None
        return (
            [_plain(order[i][1] if i < len(order) else more, value) for i, value in enumerate(args)],
            {name: _plain(self.named.get(name), value) for name, value in kwargs.items()},
        )


class Accepting:
    """The arguments of one function; made at its declaration, read at its first call."""

    __slots__ = ("_forms", "_known", "checked", "function", "loose", "name", "native", "outs", "takes_out")

    def __init__(self, function: Callable[..., Any], name: str, spaces: Sequence[str]) -> None:
        self.function, self.name, self.native = function, name, is_native(name, spaces)
        # `torch.cdist` is Python, and passes all on at once
        self.checked = self.native or tuple(spaces) != ("nn.functional",)
        # Python asks of a flag whether it is true
        self.loose = "nn.functional" in spaces and not is_native(name, ("nn.functional",))
        self._forms: list[_Form] | None = None
        self._known: set[Any] = set()
        self.takes_out = True
        self.outs: int | None = None  # as `check_outs` takes it

    @property
    def forms(self) -> list[_Form]:
        """The forms of the function: registered ones, else its own signature."""
        if self._forms is None:
            self._read()
        assert self._forms is not None
        return self._forms

    def _read(self) -> None:
        inspect = require("inspect")

        inner = inspect.unwrap(self.function)
        signature = inspect.signature(inner)
        texts = [f for f in forms_of(inner) if not f.startswith("...")]
        own = _signature_text(signature)
        self._forms = [_Form(_parsed(text), text, self.loose) for text in texts or [own]]
        parameters = signature.parameters.values()
        taken = {name for form in self._forms for name in form.named} | signature.parameters.keys()
        self.takes_out = "out" in taken or (
            any(p.kind is p.VAR_KEYWORD for p in parameters) and any(f.any_keyword for f in self._forms)
        )
        made = {text.partition(" -> ")[2] for text in forms_of(inner)} or {signature.return_annotation}
        self.outs = (
            1
            if made == {"Tensor"}
            else 0
            if all(str(m).startswith(("return_types.", "tuple[")) for m in made)
            else None
        )

    def named(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Keywords by the names that are declared: NumPy's words for some of them are taken too."""
        forms = self.forms
        if not self.native or any(kwargs.keys() <= form.named.keys() or form.any_keyword for form in forms):
            return kwargs
        known = {name for form in forms for name in form.named}
        found = {}
        for name, value in kwargs.items():
            meant = NUMPY_WORDS.get(name) if name not in known else None
            found[meant if meant in known and meant not in kwargs else name] = value
        return found

    def check(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        """The arguments, with stand-ins of numbers and dtypes replaced by plain ones; TypeError for arguments that no
        form takes.
        """
        key = (*map(type, args), *kwargs, *map(type, kwargs.values())) if kwargs else tuple(map(type, args))
        if key in self._known:
            return args, kwargs
        forms = self.forms
        wrong: Any = None
        for form in forms:
            wrong = form.mismatch(args, kwargs)
            if wrong is None:
                if _settled_by_types(form, args, kwargs):
                    self._known.add(key)
                    return args, kwargs
                return form.plain(args, kwargs)
        if len(forms) == 1:
            if isinstance(wrong, str):
                raise TypeError(f"{self.name}() {wrong}")
            argument, kinds, value, place = wrong
            where = f" (position {place})" if place else ""
            wanted = " or ".join(sorted(_SAID.get(w, w) for w in kinds if w != "None"))
            text = f"{self.name}(): argument '{argument}'{where} must be {wanted}, not {type(value).__name__}"
            raise argument_error(self.name, argument, value, text)
        ask_numbers((*args, *kwargs.values()))
        given = ", ".join([*[type(a).__name__ for a in args], *[f"{k}={type(v).__name__}" for k, v in kwargs.items()]])
        raise TypeError(
            f"{self.name}() received an invalid combination of arguments - got ({given}), but expected one of:\n"
            + "\n".join(f" * {form.text}" for form in forms)
        )

    def check_out(self, args: Sequence[Any], kwargs: dict[str, Any], apart: bool) -> None:
        """The errors of `check_outs`; TypeError where the function takes no `out`."""
        if self._forms is None:
            self._read()
        if not self.takes_out:
            raise TypeError(f"{self.name}() got an unexpected keyword argument 'out'")
        tensors = list(tensors_among((*args, *[v for k, v in kwargs.items() if k != "out"])))
        check_outs(self.name, kwargs["out"], tensors, apart, self.outs)


def tensors_among(values: Any) -> Iterator[Tensor]:
    """Strided tensors among arguments, also in lists."""
    for value in values:
        if isinstance(value, Tensor):
            if value._storage is not None:
                yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_among(value)


# ***** reading *****


def _signature_text(signature: Any) -> str:
    """A function's own signature in the notation of a form: annotations are texts there, and defaults are None or
    something.
    """
    parts = []
    last = None
    for p in signature.parameters.values():
        if last is not None and last is p.POSITIONAL_ONLY and p.kind is not p.POSITIONAL_ONLY:
            parts.append("/")
        if p.kind is p.KEYWORD_ONLY and last not in (p.KEYWORD_ONLY, p.VAR_POSITIONAL):
            parts.append("*")
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        annotation = f": {p.annotation}" if isinstance(p.annotation, str) else ""
        default = "" if p.default is p.empty else " = None" if p.default is None else " = ..."
        parts.append(f"{stars}{p.name}{annotation}{default}")
        last = p.kind
    return f"({', '.join(parts)})"


def _parsed(text: str) -> ast.arguments:
    head = text.partition(" -> ")[0].replace("*, **", "**")
    made = ast.parse(f"def _{head}: ...").body[0]
    assert isinstance(made, ast.FunctionDef)
    return made.args


def _words(annotation: ast.expr | None, default: ast.expr | None, loose: bool) -> _Kinds:
    """The words of an annotation; None where one of them is not known, or where it is a flag of a `loose` function."""
    if annotation is None:
        return None
    words: set[str] = set()
    pending: list[ast.expr] = [annotation]
    while pending:
        each = pending.pop()
        if isinstance(each, ast.BinOp):
            pending += [each.left, each.right]
            continue
        word = ast.unparse(each)
        words.add("bool" if word in ("Literal[False]", "Literal[True]") else word)
    if loose and words <= {"bool", "None"} and "bool" in words:
        return None
    if isinstance(default, ast.Constant) and default.value is None:
        words.add("None")
    return frozenset(words) if words <= _ACCEPTED.keys() else None


# ***** accepting *****


def _accepted(words: frozenset[str], value: Any) -> bool:
    return (
        any(_ACCEPTED[word](value) for word in words)
        or hasattr(type(value), "__torch_function__")
        and type(value) not in plain_classes
    )


def _settled_by_types(form: _Form, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether any call with arguments of these types fits: none is a list, an array, or a tensor that stands for a
    number, unless it may be anything.
    """
    for i, value in enumerate(args):
        kinds = form.order[i][1] if i < len(form.order) else None
        if kinds is None and i < len(form.order):
            continue
        if type(value) not in _PLAIN and not (type(value) in plain_classes and (kinds is None or "Tensor" in kinds)):
            return False
    for name, value in kwargs.items():
        kinds = form.named.get(name)
        if type(value) not in _PLAIN and not (type(value) in plain_classes and (kinds is None or "Tensor" in kinds)):
            return False
    return True


def _plain(words: _Kinds, value: Any) -> Any:
    """The plain value that a fitting argument stands for."""
    if words is None or type(value) in _PLAIN or "Tensor" in words and isinstance(value, Tensor):
        return value
    if isinstance(value, (tuple, list)):
        if "Sequence[int]" not in words or not _ints(value):
            return value
        return tuple([v if type(v) is int else int(v) if type(v) is bool else integer(v, True) for v in value])
    if "dtype" in words and isinstance(value, type):
        return python_dtype(value)
    if "int" in words:
        return integer(value)
    if words & {"float", "Scalar", "Number"} and (isinstance(value, Tensor) or is_numpy_scalar(value)):
        return value.item()
    return value


def _is_int(value: Any) -> bool:
    if isinstance(value, Tensor):
        return not value._spec.ndim and value._spec.dtype.is_integer and not value._rg
    return not isinstance(value, bool) and hasattr(type(value), "__index__") and not hasattr(value, "__setitem__")


def _is_float(value: Any) -> bool:
    if isinstance(value, Tensor):
        return not value._spec.ndim and not value._rg
    return isinstance(value, (int, float)) or is_numpy_scalar(value)


def _is_scalar(value: Any) -> bool:
    return _is_float(value) or isinstance(value, complex)


def _is_item(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value._spec.numel == 1 and value._spec.dtype.is_integer
    return _is_int(value)


def _ints(value: Any) -> bool:
    """PyTorch's parser looks at the first item: True may stand after it."""
    return isinstance(value, (tuple, list)) and all(
        _is_item(v) or place and isinstance(v, bool) for place, v in enumerate(value)
    )


def _listed(item: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, (tuple, list)) and all(map(item, value))


_PLAIN = frozenset((int, float, bool, complex, str, type(None), DType))
_DTYPES = (float, int, bool, complex)
_ACCEPTED: dict[str, Callable[[Any], bool]] = {
    "Tensor": lambda value: isinstance(value, Tensor), "int": _is_int, "float": _is_float, "Scalar": _is_scalar, "Number": _is_scalar,
    "bool": lambda value: isinstance(value, bool), "str": lambda value: isinstance(value, str), "None": lambda value: value is None,
    "Sequence[int]": _ints, "Sequence[float]": _listed(_is_float), "Sequence[Tensor]": _listed(lambda value: isinstance(value, Tensor)),
    "dtype": lambda value: isinstance(value, DType) or any(value is d for d in _DTYPES), "DType": lambda value: isinstance(value, DType),
}  # fmt: skip
_SAID = {
    "Scalar": "Number",
    "Sequence[int]": "tuple of ints",
    "Sequence[float]": "tuple of floats",
    "Sequence[Tensor]": "tuple of Tensors",
}
# Keywords that `**options: Factory` and its like stand for.
_MAKING = ("dtype", "layout", "device", "pin_memory", "requires_grad")
_GROUPS = {"Like": _MAKING, "Factory": (*_MAKING, "out", "names"), "Random": (*_MAKING, "out", "names", "generator")}
_OPTIONS: dict[str, _Kinds] = {
    "dtype": frozenset(("dtype", "None")),
    "pin_memory": frozenset(("bool", "None")),
    "requires_grad": frozenset(("bool", "None")),
}
