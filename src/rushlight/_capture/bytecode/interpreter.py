"""The interpreter: a list of frames, a step of one instruction, exceptions through the exception table."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any, NoReturn

from rushlight._capture.bytecode.binding import bind
from rushlight._capture.bytecode.frame import NULL, Frame
from rushlight._capture.bytecode.operations import Enter, Interrupt, Operations
from rushlight._capture.bytecode.real_frames import HERE
from rushlight._capture.bytecode.tracebacks import add_entry, program_part
from rushlight._capture.bytecode.values import load_const, load_fast, nop, push_null, store_fast

__all__ = ["Interpreter", "Link"]


class Link:
    """Handler of a frame's result in the frame below.  None in its place: the result is pushed.

    Attributes are never written after a frame was entered, so copies of frames share links.
    """

    __slots__ = ()

    def returned(self, it: Interpreter, value: Any) -> None:
        """The frame returned; `it.frames[-1]`, if there is one, is the frame below."""
        it.deliver(value)

    def yielded(self, it: Interpreter, value: Any) -> None:
        """The frame, of a generator, yielded."""
        it.deliver(value)

    def raised(self, it: Interpreter, error: BaseException) -> bool:
        """The frame raised; True where the exception ends here."""
        return False


_INERT = frozenset((type(None), bool, int, float, str))  # types whose objects nobody hears the end of


class Escaped(BaseException):
    """Carries an exception, raised again, that no frame handles out of its instruction."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class EnterLink(Link):
    """Of a call that an `Enter` asked for with `then` or `caught`, or whose result is dropped."""

    __slots__ = ("answer", "drop")

    def __init__(self, answer: Enter, drop: bool) -> None:
        self.answer, self.drop = answer, drop

    def returned(self, it: Interpreter, value: Any) -> None:
        then = self.answer.then
        it.deliver(value if then is None else then(value), self.drop)

    def raised(self, it: Interpreter, error: BaseException) -> bool:
        caught = self.answer.caught
        if caught is None:
            return False
        it.deliver(caught(error), self.drop)
        return True


