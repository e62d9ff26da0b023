"""Where public functions are collected: name spaces, and methods of Tensor.

    @composite("dropout", spaces=("nn.functional",))
    def dropout(input, p=0.5, training=True, inplace=False): ...

A composite is plain Python over tensors; everything with a body over primitives belongs into the operator table
instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from rushlight._base.tracebacks import shorten
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.state import FUNCTION_MODE, OBSERVED, STATE
from rushlight._engine.core.tensor import Tensor, plain_classes
from rushlight._engine.dispatch.autocast import casting_in, casts
from rushlight._engine.dispatch.call import Caller, make_binary, make_function, make_unary
from rushlight._engine.dispatch.inplace_calls import InplaceCaller, make_inplace
from rushlight._engine.dispatch.plans.native_lookup import make_cached
from rushlight._engine.dispatch.plans.native_plans import make_guard
from rushlight._ops.dtypes import CHECKED, refuse_dtype
from rushlight._ops.table import OPERATORS, Operator
from rushlight._surface.accepting import Accepting
from rushlight._types.dtype import DType

__all__ = [
    "SPACES",
    "SPARSE_FACTORIES",
    "Space",
    "asking",
    "composite",
    "function_of",
    "guarded",
    "into_given",
    "install_operators",
    "method_of",
    "reads_elements",
    "row_named",
    "row_of",
]


class Space(MutableMapping[str, Any]):
    """The functions of one name space.  Those of the operator table are made when they are first asked for: there are
    hundreds, and a program uses a few.
    """

    __slots__ = ("_made", "_page", "_promised")

    def __init__(self, name: str = "") -> None:
        self._page = f"rushlight.{name}" if name != "torch" else "rushlight"
        self._made: dict[str, Any] = {}
        self._promised: dict[str, tuple[Callable[[str], Any], str]] = {}

    def promise(self, name: str, make: Callable[[str], Any], argument: str) -> None:
        """`make(argument)` will be the value of `name`, unless there is one already."""
        if name not in self._made:
            self._promised.setdefault(name, (make, argument))

    def defer(self, name: str, make: Callable[[str], Any], argument: str) -> None:
        """`make(argument)` will be the value of `name`, whatever it was before."""
        self._made.pop(name, None)
        self._promised[name] = make, argument

    def __getitem__(self, name: str) -> Any:
        found = self._value(name)
        if getattr(found, "__module__", "").startswith("rushlight._"):
            page, own = self._home(name, found)
            found.__module__, found.__qualname__, found.__name__ = page, own, own  # where pickle finds it
        return found

    def _value(self, name: str) -> Any:
        """The function of a name, made if it was only promised."""
        found = self._made.get(name)
        if found is None:
            make, argument = self._promised[name]
            found = self._made[name] = make(argument)
            self._promised.pop(name, None)
        return found

    def _home(self, name: str, function: Any) -> tuple[str, str]:
        """Page and name of a function, whichever of its pages and aliases is asked first: `nn.functional` where it is no
        method, then the package, then the page that was asked; by its own name where one of them has it.
        """
        functional, package = SPACES["nn.functional"], SPACES["torch"]
        for word in dict.fromkeys((function.__name__, name)):
            for page in (package, self) if word in Tensor.__dict__ else (functional, package, self):
                if word in page and page._value(word) is function:
                    return page._page, word
        return self._page, name

    @property
    def made(self) -> Mapping[str, Any]:
        """The functions that were made already, by name."""
        return self._made

    def __setitem__(self, name: str, value: Any) -> None:
        self._promised.pop(name, None)
        self._made[name] = value

    def __delitem__(self, name: str) -> None:
        if self._made.pop(name, None) is None:
            del self._promised[name]

    def __contains__(self, name: object) -> bool:
        return name in self._made or name in self._promised

    def __iter__(self) -> Iterator[str]:
        return iter([*self._made, *self._promised])

    def __len__(self) -> int:
        return len(self._made) + len(self._promised)


class LazyMethod:
    """Stands on Tensor for a method that was not used yet; the first look replaces it by the real function.

    Python's operators work the same way: their slots look the name up in the class.
    """

    __slots__ = ("argument", "make", "name")

    def __init__(self, name: str, make: Callable[[str], Any], argument: str) -> None:
        self.name, self.make, self.argument = name, make, argument

    def __get__(self, instance: Any, owner: type) -> Any:
        function = self.make(self.argument)
        if Tensor.__dict__.get(self.name) is self:
            setattr(Tensor, self.name, function)
        return function.__get__(instance, owner)


SPACES: dict[str, Space] = {name: Space(name) for name in ("torch", "nn.functional", "linalg", "special", "fft")}
# `zeros`, `empty`, ... of sparse layouts: promised by the package page, since they live in a public package.
SPARSE_FACTORIES = Space("torch")
_FUNCTIONS: dict[str, Callable[..., Any]] = {}
_METHODS: dict[str, Callable[..., Any]] = {}
_INPLACE: dict[str, Callable[..., Any]] = {}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {}


def composite(
    name: str,
    *,
    spaces: tuple[str, ...] = ("torch",),
    method: bool | str = False,
    overridable: bool = True,
    aliases: tuple[str, ...] = (),
    apart: bool = False,
    refuses: str = "",
    cached: Sequence[str] | bool = (),
    tensors: int = 1,
    once: bool = False,
    alike: bool = False,
    shortcut: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a Python function over tensors under `name` in these spaces, and as a method (under another name if
    `method` is one).

    `out=` is checked for every function alike; with `apart` it may not be one of the arguments either.  `refuses`:
    kinds of dtype that the first argument may not have, as in `_ops.dtypes`.

    A function that only chooses plans gives the names of its arguments as `cached`, the first `tensors` of them
    tensors: its plans are kept (see `_engine.dispatch.plans.native_lookup.make_cached`).  With True they are those that it
    declares, each of them a tensor, tensors in a sequence, or a value.  Of one that does more than choose, arguments
    are looked at `once` for each signature.  For `alike` and `shortcut` see there, too.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        function = _refusing(function, name, refuses) if refuses else function
        declared = Accepting(function, name, spaces)
        public = (
            _overridable(casts(*casting_in(name, spaces))(function), name, apart, declared) if overridable else function
        )
        later = cached or once or hasattr(public, "guards")
        make = functools.cache(
            lambda _: (
                _cached(public, cached or once, tensors, not once, shortcut, alike)
                if cached or once
                else guarded(public)
            )
        )
        for each in (name, *aliases):
            word = method if isinstance(method, str) else each
            for space in spaces:
                if later:
                    SPACES.setdefault(space, Space(space)).defer(each, make, f"native form of {name}")
                else:
                    SPACES.setdefault(space, Space(space))[each] = public
            if method:
                setattr(Tensor, word, LazyMethod(word, make, f"native form of {name}") if later else public)
        return public

    return register


def reads_elements(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a composite whose body reads elements of its arguments: kinds of tensor without memory give it their values."""
    function.reads_elements = True  # type: ignore[attr-defined]
    return function


