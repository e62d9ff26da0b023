"""From conditions in Python to words in memory: `Notes` follows the expressions of a trace's reads on the values that
are there now, and writes down which words must stay as they are for each condition to hold again.

A value is either *pinned*, its address is known and some word before says that it is still there, or in a *register* of
the native code, found anew at every call: tensors among the arguments, and whatever has turned out to be another object
each time.  What a dict holds is pinned by the dict's version, what a slot, a list or a cell holds by the word there.  A
number or a text that is pinned by a word is held, so that its address cannot become another's; everything else need not
be (see `_host.guard_native`).

Expressions that are not known here raise `Unnoted`: their conditions stay in Python.
"""

from __future__ import annotations

import ast
import re
import struct
import types
from array import array
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any

from rushlight._base.by_class import by_class
from rushlight._capture.trace.guards.sources import Source
from rushlight._capture.trace.outside import autograd_facts
from rushlight._engine.core.state import STATE
from rushlight._engine.core.tensor import AutogradMeta, Tensor
from rushlight._host import guard_native as native
from rushlight._host.dict_versions import version_place
from rushlight._host.guard_native import GUARD_HEADER, GUARD_OPS
from rushlight._native.mutable_objects import (
    BOUND_PLACES,
    CELL_CONTENTS,
    CLASS_ORDER,
    CONTAINER_SIZE,
    DICT_VERSION,
    DICTS_HAVE_VERSIONS,
    FUNCTION_PLACES,
    LIST_ITEMS,
    ORDERED_STATE,
    SET_SIZE,
    class_dict,
    class_name_place,
    dict_place,
    member_offset,
    word_at,
)
from rushlight._native.objects import TUPLE_ITEMS

__all__ = ["Notes", "Unnoted"]

_ERRORS = (AttributeError, IndexError, KeyError, TypeError, ValueError)
_MANY_ALIKE = 12  # equal words from which on an instruction of their own is faster
_NEVER = (1 << 64) - 1  # no count of changes
_MADE_BY_PYTHON = 1 << 9  # among the flags of a class
_FIXED_TYPE = 1 << 8  # the attributes of such types cannot change
_HEAP_TYPE = 1 << 9  # only objects of such types can be given another class
_SIZES = {list: CONTAINER_SIZE, tuple: CONTAINER_SIZE, dict: CONTAINER_SIZE, set: SET_SIZE, frozenset: SET_SIZE}
# Types that are checked anew at every call where they are no part of a pinned object.
_PASSING = (int, float, complex, str, bytes, list, tuple, dict, Tensor)
_OWN = frozenset(("_storage", "_autograd_meta", "_node", "_ptr"))  # what each tensor has for itself
_SINGLETONS = (None, True, False, Ellipsis, NotImplemented)
_IMMUTABLE = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), frozenset, slice, range)


class Unnoted(Exception):
    """There are no words for this condition."""


class At:
    """A value and where it is: in a register, or pinned (register 0).

    `key` names the step that led to it.  `derived` ones have no address.  `same` are not only where they were, but the
    same object: what a dict of the same version holds.  A pinned one is there, and of its type, once all words of lower
    levels than its `level` were found as noted.
    """

    __slots__ = ("derived", "key", "level", "register", "same", "value")

    def __init__(
        self,
        value: Any,
        register: int = 0,
        key: Hashable = None,
        derived: bool = False,
        same: bool = False,
        level: int = 0,
    ) -> None:
        self.value, self.register, self.key, self.derived, self.same = value, register, key, derived, same
        self.level = level


_TOKENS = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\bc\d+\b|\{\}")


def _parsed(text: str) -> tuple[ast.expr, list[str]]:
    """An expression with `X` for its source, `k0`, `k1`, ... for constants, and the names of these."""
    names: list[str] = []

    def plain(found: re.Match[str]) -> str:
        token = found.group()
        if token == "{}":
            return "X"
        if token[0] != "c":
            return token
        names.append(token)
        return f"k{len(names) - 1}"

    return _tree(_TOKENS.sub(plain, text)), names


