"""Generators and coroutines whose frame is interpreted: objects that native code can drive, and their instructions."""

from __future__ import annotations

import dis
import inspect
import sys
import types
import warnings
from types import CodeType
from typing import Any

from rushlight._capture.bytecode.frame import NULL, Frame
from rushlight._capture.bytecode.interpreter import Interpreter, Link, raise_again, throw
from rushlight._capture.bytecode.operations import Enter, Interrupt, Operations
from rushlight._capture.bytecode.real_frames import HERE
from rushlight._capture.bytecode.tracebacks import program_part

__all__ = ["Generator"]

YIELD_FROM = 2  # of the argument of a RESUME: from here on, the frame waits for an iterator at the top of its stack


class Generator:
    """A generator, coroutine or asynchronous generator.

    Interpreted code goes on with its frame as one of its own; native code that calls `send`, `throw` or `close` runs it
    in an interpreter nested for that.  It takes itself for one of CPython's generators: `isinstance(it,
    types.GeneratorType)` is true.
    """

    __slots__ = (
        "__name__",
        "__qualname__",
        "__weakref__",
        "closed",
        "code",
        "frame",
        "kind",
        "operations",
        "running",
        "started",
    )

    frame: Frame | None
    """None when it ended."""

    def __init__(self, frame: Frame, operations: Operations) -> None:
        self.frame, self.operations, self.code = frame, operations, frame.code
        self.running = self.started = self.closed = False
        function = frame.function
        self.__name__ = frame.code.co_name if function is None else function.__name__
        self.__qualname__ = frame.code.co_qualname if function is None else function.__qualname__
        self.kind = kind_of(frame.code)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return _LOOKS_LIKE[self.kind]

    def __repr__(self) -> str:
        return f"<{self.kind.replace(' ', '_')} object {self.__qualname__} at {id(self):#x}>"

    # ***** steps of the interpreter *****

    def resume(self, it: Interpreter, value: Any, link: Link | None) -> None:
        """Go on with the frame, on top of the interpreter's frames; `value` is what its `yield` gives."""
        frame = self._begin(value)
        frame.link = link
        frame.stack.append(value)
        it.push(frame)

    def resume_raising(self, it: Interpreter, error: BaseException, link: Link | None) -> BaseException | None:
        """Go on with the frame, where it waits, with an exception; the exception, if no frame of `it` handles it."""
        frame = self._begin(None)
        frame.link = link
        frame.stack.append(None)
        it.push(frame)
        return it.unwind(error)

    def _begin(self, value: Any) -> Frame:
        """The frame, once it is known that it may go on."""
        if self.running:
            raise ValueError(f"{self.kind} already executing")
        assert self.frame is not None
        if not self.started and value is not None:
            raise TypeError(f"can't send non-None value to a just-started {self.kind}")
        self.running = self.started = True
        self.frame.generator = self
        return self.frame

    def suspend(self) -> None:
        """The frame yielded.  While it waits, only this object holds the frame, so that it is closed when nobody holds
        this object.
        """
        self.running = False
        if self.frame is not None:
            self.frame.generator = None

    def check_alive(self) -> bool:
        """Whether there is something to go on with; RuntimeError for a coroutine that ended."""
        alive = self.frame is not None
        if not alive and self.kind == "coroutine":
            raise RuntimeError("cannot reuse already awaited coroutine")
        return alive

    def ended(self) -> None:
        """The frame returned."""
        self.running, self.frame = False, None

    def forget(self) -> None:
        """End without a step: nothing of the frame runs any more."""
        self.running, self.frame, self.closed = False, None, True

    def failed(self, error: BaseException) -> BaseException:
        """The frame raised: the exception as the one who went on with it sees it."""
        self.ended()
        return failure(error, self.kind)

    # ***** what native code and `next`, `send` of interpreted code use *****

    def __iter__(self) -> Generator:
        if self.kind != "generator":
            raise TypeError(f"'{self.kind}' object is not iterable")
        return self

    def __await__(self) -> Generator:
        if self.kind != "coroutine":
            raise AttributeError(f"'{self.kind}' object has no attribute '__await__'")
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        """Go on; what it yields.  StopIteration, with what it returns, at its end."""
        if not self.check_alive():
            raise StopIteration
        it = Interpreter(self.operations)
        self.resume(it, value, LAST)
        return _outcome(it)

    def throw(self, kind: Any, *rest: Any) -> Any:
        """Go on with an exception raised where it waits."""
        if rest and sys.version_info >= (3, 12):
            text = "the (type, exc, tb) signature of throw() is deprecated, use the single-arg signature instead."
            warnings.warn(text, DeprecationWarning, stacklevel=2)
        error = _exception(kind, *rest)
        if self.running:
            raise ValueError(f"{self.kind} already executing")
        if not self.check_alive():
            raise error
        inner = self._waits_for()
        if inner is not None:
            if isinstance(error, GeneratorExit):
                self.running = True
                try:
                    _close_iterator(inner)
                except BaseException as another:
                    error = another
                finally:
                    self.running = False
            elif hasattr(inner, "throw"):
                return self._throw_into(inner, error)
        return self._raise(error)

    def _throw_into(self, inner: Any, error: BaseException) -> Any:
        """Throw into the iterator that this one waits for; go on where it ends."""
        self.running = True
        try:
            return inner.throw(error)
        except StopIteration as end:
            if "CLEANUP_THROW" in dis.opmap:
                self.running = False
                return self._raise(end)
            value = end.value
        except BaseException as another:
            self.running = False
            return self._raise(another)
        finally:
            self.running = False
        frame = self.frame
        assert frame is not None
        frame.stack.pop()
        send = frame.decoded.opnames.index("SEND", frame.ip - 2)
        frame.ip = frame.program[send][1]
        it = Interpreter(self.operations)
        self.resume(it, value, LAST)
        return _outcome(it)

    def _raise(self, error: Any) -> Any:
        it = Interpreter(self.operations)
        try:
            escaped = self.resume_raising(it, error, LAST)
            if escaped is not None:
                throw(escaped)
            return _outcome(it)
        finally:
            error = escaped = None  # or the exception would hold the frame that holds it

    def close(self) -> Any:
        """Raise GeneratorExit where it waits; RuntimeError if it yields nevertheless.  From 3.13 on, what it returns."""
        if self.frame is None:
            return None
        if not self.started and not self.running:
            self.frame = None
            return None
        try:
            self.throw(GeneratorExit())
        except StopIteration as end:
            return end.value if sys.version_info >= (3, 13) else None
        except GeneratorExit as error:
            error.__traceback__ = program_part(error.__traceback__)
            return None
        raise RuntimeError(f"{self.kind} ignored GeneratorExit")

    def __del__(self) -> None:
        if self.frame is None:
            return
        if self.kind == "coroutine" and not self.started and not self.running:
            self.operations.never_awaited(self.frame.code.co_qualname)
        elif self.started and not self.running:
            try:
                self.close()
            except Interrupt as found:  # which would be lost here
                self.operations.interrupt(found)

    def _waits_for(self) -> Any:
        """The iterator of the `yield from` or `await` in which the frame waits, or None."""
        frame = self.frame
        if frame is None or not self.started:
            return None
        decoded = frame.decoded
        if decoded.opnames[frame.ip] == "RESUME" and decoded.raw_args[frame.ip] & 3 >= YIELD_FROM:
            return frame.stack[-1]
        return None


