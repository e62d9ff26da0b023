"""`IterDataPipe` and `MapDataPipe`: datasets whose steps are methods of the step before.

>>> from rushlight.utils.data.datapipes.iter import IterableWrapper
>>> list(IterableWrapper(range(6)).filter(lambda x: x % 2 == 0).map(lambda x: x * 10).batch(2))
[[0, 20], [40]]
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from rushlight.utils.data.dataset import Dataset, IterableDataset

__all__ = ["DFIterDataPipe", "DataChunk", "IterDataPipe", "MapDataPipe"]

T_co = TypeVar("T_co", covariant=True)

_HINT = (
    "\nThis may be caused by multiple references to the same IterDataPipe. We recommend using `.fork()` if that is necessary."
    "\nFor feedback regarding this single iterator per IterDataPipe constraint, feel free to comment on this issue: "
    "https://github.com/pytorch/data/issues/45."
)
_THROWN = "thrown by __iter__ of"


def _described(pipe: Any) -> str:
    """A pipe with its arguments, for messages."""
    parts = []
    for name in inspect.signature(type(pipe).__init__).parameters:
        if name != "self" and name in pipe.__dict__:
            value = pipe.__dict__[name]
            parts.append(
                f"{name}={getattr(value, '__name__', None) if callable(value) and hasattr(value, '__name__') else repr(value)}"
            )
    return f"{type(pipe).__name__}({', '.join(parts)})"


class _Pass:
    """One pass through a pipe. The next one ends it: a pipe has one reader at a time.

    A pass of a generator begins with its first sample, as generators do; what it raises then says which pipe it came
    from.
    """

    def __init__(self, pipe: Any, begin: Callable[[Any], Iterator[Any]]) -> None:
        self._pipe = pipe
        self._begin = begin
        self._lazy = inspect.isgeneratorfunction(begin)
        self._inner: Any = None
        if not self._lazy:
            self._start()

    def _start(self) -> None:
        pipe = self._pipe
        pipe._valid_iterator_id += 1
        pipe._number_of_samples_yielded = 0
        self._number = pipe._valid_iterator_id
        pipe.reset()
        self._inner = self._begin(pipe)

    def __iter__(self) -> _Pass:
        return self

    def __next__(self) -> Any:
        pipe = self._pipe
        if self._inner is None:
            self._start()
        if self._number != pipe._valid_iterator_id:
            raise RuntimeError(
                "This iterator has been invalidated because another iterator has been created from the same IterDataPipe: "
                f"{_described(pipe)}{_HINT}"
            )
        try:
            item = next(self._inner)
        except StopIteration:
            raise
        except Exception as error:
            if self._lazy:
                first = str(error.args[0]) if error.args else ""
                if _THROWN not in first:
                    error.args = (f"{first}\nThis exception is {_THROWN} {_described(pipe)}", *error.args[1:])
            raise
        pipe._number_of_samples_yielded += 1
        return item

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inner, name)


def _guarded(begin: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Any]:
    """An `__iter__` whose iterators know when another one has taken their place."""

    @functools.wraps(begin)
    def __iter__(self: Any) -> Any:
        return _Pass(self, begin)

    __iter__._guarded = True  # type: ignore[attr-defined]
    return __iter__


class _Steps:
    """Common base of both kinds of pipes: steps as methods, and hooks for pickling and printing."""

    functions: dict[str, Callable[..., Any]]
    _kind = ""
    reduce_ex_hook: Callable[..., Any] | None = None
    getstate_hook: Callable[..., Any] | None = None
    str_hook: Callable[..., Any] | None = None
    repr_hook: Callable[..., Any] | None = None

    def __getattr__(self, name: str) -> Any:
        functions = type(self).functions
        if name in functions:
            return functools.wraps(functions[name])(functools.partial(functions[name], self))
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    @classmethod
    def register_function(cls, function_name: str, function: Callable[..., Any]) -> None:
        """Make `function(pipe, ...)` a method of all pipes of this kind."""
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(
        cls, function_name: str, cls_to_register: Any, enable_df_api_tracing: bool = False
    ) -> None:
        """Make a class of pipes a step: `pipe.name(...)` is `Class(pipe, ...)`. A name can be given once."""
        if function_name in cls.functions:
            raise Exception(f"Unable to add DataPipe function name {function_name} as it is already taken")

        def step(source: Any, *args: Any, **kwargs: Any) -> Any:
            return cls_to_register(source, *args, **kwargs)

        step.__name__, step.__doc__ = function_name, cls_to_register.__doc__
        cls.functions[function_name] = step

    def __getstate__(self) -> Any:
        hook = type(self).getstate_hook
        return self.__dict__ if hook is None else hook(self.__dict__)

    def __reduce_ex__(self, *args: Any, **kwargs: Any) -> Any:
        hook = type(self).reduce_ex_hook
        if hook is not None:
            try:
                return hook(self)
            except NotImplementedError:
                pass  # the hook leaves this one alone
        return super().__reduce_ex__(*args, **kwargs)

    @classmethod
    def set_getstate_hook(cls, hook_fn: Callable[..., Any] | None) -> None:
        """Let a function say what is pickled of a pipe; one at a time."""
        if cls.getstate_hook is not None and hook_fn is not None:
            raise RuntimeError("Attempt to override existing getstate_hook")
        cls.getstate_hook = staticmethod(hook_fn) if hook_fn is not None else None

    @classmethod
    def set_reduce_ex_hook(cls, hook_fn: Callable[..., Any] | None) -> None:
        """Let a function say how a pipe is pickled; one at a time."""
        if cls.reduce_ex_hook is not None and hook_fn is not None:
            raise RuntimeError("Attempt to override existing reduce_ex_hook")
        cls.reduce_ex_hook = staticmethod(hook_fn) if hook_fn is not None else None

    def __repr__(self) -> str:
        hook = type(self).repr_hook
        return type(self).__qualname__ if hook is None else str(hook(self))

    def __str__(self) -> str:
        hook = type(self).str_hook
        return type(self).__qualname__ if hook is None else str(hook(self))

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *type(self).functions]


class IterDataPipe(_Steps, IterableDataset[T_co]):
    """A pipe that yields samples. A subclass defines `__iter__`; a pipe has one iterator at a time, and a new one ends
    the one before.

    `reset`, if a subclass has one, is called when a new iterator begins.
    """

    functions: dict[str, Callable[..., Any]] = {}
    _kind = "IterDataPipe"
    _valid_iterator_id = 0
    _number_of_samples_yielded = 0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        begin = cls.__dict__.get("__iter__")
        if begin is not None and not getattr(begin, "_guarded", False):
            cls.__iter__ = _guarded(begin)  # type: ignore[method-assign]

    def __iter__(self) -> Iterator[T_co]:
        return self

    def reset(self) -> None:
        """Begin anew; called for every new iterator."""


class DFIterDataPipe(IterDataPipe[Any]):
    """A pipe of data frames."""

    def _is_dfpipe(self) -> bool:
        return True


class MapDataPipe(_Steps, Dataset[T_co]):
    """A pipe whose samples are reached by a key. A subclass defines `__getitem__`, and `__len__` if it can."""

    functions: dict[str, Callable[..., Any]] = {}
    _kind = "MapDataPipe"


class _IterDataPipeSerializationWrapper(IterDataPipe[Any]):
    """A pipe around another one, which goes to other processes as it is."""

    def __init__(self, datapipe: Any) -> None:
        self._datapipe = datapipe

    def __iter__(self) -> Iterator[Any]:
        yield from self._datapipe

    def __len__(self) -> int:
        return len(self._datapipe)


class _MapDataPipeSerializationWrapper(MapDataPipe[Any]):
    """The same for pipes that are read by keys."""

    def __init__(self, datapipe: Any) -> None:
        self._datapipe = datapipe

    def __getitem__(self, index: Any) -> Any:
        return self._datapipe[index]

    def __len__(self) -> int:
        return len(self._datapipe)


class DataChunk(list[Any]):
    """A batch of samples: a list that knows it is one."""

    def __init__(self, items: Any) -> None:
        items = list(items)
        super().__init__(items)
        self.items = items

    def as_str(self, indent: str = "") -> str:
        """The samples as text, behind an indentation."""
        return f"{indent}[{', '.join(str(item) for item in self)}]"

    def __iter__(self) -> Iterator[Any]:
        yield from super().__iter__()

    def raw_iterator(self) -> Iterator[Any]:
        """The samples as they were given."""
        yield from self.items
