"""Instructions that call, and those that make functions, classes and imports."""

from __future__ import annotations

import builtins
import sys
import warnings
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any

from rushlight._capture.bytecode.frame import NULL, Frame
from rushlight._capture.bytecode.interpreter import Interpreter
from rushlight._capture.bytecode.operations import Enter
from rushlight._capture.bytecode.real_frames import chain_of
from rushlight._capture.bytecode.values import described, take

# ***** calls *****


def call(it: Interpreter, frame: Frame, arg: tuple[int, tuple[str, ...]]) -> None:
    """Call with the topmost values; the names are those of keyword arguments, which come last."""
    count, names = arg
    stack = frame.stack
    args = take(stack, count)
    function = stack.pop()
    first = stack.pop()
    if first is not NULL:
        args.insert(0, function)
        function = first
    kwargs: dict[str, Any] = {}
    if names:
        kwargs = dict(zip(names, take(args, len(names)), strict=True))
    call_value(it, frame, function, args, kwargs)


def call_function_ex(it: Interpreter, frame: Frame, arg: int) -> None:
    """Call with an iterable of positional arguments and, with 1, a dict of keyword arguments."""
    stack = frame.stack
    kwargs = it.operations.real(stack.pop()) if arg & 1 else {}
    values = it.operations.real(stack.pop())
    function = stack.pop()
    assert stack.pop() is NULL
    if not isinstance(values, tuple):
        if not hasattr(type(values), "__iter__") and not hasattr(type(values), "__getitem__"):
            text = f"{described(function)} argument after * must be an iterable, not {type(values).__name__}"
            raise TypeError(text)
        values = tuple(it.operations.unpack(values))
    call_value(it, frame, function, list(values), dict(kwargs))


