"""A reader of pickles that runs no code.

A pickle is a program for a stack machine; the standard reader lets it import anything and call it. This one is an
interpreter for the part of the language that tensors and containers need. Names are looked up in a table of allowed
objects, only those are called, only lists, dicts and sets of its own making are filled, and everything else is an
error.
"""

from __future__ import annotations

import pickle
import pickletools
import struct
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections import Counter, OrderedDict
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any

import rushlight
from rushlight.serialization.allowed import always_allowed, user_globals
from rushlight.serialization.names import OLD_TENSORS, REBUILDERS
from rushlight.serialization.rebuild import CHECKS, DimRange, rebuild_tensor, shown

__all__ = ["SafeUnpickler", "global_names"]

# Never allowed, not even by the user.
_BLOCKED_MODULES = ("sys", "os", "posix", "nt", "subprocess")
# How deep tuples may lie in keys of dicts, and how many lists and tuples in all may lie at one depth: hashing follows
# every path.
_DEEPEST_KEY, _MOST_KEYS = 100, 10**5


def _renamed(module: str, name: str) -> tuple[str, str]:
    """Python 2 spellings, which files have, in today's."""
    if (module, name) in NAME_MAPPING:
        return NAME_MAPPING[module, name]
    return IMPORT_MAPPING.get(module, module), name


# Their arguments hold tensors, and nothing of them is hashed.
_TAKE_TENSORS = frozenset(REBUILDERS)


class _Allowed:
    """An allowed global on the stack: what the file sees of it. It can be called; it cannot be read or changed."""

    __slots__ = ("by_user", "name", "value")

    def __init__(self, name: str, value: Any, by_user: bool) -> None:
        self.name = name
        self.value = value
        self.by_user = by_user