MOST = 16  # loose arguments (`*tensors`) up to which plans are cached


def _declared_names(function: Any) -> list[str]:
    """The names of a function's arguments, for `make_cached`; any argument may be a tensor."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = function.__code__
    count, named = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[:named]
    # 4: it takes `*arguments`
    loose = [f"{code.co_varnames[named]}{k}" for k in range(MOST)] if code.co_flags & 4 else []
    # `out` is looked at each time
    return [name if name == "out" else f"{name}?" for name in (*names[:count], *loose, *names[count:])]


def _cached(
    public: Any,
    names: Sequence[str] | bool,
    tensors: int,
    sequences: bool,
    shortcut: Callable[..., Any] | None,
    alike: bool,
) -> Any:
    """A public function whose plans are kept; it is what overrides are shown."""
    if isinstance(names, bool):
        names, tensors = _declared_names(public), 0
    made = make_cached(public, names, tensors, sequences, shortcut, alike)
    made.overridable = hasattr(public, "__wrapped__")
    if hasattr(public, "shown"):
        public.shown[0] = made
        # Kinds of tensor run the body itself: `public` would ask them again
        made.__wrapped__ = getattr(public, "__wrapped__", public)
        if hasattr(public, "touches_memory"):
            made.touches_memory = True
    return made


def guarded(public: Any) -> Any:
    """A public function that asks modes and classes first, and does so natively in the usual case; it is what they are
    shown.
    """
    mask, named = public.guards
    made = make_guard(public, public.__wrapped__, mask, named=named)
    if public.shown[0] is public:
        public.shown[0] = made
    return made


def _refusing(function: Callable[..., Any], name: str, kinds: str) -> Callable[..., Any]:
    """Refuse a first argument of these kinds of dtype."""

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        first = args[0] if args else next(iter(kwargs.values()), None)
        if isinstance(first, Tensor):
            refuse_dtype(name, kinds, first._spec.dtype, checked=name in CHECKED)
        return function(*args, **kwargs)

    return checked


_NUMBERS = frozenset((int, float, bool, str, type(None), DType))


def _overridable(function: Callable[..., Any], name: str, apart: bool, declared: Accepting) -> Callable[..., Any]:
    """Ask subclasses first, look at what arguments are, and check `out=`."""
    hooks = HOOKS

    state, plain, checked = STATE, plain_classes, declared.checked

    def public(*args: Any, **kwargs: Any) -> Any:
        try:
            if kwargs or state.word & (FUNCTION_MODE | OBSERVED):
                usual = False
            else:
                for item in args:
                    if type(item) not in plain and type(item) not in _NUMBERS:
                        usual = False
                        break
                else:  # plain tensors and numbers, which ask for nothing
                    usual = True
            if not usual:
                handled, made = hooks.override(shown[0], args, kwargs)
                if handled:
                    return made
            if kwargs:
                kwargs = declared.named(kwargs)
            if checked:
                args, kwargs = declared.check(args, kwargs)
            if kwargs.get("out") is not None:
                declared.check_out(args, kwargs, apart)
            return function(*args, **kwargs)
        except BaseException as error:
            shorten(error)
            raise

    public.__name__ = public.__qualname__ = name
    public.__doc__ = function.__doc__
    public.__wrapped__ = function  # type: ignore[attr-defined]
    shown: list[Any] = [public]  # the function that overrides see: the caching form, where there is one
    public.shown = shown  # type: ignore[attr-defined]
    if not checked:
        public.guards = FUNCTION_MODE | OBSERVED, False  # type: ignore[attr-defined]
    return public


def function_of(name: str) -> Callable[..., Any]:
    """The function of a table operator (made when first asked for)."""
    found = _FUNCTIONS.get(name)
    if found is None:
        found = _FUNCTIONS[name] = make_function(Caller(OPERATORS[name]))
    return found


def into_given(out: Any) -> dict[str, Any]:
    """The keyword that hands `out` on, where there is one: a call that names it takes a longer way to its plan."""
    return {} if out is None else {"out": out}


def method_of(name: str) -> Callable[..., Any]:
    """The method form of a table operator."""
    found = _METHODS.get(name)
    if found is None:
        op = OPERATORS[name]
        required = [a for a in op.schema.arguments if a.required]
        unary = len(required) == 1 and required[0].base == "Tensor" and not required[0].is_sequence
        found = _METHODS[name] = make_unary(Caller(op)) if unary else function_of(name)
    return found


def inplace_of(name: str) -> Callable[..., Any]:
    """The in-place form of a table operator."""
    found = _INPLACE.get(name)
    if found is None:
        found = _INPLACE[name] = make_inplace(InplaceCaller(Caller(OPERATORS[name])))
    return found


def inplace_operator_of(name: str) -> Callable[..., Any]:
    """Python's in-place operator (`x += y`) of a table operator."""
    return make_inplace(InplaceCaller(Caller(OPERATORS[name])), inplace_of(name))