def kind_of(code: CodeType) -> str:
    """Kind of object that a call of this code returns: generator, coroutine or async generator."""
    if code.co_flags & inspect.CO_COROUTINE:
        return "coroutine"
    return "async generator" if code.co_flags & inspect.CO_ASYNC_GENERATOR else "generator"


def failure(error: BaseException, kind: str) -> BaseException:
    """The exception to raise when one leaves a generator: a StopIteration would look like its end."""
    if isinstance(error, StopIteration) or (kind == "async generator" and isinstance(error, StopAsyncIteration)):
        name = "StopIteration" if isinstance(error, StopIteration) else "StopAsyncIteration"
        found = RuntimeError(f"{kind} raised {name}")
        found.__cause__ = found.__context__ = error
        return found
    return error


def _public(name: str, get: Any) -> None:
    for prefix in ("gi", "cr", "ag"):
        setattr(Generator, f"{prefix}_{name}", property(get))


_public("frame", lambda self: self.frame)
_public("running", lambda self: self.running)
_public("code", lambda self: self.code)
_public("suspended", lambda self: self.started and self.frame is not None and not self.running)
_public("yieldfrom", lambda self: self._waits_for())
_public("await", lambda self: self._waits_for())

_LOOKS_LIKE = {
    "generator": types.GeneratorType,
    "coroutine": types.CoroutineType,
    "async generator": types.AsyncGeneratorType,
}