class SafeUnpickler:
    """Reads one pickle from `data`. `persistent_load` makes the storages that the pickle refers to."""

    def __init__(self, data: bytes, persistent_load: Callable[[Any], Any], encoding: str = "utf-8") -> None:
        self._data = data
        self._encoding = encoding
        self._at = 0
        self._persistent_load = persistent_load
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self._always = always_allowed()
        self._by_user = user_globals()

    def load(self) -> Any:
        """Run the pickle and return its value. Raises `pickle.UnpicklingError` for what is not allowed or not a pickle."""
        operations = _OPERATIONS
        # What a file's functions make and look through is bounded by the size of the file.
        before, CHECKS.budget = CHECKS.budget, 2**28 + 64 * len(self._data)
        try:
            while True:
                code = self._data[self._at]
                self._at += 1
                if code == _STOP:
                    return self._finished(self._stack.pop())
                operation = operations.get(code)
                if operation is None:
                    raise UnpicklingError(f"Unsupported operand {code}")
                operation(self)
        except (IndexError, KeyError, struct.error, UnicodeDecodeError) as error:
            raise UnpicklingError(f"corrupt pickle at byte {self._at}: {error!r:.200}") from error
        finally:
            CHECKS.budget = before

    def _finished(self, value: Any) -> Any:
        # Classes and dtypes may be values themselves.
        return value.value if isinstance(value, _Allowed) else value

    # ***** reading *****

    def _read(self, n: int) -> bytes:
        chunk = self._data[self._at : self._at + n]
        if len(chunk) != n:
            raise UnpicklingError("pickle data was truncated")
        self._at += n
        return chunk

    def _number(self, form: struct.Struct) -> Any:
        return form.unpack(self._read(form.size))[0]

    def _line(self) -> str:
        end = self._data.find(b"\n", self._at)
        if end < 0:
            raise UnpicklingError("pickle data was truncated")
        line = self._data[self._at : end]
        self._at = end + 1
        return line.decode("utf-8")

    def _pop_mark(self) -> list[Any]:
        items = [self._finished(item) for item in self._stack]
        self._stack = self._marks.pop()
        return items

    def _pop(self) -> Any:
        return self._finished(self._stack.pop())

    def _pushes(self, value: Any) -> None:
        self._stack.append(value)

    # ***** names and calls *****

    def _global(self) -> None:
        self._push_global(self._line(), self._line())

    def _stack_global(self) -> None:
        name, module = self._pop(), self._pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise UnpicklingError("STACK_GLOBAL requires str")
        self._push_global(module, name)

    def _push_global(self, module: str, name: str) -> None:
        module, name = _renamed(module, name)
        full = f"{module}.{name}"
        if module in _BLOCKED_MODULES:
            raise UnpicklingError(f"Trying to load unsupported GLOBAL {full} whose module {module} is blocked.")
        if full in self._always:
            value = self._always[full]
            self._stack.append(_Allowed(full, value, by_user=False))
        elif full in self._by_user:
            self._stack.append(_Allowed(full, self._by_user[full], by_user=True))
        else:
            shown = full.removeprefix("builtins.")
            raise UnpicklingError(
                f"Unsupported global: GLOBAL {shown} was not an allowed global by default. Please use "
                f"`torch.serialization.add_safe_globals([{shown}])` or the `torch.serialization.safe_globals([{shown}])` "
                "context manager to allowlist this global if you trust this class/function."
            )

    def _reduce(self) -> None:
        args = self._pop()
        function = self._stack.pop()
        if not isinstance(function, _Allowed) or not callable(function.value):
            raise UnpicklingError(f"Trying to call reduce for unrecognized function {shown(function)}")
        if not isinstance(args, tuple):
            raise UnpicklingError(f"the arguments of {function.name} must be a tuple, got {type(args).__name__}")
        self._stack.append(self._call(function, function.value, args))

    def _call(self, source: _Allowed, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if isinstance(source.value, type) and not source.by_user:
            # Tensor classes are allowed as values; of the calls only Parameter(tensor, requires_grad) makes no memory.
            data = args[0] if args else None
            is_parameter = source.name == "torch.nn.parameter.Parameter" and hasattr(data, "requires_grad_")
            if not is_parameter and (function is not DimRange or args):
                raise UnpicklingError(f"Trying to call {source.name}, which is allowed as a value only")
        CHECKS.charge(sum(64 * len(a) for a in args if isinstance(a, (str, bytes, bytearray, list, tuple, dict, set))))
        if not source.by_user and function not in _TAKE_TENSORS and not _is_shallow(args):
            raise UnpicklingError(f"the arguments of {source.name} are nested too deeply")
        try:
            return function(*args)
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            if source.by_user:
                raise
            raise UnpicklingError(f"bad arguments for {source.name}: {error}") from error

    def _new_object(self) -> None:
        args = self._pop()
        cls = self._stack.pop()
        if not isinstance(cls, _Allowed) or not isinstance(args, tuple) or not callable(cls.value):
            raise UnpicklingError(f"Can only create new objects of allowed classes, but got {shown(cls)}")
        if cls.value in OLD_TENSORS and not args:
            self._stack.append(rushlight.empty(0, dtype=cls.value.dtype))
        elif cls.by_user and isinstance(cls.value, type):
            self._stack.append(self._call(cls, cls.value.__new__, (cls.value, *args)))
        else:
            self._stack.append(self._call(cls, cls.value, args))

    def _build(self) -> None:
        state = self._pop()
        target = self._stack[-1]
        if type(target) is OrderedDict:
            # An attribute such as `_metadata`; a name that hides a method would change how the dict works.
            if not isinstance(state, dict) or any(not isinstance(k, str) or hasattr(OrderedDict, k) for k in state):
                raise UnpicklingError("refused to set attributes of an OrderedDict that hide its methods")
            target.__dict__.update(state)
            return
        if type(target) is rushlight.Tensor and isinstance(state, tuple) and len(state) == 4:
            target.set_(self._call(_Allowed("torch.Tensor", rebuild_tensor, False), rebuild_tensor, state))
            return
        if type(target) is DimRange:
            target.__setstate__(state)
            return
        allowed_types = [v for v in self._by_user.values() if isinstance(v, type)]
        if type(target) not in allowed_types:
            raise UnpicklingError(
                "Can only build Tensor, Parameter, OrderedDict or types allowlisted via `add_safe_globals`, "
                f"but got {type(target)}"
            )
        _set_state(target, state)

    def _persistent(self) -> None:
        self._stack.append(self._persistent_load(self._pop()))

    # ***** containers *****

    def _append(self) -> None:
        item = self._pop()
        self._own(list).append(item)

    def _appends(self) -> None:
        items = self._pop_mark()
        self._own(list).extend(items)

    def _set_item(self) -> None:
        value, key = self._pop(), self._pop()
        self._put([key, value])

    def _set_items(self) -> None:
        self._put(self._pop_mark())

    def _put(self, items: list[Any]) -> None:
        target = self._own(dict, OrderedDict, Counter)
        if len(items) % 2:
            raise UnpicklingError("a dict needs as many values as keys")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) is tuple and not _is_shallow(key):
                raise UnpicklingError("a key of a dict is nested too deeply")
            try:
                target[key] = value
            except TypeError as error:
                raise UnpicklingError(f"a key of a dict cannot be used: {error}") from error

    def _add_items(self) -> None:
        items = self._pop_mark()
        if not _is_shallow(items):
            raise UnpicklingError("an element of a set is nested too deeply")
        try:
            self._own(set).update(items)
        except TypeError as error:
            raise UnpicklingError(f"an element of a set cannot be used: {error}") from error

    def _own(self, *types: type) -> Any:
        """The container on top of the stack, which must be exactly of one of `types`."""
        target = self._stack[-1]
        if type(target) not in types:
            names = ", ".join(t.__name__ for t in types)
            raise UnpicklingError(f"Can only fill containers of type {names}, but got {type(target)}")
        return target

    def _mark(self) -> None:
        self._marks.append(self._stack)
        self._stack = []

    def _tuple(self) -> None:
        items = tuple(self._pop_mark())
        self._stack.append(items)

    def _tuple_of(self, n: int) -> None:
        if len(self._stack) < n:
            raise UnpicklingError("stack underflow")
        items = tuple(self._finished(item) for item in self._stack[-n:])
        self._stack[-n:] = [items]

    # ***** memo, numbers, strings *****

    def _get(self, index: int) -> None:
        self._stack.append(self._memo[index])

    def _put_memo(self, index: int) -> None:
        self._memo[index] = self._stack[-1]

    def _length(self) -> int:
        n: int = self._number(_I4)
        if n < 0:
            raise UnpicklingError("a text of negative length")
        return n

    def _long(self, n: int) -> None:
        if n < 0:
            raise UnpicklingError("a number of negative length")
        self._stack.append(int.from_bytes(self._read(n), "little", signed=True))

    def _text(self, n: int) -> None:
        self._stack.append(self._read(n).decode("utf-8", "surrogatepass"))

    def _byte_text(self, n: int) -> None:
        data = self._read(n)
        self._stack.append(data if self._encoding == "bytes" else data.decode(self._encoding))

    def _protocol(self) -> None:
        version = self._read(1)[0]
        if version > pickle.HIGHEST_PROTOCOL:
            raise UnpicklingError(f"unsupported pickle protocol: {version}")


