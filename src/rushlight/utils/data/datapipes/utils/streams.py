"""`torch.utils.data.datapipes.utils.common`: files by name, streams that close themselves, checks of functions."""

from __future__ import annotations

import fnmatch
import functools
import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from io import IOBase
from typing import Any, ClassVar

from rushlight.utils._import_utils import dill_available

__all__ = [
    "StreamWrapper",
    "get_file_binaries_from_pathnames",
    "get_file_pathnames_from_root",
    "match_masks",
    "validate_input_col",
    "validate_pathname_binary_tuple",
]


def validate_input_col(fn: Callable[..., Any], input_col: int | str | tuple[Any, ...] | list[Any] | None) -> None:
    """ValueError for a function that cannot be called with as many positional arguments as `input_col` names columns.

    Functions whose signature cannot be read pass.

    >>> validate_input_col(lambda a, b=1, *, c=1: a, [0, 1])
    """
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except ValueError:
        return
    given = len(input_col) if isinstance(input_col, (list, tuple)) else 1
    shown = fn.func if isinstance(fn, functools.partial) else fn
    name = getattr(shown, "__name__", repr(shown))
    named = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if named:
        raise ValueError(
            f"The function {name} takes {len(named)} non-default keyword-only parameters, which is not allowed."
        )
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.default is p.empty for p in places[given:]):
        raise ValueError(f"The function {name} takes {len(places)} positional parameters, but {given} are required.")
    if len(places) < given and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        many = f"{len(parameters)}" if len(parameters) < given else f"{len(places)} positional"
        raise ValueError(f"The function {name} takes {many} parameters, but {given} are required.")


def _is_local_fn(fn: Any) -> bool:
    if hasattr(fn, "__code__"):
        return bool(fn.__code__.co_flags & inspect.CO_NESTED)
    return "<locals>" in getattr(fn, "__qualname__", type(fn).__qualname__)


def _check_unpickable_fn(fn: Any) -> None:
    """Warn of lambdas and local functions, which other processes cannot get; TypeError for what cannot be called."""
    if not callable(fn):
        raise TypeError(f"A callable function is expected, but {type(fn)} is provided.")
    if isinstance(fn, functools.partial):
        fn = fn.func
    kind = "Local" if _is_local_fn(fn) else "Lambda" if getattr(fn, "__name__", "") == "<lambda>" else ""
    if kind and not dill_available():
        warnings.warn(
            f"{kind} function is not supported by pickle, please use regular python function or functools.partial "
            "instead.",
            stacklevel=2,
        )


def match_masks(name: str, masks: str | list[str]) -> bool:
    """Whether a name matches one of the patterns (`*.txt`), or there are none."""
    return not masks or any(fnmatch.fnmatch(name, mask) for mask in ([masks] if isinstance(masks, str) else masks))


def get_file_pathnames_from_root(
    root: str, masks: str | list[str], recursive: bool = False, abspath: bool = False, non_deterministic: bool = False
) -> Iterator[str]:
    """The files of a folder whose names match, sorted within each folder, or `root` itself where it is a file.

    A folder that cannot be read is warned of, and its OSError raised.
    """

    def failed(error: OSError) -> None:
        warnings.warn(f"{error.filename} : {error.strerror}", stacklevel=2)
        raise error

    if os.path.isfile(root):
        if match_masks(os.path.basename(root), masks):
            yield os.path.abspath(root) if abspath else root
        return
    for folder, inner, files in os.walk(root, onerror=failed):
        if not non_deterministic:
            files.sort()
            inner.sort()
        place = os.path.abspath(folder) if abspath else folder
        yield from (os.path.join(place, name) for name in files if match_masks(name, masks))
        if not recursive:
            return


def get_file_binaries_from_pathnames(
    pathnames: Any, mode: str, encoding: str | None = None
) -> Iterator[tuple[str, StreamWrapper]]:
    """Paths with their open files; mode "b" and "t" mean reading.  TypeError for a path that is no text."""
    mode = f"r{mode}" if mode in ("b", "t") else mode
    for path in pathnames if isinstance(pathnames, Iterable) else [pathnames]:
        if not isinstance(path, str):
            raise TypeError(f"Expected string type for pathname, but got {type(path)}")
        yield path, StreamWrapper(open(path, mode, encoding=encoding))


def validate_pathname_binary_tuple(data: Any) -> None:
    """TypeError for anything but a path with a stream."""
    if not isinstance(data, tuple):
        raise TypeError(f"pathname binary data should be tuple type, but it is type {type(data)}")
    if len(data) != 2:
        raise TypeError(f"pathname binary stream tuple length should be 2, but got {len(data)}")
    path, stream = data
    if not isinstance(path, str):
        raise TypeError(f"pathname within the tuple should have string type pathname, but it is type {type(path)}")
    if not isinstance(stream, (IOBase, StreamWrapper)):
        raise TypeError(
            f"binary stream within the tuple should have IOBase orits subclasses as type, but it is type {type(stream)}"
        )


class StreamWrapper:
    """A file that is closed when nobody holds it any more; everything else goes to the file.

    Streams that are read from it (an archive's members) name it as `parent_stream`; after `autoclose` it is closed
    with the last of them.
    """

    session_streams: ClassVar[dict[Any, int]] = {}
    debug_unclosed_streams: ClassVar[bool] = False

    def __init__(self, file_obj: Any, parent_stream: StreamWrapper | None = None, name: str | None = None) -> None:
        self.file_obj, self.name = file_obj, name
        self.child_counter, self.close_on_last_child, self.closed = 0, False, False
        if parent_stream is not None:
            if not isinstance(parent_stream, StreamWrapper):
                raise RuntimeError(f"Parent stream should be StreamWrapper, {type(parent_stream)} was given")
            parent_stream.child_counter += 1
        self.parent_stream = parent_stream
        if StreamWrapper.debug_unclosed_streams:
            StreamWrapper.session_streams[self] = 1

    @classmethod
    def close_streams(cls, v: Any, depth: int = 0) -> None:
        """Close the streams in nested dicts, lists and tuples."""
        if isinstance(v, StreamWrapper):
            v.close()
        elif depth <= 10 and isinstance(v, (dict, list, tuple)):
            for each in v.values() if isinstance(v, dict) else v:
                cls.close_streams(each, depth + 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["file_obj"], name)

    def close(self, *args: Any, **kwargs: Any) -> None:
        """Close the file, and the parent if it waits for this."""
        if self.closed:
            return
        StreamWrapper.session_streams.pop(self, None)
        parent = self.__dict__.get("parent_stream")
        if parent is not None:
            parent.child_counter -= 1
            if not parent.child_counter and parent.close_on_last_child:
                parent.close()
        if hasattr(self.file_obj, "close"):
            self.file_obj.close(*args, **kwargs)
        self.closed = True

    def autoclose(self) -> None:
        """Close when the last stream that is read from this one is closed."""
        self.close_on_last_child = True
        if self.child_counter == 0:
            self.close()

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *StreamWrapper.__dict__, *dir(self.file_obj)})

    def __del__(self) -> None:
        if not self.__dict__.get("closed", True):
            self.close()

    def __iter__(self) -> Iterator[Any]:
        yield from self.file_obj

    def __next__(self) -> Any:
        return next(self.file_obj)

    def __repr__(self) -> str:
        name = "" if self.name is None else f"{self.name},"
        return f"StreamWrapper<{name}{self.file_obj!r}>"

    def __getstate__(self) -> Any:
        return self.file_obj

    def __setstate__(self, obj: Any) -> None:
        self.__init__(obj)  # type: ignore[misc]