class _Last(Link):
    """Of a generator that native code goes on with: nothing is below."""

    __slots__ = ()

    def yielded(self, it: Interpreter, value: Any) -> None:
        HERE.frame = None
        it.finished = it.yielded = True
        it.result = value


LAST = _Last()


def _outcome(it: Interpreter) -> Any:
    value = it.run()
    if it.yielded:
        return value
    if value is None:
        raise StopIteration
    raise StopIteration(value)


def _exception(kind: Any, value: Any = None, traceback: Any = None) -> BaseException:
    """The exception that the arguments of `throw` mean."""
    if isinstance(kind, BaseException):
        if value is not None:
            raise TypeError("instance exception may not have a separate value")
        error = kind
    elif isinstance(kind, type) and issubclass(kind, BaseException):
        if isinstance(value, kind):
            error = value
        elif value is None:
            error = kind()
        else:
            error = kind(*value) if isinstance(value, tuple) else kind(value)
    else:
        text = f"exceptions must be classes or instances deriving from BaseException, not {type(kind).__name__}"
        raise TypeError(text)
    return error if traceback is None else error.with_traceback(traceback)


def _close_iterator(inner: Any) -> None:
    close = getattr(inner, "close", None)
    if close is not None:
        close()


# ***** asynchronous generators *****


class Wrapped:
    """A value that an asynchronous generator yields, as against what it passes on from what it awaits."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class AsyncGenerator(Generator):
    """An asynchronous generator: its methods give awaitables, each of which goes on with the frame to the next value."""

    __slots__ = ("finalizer", "hooked")

    def __init__(self, frame: Frame, operations: Operations) -> None:
        super().__init__(frame, operations)
        self.hooked = False
        self.finalizer: Any = None

    def __aiter__(self) -> AsyncGenerator:
        return self

    def __anext__(self) -> AsyncStep:
        return self.asend(None)

    def asend(self, value: Any) -> AsyncStep:
        """An awaitable of the next value; `value` is what the `yield` gives."""
        self._call_hooks()
        return AsyncStep(self, "anext", lambda sent: Generator.send(self, value if sent is None else sent))

    def athrow(self, *error: Any) -> AsyncStep:
        """An awaitable of the next value, with an exception raised where the generator waits."""
        self._call_hooks()
        return AsyncStep(self, "athrow", lambda sent: Generator.throw(self, *error))

    def aclose(self) -> AsyncStep:
        """An awaitable that ends the generator."""
        self._call_hooks()
        return AsyncStep(self, "aclose", lambda sent: Generator.throw(self, GeneratorExit()))

    def _call_hooks(self) -> None:
        """Tell the event loop, the first time, as `sys.set_asyncgen_hooks` says."""
        if not self.hooked:
            self.hooked = True
            first, self.finalizer = sys.get_asyncgen_hooks()
            if first is not None:
                first(self)

    def __del__(self) -> None:
        if self.frame is not None and self.started and not self.running:
            if self.finalizer is not None:
                self.finalizer(self)
            else:
                self.close()


class AsyncStep:
    """The awaitable of one step of an asynchronous generator."""

    __slots__ = ("begin", "generator", "kind", "state")

    def __init__(self, generator: AsyncGenerator, kind: str, begin: Any) -> None:
        self.generator, self.kind, self.begin = generator, kind, begin
        self.state = "new"

    def __await__(self) -> AsyncStep:
        return self

    def __iter__(self) -> AsyncStep:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        """Go on to what the generator awaits; StopIteration, with its value, where it yields."""
        if self.state == "done":
            name = "__anext__()/asend()" if self.kind == "anext" else "aclose()/athrow()"
            raise RuntimeError(f"cannot reuse already awaited {name}")
        if self.state == "new":
            if self.generator.closed:
                self.state = "done"
                if self.kind == "aclose":
                    raise StopIteration
                raise StopAsyncIteration
            self._begin()
            return self._outcome(self.begin, value)
        return self._outcome(self.generator.send, value)

    def _begin(self) -> None:
        if self.generator.running:
            raise RuntimeError(f"{self.kind}(): asynchronous generator is already running")
        if self.kind == "aclose":
            self.generator.closed = True
        self.state = "running"

    def throw(self, *error: Any) -> Any:
        """Raise an exception where the generator, or what it awaits, waits."""
        if self.state == "done":
            name = "__anext__()/asend()" if self.kind == "anext" else "aclose()/athrow()"
            raise RuntimeError(f"cannot reuse already awaited {name}")
        self.state = "running"
        return self._outcome(self.generator.throw, *error)

    def close(self) -> None:
        """Take no further step."""
        self.state = "done"

    def _outcome(self, step: Any, *args: Any) -> Any:
        closing, ended = self.kind == "aclose", False
        try:
            value = step(*args)
        except StopIteration:
            self.state, self.generator.closed, ended = "done", True, True
        except (StopAsyncIteration, GeneratorExit):
            self.state, self.generator.closed = "done", True
            if not closing:
                raise
            ended = True
        except BaseException:
            self.state = "done"
            raise
        if ended:
            if closing:
                raise StopIteration
            raise StopAsyncIteration
        if type(value) is Wrapped:
            self.state = "done"
            if closing:
                raise RuntimeError("async generator ignored GeneratorExit")
            raise StopIteration(value.value)
        return value


# ***** next(), send() in interpreted code *****


class _Next(Link):
    """Of a generator that `next` or `send` went on with."""

    __slots__ = ("default",)

    def __init__(self, default: Any) -> None:
        self.default = default

    def returned(self, it: Interpreter, value: Any) -> None:
        if self.default is not NULL:
            it.deliver(self.default)
        elif value is None:
            raise StopIteration
        else:
            raise StopIteration(value)


def proceed(generator: Generator, value: Any = None, default: Any = NULL) -> Enter:
    """The answer to `next(generator)` or `generator.send(value)` that goes on with its frame as one of the
    interpreter's.
    """

    def resume(it: Interpreter, answer: Enter) -> None:
        if not generator.check_alive():
            if default is NULL:
                raise StopIteration
            it.deliver(default)
        else:
            generator.resume(it, value, _Next(default))

    return Enter(_nothing, resume=resume)


def _nothing() -> None:
    """The function of an `Enter` that has a `resume`."""


# ***** instructions *****


def return_generator(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Return a generator that goes on with this frame."""
    link = frame.link
    it.frames.pop()
    frame.link = frame.inherited = frame.handled = None
    kind = AsyncGenerator if frame.code.co_flags & inspect.CO_ASYNC_GENERATOR else Generator
    made = it.operations.make_generator(kind(frame, it.operations))
    if link is None:
        it.deliver(made)
    else:
        link.returned(it, made)


