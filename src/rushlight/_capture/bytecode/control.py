"""Instructions that decide what is executed next: jumps, loops, exceptions, `with`."""

from __future__ import annotations

import sys
from typing import Any

from rushlight._capture.bytecode.frame import NULL, Frame
from rushlight._capture.bytecode.generators import Generator
from rushlight._capture.bytecode.interpreter import Interpreter, Link, raise_again
from rushlight._capture.bytecode.operations import Enter

# ***** jumps *****


def jump(it: Interpreter, frame: Frame, arg: int) -> None:
    """Go on elsewhere."""
    frame.ip = arg


def jump_if_true(it: Interpreter, frame: Frame, arg: int) -> None:
    """Pop the top and jump if it is true."""
    value = frame.stack.pop()
    if value is True or (value is not False and it.operations.truth(value)):
        frame.ip = arg


def jump_if_false(it: Interpreter, frame: Frame, arg: int) -> None:
    """Pop the top and jump if it is false."""
    value = frame.stack.pop()
    if value is False or (value is not True and not it.operations.truth(value)):
        frame.ip = arg


def jump_if_none(it: Interpreter, frame: Frame, arg: int) -> None:
    """Pop the top and jump if it is None."""
    if it.operations.same(frame.stack.pop(), None):
        frame.ip = arg


def jump_if_not_none(it: Interpreter, frame: Frame, arg: int) -> None:
    """Pop the top and jump unless it is None."""
    if not it.operations.same(frame.stack.pop(), None):
        frame.ip = arg


def jump_if_true_or_pop(it: Interpreter, frame: Frame, arg: int) -> None:
    """`or`: jump if the top is true, else pop it."""
    if it.operations.truth(frame.stack[-1]):
        frame.ip = arg
    else:
        frame.stack.pop()


def jump_if_false_or_pop(it: Interpreter, frame: Frame, arg: int) -> None:
    """`and`: jump if the top is false, else pop it."""
    if it.operations.truth(frame.stack[-1]):
        frame.stack.pop()
    else:
        frame.ip = arg


