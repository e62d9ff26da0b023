"""Instructions that call, and those that make functions, classes and imports."""

from __future__ import annotations

import builtins
import sys
import warnings
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any

from rushlight._capture.bytecode.frame import NULL, Frame
from rushlight._capture.bytecode.interpreter import Interpreter
from rushlight._capture.bytecode.operations import Enter
from rushlight._capture.bytecode.real_frames import chain_of, run_intrinsic
from rushlight._capture.bytecode.values import described, load_attr, load_method, take

# ***** calls *****


def call(it: Interpreter, frame: Frame, arg: tuple[int, tuple[str, ...]]) -> None:
    """Call with the topmost values; the names are those of keyword arguments, which come last."""
    count, names = arg
    stack = frame.stack
    args = take(stack, count)
    function = stack.pop()
    first = stack.pop()
    if first is not NULL:
        if function is not NULL:
            args.insert(0, function)
        function = first
    kwargs: dict[str, Any] = {}
    if names:
        kwargs = dict(zip(names, take(args, len(names)), strict=True))
    call_value(it, frame, function, args, kwargs)


def call_kw(it: Interpreter, frame: Frame, arg: int) -> None:
    """Call with the topmost values, above them the names of those that are keyword arguments."""
    names = frame.stack.pop()
    call(it, frame, (arg, names))


def load_super_attr(it: Interpreter, frame: Frame, arg: tuple[str, bool, bool]) -> None:
    """Replace `super`, a class and an object by an attribute of `super()`."""
    name, to_call, explicit = arg
    function, *args = take(frame.stack, 3)
    function = it.operations.real(function)
    owner = it.complete(it.operations.call(function, args if explicit or function is super else [], {}))
    frame.stack.append(owner)
    (load_method if to_call else load_attr)(it, frame, name)


def call_function_ex(it: Interpreter, frame: Frame, arg: int) -> None:
    """Call with an iterable of positional arguments and, with 1, a dict of keyword arguments."""
    stack = frame.stack
    kwargs: Any = it.operations.real(stack.pop()) if arg & 1 else NULL
    values = it.operations.real(stack.pop())
    function, first = stack.pop(), stack.pop()
    if function is NULL:
        function = first
    if not isinstance(values, tuple):
        if not hasattr(type(values), "__iter__") and not hasattr(type(values), "__getitem__"):
            text = f"{described(function)} argument after * must be an iterable, not {type(values).__name__}"
            raise TypeError(text)
        values = tuple(it.operations.unpack(values))
    call_value(it, frame, function, list(values), {} if kwargs is NULL else dict(kwargs))


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
    """A frame like that of an interpreted function: what is behind it (`f_back`) are those that called it, then the
    interpreter's own.
    """
    depth = args[0] if args else 0
    if len(args) > 1 or kwargs or not isinstance(depth, int) or depth >= len(it.frames):
        return False
    frame.stack.append(chain_of(it.frames[: len(it.frames) - max(depth, 0)]))
    return True


def _module_name(it: Interpreter, frame: Frame, function: Any, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """`sys._getframemodulename`: the module of the function of a frame."""
    depth = kwargs.get("depth", args[0] if args else 0)
    if not isinstance(depth, int) or depth >= len(it.frames):
        return False
    found = it.frames[-1 - max(depth, 0)]
    frame.stack.append(found.globals.get("__name__") if found.function is None else found.function.__module__)
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
    # Without the module's globals, as CPython does: asked for a line of the source, 3.12 fails where there is no loader.
    warnings.warn_explicit(
        message, category, at.code.co_filename, at.line, module, registry, source=given.get("source")
    )
    frame.stack.append(None)
    return True


LOOK_AT_CALLER: dict[Any, Callable[[Interpreter, Frame, Any, list[Any], dict[str, Any]], bool]] = {
    super: _super, locals: _namespace, globals: _namespace, vars: _namespace, dir: _namespace, eval: _evaluate, exec: _evaluate,
    builtins.__build_class__: _build_class, sys._getframe: _get_frame, warnings.warn: _warn,
}  # fmt: skip
if hasattr(sys, "_getframemodulename"):
    LOOK_AT_CALLER[sys._getframemodulename] = _module_name


# ***** functions, classes *****


def make_function(it: Interpreter, frame: Frame, arg: int) -> None:
    """Make a function of a code object, and what is below it: closure, annotations, defaults."""
    code = frame.stack.pop()
    parts = {flag: it.operations.real(frame.stack.pop()) for flag in (8, 4, 2, 1) if arg & flag}
    frame.stack.append(it.operations.make_function(_function(frame, code, parts)))


def make_function_of_parts(it: Interpreter, frame: Frame, arg: tuple[int, ...]) -> None:
    """Make a function of a code object and what the next instructions, which are passed over, would add to it one by
    one.
    """
    code = frame.stack.pop()
    parts = {flag: it.operations.real(frame.stack.pop()) for flag in arg}
    frame.ip += len(arg)
    frame.stack.append(it.operations.make_function(_function(frame, code, parts)))


def _function(frame: Frame, code: CodeType, parts: dict[int, Any]) -> FunctionType:
    """A function: the parts are defaults (1), those by name (2), annotations (4), closure (8) and what makes
    annotations (16).
    """
    defaults, by_name, annotations, closure = (parts.get(flag) for flag in (1, 2, 4, 8))
    function = FunctionType(code, frame.globals, code.co_name, defaults, closure)
    function.__qualname__ = code.co_qualname
    if by_name is not None:
        function.__kwdefaults__ = by_name
    if annotations is not None:
        if isinstance(annotations, tuple):
            annotations = dict(zip(annotations[::2], annotations[1::2], strict=True))
        function.__annotations__ = annotations
    if 16 in parts:
        function.__annotate__ = parts[16]  # type: ignore[attr-defined]
    return function


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


def intrinsic_1(it: Interpreter, frame: Frame, arg: tuple[Any, int]) -> None:
    """Replace the top by the result of a function of CPython's own, one of ours for those that concern frames."""
    handler, number = arg
    if handler is not None:
        handler(it, frame, None)
    else:
        frame.stack.append(run_intrinsic(frame, "CALL_INTRINSIC_1", number, frame.stack.pop()))


def intrinsic_2(it: Interpreter, frame: Frame, arg: tuple[Any, int]) -> None:
    """The same with two values."""
    handler, number = arg
    if handler is not None:
        handler(it, frame, None)
    else:
        frame.stack.append(run_intrinsic(frame, "CALL_INTRINSIC_2", number, *take(frame.stack, 2)))


def print_expr(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Show a value as the interactive prompt does."""
    it.complete(it.operations.call(sys.displayhook, [frame.stack.pop()], {}))