def install_operators() -> None:
    """Give every row of the table its functions and methods."""
    for name, op in OPERATORS.items():
        _install(name, op)


def _install(name: str, op: Operator) -> None:
    names = [op.public, *[a for a in op.aliases if "." not in a]]
    for space in op.spaces:
        table = SPACES.setdefault(space, Space(space))
        make = with_inplace_flag if space == "nn.functional" and "inplace_flag" in op.tags else function_of
        for word in names:
            table.promise(word, make, name)
    for dotted in op.aliases:
        space, dot, word = dotted.rpartition(".")
        if dot:
            SPACES.setdefault(space, Space(space)).promise(word, function_of, name)
    if op.method:
        for word in [op.method] if isinstance(op.method, str) else names:
            _install_method(word, method_of, name)
    if op.inplace:
        for word in names:
            _install_method(word + "_", inplace_of, name)
            for space in op.inplace_spaces:
                SPACES.setdefault(space, Space(space)).promise(word + "_", inplace_of, name)


def _install_method(word: str, make: Callable[[str], Any], name: str) -> None:
    if word not in Tensor.__dict__:
        setattr(Tensor, word, LazyMethod(word, make, name))


def with_inplace_flag(name: str) -> Callable[..., Any]:
    """The `nn.functional` form with `inplace=False` as its last argument."""
    plain = function_of(name)
    count = OPERATORS[name].schema.positional

    state, known = STATE, plain_classes

    def function(*args: Any, inplace: bool = False, **kwargs: Any) -> Any:
        if state.word & FUNCTION_MODE or not args or type(args[0]) not in known:
            handled, found = HOOKS.override(made, args, {**kwargs, "inplace": inplace} if inplace else kwargs)
            if handled:
                return found
        if len(args) > count:
            *args, inplace = args
        return inplace_of(name)(*args, **kwargs) if inplace else plain(*args, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = plain.__doc__
    function.operator, function.inplace_flag = OPERATORS[name], True  # type: ignore[attr-defined]
    made = make_guard(function, plain, FUNCTION_MODE, count, named=False)
    del made.__wrapped__  # it takes an argument more than the plain form
    return made


def asking(function: Callable[..., Any], cached: Sequence[str] = ()) -> Callable[..., Any]:
    """The public form of a plain Python function: modes and subclasses may override it.  For `cached` see `composite`."""
    hooks, state, plain = HOOKS, STATE, plain_classes

    @functools.wraps(function)
    def public(*args: Any, **kwargs: Any) -> Any:
        try:
            asked = state.word & FUNCTION_MODE
            if not asked:
                for value in (*args, *kwargs.values()) if kwargs else args:
                    kind = type(value)
                    if kind not in plain and kind not in _NUMBERS and hasattr(kind, "__torch_function__"):
                        asked = True
                        break
            if asked:
                handled, made = hooks.override(shown[0], args, kwargs)
                if handled:
                    return made
            return function(*args, **kwargs)
        except BaseException as error:
            shorten(error)
            raise

    shown: list[Any] = [public]
    public.shown = shown  # type: ignore[attr-defined]
    public.guards = FUNCTION_MODE, True  # type: ignore[attr-defined]
    return _cached(public, cached, 1, True, None, False) if cached else guarded(public)


def row_of(value: Any) -> tuple[str, Operator] | None:
    """Which row of the table a function or method is made from, and which of its forms it is: "function", "inplace" or
    "binary".
    """
    if isinstance(value, LazyMethod):
        if value.argument not in OPERATORS:
            return None
        return (
            "inplace" if value.make is inplace_of else "binary" if value.make is binary_of else "function",
            OPERATORS[value.argument],
        )
    for kind, made in (("function", _FUNCTIONS), ("function", _METHODS), ("inplace", _INPLACE), ("binary", _BINARY)):
        for name, each in made.items():
            if each is value:
                return kind, OPERATORS[name]
    row = getattr(value, "operator", None) or getattr(getattr(value, "__wrapped__", None), "operator", None)
    return ("function", row) if isinstance(row, Operator) else None


def row_named(name: str) -> Operator | None:
    """The row that has this public name, its own or another."""
    return next((op for op in OPERATORS.values() if name == op.public or name in op.aliases), None)


def binary_of(name: str) -> Callable[[Any, Any], Any]:
    """The form for Python's operators."""
    found = _BINARY.get(name)
    if found is None:
        found = _BINARY[name] = make_binary(Caller(OPERATORS[name]))
    return found