def call_value(it: Interpreter, frame: Frame, function: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Call a function: what looks at the frame of its caller gets the interpreted one, all else the operations do."""
    function = it.operations.real(function)
    if type(function) is BuiltinFunctionType or type(function) is type:
        special = LOOK_AT_CALLER.get(function)
        if (
            special is not None
            and it.operations.look_at_frames(function, args, kwargs)
            and special(it, frame, function, args, kwargs)
        ):
            return
    value = it.operations.call(function, args, kwargs)
    if type(value) is Enter:
        it.enter(value)
    else:
        frame.stack.append(value)


# ***** functions that look at their caller's frame *****


def _super(it: Interpreter, frame: Frame, function: Any, args: list[Any], kwargs: dict[str, Any]) -> bool:
    if not args and not kwargs:
        args[:] = _class_and_self(frame)
    return False


def _class_and_self(frame: Frame) -> tuple[Any, Any]:
    """The arguments of `super()`."""
    code, names = frame.code, frame.decoded.local_names
    if not code.co_argcount:
        raise RuntimeError("super(): no arguments")
    first = frame.locals[0]
    if first is not NULL and frame.decoded.cells[0]:
        try:
            first = first.cell_contents
        except ValueError:
            first = NULL
    if first is NULL:
        raise RuntimeError("super(): arg[0] deleted")
    if "__class__" not in code.co_freevars:
        raise RuntimeError("super(): __class__ cell not found")
    try:
        return frame.locals[names.index("__class__")].cell_contents, first
    except ValueError:
        raise RuntimeError("super(): empty __class__ cell") from None


def _namespace(it: Interpreter, frame: Frame, function: Any, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """`locals()`, `globals()`, `vars()`, `dir()`."""
    if args or kwargs:
        return False
    if function is globals:
        frame.stack.append(frame.globals)
    elif function is dir:
        frame.stack.append(sorted(frame.visible_locals()))
    else:
        frame.stack.append(frame.visible_locals())
    return True


def _evaluate(it: Interpreter, frame: Frame, function: Any, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """`eval` and `exec`: the namespaces that are left out are the frame's."""
    if len(args) < 2 or args[1] is None:
        here = len(args) < 3 or args[2] is None
        args[1:] = [frame.globals, frame.visible_locals() if here else args[2]]
    return False


def _build_class(it: Interpreter, frame: Frame, function: Any, args: list[Any], kwargs: dict[str, Any]) -> bool:
    if len(args) < 2:
        return False
    body, name, *bases = args
    it.deliver(it.operations.build_class(frame, body, name, tuple(bases), kwargs))
    return True


def _get_frame(it: Interpreter, frame: Frame, function: Any, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """A frame like that of an interpreted function: what is behind it (`f_back`) are those that called it, then the interpreter's own."""
    depth = args[0] if args else 0
    if len(args) > 1 or kwargs or not isinstance(depth, int) or depth >= len(it.frames):
        return False
    frame.stack.append(chain_of(it.frames[: len(it.frames) - max(depth, 0)]))
    return True


def _warn(it: Interpreter, frame: Frame, function: Any, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """`warnings.warn`: at the line of an interpreted frame, `stacklevel` of them up."""
    given = dict(zip(("message", "category", "stacklevel", "source"), args, strict=False)) | kwargs
    level = given.get("stacklevel", 1)
    if "message" not in given or not isinstance(level, int) or level > len(it.frames):
        return False
    message, category = given["message"], given.get("category")
    if isinstance(message, Warning):
        category = type(message)
    elif category is None:
        category = UserWarning
    at = it.frames[-max(level, 1)]
    registry = at.globals.setdefault("__warningregistry__", {})
    module = at.globals.get("__name__") or "<string>"
    warnings.warn_explicit(
        message, category, at.code.co_filename, at.line, module, registry, at.globals, given.get("source")
    )
    frame.stack.append(None)
    return True


LOOK_AT_CALLER: dict[Any, Callable[[Interpreter, Frame, Any, list[Any], dict[str, Any]], bool]] = {
    super: _super, locals: _namespace, globals: _namespace, vars: _namespace, dir: _namespace, eval: _evaluate, exec: _evaluate,
    builtins.__build_class__: _build_class, sys._getframe: _get_frame, warnings.warn: _warn,
}  # fmt: skip


# ***** functions, classes *****


def make_function(it: Interpreter, frame: Frame, arg: int) -> None:
    """Make a function of a code object, and what is below it: closure, annotations, defaults."""
    stack = frame.stack
    code = stack.pop()
    closure = stack.pop() if arg & 8 else None
    annotations = stack.pop() if arg & 4 else None
    by_name = stack.pop() if arg & 2 else None
    defaults = stack.pop() if arg & 1 else None
    function = FunctionType(code, frame.globals, code.co_name, defaults, closure)
    function.__qualname__ = code.co_qualname
    if by_name is not None:
        function.__kwdefaults__ = by_name
    if annotations is not None:
        if isinstance(annotations, tuple):
            annotations = dict(zip(annotations[::2], annotations[1::2], strict=True))
        function.__annotations__ = annotations
    stack.append(it.operations.make_function(function))


def load_build_class(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Push the function that makes classes."""
    try:
        frame.stack.append(frame.builtins["__build_class__"])
    except KeyError:
        raise NameError("__build_class__ not found") from None


# ***** imports *****


def import_name(it: Interpreter, frame: Frame, arg: str) -> None:
    """Replace the level and the names by a module."""
    fromlist = frame.stack.pop()
    level = frame.stack.pop()
    frame.stack.append(it.operations.import_module(frame, arg, fromlist, level))


def import_from(it: Interpreter, frame: Frame, arg: str) -> None:
    """Push a name of the module at the top."""
    frame.stack.append(it.operations.import_from(frame.stack[-1], arg))


def import_star(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Bind every public name of the module at the top."""
    module = frame.stack.pop()
    names = getattr(module, "__all__", None)
    if names is None:
        if not hasattr(module, "__dict__"):
            raise ImportError("from-import-* object has no __dict__ and no __all__")
        names = [name for name in module.__dict__ if not name.startswith("_")]
    for name in names:
        it.operations.store_name(frame, frame.names, name, getattr(module, name))


def print_expr(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Show a value as the interactive prompt does."""
    it.complete(it.operations.call(sys.displayhook, [frame.stack.pop()], {}))