def yield_value(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Yield the top to who went on with this generator."""
    value = frame.stack.pop()
    it.frames.pop()
    link, frame.link = frame.link, None
    frame.inherited = None
    frame.generator.suspend()
    if link is None:
        it.deliver(value)
    else:
        link.yielded(it, value)


class _Sent(Link):
    """Of the generator that a SEND went on with."""

    __slots__ = ()

    def returned(self, it: Interpreter, value: Any) -> None:
        _end_send(it.frames[-1], value)


SENT = _Sent()


def _end_send(frame: Frame, value: Any) -> None:
    """Leave the loop whose SEND is in progress, with what the iterator returned in its place, or above it."""
    handler, target = frame.program[frame.ip - 1]
    if handler is send:
        frame.stack[-1] = value
    else:
        frame.stack.append(value)
    frame.ip = target


def send(it: Interpreter, frame: Frame, arg: int) -> None:
    """Replace the top by what the iterator below yields for it, or at its end both by what it returned, and jump."""
    value = frame.stack.pop()
    inner = it.operations.real(frame.stack[-1])
    if type(inner) is Generator and inner.operations is it.operations:
        if not inner.check_alive():
            _end_send(frame, None)
        else:
            inner.resume(it, value, SENT)
        return
    try:
        if value is None and hasattr(type(inner), "__next__"):
            found = it.complete(it.operations.advance(inner))
        else:
            found = it.complete(it.operations.call(inner.send, [value], {}))
    except StopIteration as end:
        _end_send(frame, end.value)
    else:
        frame.stack.append(found)


def send_kept(it: Interpreter, frame: Frame, arg: int) -> None:
    """As `send`, but the iterator stays at its end, below what it returned."""
    send(it, frame, arg)


def end_send(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Drop the iterator below what it returned."""
    del frame.stack[-2]


def cleanup_throw(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Handle an exception thrown into an iterator that came out of it: take the value of StopIteration, raise others
    again.
    """
    error = frame.stack.pop()
    if not isinstance(error, StopIteration):
        raise_again(it, error)
        return
    frame.stack[-2:] = None, error.value


def stop_iteration_error(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Replace a StopIteration that leaves a generator by a RuntimeError."""
    frame.stack.append(failure(frame.stack.pop(), kind_of(frame.code)))


def get_yield_from_iter(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Replace the top by an iterator, for `yield from`."""
    obj = frame.stack[-1]
    if isinstance(obj, types.CoroutineType):
        flags = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE
        if not frame.code.co_flags & flags:
            raise TypeError("cannot 'yield from' a coroutine object in a non-coroutine generator")
    elif not isinstance(obj, types.GeneratorType):
        frame.stack.pop()
        it.deliver(it.operations.iterate(obj))


# ***** await *****


def get_awaitable(it: Interpreter, frame: Frame, arg: int) -> None:
    """Replace the top by the iterator that `await` goes through."""
    obj = frame.stack.pop()
    found = _awaitable_iterator(obj)
    if found is None:
        name = type(obj).__name__
        if arg:
            method = ("", "__aenter__", "__aexit__")[arg]
            text = f"'async with' received an object from {method} that does not implement __await__: {name}"
        else:
            text = f"object {name} can't be used in 'await' expression"
            if sys.version_info >= (3, 14):
                text = f"'{name}' object can't be awaited"
        raise TypeError(text)
    if isinstance(found, types.CoroutineType) and found.cr_await is not None:
        raise RuntimeError("coroutine is being awaited already")
    frame.stack.append(found)


def _awaitable_iterator(obj: Any) -> Any:
    """The iterator that `await obj` goes through; None where the object cannot be awaited."""
    if isinstance(obj, types.CoroutineType):
        return obj
    if isinstance(obj, types.GeneratorType) and obj.gi_code.co_flags & inspect.CO_ITERABLE_COROUTINE:
        return obj
    method = getattr(type(obj), "__await__", None)
    if method is None:
        return None
    found = method(obj)
    if isinstance(found, types.CoroutineType):
        raise TypeError("__await__() returned a coroutine")
    if not hasattr(type(found), "__next__"):
        raise TypeError(f"__await__() returned non-iterator of type '{type(found).__name__}'")
    return found


def before_async_with(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Replace a context manager by its `__aexit__`, and push the awaitable of `__aenter__`."""
    manager = frame.stack.pop()
    leave, value = it.operations.enter_async_context(manager)
    frame.stack.append(leave)
    it.deliver(value)


def get_aiter(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Replace the top by its asynchronous iterator."""
    obj = frame.stack.pop()
    kind = type(obj)
    method = getattr(kind, "__aiter__", None)
    if method is None:
        raise TypeError(f"'async for' requires an object with __aiter__ method, got {kind.__name__}")
    found = it.complete(it.operations.call(method, [obj], {}))
    if not hasattr(type(found), "__anext__"):
        name = type(found).__name__
        raise TypeError(f"'async for' received an object from __aiter__ that does not implement __anext__: {name}")
    frame.stack.append(found)


def get_anext(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Push the iterator of the awaitable that gives the next value."""
    iterator = frame.stack[-1]
    kind = type(iterator)
    method = getattr(kind, "__anext__", None)
    if method is None:
        raise TypeError(f"'async for' requires an iterator with __anext__ method, got {kind.__name__}")
    found = it.complete(it.operations.call(method, [iterator], {}))
    awaited = _awaitable_iterator(found)
    if awaited is None:
        name = type(found).__name__
        raise TypeError(f"'async for' received an invalid object from __anext__: {name}")
    frame.stack.append(awaited)


def end_async_for(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Leave an asynchronous loop at StopAsyncIteration; raise anything else again."""
    error = frame.stack.pop()
    if not isinstance(error, StopAsyncIteration):
        raise_again(it, error)
        return
    frame.stack.pop()


def async_gen_wrap(it: Interpreter, frame: Frame, arg: Any) -> None:
    """Mark the top as yielded by an asynchronous generator, not by what it awaits."""
    frame.stack.append(Wrapped(frame.stack.pop()))