@lru_cache(512)
def _tree(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


class Notes:
    """The words for `entries` (see `Reads`), as they are now; `table` writes them for the native code.

    `space` has the constants by name, `state` is what the segment was given.  `moving` are the keys of steps that are
    not to be pinned; `pins` tells for each step that was, the word that it was pinned to.  `trees` keeps what was
    parsed.  `left` are the numbers of the conditions that stay in Python.
    """

    def __init__(
        self,
        entries: Sequence[tuple[str, Source, str]],
        space: Mapping[str, Any],
        state: Sequence[Any],
        moving: set[Hashable],
        trees: dict[str, tuple[ast.expr, list[str]]],
    ) -> None:
        self.space, self.state, self.moving, self._trees = space, state, moving, trees
        self.held: list[Any] = []
        self.pins: dict[Hashable, int] = {}
        self.left: list[int] = []
        self._words = array("Q")
        self._pairs: list[tuple[int, int, int]] = []  # level, word, address
        self._last: int | None = None  # where the last instruction is, if it is `words`
        self._seen: dict[int, tuple[int, int]] = {}  # by addresses: word, level
        self._dicts: dict[int, int] = {}  # versions of dicts by their addresses
        self._versions: dict[int, int] = {}  # counts of changes of watched dicts, by where they lie
        self._checked: set[tuple[int, int]] = set()
        self._variables: dict[str, At] = {}
        self._set: dict[int, int] = {}
        self._buffers: dict[int, int] = {}  # registers with the items of lists in registers
        self._registers = native.THREAD + 1
        self._at = (0, 0)
        self._names: list[str] = []
        self._source: At | None = None
        for number, (kind, source, condition) in enumerate(entries):
            self._at = (number, 0)
            try:
                if kind == "load":
                    self._variables[source.variable] = self._load(source)
                else:
                    self._source = self._variable(source)
                    self._require(self._parsed(condition), True)
            except (Unnoted, *_ERRORS):
                if kind == "check":
                    self.left.append(number)

    def table(self, wanted: Sequence[str]) -> bytes:
        """The native code's table; it gives the values of the variables `wanted`.  Unnoted where one of them is not
        known.
        """
        places = [self._name(name) for name in wanted]
        self._flush()
        number = 0
        for moves, group in groupby(places, lambda place: place.register != 0):
            those = [*group]
            if moves:
                for k, place in enumerate(those, number):
                    self._words.extend((GUARD_OPS.out, place.register, k, 0))
            else:
                self._words.extend((GUARD_OPS.given, len(those), number, 0, *[id(place.value) for place in those]))
            number += len(those)
        self._words.extend((GUARD_OPS.end, 0, 0, 0))
        words = array("Q", [{"outputs": len(wanted)}.get(name, 0) for name in GUARD_HEADER])
        if self._versions:
            words.extend((GUARD_OPS.versions, len(self._versions), _NEVER, 0))
            for pair in self._versions.items():
                words.extend(pair)
        return (words + self._words).tobytes()

    # ***** writing words *****

    def _emit(self, op: int, x: int, y: int, z: int = 0) -> None:
        self._flush()
        self._last = None
        self._words.extend((op, x, y & (1 << 64) - 1, z & (1 << 64) - 1))

    def _flush(self) -> None:
        """Write the pairs of addresses and words, lower levels first; many equal words of a level share an instruction.
        Instructions are few: each costs as much as several pairs.
        """
        if not self._pairs:
            return
        self._last = None
        pairs: list[int] = []
        for _, level in groupby(sorted(self._pairs), itemgetter(0)):
            single: list[int] = []
            for word, found in groupby(level, itemgetter(1)):
                addresses = [address for _, _, address in found]
                many = len(addresses) & ~3 if len(addresses) >= _MANY_ALIKE else 0
                if many:
                    self._write_run(pairs)
                    self._words.extend((GUARD_OPS.alike, many, 0, word, *addresses[:many]))
                for address in addresses[many:]:
                    single += (address, word)
            pairs += single
        self._write_run(pairs)
        self._pairs.clear()

    def _write_run(self, pairs: list[int]) -> None:
        """Write the instruction of pairs, and begin anew."""
        if pairs:
            self._words.extend((GUARD_OPS.run, len(pairs) // 2, 0, 0, *pairs))
            pairs.clear()

    def _absolute(self, address: int, word: int, level: int) -> int:
        """Require the word at an address that is valid at a level; the level from which on this is known."""
        seen = self._seen.get(address)
        if seen is None or seen[0] != word:
            seen = self._seen[address] = word, level
            self._pairs.append((level, word, address))
        return seen[1] + 1

    def _word(self, base: At, offset: int, word: int) -> None:
        """Require a word of an object."""
        if base.register == 0:
            self._absolute(id(base.value) + offset, word, base.level)
        else:
            self._words_of(base.register, offset, word)

    def _words_of(self, register: int, offset: int, word: int) -> None:
        """Require a word of the object in a register, with others of it if these came last."""
        self._flush()
        if self._last is None or self._words[self._last + 1] != register:
            self._last = len(self._words)
            self._words.extend((GUARD_OPS.words, register, 0, 0))
        self._words[self._last + 2] += 1
        self._words.extend((offset & (1 << 64) - 1, word))

    def _register(self) -> int:
        self._registers += 1
        if self._registers > native.REGISTERS:
            raise Unnoted("too many registers")
        return self._registers - 1

    def _registered(self, place: At) -> int:
        """A register with the address of a value, also of a pinned one."""
        if place.register:
            return place.register
        address = id(place.value)
        found = self._set.get(address)
        if found is None:
            found = self._set[address] = self._register()
            self._emit(GUARD_OPS.set, native.ZERO, address, found)
        return found

    # ***** steps from value to value *****

    def _step(self) -> tuple[int, int]:
        self._at = (self._at[0], self._at[1] + 1)
        return self._at

    def _follow(self, base: At, offset: int, value: Any, passing: bool = False) -> At:
        """The object that a word of `base` points to; it is not pinned if it goes as `base` does (`passing`)."""
        if base.derived:
            raise Unnoted("no object")
        if base.register == 0:
            return self._pointed(id(base.value) + offset, value, base.level)
        key = self._step()
        if not passing and self._pinnable(key, value):
            self._words_of(base.register, offset, id(value))
            return self._pinned(key, value)
        register = self._register()
        self._emit(GUARD_OPS.load, base.register, offset, register)
        return At(value, register, key)

    def _pointed(self, address: int, value: Any, level: int) -> At:
        """The object that the word at an address, valid at a level, points to."""
        key = self._step()
        if key in self.moving:
            register = self._register()
            self._emit(GUARD_OPS.load, native.ZERO, address, register)
            return At(value, register, key)
        return self._pinned(key, value, self._absolute(address, id(value), level))

    def _pinned(self, key: Hashable, value: Any, level: int = 0) -> At:
        if isinstance(value, _IMMUTABLE):
            self.held.append(value)
        self.pins[key] = id(value)
        return At(value, 0, key, level=level)

    def _settled(self, key: Hashable, value: Any, register: int, firm: bool = False) -> At:
        """The object in a register: pinned if it is likely to be the same at the next call, as all that a pinned
        object holds (`firm`).
        """
        if not self._pinnable(key, value, firm):
            return At(value, register, key)
        self._emit(GUARD_OPS.same, register, id(value))
        return self._pinned(key, value)

    def _pinnable(self, key: Hashable, value: Any, firm: bool = False) -> bool:
        """Whether a value is likely to be the same at the next call."""
        if key in self.moving:
            return False
        return firm or not isinstance(value, _PASSING) or any(value is each for each in _SINGLETONS)

    def _typed(self, place: At) -> None:
        """Require the type of a value."""
        kind = type(place.value)
        if place.derived or (place.same and not kind.__flags__ & _HEAP_TYPE):
            return
        if place.register == 0:
            level = self._absolute(id(place.value) + 8, id(kind), place.level)
            if not place.same:  # perhaps another object: nothing else is read of it before
                place.level = level
        elif (place.register, 8) not in self._checked:
            self._checked.add((place.register, 8))
            self._word(place, 8, id(kind))
        self.held.append(kind)

    def _sized(self, place: At) -> None:
        """Require the number of elements."""
        value = place.value
        kind: Any = next((each for each in _SIZES if isinstance(value, each)), None)
        if kind is None or type(value).__len__ is not kind.__len__:
            raise Unnoted("len() of something else")
        if place.derived or (place.same and isinstance(value, (tuple, frozenset))):
            return
        if kind is dict and (value or not DICTS_HAVE_VERSIONS) and self._versioned(place):
            return
        self._typed(place)
        if (place.register, _SIZES[kind]) not in self._checked or place.register == 0:
            self._checked.add((place.register, _SIZES[kind]))
            self._word(place, _SIZES[kind], len(value))

    def _versioned(self, place: At) -> bool:
        """Whether a dict is pinned with all that it holds."""
        if place.derived:
            return True
        key = ("version", place.key)
        if place.register or key in self.moving:
            return False
        if DICTS_HAVE_VERSIONS or type(place.value).__flags__ & _HEAP_TYPE:
            self._typed(place)
        if id(place.value) not in self._dicts:
            where = version_place(place.value)
            if where is None:
                return False
            word = self._dicts[id(place.value)] = word_at(where)
            if not DICTS_HAVE_VERSIONS:
                self._versions.setdefault(where, word)
        self.pins[key] = word = self._dicts[id(place.value)]
        if DICTS_HAVE_VERSIONS:
            place.level = self._absolute(id(place.value) + DICT_VERSION, word, place.level)
        else:  # it has been watched since: it is not only where it was, but the same, and this is found out first
            place.level, place.same = 0, True
        return True

    def _item(self, base: At, key: Any) -> At:
        """`base[key]`."""
        value, kind = base.value, type(base.value)
        if isinstance(value, dict):
            if kind.__getitem__ is not dict.__getitem__ or key not in value:
                raise Unnoted("a dict with its own way to an item")
            return self._dict_item(base, key, value[key])
        native_kind = list if isinstance(value, list) else tuple
        if not isinstance(value, (list, tuple)) or kind.__getitem__ is not native_kind.__getitem__:
            raise Unnoted("items of something else")
        index = range(len(value))[key]
        found = value[index]
        if base.derived:
            return At(found, 0, self._step(), same=True, level=base.level)
        self._sized(base)
        if base.same and isinstance(value, tuple):
            return At(found, 0, self._step(), same=True, level=base.level)
        if isinstance(value, tuple):
            return self._follow(base, 8 * (TUPLE_ITEMS + index), found)
        if base.register == 0:
            buffer = word_at(id(value) + LIST_ITEMS)
            level = self._absolute(id(value) + LIST_ITEMS, buffer, base.level)  # the length is known then, too
            return self._pointed(buffer + 8 * index, found, level)
        buffer = self._buffers.get(base.register, 0)
        if not buffer:
            buffer = self._buffers[base.register] = self._register()
            self._emit(GUARD_OPS.load, base.register, LIST_ITEMS, buffer)
        step, register = self._step(), self._register()
        self._emit(GUARD_OPS.load, buffer, 8 * index, register)
        return self._settled(step, found, register)

    def _dict_item(self, base: At, key: Any, found: Any) -> At:
        step = self._step()
        if self._versioned(base):
            return At(found, 0, step, same=True, level=base.level)
        if type(key) is not str:
            raise Unnoted("keys that are no texts")
        self._typed(base)
        self._key(key)
        register = self._register()
        self._emit(GUARD_OPS.item, self._registered(base), id(key), register)
        return self._settled(step, found, register, base.register == 0)

    def _key(self, key: str) -> None:
        hash(key)  # kept in the text, for the native code
        self.held.append(key)

    # ***** expressions *****

    def _variable(self, source: Source) -> At:
        return self._name(source.variable)

    def _name(self, name: str) -> At:
        found = self._variables.get(name)
        if found is None:
            if name in self.space:
                found = At(self.space[name], 0, name, same=True)
            elif name.startswith("s["):
                found = self._state_item(int(name[2:-1]))
            else:
                raise Unnoted(name)
            self._variables[name] = found
        return found

    def _state_item(self, number: int) -> At:
        register = self._register()
        self._emit(GUARD_OPS.load, native.STATE, 8 * number, register)
        return self._settled(("state", number), self.state[number], register)

    def _load(self, source: Source) -> At:
        self._source = None if source.base is None else self._variable(source.base)
        return self._value(self._parsed(source.pattern))

    def _parsed(self, text: str) -> ast.expr:
        found = self._trees.get(text)
        if found is None:
            found = self._trees[text] = _parsed(text)
        self._names = found[1]
        return found[0]

    def _value(self, node: ast.expr) -> At:
        """Translate an expression."""
        found = _FORMS.get(type(node))
        if found is None:
            raise Unnoted(ast.dump(node))
        return found(self, node)

    def _named(self, node: ast.Name) -> At:
        if node.id == "X":
            assert self._source is not None
            return self._source
        if node.id[0] == "k" and node.id[1:].isdigit():
            return self._name(self._names[int(node.id[1:])])
        return self._name(node.id)

    def _constant(self, node: ast.Constant) -> At:
        return At(node.value, 0, None, True)

    def _negative(self, node: ast.UnaryOp) -> At:
        if not isinstance(node.op, ast.USub) or not isinstance(node.operand, ast.Constant):
            raise Unnoted(ast.dump(node))
        return At(-node.operand.value, 0, None, True)  # type: ignore[operator]

    def _difference(self, node: ast.BinOp) -> At:
        a, b = self._value(node.left), self._value(node.right)
        if not isinstance(node.op, ast.Sub) or a.register or b.register:
            raise Unnoted(ast.dump(node))
        if type(a.value) is not int or type(b.value) is not int:
            raise Unnoted("a difference")
        return At(a.value - b.value, 0, None, True)

    def _of_object(self, node: ast.Attribute) -> At:
        return self._attribute(self._value(node.value), node.attr)

    def _subscript(self, node: ast.Subscript) -> At:
        if isinstance(node.value, ast.Name) and node.value.id == "s" and isinstance(node.slice, ast.Constant):
            return self._name(f"s[{node.slice.value!r}]")
        base, key = self._value(node.value), self._value(node.slice)
        if key.register:
            raise Unnoted("a key that changes")
        return self._item(base, key.value)

    def _called(self, node: ast.Call) -> At:
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr == "get" and len(node.args) == 1:
            held, key = self._value(function.value), self._value(node.args[0])
            if not isinstance(held.value, dict) or type(held.value).get is not dict.get or key.register:
                raise Unnoted("get()")
            if key.value in held.value:
                return self._item(held, key.value)
            if self._versioned(held):
                return At(None)
        raise Unnoted("a call")

    def _listed(self, node: ast.List) -> At:
        """`[*X]` or `[*X.values()]` of a dict."""
        (item,) = node.elts
        assert isinstance(item, ast.Starred)
        inner, values = item.value, False
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == "values":
            inner, values = inner.func.value, True
        held = self._value(inner)
        if not isinstance(held.value, dict) or type(held.value) not in (dict, OrderedDict, defaultdict):
            raise Unnoted("a list of something else")
        if not self._versioned(held):
            raise Unnoted("the keys of a dict that changes")
        if type(held.value) is OrderedDict and not held.derived:
            self._absolute(id(held.value) + ORDERED_STATE, word_at(id(held.value) + ORDERED_STATE), held.level)
        return At(list(held.value.values() if values else held.value), 0, None, True, level=held.level)

    def _attribute(self, base: At, name: str) -> At:
        value, kind = base.value, type(base.value)
        if base.derived:
            raise Unnoted("an attribute of no object")
        if value is STATE:
            return self._thread_item(name)
        if name == "__dict__":
            return self._dict_of(base)
        if isinstance(value, type):
            if name == "__mro__":
                return self._follow(base, CLASS_ORDER, value.__mro__)
            place = class_name_place() if name == "__name__" and value.__flags__ & _MADE_BY_PYTHON else None
            if place is not None and type(value) is type:
                return self._follow(base, place, value.__name__)
            return self._class_attribute(base, name)
        self._typed(base)
        if kind is types.FunctionType and name in FUNCTION_PLACES:
            return self._follow(base, FUNCTION_PLACES[name], getattr(value, name))
        if name in BOUND_PLACES.get(kind, ()):
            return self._follow(base, BOUND_PLACES[kind][name], getattr(value, name))
        if kind is types.CellType and name == "cell_contents":
            return self._follow(base, CELL_CONTENTS, value.cell_contents)
        raw = next((each.__dict__[name] for each in kind.__mro__ if name in each.__dict__), None)
        if isinstance(raw, types.MemberDescriptorType):
            offset = member_offset(kind, raw)
            if offset is None:
                raise Unnoted("a member that is no object")
            return self._follow(base, offset, getattr(value, name), name in _OWN)
        if raw is Tensor.__dict__["requires_grad"]:
            return self._slot(base, Tensor, "_rg")
        if raw is Tensor.__dict__["grad"]:
            meta = self._slot(base, Tensor, "_autograd_meta")
            return At(None) if meta.value is None else self._slot(meta, AutogradMeta, "grad")
        raise Unnoted(f"the attribute {name}")

    def _class_attribute(self, base: At, name: str) -> At:
        """An attribute from the dict of a class or of one that it inherits from."""
        kind = base.value
        if base.register or any(name in each.__dict__ for each in type(kind).__mro__):
            raise Unnoted("an attribute of a metaclass")
        for each in kind.__mro__:
            held = self._dict_of(base if each is kind else At(each, 0, (*self._step(), "class"), same=True))
            self.held.append(each)
            if name in each.__dict__:
                if hasattr(type(each.__dict__[name]), "__get__"):
                    raise Unnoted("a descriptor")
                return self._item(held, name)
            self._contains(At(name, derived=True), held)
        raise Unnoted("no attribute of the class")

    def _slot(self, base: At, kind: type, name: str) -> At:
        if base.value is None and base.register:
            raise Unnoted("a slot that is filled at times")
        value = kind.__dict__[name].__get__(base.value)
        return self._follow(base, _slot_offset(kind, name), value, name in _OWN and value is not None)

    def _thread_item(self, name: str) -> At:
        """An attribute of this thread's dispatch state."""
        register, value = self._register(), STATE.__dict__[name]
        self._key(name)
        self._emit(GUARD_OPS.item, native.THREAD, id(name), register)
        return At(value, register)

    def _dict_of(self, base: At) -> At:
        value = base.value
        offset = dict_place(value)
        if offset is None:
            raise Unnoted("an object whose dict lies elsewhere")
        if isinstance(value, type):
            held = class_dict(value)
            if held is None:
                raise Unnoted("a class with a dict of its own type")
            if value.__flags__ & _FIXED_TYPE and not base.register:
                return At(held, 0, self._step(), True, level=base.level)
            return self._follow(base, offset, held)
        self._typed(base)
        return self._follow(base, offset, value.__dict__)

    # ***** conditions *****

    def _require(self, node: ast.expr, expected: bool) -> None:
        """Require that a condition is true (or is not)."""
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And) and expected:
            for each in node.values:
                self._require(each, True)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self._require(node.operand, not expected)
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            self._compare(node.left, node.ops[0], node.comparators[0], expected)
        else:
            self._truth(self._value(node))

    def _truth(self, place: At) -> None:
        value = place.value
        if isinstance(value, tuple(_SIZES)):
            self._sized(place)
        elif place.register and type(value) is int:
            self._integer(place)
        elif place.register or not isinstance(value, _IMMUTABLE):
            raise Unnoted("the truth of an object")

    def _integer(self, place: At) -> None:
        if not -(1 << 62) < place.value < 1 << 62:
            raise Unnoted("a large number")
        self._typed(place)
        self._emit(GUARD_OPS.integer, place.register, place.value)

    def _compare(self, left: ast.expr, op: ast.cmpop, right: ast.expr, expected: bool) -> None:
        if isinstance(op, (ast.Is, ast.IsNot)):
            self._identical(left, right, isinstance(op, ast.Is) is expected)
        elif isinstance(op, ast.Eq) and expected:
            self._equal(left, right)
        elif isinstance(op, (ast.In, ast.NotIn)):
            self._contains(self._value(left), self._value(right))
        else:
            raise Unnoted(ast.dump(op))

    def _identical(self, left: ast.expr, right: ast.expr, wanted: bool) -> None:
        if isinstance(left, ast.Compare) and isinstance(right, ast.Constant):
            self._require(left, right.value is wanted)
            return
        if _call_of(left, "type") and wanted:
            self._typed(self._value(left.args[0]))  # type: ignore[attr-defined]
            return
        if isinstance(left, ast.Attribute) and left.attr == "is_leaf" and isinstance(right, ast.Constant):
            self._leaf(self._value(left.value), right.value is wanted)
            return
        a, b = self._value(left), self._value(right)
        if a.register == 0:
            a, b = b, a
        if a.register == 0:
            return
        if b.register == 0:
            self._emit(GUARD_OPS.same if wanted else GUARD_OPS.differs, a.register, id(b.value))
        elif wanted:
            self._emit(GUARD_OPS.equal, a.register, b.register)
        else:
            raise Unnoted("different objects")

    def _leaf(self, place: At, leaf: bool) -> None:
        kind = type(place.value)
        if not isinstance(place.value, Tensor) or kind.is_leaf is not Tensor.is_leaf:
            raise Unnoted("is_leaf of something else")
        self._typed(place)
        offset = _slot_offset(Tensor, "_node")
        if leaf:
            self._word(place, offset, id(None))
        else:
            self._emit(GUARD_OPS.other, self._registered(place), offset, id(None))

    def _equal(self, left: ast.expr, right: ast.expr) -> None:
        if _call_of(left, "len"):
            inner = left.args[0]  # type: ignore[attr-defined]
            if isinstance(inner, ast.Set):
                self._distinct(inner)
            else:
                self._sized(self._value(inner))
            return
        if _call_of(left, "repr"):  # of a float that is zero or no number
            left = left.args[0]  # type: ignore[attr-defined]
        if isinstance(left, ast.Call) and self._value(left.func).value is autograd_facts:
            self._facts(self._value(left.args[0]))
            return
        a, b = self._value(left), self._value(right)
        if b.register or (not isinstance(b.value, _IMMUTABLE) and not a.derived):
            raise Unnoted("no constant")
        kind = type(a.value)
        if a.register == 0:
            if not isinstance(a.value, _IMMUTABLE) and not a.derived:
                raise Unnoted("objects that may become equal")
        elif kind is int:
            self._integer(a)
        elif kind is str:
            self._typed(a)
            self._key(a.value)
            self._emit(GUARD_OPS.text, a.register, id(a.value))
        elif kind is float:
            self._typed(a)
            self._word(a, 16, struct.unpack("<Q", struct.pack("<d", a.value))[0])
        else:
            raise Unnoted(f"an equal {kind.__name__}")

    def _facts(self, place: At) -> None:
        """Guard the fields that `autograd_facts` reads."""
        self._typed(place)
        meta = self._slot(place, Tensor, "_autograd_meta")
        if meta.value is None:
            return
        self._slot(meta, AutogradMeta, "inference")
        for name in ("hooks", "post_hooks") if place.value._rg else ():
            held = self._slot(meta, AutogradMeta, name)
            if held.value is not None:
                self._sized(held)

    def _contains(self, item: At, held: At) -> None:
        if item.register or not isinstance(held.value, dict) or type(held.value).__contains__ is not dict.__contains__:
            raise Unnoted("elements of something else")
        self._step()
        if self._versioned(held):
            return
        key = item.value
        if type(key) is not str:
            raise Unnoted("keys that are no texts")
        self._typed(held)
        self._key(key)
        if key in held.value:
            self._emit(GUARD_OPS.item, self._registered(held), id(key), self._register())
        else:
            self._emit(GUARD_OPS.absent, self._registered(held), id(key))

    def _distinct(self, node: ast.Set) -> None:
        """`len({id(a), id(b), ...}) == n`: no two are the same."""
        places = []
        for each in node.elts:
            if not _call_of(each, "id"):
                raise Unnoted("a set of something else")
            place = self._value(each.args[0])  # type: ignore[attr-defined]
            if not place.derived:  # of what is made when it is asked for there is no other
                places.append(place)
        passing = [place.register for place in places if place.register]
        if not passing:
            return
        table = _hash_table([id(place.value) for place in places if not place.register])
        self._emit(GUARD_OPS.distinct, len(passing), len(table) - 1)
        self._words.extend((*passing, *table))


_FORMS: dict[type[ast.expr], Callable[[Notes, Any], At]] = {
    ast.Name: Notes._named, ast.Constant: Notes._constant, ast.UnaryOp: Notes._negative, ast.Subscript: Notes._subscript,
    ast.Attribute: Notes._of_object,
    ast.List: Notes._listed, ast.Call: Notes._called, ast.BinOp: Notes._difference,
}  # fmt: skip


def _call_of(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


@by_class
def _slot_offset(kind: type, name: str) -> int:
    found = member_offset(kind, kind.__dict__[name])
    assert found is not None
    return found


def _hash_table(addresses: Sequence[int]) -> list[int]:
    """Addresses where the native code looks for them; its length is a power of two, or zero."""
    if not addresses:
        return []
    size = 1 << (2 * len(addresses)).bit_length()
    table = [0] * size
    for address in addresses:
        at = native.first_place_of(address, size - 1)
        while table[at]:
            at = (at + 1) & (size - 1)
        table[at] = address
    return table