class Interpreter:
    """Runs functions of Python from their bytecode, every frame an object in `frames` (outermost first).

    >>> from rushlight._capture.bytecode import Interpreter, Operations
    >>> it = Interpreter(Operations())
    >>> _ = it.push_call(lambda x: x + 1, (2,), {})
    >>> it.run()
    3
    """

    __slots__ = ("finished", "frames", "operations", "outer", "result", "yielded")

    def __init__(self, operations: Operations, outer: Interpreter | None = None) -> None:
        self.operations, self.outer = operations, outer
        self.frames: list[Frame] = []
        self.finished = self.yielded = False
        self.result: Any = None

    def nested(self) -> Interpreter:
        """An interpreter for a call that native code makes back: of a generator, of a key function."""
        return type(self)(self.operations, self)

    # ***** frames *****

    def push_call(self, function: FunctionType, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Frame:
        """Push a frame for a call of a function; TypeError, with CPython's words, where the arguments do not fit."""
        known: Any = function  # whose attribute `__builtins__` type checkers do not know
        namespace, found = function.__globals__, known.__builtins__
        frame = Frame(function.__code__, namespace, found, bind(function, args, kwargs), function)
        self.push(frame)
        return frame

    def push_code(self, code: CodeType, namespace: dict[str, Any], names: Any = None) -> Frame:
        """Push a frame for the code of a module: `names` is its local namespace, `namespace` itself if not given."""
        found = namespace.setdefault("__builtins__", builtins)
        inner: dict[str, Any] = found if isinstance(found, dict) else vars(found)
        frame = Frame(
            code,
            namespace,
            inner,
            [NULL] * len(code.co_varnames + code.co_cellvars),
            None,
            namespace if names is None else names,
        )
        self.push(frame)
        return frame

    def push(self, frame: Frame) -> None:
        """Push a frame, new or of a generator, on the frames."""
        if self.frames:
            frame.inherited = self.frames[-1].handled
            frame.handled = frame.inherited if frame.own is None else frame.own
        self.frames.append(frame)
        self.finished = False

    def enter(self, answer: Enter, drop: bool = False) -> None:
        """Push the frame of a call that an operation answered with."""
        if answer.resume is not None:
            answer.resume(self, answer)
            return
        frame = self.push_call(answer.function, answer.args, answer.kwargs)
        if answer.names is not None:
            frame.names = answer.names
        if drop or answer.then is not None or answer.caught is not None:
            frame.link = EnterLink(answer, drop)
        elif answer.link is not None:
            frame.link = answer.link

    def deliver(self, value: Any, drop: bool = False) -> None:
        """Give a value to the top frame: push it, or enter the call that it stands for; without frames it is the
        result.
        """
        if type(value) is Enter:
            self.enter(value, drop)
        elif not self.frames:
            self.finished, self.result = True, value
            HERE.frame = None
        elif not drop:
            self.frames[-1].stack.append(value)

    def leave(self, value: Any) -> None:
        """The top frame returns."""
        frame = self.frames.pop()
        frame.locals.reverse()  # what they hold is let go of from the first to the last, as by CPython
        frame.locals.clear()
        if frame.generator is not None:
            frame.generator.ended()
        if frame.link is None:
            self.deliver(value)
        else:
            frame.link.returned(self, value)

    def complete(self, answer: Any) -> Any:
        """The value of an operation's answer: what an `Enter` asks for is run at once, in an interpreter of its own."""
        if type(answer) is not Enter:
            return answer
        inner = self.nested()
        inner.enter(answer)
        return inner.run()

    # ***** running *****

    def step(self) -> None:
        """Execute one instruction of the top frame.

        An exception that no frame handles leaves; so does an `Interrupt`, which no frame sees: then the top frame may
        be in the middle of the instruction.
        """
        frame = self.frames[-1]
        handler, arg = frame.program[frame.ip]
        frame.ip += 1
        HERE.frame = frame
        try:
            if frame.handled is None:
                handler(self, frame, arg)
            else:
                _under(frame.handled, handler, self, frame, arg)
        except Interrupt:
            raise
        except Escaped as leaving:
            escaped: BaseException | None = leaving.error
        except BaseException as error:
            self.operations.check_error(error)
            error.__traceback__ = program_part(error.__traceback__)  # in no variable: it would hold this frame
            if error.__traceback__ is None and error.__suppress_context__ and error.__cause__ is None:
                _forget_internal(error, frame)
            escaped = self.unwind(error)
        else:
            return
        if escaped is not None:
            try:
                throw(escaped)
            finally:
                del escaped  # or the exception would hold the frame that holds it

    def advance(self, most: int = -1) -> int:
        """Execute the next instructions of the top frame while they only move values, at most so many; how many there
        were.

        They run no operation, raise nothing and let go of nothing, so nobody need look at the state between them.
        """
        frame = self.frames[-1]
        program, stack, values, ip = frame.program, frame.stack, frame.locals, frame.ip
        start = ip
        end = -1 if most < 0 else ip + most
        while ip != end:
            handler, arg = program[ip]
            if handler is load_fast:
                value = values[arg]
                if value is NULL:
                    break
                stack.append(value)
            elif handler is load_const:
                stack.append(arg)
            elif handler is store_fast:
                if values[arg] is not NULL and type(values[arg]) not in _INERT:
                    break
                values[arg] = stack.pop()
            elif handler is push_null:
                stack.append(NULL)
            elif handler is not nop:
                break
            ip += 1
        frame.ip = ip
        return ip - start

    def run(self) -> Any:
        """Step until the last frame returned or, where it is a generator's, yielded; its result."""
        while not self.finished:
            self.advance()
            self.step()
        return self.result

    # ***** exceptions *****

    def unwind(self, error: BaseException, traced: bool = False) -> BaseException | None:
        """Go to the handler of an exception that the top frame raised; the exception, if no frame has one.

        `traced`: the traceback has an entry for the top frame already, as where it is raised again.
        """
        frames = self.frames
        while frames:
            frame = frames[-1]
            if not traced:
                add_entry(error, frame)
            traced = False
            catch = frame.decoded.catches[frame.ip - 1] if frame.ip else None
            if catch is not None:
                del frame.stack[catch.depth :]
                if catch.lasti:
                    frame.stack.append(frame.ip - 1)
                frame.stack.append(error)
                frame.ip = catch.target
                return None
            frames.pop()
            frame.stack.clear()
            if frame.generator is not None:
                error = frame.generator.failed(error)
            if frame.link is not None:
                try:
                    if frame.link.raised(self, error):
                        return None
                except Interrupt:
                    raise
                except BaseException as another:
                    error = another
                    error.__traceback__ = program_part(error.__traceback__)
        HERE.frame = None
        return error


def _forget_internal(error: BaseException, frame: Frame) -> None:
    """Take out of an exception's context what operations raised and caught, where they (not the program) say `from
    None`.
    """
    if frame.decoded.opnames[frame.ip - 1] == "RAISE_VARARGS":
        return
    error.__suppress_context__ = False
    context = error.__context__
    error.__context__ = None if context is None else context.__context__


def raise_again(it: Interpreter, error: BaseException) -> None:
    """Raise, from an instruction, without an entry in the traceback and without a context."""
    escaped = it.unwind(error, traced=True)
    if escaped is not None:
        raise Escaped(escaped)


def throw(error: BaseException) -> NoReturn:
    """Raise an exception that has its context already."""
    context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context
        del error


def _under(handled: BaseException, handler: Any, it: Interpreter, frame: Frame, arg: Any) -> None:
    """Execute an instruction while an exception is being handled, so that native code sees it (`sys.exc_info`,
    `__context__`).
    """
    entry, context = handled.__traceback__, handled.__context__
    try:
        raise handled
    except BaseException:
        handled.__traceback__, handled.__context__ = entry, context
        handler(it, frame, arg)