def _is_shallow(values: Any) -> bool:
    """Whether tuples lie in each other no deeper than honest files have them: hashing goes down on the machine's stack."""
    level, depth, most = [values], 0, _MOST_KEYS + 4 * len(values)
    while level:
        level = [item for value in level for item in value if type(item) in (tuple, list)]
        depth += 1
        if depth > _DEEPEST_KEY or len(level) > most:
            return False
    return True


def _set_state(target: Any, state: Any) -> None:
    if hasattr(target, "__setstate__"):
        target.__setstate__(state)
        return
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    if state:
        target.__dict__.update(state)
    for name, value in (slots or {}).items():
        setattr(target, name, value)


_U1, _U2, _U4, _U8 = (struct.Struct(form) for form in ("<B", "<H", "<I", "<Q"))
_I4, _F8 = struct.Struct("<i"), struct.Struct(">d")
_STOP = pickle.STOP[0]


def _operations() -> dict[int, Callable[[SafeUnpickler], None]]:
    s = SafeUnpickler
    table: dict[bytes, Callable[[SafeUnpickler], None]] = {
        pickle.GLOBAL: s._global,
        pickle.STACK_GLOBAL: s._stack_global,
        pickle.REDUCE: lambda u: u._reduce(),
        pickle.NEWOBJ: s._new_object,
        pickle.BUILD: lambda u: u._build(),  # archives of models build objects of their own classes
        pickle.BINPERSID: s._persistent,
        pickle.APPEND: s._append,
        pickle.APPENDS: s._appends,
        pickle.SETITEM: s._set_item,
        pickle.SETITEMS: s._set_items,
        pickle.ADDITEMS: s._add_items,
        pickle.MARK: s._mark,
        pickle.TUPLE: s._tuple,
        pickle.TUPLE1: lambda u: u._tuple_of(1),
        pickle.TUPLE2: lambda u: u._tuple_of(2),
        pickle.TUPLE3: lambda u: u._tuple_of(3),
        pickle.EMPTY_TUPLE: lambda u: u._pushes(()),
        pickle.EMPTY_LIST: lambda u: u._pushes([]),
        pickle.EMPTY_DICT: lambda u: u._pushes({}),
        pickle.EMPTY_SET: lambda u: u._pushes(set()),
        pickle.NONE: lambda u: u._pushes(None),
        pickle.NEWTRUE: lambda u: u._pushes(True),
        pickle.NEWFALSE: lambda u: u._pushes(False),
        pickle.BININT: lambda u: u._pushes(u._number(_I4)),
        pickle.BININT1: lambda u: u._pushes(u._number(_U1)),
        pickle.BININT2: lambda u: u._pushes(u._number(_U2)),
        pickle.BINFLOAT: lambda u: u._pushes(u._number(_F8)),
        pickle.LONG1: lambda u: u._long(u._number(_U1)),
        pickle.LONG4: lambda u: u._long(u._number(_I4)),
        pickle.SHORT_BINUNICODE: lambda u: u._text(u._number(_U1)),
        pickle.BINUNICODE: lambda u: u._text(u._number(_U4)),
        pickle.BINUNICODE8: lambda u: u._text(u._number(_U8)),
        pickle.SHORT_BINSTRING: lambda u: u._byte_text(u._number(_U1)),
        pickle.BINSTRING: lambda u: u._byte_text(u._length()),
        pickle.SHORT_BINBYTES: lambda u: u._pushes(u._read(u._number(_U1))),
        pickle.BINBYTES: lambda u: u._pushes(u._read(u._number(_U4))),
        pickle.BINGET: lambda u: u._get(u._number(_U1)),
        pickle.LONG_BINGET: lambda u: u._get(u._number(_U4)),
        pickle.BINPUT: lambda u: u._put_memo(u._number(_U1)),
        pickle.LONG_BINPUT: lambda u: u._put_memo(u._number(_U4)),
        pickle.MEMOIZE: lambda u: u._put_memo(len(u._memo)),
        pickle.FRAME: lambda u: u._number(_U8) and None,
        pickle.PROTO: s._protocol,
    }
    return {code[0]: operation for code, operation in table.items()}


_OPERATIONS = _operations()


def global_names(data: bytes) -> set[str]:
    """Every global that a pickle names, without running it."""
    found = set()
    texts: list[str] = []
    for operation, argument, _ in pickletools.genops(data):
        if operation.name == "GLOBAL":
            module, name = str(argument).split(" ", 1)
            found.add(".".join(_renamed(module, name)))
        elif operation.name == "STACK_GLOBAL" and len(texts) >= 2:
            found.add(".".join(texts[-2:]))
        elif isinstance(argument, str):
            texts.append(argument)
    return found