def return_value(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Return the top."""
    it.leave(frame.stack.pop())


# ***** loops *****


def get_iter(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Replace the top by an iterator over it."""
    it.deliver(it.operations.iterate(frame.stack.pop()))


class LoopLink(Link):
    """Of the frame that gives the next value to a `for`."""

    __slots__ = ("plain",)

    def __init__(self, plain: bool) -> None:
        self.plain = plain
        """Whether the frame is of a function, which returns the value: not of a generator, which yields it."""

    def returned(self, it: Interpreter, value: Any) -> None:
        if self.plain:
            it.deliver(value)
        else:
            _end_loop(it.frames[-1])

    def raised(self, it: Interpreter, error: BaseException) -> bool:
        if self.plain and isinstance(error, StopIteration):
            _end_loop(it.frames[-1])
            return True
        return False


OF_GENERATOR, OF_FUNCTION = LoopLink(False), LoopLink(True)


def _end_loop(frame: Frame) -> None:
    """Leave the loop whose FOR_ITER is in progress."""
    handler, target = frame.program[frame.ip - 1]
    if handler is for_iter:
        frame.stack.pop()
    frame.ip = target


def for_iter(it: Interpreter, frame: Frame, arg: int) -> None:
    """Push the next value of the iterator at the top, or pop it and jump at its end."""
    iterator = it.operations.real(frame.stack[-1])
    if type(iterator) is Generator and iterator.operations is it.operations:
        if iterator.frame is None:
            _end_loop(frame)
        else:
            iterator.resume(it, None, OF_GENERATOR)
        return
    try:
        value = it.operations.advance(iterator)
    except StopIteration:
        _end_loop(frame)
        return
    if type(value) is Enter:
        it.enter(value)
        if it.frames[-1] is not frame:
            it.frames[-1].link = OF_FUNCTION
    else:
        frame.stack.append(value)


def for_iter_kept(it: Interpreter, frame: Frame, arg: int) -> None:
    """As `for_iter`, but the iterator stays at its end."""
    for_iter(it, frame, arg)


# ***** exceptions *****


def push_exc_info(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Begin to handle the exception at the top; the one handled before is put below it."""
    stack = frame.stack
    error = it.operations.real(stack[-1])
    stack[-1:] = frame.own, error
    frame.own = frame.handled = error


def pop_except(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Go back to the exception handled before."""
    own = frame.own = frame.stack.pop()
    frame.handled = frame.inherited if own is None else own


def check_exc_match(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Replace the class or tuple of classes at the top by whether the exception below is one."""
    classes = it.operations.real(frame.stack.pop())
    found = classes if isinstance(classes, tuple) else (classes,)
    if not all(_is_exception_class(kind) for kind in found):
        raise TypeError("catching classes that do not inherit from BaseException is not allowed")
    mro = type(it.operations.real(frame.stack[-1])).__mro__
    frame.stack.append(any(kind in mro for kind in found))


def _is_exception_class(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)


def check_eg_match(it: Interpreter, frame: Frame, arg: Any) -> None:
    """`except*`: replace the exception and classes by the rest and the part that matches."""
    classes = it.operations.real(frame.stack.pop())
    error = it.operations.real(frame.stack[-1])
    found = classes if isinstance(classes, tuple) else (classes,)
    if not all(_is_exception_class(kind) for kind in found):
        raise TypeError("catching classes that do not inherit from BaseException is not allowed")
    if any(issubclass(kind, BaseExceptionGroup) for kind in found):
        raise TypeError("catching ExceptionGroup with except* is not allowed. Use except instead.")
    match, rest = None, error
    if isinstance(error, found):
        match, rest = error, None
        if not isinstance(error, BaseExceptionGroup):
            match = (ExceptionGroup if isinstance(error, Exception) else BaseExceptionGroup)("", (error,))
    elif isinstance(error, BaseExceptionGroup):
        match, rest = error.split(classes)
    frame.stack[-1] = rest
    frame.stack.append(match)
    if match is not None:
        frame.own = frame.handled = match


def prep_reraise_star(it: Interpreter, frame: Frame, arg: Any) -> None:
    """`except*`: replace the exception and the list of what its handlers left by what is to be raised, or None."""
    left = [error for error in it.operations.real(frame.stack.pop()) if error is not None]
    error = it.operations.real(frame.stack.pop())
    frame.stack.append(_after_handlers(error, left))


def _after_handlers(error: BaseException, left: list[BaseException]) -> BaseException | None:
    if not left:
        return None
    if not isinstance(error, BaseExceptionGroup):
        return left[0]
    raised = [each for each in left if not _same_metadata(each, error)]
    ids = {id(leaf) for each in left if _same_metadata(each, error) for leaf in _leaves(each)}
    again = error.split(lambda leaf: id(leaf) in ids)[0] if ids else None
    if not raised:
        return again
    if again is not None:
        raised.append(again)
    if len(raised) == 1:
        return raised[0]
    plain = all(isinstance(each, Exception) for each in raised)
    return (ExceptionGroup if plain else BaseExceptionGroup)("", raised)  # type: ignore[type-var]


def _same_metadata(a: BaseException, b: BaseException) -> bool:
    return (
        isinstance(a, BaseExceptionGroup)
        and a.__traceback__ is b.__traceback__
        and a.__cause__ is b.__cause__
        and a.__context__ is b.__context__
        and getattr(a, "__notes__", None) is getattr(b, "__notes__", None)
    )


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]


def raise_varargs(it: Interpreter, frame: Frame, arg: int) -> None:
    """`raise`, `raise error`, `raise error from cause`."""
    if not arg:
        error = frame.handled
        if error is None:
            error = sys.exc_info()[1]
        if error is None:
            raise RuntimeError("No active exception to reraise")
        raise_again(it, error)
        return
    cause = it.operations.real(frame.stack.pop()) if arg == 2 else None
    raised = frame.stack.pop()
    error = it.complete(it.operations.make_exception(raised))
    if not isinstance(error, BaseException):
        text = f"calling {raised!r} should have returned an instance of BaseException, not {type(error)!r}"
        raise TypeError(text)
    if arg == 2:
        raise error from _cause(it, cause)
    raise error


def _cause(it: Interpreter, cause: Any) -> BaseException | None:
    if isinstance(cause, type) and issubclass(cause, BaseException):
        made: Any = it.complete(it.operations.call(cause, (), {}))
        if not isinstance(made, BaseException):
            text = f"calling {cause!r} should have returned an instance of BaseException, not {type(made)!r}"
            raise TypeError(text)
        return made
    if cause is None or isinstance(cause, BaseException):
        return cause
    raise TypeError("exception causes must derive from BaseException")


def reraise(it: Interpreter, frame: Frame, arg: int) -> None:
    """Raise the top once more."""
    raise_again(it, it.operations.real(frame.stack.pop()))


# ***** with *****


def before_with(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Replace a context manager by its `__exit__`, and push what `__enter__` gives."""
    leave, value = it.operations.enter_context(frame.stack.pop())
    frame.stack.append(leave)
    it.deliver(value)


def load_special(it: Interpreter, frame: Frame, arg: int) -> None:
    """Replace a context manager by a method, bound, and the mark of a call without `self`."""
    manager = it.operations.real(frame.stack.pop())
    name = ("__enter__", "__exit__", "__aenter__", "__aexit__")[arg]
    method = it.operations.special_method(manager, name)
    if method is None:
        raise TypeError(_no_manager(type(manager), name, arg > 1))
    frame.stack += (method, NULL)


def _no_manager(kind: type, missed: str, asynchronous: bool) -> str:
    """CPython 3.14's message for a class without a method of context managers."""
    protocols = ("context manager protocol", ("__enter__", "__exit__"), "with"), (
        "asynchronous context manager protocol", ("__aenter__", "__aexit__"), "async with",
    )  # fmt: skip
    this, other = protocols[::-1] if asynchronous else protocols
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    text = f"'{name}' object does not support the {this[0]} (missed {missed} method)"
    if all(any(method in each.__dict__ for each in kind.__mro__) for method in other[1]):
        text += f" but it supports the {other[0]}. Did you mean to use '{other[2]}'?"
    return text


def with_except_start_self(it: Interpreter, frame: Frame, arg: Any) -> None:
    """As `with_except_start`, with a `self` beside the method."""
    error = it.operations.real(frame.stack[-1])
    function, first = it.operations.real(frame.stack[-5]), frame.stack[-4]
    args = [type(error), error, error.__traceback__]
    it.deliver(it.operations.call(function, args if first is NULL else [first, *args], {}))


def with_except_start(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Push what `__exit__` says to an exception."""
    error = it.operations.real(frame.stack[-1])
    function = it.operations.real(frame.stack[-4])
    it.deliver(it.operations.call(function, (type(error), error, error.__traceback__), {}))
