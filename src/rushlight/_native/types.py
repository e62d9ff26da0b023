"""The types, and everything else but functions that a native function can name.

A *native function* is Python source in a small subset (see the package's docstring).  The names in it resolve to
ordinary Python objects: a `Type` (called, it casts), an `Intrinsic`, an `Extern` (a C function), an `ExternData` (a C
variable), a `Static` (zeroed memory of the compiled unit), `Words` (names for places), a `Record` (typed fields),
another native function, or a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any

__all__ = [
    "TYPES", "Extern", "ExternData", "Field", "Listed", "Record", "Signature", "Static", "Type", "Words", "extern", "extern_data", "listed", "pyobject",
    "static", "f32", "f64", "i1", "i8", "i16", "i32", "i64", "ptr", "u8", "u16", "u32", "u64", "void",
]  # fmt: skip


class Type:
    """A machine type.  `kind` is b(ool), i(nt), u(nsigned), f(loat), p(ointer) or v(oid); `bits` its width."""

    __slots__ = ("bits", "kind", "llvm", "name")

    def __init__(self, name: str, llvm: str, kind: str, bits: int) -> None:
        self.name, self.llvm, self.kind, self.bits = name, llvm, kind, bits

    def __repr__(self) -> str:
        return self.name

    def __call__(self, value: object) -> object:
        raise TypeError(f"{self.name}(x) is a cast inside a @native function; it does nothing in Python")

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        """Whether it is an integer, signed or not (i1 is not one)."""
        return self.kind in "iu"

    @property
    def is_signed(self) -> bool:
        return self.kind in "if"

    @property
    def itemsize(self) -> int:
        """Size in memory, in bytes."""
        return max(1, self.bits // 8)


void = Type("void", "void", "v", 0)
i1 = Type("i1", "i1", "b", 1)
i8, i16, i32, i64 = (Type(f"i{n}", f"i{n}", "i", n) for n in (8, 16, 32, 64))
u8, u16, u32, u64 = (Type(f"u{n}", f"i{n}", "u", n) for n in (8, 16, 32, 64))
f32 = Type("f32", "float", "f", 32)
f64 = Type("f64", "double", "f", 64)
ptr = Type("ptr", "ptr", "p", 64)

pyobject = Type("pyobject", "ptr", "p", 64)  # the address of a Python object, in the declaration of a record alone

TYPES: dict[str, Type] = {t.name: t for t in (void, i1, i8, i16, i32, i64, u8, u16, u32, u64, f32, f64, ptr)}


class Words:
    """Names for the words of a block of memory, in order: `AT.size` is the place of the word `size`, in Python and in
    native functions (`at.i64[AT.size]`).  `first` is the place of the first; iterating gives the names.

        >>> AT = Words("size step", first=8)
        >>> AT.step, len(AT), list(AT)
        (9, 2, ['size', 'step'])
        >>> AT.listed({"step": 2, "size": 5})
        (5, 2)
    """

    __slots__ = ("_pick", "_places")

    def __init__(self, names: str, first: int = 0) -> None:
        listed = names.split()
        self._places = {name: first + n for n, name in enumerate(listed)}
        if len(self._places) != len(listed):
            raise ValueError("a word is named twice")
        self._pick = itemgetter(*listed)

    def listed(self, values: Mapping[str, int]) -> tuple[int, ...]:
        """The values of two words or more, by their names, in order."""
        return self._pick(values)

    def __getattr__(self, name: str) -> int:
        try:
            return self._places[name]
        except KeyError:
            raise AttributeError(f"there is no word {name!r}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class Listed:
    """The type of a field that holds where a list lies: as many words on from the field itself as it says."""

    __slots__ = ("item",)

    def __init__(self, item: Type | Record) -> None:
        self.item = item

    def __repr__(self) -> str:
        return f"listed({self.item!r})"


class Field:
    """One field of a `Record`: `place` counts words from the record's first, `type` says what is there, `meaning` what
    it is for.

    To native code a Python object is a `ptr`; `declared` tells it from other addresses.
    """

    __slots__ = ("declared", "meaning", "name", "place", "type")

    def __init__(self, name: str, place: int, declared: Type | Listed | Record, meaning: str) -> None:
        self.name, self.place, self.declared, self.meaning = name, place, declared, meaning
        self.type = ptr if declared is pyobject else declared

    def __repr__(self) -> str:
        return f"{self.name} @{self.place}: {self.declared!r}"


class Record:
    """A layout of named, typed words, which native code and Python both follow.

    Rows are (name, type, meaning).  A type is one of the native language's, of 64 bits; `pyobject`, the address of a
    Python object; `listed(T)`, a list of T that lies elsewhere; or another record, which lies here.  In a native
    function `p[R.name]` reads or writes the field of the record at `p`, with its type; of a list, and of a record
    within, it is the address.

        >>> PAIR = Record("pair", ("size", i64, "in bytes"), ("owner", ptr, "an object"))
        >>> PAIR.owner.place, len(PAIR)
        (1, 2)
    """

    __slots__ = ("by_name", "label", "width")

    def __init__(self, label: str, *rows: tuple[str, Any, str]) -> None:
        self.label, self.width = label, 0
        self.by_name: dict[str, Field] = {}
        for name, type_, meaning in rows:
            if name in self.by_name:
                raise ValueError(f"{label}: the field {name!r} is there twice")
            if isinstance(type_, Type) and type_.bits != 64:
                raise ValueError(f"{label}.{name}: a field has 64 bits, not {type_.bits}")
            self.by_name[name] = Field(name, self.width, type_, meaning)
            self.width += len(type_) if isinstance(type_, Record) else 1

    def __repr__(self) -> str:
        return f"record({self.label})"

    def __getattr__(self, name: str) -> Field:
        if name in Record.__slots__:  # not set yet
            raise AttributeError(name)
        try:
            return self.by_name[name]
        except KeyError:
            raise AttributeError(f"{self.label} has no field {name!r}") from None

    def __iter__(self) -> Iterator[Field]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return self.width


class Signature:
    """A parsed signature such as `i64(ptr, i64)`; `...` as the last argument makes a C vararg function."""

    __slots__ = ("args", "result", "text", "varargs")

    def __init__(self, text: str) -> None:
        head, open_, rest = text.partition("(")
        words = [w.strip() for w in rest.rstrip().removesuffix(")").split(",") if w.strip()]
        self.varargs = bool(words) and words[-1] == "..."
        if self.varargs:
            words.pop()
        try:
            self.result = TYPES[head.strip()]
            self.args = tuple(TYPES[w] for w in words)
        except KeyError as error:
            raise ValueError(f"unknown type {error} in signature {text!r}; known: {', '.join(TYPES)}") from None
        if not open_ or not rest.rstrip().endswith(")") or void in self.args:
            raise ValueError(f"malformed signature {text!r}; expected for example 'i64(ptr, i64)'")
        self.text = text

    @property
    def llvm(self) -> str:
        """The LLVM function type."""
        words = [t.llvm for t in self.args] + (["..."] if self.varargs else [])
        return f"{self.result.llvm} ({', '.join(words)})"


class Extern:
    """A C function that the loader finds in the process (libc, libm, CPython) or among given symbols."""

    __slots__ = ("signature", "symbol")

    def __init__(self, symbol: str, signature: str) -> None:
        self.symbol, self.signature = symbol, Signature(signature)

    def __repr__(self) -> str:
        return f"extern({self.symbol!r}, {self.signature.text!r})"

    def __call__(self, *args: object) -> object:
        raise TypeError(f"{self.symbol} is callable only inside a @native function")


class ExternData:
    """A C variable; its value inside a native function is its address."""

    __slots__ = ("symbol",)

    def __init__(self, symbol: str) -> None:
        self.symbol = symbol

    def __repr__(self) -> str:
        return f"extern_data({self.symbol!r})"


class Static:
    """Zero-initialised memory inside the compiled unit; its value inside a native function is its address."""

    __slots__ = ("nbytes", "symbol")

    def __init__(self, symbol: str, nbytes: int) -> None:
        self.symbol, self.nbytes = symbol, nbytes

    def __repr__(self) -> str:
        return f"static({self.symbol!r}, {self.nbytes})"


def listed(item: Type | Record) -> Listed:
    """The type of a field that says where a list of such items lies."""
    return Listed(item)


def extern(symbol: str, signature: str) -> Extern:
    """Declare a C function: `log = extern("log", "f64(f64)")`."""
    return Extern(symbol, signature)


def extern_data(symbol: str) -> ExternData:
    """Declare a C variable: `index_error = extern_data("PyExc_IndexError")`."""
    return ExternData(symbol)


def static(symbol: str, nbytes: int) -> Static:
    """Declare zeroed memory that lives as long as the compiled unit (one copy for each unit, but for units that import
    it).
    """
    return Static(symbol, nbytes)
