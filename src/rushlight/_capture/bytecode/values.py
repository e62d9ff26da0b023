"""Instructions that move values: the stack, locals, cells, names, attributes, items, operators, displays."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rushlight._capture.bytecode.frame import NULL, Frame
from rushlight._capture.bytecode.operations import Enter

if TYPE_CHECKING:
    from rushlight._capture.bytecode.interpreter import Interpreter

COUNTED = sys.version_info >= (3, 14)
"""Whether CPython says how many values there were to unpack."""
CLUMSY = sys.version_info < (3, 12)
"""Whether CPython itself mistakes a keyword given twice, while an exception is being handled, for a KeyError."""

# ***** stack *****


def nop(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Nothing."""


def pop_top(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Drop the top."""
    frame.stack.pop()


def push_null(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Push the mark of a call without `self`."""
    frame.stack.append(NULL)


def copy(it: Interpreter, frame: Frame, arg: int) -> None:
    """Push the value at a depth."""
    frame.stack.append(frame.stack[-arg])


def swap(it: Interpreter, frame: Frame, arg: int) -> None:
    """Exchange the top and the value at a depth."""
    stack = frame.stack
    stack[-1], stack[-arg] = stack[-arg], stack[-1]


def load_const(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Push a constant."""
    frame.stack.append(arg)


def load_common_constant(it: Interpreter, frame: Frame, arg: int) -> None:
    """Push one of a few builtins, whatever their names mean here."""
    frame.stack.append((AssertionError, NotImplementedError, tuple, all, any)[arg])


def load_assertion_error(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Push AssertionError, whatever the name means here."""
    frame.stack.append(AssertionError)


# ***** locals and cells *****


def unbound(frame: Frame, index: int) -> BaseException:
    """The exception of reading a local or a cell in which nothing is."""
    name = frame.decoded.local_names[index]
    if index >= len(frame.decoded.local_names) - len(frame.code.co_freevars):
        text = f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope"
        return NameError(text, name=name)
    return UnboundLocalError(f"cannot access local variable '{name}' where it is not associated with a value")


def load_fast(it: Interpreter, frame: Frame, arg: int) -> None:
    """Push a local."""
    value = frame.locals[arg]
    if value is NULL:
        raise unbound(frame, arg)
    frame.stack.append(value)


def store_fast(it: Interpreter, frame: Frame, arg: int) -> None:
    """Bind a local."""
    frame.locals[arg] = frame.stack.pop()


def delete_fast(it: Interpreter, frame: Frame, arg: int) -> None:
    """Unbind a local."""
    if frame.locals[arg] is NULL:
        raise unbound(frame, arg)
    frame.locals[arg] = NULL


def make_cell(it: Interpreter, frame: Frame, arg: int) -> None:
    """Put a local into a cell."""
    value = frame.locals[arg]
    frame.locals[arg] = it.operations.make_cell() if value is NULL else it.operations.make_cell(value)


def copy_free_vars(it: Interpreter, frame: Frame, arg: int) -> None:
    """Put the cells of the function's closure among the locals."""
    function = frame.function
    assert function is not None and function.__closure__ is not None
    frame.locals[len(frame.locals) - arg :] = function.__closure__


def load_closure(it: Interpreter, frame: Frame, arg: int) -> None:
    """Push a cell."""
    value = frame.locals[arg]
    if value is NULL:
        raise unbound(frame, arg)
    frame.stack.append(value)


def load_deref(it: Interpreter, frame: Frame, arg: int) -> None:
    """Push what a cell holds."""
    try:
        value = it.operations.load_cell(frame, frame.locals[arg])
    except ValueError:
        raise unbound(frame, arg) from None
    frame.stack.append(value)


def load_classderef(it: Interpreter, frame: Frame, arg: int) -> None:
    """Push a name of the class body, or what a cell holds."""
    name = frame.decoded.local_names[arg]
    try:
        value = it.operations.load_name(frame, frame.names, name)
    except KeyError:
        value = NULL
    if value is NULL:
        load_deref(it, frame, arg)
    else:
        frame.stack.append(value)


def store_deref(it: Interpreter, frame: Frame, arg: int) -> None:
    """Put the top into a cell."""
    it.operations.store_cell(frame, frame.locals[arg], frame.stack.pop())


def delete_deref(it: Interpreter, frame: Frame, arg: int) -> None:
    """Empty a cell."""
    cell = frame.locals[arg]
    try:
        it.operations.load_cell(frame, cell)
    except ValueError:
        raise unbound(frame, arg) from None
    it.operations.delete_cell(frame, cell)


def load_fast_and_clear(it: Interpreter, frame: Frame, arg: int) -> None:
    """Push a local, bound or not, and unbind it: a comprehension that is no function of its own borrows its place."""
    frame.stack.append(frame.locals[arg])
    frame.locals[arg] = NULL


def load_fast_load_fast(it: Interpreter, frame: Frame, arg: int) -> None:
    """Push two locals."""
    load_fast(it, frame, arg >> 4)
    load_fast(it, frame, arg & 15)


def store_fast_load_fast(it: Interpreter, frame: Frame, arg: int) -> None:
    """Bind a local, then push one."""
    frame.locals[arg >> 4] = frame.stack.pop()
    load_fast(it, frame, arg & 15)


def store_fast_store_fast(it: Interpreter, frame: Frame, arg: int) -> None:
    """Bind two locals."""
    frame.locals[arg >> 4] = frame.stack.pop()
    frame.locals[arg & 15] = frame.stack.pop()


# ***** names *****


def load_locals(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Push the namespace."""
    frame.stack.append(frame.visible_locals())


def load_from_dict_or_globals(it: Interpreter, frame: Frame, arg: str) -> None:
    """Replace a namespace by a name of it, or a global or builtin."""
    try:
        value = it.operations.load_name(frame, frame.stack.pop(), arg)
    except KeyError:
        value = NULL
    frame.stack.append(it.operations.load_global(frame, arg) if value is NULL else value)


def load_from_dict_or_deref(it: Interpreter, frame: Frame, arg: int) -> None:
    """Replace a namespace by a name of it, or by what a cell holds."""
    try:
        value = it.operations.load_name(frame, frame.stack.pop(), frame.decoded.local_names[arg])
    except KeyError:
        value = NULL
    if value is NULL:
        load_deref(it, frame, arg)
    else:
        frame.stack.append(value)


def load_global(it: Interpreter, frame: Frame, arg: str) -> None:
    """Push a global or builtin."""
    frame.stack.append(it.operations.load_global(frame, arg))


def load_global_to_call(it: Interpreter, frame: Frame, arg: str) -> None:
    """Push the mark of a call without `self`, then a global or builtin."""
    value = it.operations.load_global(frame, arg)
    frame.stack += (NULL, value)


def store_global(it: Interpreter, frame: Frame, arg: str) -> None:
    """Bind a global."""
    it.operations.store_global(frame, arg, frame.stack.pop())


def delete_global(it: Interpreter, frame: Frame, arg: str) -> None:
    """Unbind a global."""
    it.operations.delete_global(frame, arg)


def load_name(it: Interpreter, frame: Frame, arg: str) -> None:
    """Push a name of a class body or a module."""
    try:
        value = it.operations.load_name(frame, frame.names, arg)
    except KeyError:
        value = NULL
    frame.stack.append(it.operations.load_global(frame, arg) if value is NULL else value)


def store_name(it: Interpreter, frame: Frame, arg: str) -> None:
    """Bind a name of a class body or a module."""
    it.operations.store_name(frame, frame.names, arg, frame.stack.pop())


def delete_name(it: Interpreter, frame: Frame, arg: str) -> None:
    """Unbind a name of a class body or a module."""
    try:
        it.operations.delete_name(frame, frame.names, arg)
    except KeyError:
        raise NameError(f"name '{arg}' is not defined", name=arg) from None


def setup_annotations(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Make `__annotations__`, if the namespace has none."""
    operations, names = it.operations, frame.names
    try:
        operations.load_name(frame, names, "__annotations__")
    except KeyError:
        operations.store_name(frame, names, "__annotations__", operations.build_map({}))


# ***** attributes and items *****


def load_attr(it: Interpreter, frame: Frame, arg: str) -> None:
    """Push an attribute of the top."""
    stack = frame.stack
    value = it.operations.load_attr(stack.pop(), arg)
    if type(value) is Enter:
        it.enter(value)
    else:
        stack.append(value)


def load_method(it: Interpreter, frame: Frame, arg: str) -> None:
    """Push the mark of a call without `self`, then an attribute of the top, bound."""
    stack = frame.stack
    obj, stack[-1] = stack[-1], NULL
    value = it.operations.load_attr(obj, arg)
    if type(value) is Enter:
        it.enter(value)
    else:
        stack.append(value)


def store_attr(it: Interpreter, frame: Frame, arg: str) -> None:
    """Bind an attribute of the top to what is below."""
    obj, value = frame.stack.pop(), frame.stack.pop()
    answer = it.operations.store_attr(obj, arg, value)
    if type(answer) is Enter:
        it.enter(answer, drop=True)


def delete_attr(it: Interpreter, frame: Frame, arg: str) -> None:
    """Unbind an attribute of the top."""
    it.operations.delete_attr(frame.stack.pop(), arg)


def load_item(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Push an item."""
    stack = frame.stack
    index = stack.pop()
    value = it.operations.load_item(stack.pop(), index)
    if type(value) is Enter:
        it.enter(value)
    else:
        stack.append(value)


def store_item(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Store an item: the stack is value, object, index."""
    stack = frame.stack
    index, obj, value = stack.pop(), stack.pop(), stack.pop()
    answer = it.operations.store_item(obj, index, value)
    if type(answer) is Enter:
        it.enter(answer, drop=True)


def load_slice(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Replace container, start and stop by a slice of the container."""
    start_stop = take(frame.stack, 2)
    frame.stack.append(it.operations.build_slice(*start_stop))
    load_item(it, frame, None)


def store_slice(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Store a slice: the stack is value, container, start, stop."""
    start_stop = take(frame.stack, 2)
    frame.stack.append(it.operations.build_slice(*start_stop))
    store_item(it, frame, None)


def delete_item(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Delete an item."""
    index = frame.stack.pop()
    it.operations.delete_item(frame.stack.pop(), index)


# ***** operators *****


def unary(it: Interpreter, frame: Frame, arg: str) -> None:
    """Replace the top by the result of a unary operator."""
    it.deliver(it.operations.unary(arg, frame.stack.pop()))


def unary_not(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Replace the top by the opposite of its truth."""
    frame.stack.append(it.operations.negate(frame.stack.pop()))


def to_bool(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Replace the top by its truth."""
    value = frame.stack.pop()
    frame.stack.append(value if value is True or value is False else it.operations.truth(value))


def binary(it: Interpreter, frame: Frame, arg: str) -> None:
    """Replace two values by the result of an operator."""
    stack = frame.stack
    b = stack.pop()
    value = it.operations.binary(arg, stack.pop(), b)
    if type(value) is Enter:
        it.enter(value)
    else:
        stack.append(value)


def inplace(it: Interpreter, frame: Frame, arg: str) -> None:
    """Replace two values by the result of an operator in place."""
    stack = frame.stack
    b = stack.pop()
    value = it.operations.inplace(arg, stack.pop(), b)
    if type(value) is Enter:
        it.enter(value)
    else:
        stack.append(value)


def compare(it: Interpreter, frame: Frame, arg: str) -> None:
    """Replace two values by the result of a comparison."""
    stack = frame.stack
    b = stack.pop()
    value = it.operations.compare(arg, stack.pop(), b)
    if type(value) is Enter:
        it.enter(value)
    else:
        stack.append(value)


def same(it: Interpreter, frame: Frame, arg: int) -> None:
    """`is`, or with 1 `is not`."""
    b = frame.stack.pop()
    frame.stack.append(it.operations.same(frame.stack.pop(), b) != bool(arg))


def contains(it: Interpreter, frame: Frame, arg: int) -> None:
    """`in`, or with 1 `not in`."""
    container = frame.stack.pop()
    found = it.operations.contains(frame.stack.pop(), container)
    frame.stack.append(it.operations.negate(found) if arg else found)


# ***** displays *****


def take(stack: list[Any], count: int) -> list[Any]:
    """Pop values, in the order in which they were pushed."""
    if not count:
        return []
    values = stack[-count:]
    del stack[-count:]
    return values


def build_tuple(it: Interpreter, frame: Frame, arg: int) -> None:
    """Make a tuple of the topmost values."""
    frame.stack.append(it.operations.build_tuple(tuple(take(frame.stack, arg))))


def build_list(it: Interpreter, frame: Frame, arg: int) -> None:
    """Make a list of the topmost values."""
    frame.stack.append(it.operations.build_list(take(frame.stack, arg)))


def build_set(it: Interpreter, frame: Frame, arg: int) -> None:
    """Make a set of the topmost values."""
    frame.stack.append(it.operations.build_set(take(frame.stack, arg)))


def build_map(it: Interpreter, frame: Frame, arg: int) -> None:
    """Make a dict of keys and values in turn."""
    values = take(frame.stack, 2 * arg)
    frame.stack.append(it.operations.build_map(dict(zip(values[::2], values[1::2], strict=True))))


def build_const_key_map(it: Interpreter, frame: Frame, arg: int) -> None:
    """Make a dict of values and a tuple of keys."""
    keys = frame.stack.pop()
    frame.stack.append(it.operations.build_map(dict(zip(keys, take(frame.stack, arg), strict=True))))


def build_string(it: Interpreter, frame: Frame, arg: int) -> None:
    """Join the parts of an f-string."""
    frame.stack.append(it.operations.build_string(take(frame.stack, arg)))


def build_slice(it: Interpreter, frame: Frame, arg: int) -> None:
    """Make a slice."""
    frame.stack.append(it.operations.build_slice(*take(frame.stack, arg)))


def list_append(it: Interpreter, frame: Frame, arg: int) -> None:
    """Append to a list that is being made."""
    value = frame.stack.pop()
    it.operations.append(frame.stack[-arg], value)


def set_add(it: Interpreter, frame: Frame, arg: int) -> None:
    """Add to a set that is being made."""
    value = frame.stack.pop()
    it.operations.real(frame.stack[-arg]).add(it.operations.real(value))


def map_add(it: Interpreter, frame: Frame, arg: int) -> None:
    """Add to a dict that is being made."""
    value, key = frame.stack.pop(), frame.stack.pop()
    it.operations.real(frame.stack[-arg])[it.operations.real(key)] = it.operations.real(value)


def list_extend(it: Interpreter, frame: Frame, arg: int) -> None:
    """Extend a list that is being made."""
    values = frame.stack.pop()
    target = it.operations.real(frame.stack[-arg])
    try:
        found = it.operations.unpack(values)
    except TypeError:
        if hasattr(type(values), "__iter__") or hasattr(type(values), "__getitem__"):
            raise
        raise TypeError(f"Value after * must be an iterable, not {type(values).__name__}") from None
    target.extend(found)


def list_to_tuple(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Make a tuple of a list that was being made."""
    frame.stack.append(it.operations.build_tuple(tuple(it.operations.real(frame.stack.pop()))))


def set_update(it: Interpreter, frame: Frame, arg: int) -> None:
    """Update a set that is being made."""
    values = frame.stack.pop()
    it.operations.real(frame.stack[-arg]).update(it.operations.unpack(values))


def dict_update(it: Interpreter, frame: Frame, arg: int) -> None:
    """Update a dict that is being made."""
    values = frame.stack.pop()
    target = it.operations.real(frame.stack[-arg])
    try:
        found = it.operations.unpack_mapping(values)
    except AttributeError:
        raise TypeError(f"'{type(values).__name__}' object is not a mapping") from None
    target.update(found)


def dict_merge(it: Interpreter, frame: Frame, arg: int) -> None:
    """Update the dict of a call's keyword arguments; TypeError where one is there already."""
    values = frame.stack.pop()
    target, function = it.operations.real(frame.stack[-arg]), frame.stack[-arg - 2]
    if function is NULL:
        function = frame.stack[-arg - 3]
    try:
        found = it.operations.unpack_mapping(values)
    except AttributeError:
        name = described(function)
        text = f"{name} argument after ** must be a mapping, not {type(values).__name__}"
        raise TypeError(text) from None
    for key, value in found.items():
        if key in target:
            name = described(function)
            if CLUMSY and sys.exc_info()[1] is not None:
                raise KeyError(key)  # a fault of CPython's, for which it is the same to the program
            if isinstance(key, str):
                raise TypeError(f"{name} got multiple values for keyword argument '{key}'")
            raise TypeError(f"{name} keywords must be strings")
        target[key] = value


def described(function: Any) -> str:
    """A function as messages name it."""
    name = getattr(function, "__qualname__", None)
    if name is None:
        return str(function)
    module = getattr(function, "__module__", None)
    if module is not None and module != "builtins":
        return f"{module}.{name}()"
    return f"{name}()"


# ***** strings, unpacking *****


def format_value(it: Interpreter, frame: Frame, arg: int) -> None:
    """A part of an f-string: two bits of conversion, one for a format above the value."""
    spec = frame.stack.pop() if arg & 4 else ""
    frame.stack.append(it.operations.format(frame.stack.pop(), ("", "s", "r", "a")[arg & 3], spec))


def convert_value(it: Interpreter, frame: Frame, arg: int) -> None:
    """Apply the conversion of a part of an f-string."""
    frame.stack.append(it.operations.convert(frame.stack.pop(), "?sra"[arg]))


def format_simple(it: Interpreter, frame: Frame, arg: Any) -> None:
    """A part of an f-string without a format."""
    frame.stack.append(it.operations.format(frame.stack.pop(), "", ""))


def format_with_spec(it: Interpreter, frame: Frame, arg: Any) -> None:
    """A part of an f-string with a format above the value."""
    spec = frame.stack.pop()
    frame.stack.append(it.operations.format(frame.stack.pop(), "", spec))


def build_interpolation(it: Interpreter, frame: Frame, arg: int) -> None:
    """A part of a template string: a value, its text in the program, a conversion and, above them, a format."""
    spec = frame.stack.pop() if arg & 1 else ""
    text = frame.stack.pop()
    frame.stack.append(
        it.operations.build_interpolation(frame.stack.pop(), text, (None, "s", "r", "a")[arg >> 2], spec)
    )


def build_template(it: Interpreter, frame: Frame, arg: Any) -> None:
    """A template string: its texts, and above them the parts between."""
    parts = frame.stack.pop()
    frame.stack.append(it.operations.build_template(frame.stack.pop(), parts))


def unpack_sequence(it: Interpreter, frame: Frame, arg: int) -> None:
    """Replace the top by its items, the first above."""
    stack = frame.stack
    of = stack.pop()
    found = _iterator(it, of)
    values: list[Any] = []
    for value in found:
        if len(values) == arg:
            count = f", got {len(of)}" if COUNTED and type(of) in (list, tuple, dict) else ""
            raise ValueError(f"too many values to unpack (expected {arg}{count})")
        values.append(value)
    if len(values) < arg:
        raise ValueError(f"not enough values to unpack (expected {arg}, got {len(values)})")
    stack += values[::-1]


def unpack_ex(it: Interpreter, frame: Frame, arg: int) -> None:
    """Replace the top by its items and a list in their middle."""
    before, after = arg & 255, arg >> 8
    values = list(_iterator(it, frame.stack.pop()))
    if len(values) < before + after:
        text = f"not enough values to unpack (expected at least {before + after}, got {len(values)})"
        raise ValueError(text)
    end = len(values) - after
    middle = it.operations.build_list(values[before:end])
    frame.stack += [*values[:before], middle, *values[end:]][::-1]


def _iterator(it: Interpreter, obj: Any) -> Any:
    try:
        return it.operations.unpack(obj)
    except TypeError:
        if hasattr(type(obj), "__iter__") or hasattr(type(obj), "__getitem__"):
            raise
        raise TypeError(f"cannot unpack non-iterable {type(obj).__name__} object") from None
