"""Loading a package: with ctypes alone, and NumPy once a call has arrays.  No compiler is loaded, and nothing of rushlight computes.

Each module that is imported here costs every process that answers: what few need is imported where it is used.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from _thread import allocate_lock
from math import prod

from rushlight_loader.errors import PackageError
from rushlight_loader.index import DTYPES, Index, check_weights, read_index
from rushlight_loader.memory import address_of, filled_view, shape_of
from rushlight_loader.trees import built, flattened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["LoadedPackage", "load", "opened"]

_MESSAGE = 512  # bytes of an error's text
_INDEX, _DIVISION, _MEMORY, _VALUE, _PROCESSOR, _ARGUMENT = 1, 2, 3, 4, 5, 6
_ERRORS: dict[int, type[Exception]] = {_INDEX: IndexError, _MEMORY: MemoryError, _ARGUMENT: ValueError}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("rank", ctypes.c_int64),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("nbytes", ctypes.c_int64),
    )


class _Library:
    """The library of a package in this process, with its weights in memory."""

    def __init__(self, data: mmap.mmap, index: Index) -> None:
        place, size, _ = index.library
        self.library = _opened(memoryview(data)[place : place + size])
        (self.name, self.sized) = (name, sized) = index.name, bool(index.ranges)
        pointers, sizes = [ctypes.c_void_p] * 2, [ctypes.c_void_p] * sized
        self.run = self._function(f"{name}_run", ctypes.c_int32, [*sizes, *pointers, ctypes.c_char_p, ctypes.c_int64])
        self.tensor = [
            self._function(f"{name}_{kind}", ctypes.POINTER(_Tensor), [*sizes, ctypes.c_int64])
            for kind in ("input", "output")
        ]
        self.set_threads = self._function(f"{name}_set_threads", ctypes.c_int32, [ctypes.c_int64])
        self.processor = self._function(f"{name}_processor", ctypes.c_char_p, [])
        self.check(index)
        if self.processor() is None:
            raise PackageError(
                f"the package has code for {', '.join(index.levels)}, and this processor is none of these"
            )
        start, _, _ = index.weights
        set_weights = self._function(f"{name}_set_weights", ctypes.c_int32, [ctypes.c_void_p])
        self.held = memoryview(data)  # the file stays mapped as long as the library, which stays
        if set_weights(address_of(self.held) + start) != 0:
            raise PackageError("the library of the package does not take its weights")

    def check(self, index: Index) -> None:
        """PackageError where the library takes or gives something else than an index says."""
        if index.name != self.name:
            raise PackageError(f"the library of the package is called {self.name}, not {index.name}")
        for which, tensors in enumerate((index.inputs, index.outputs)):
            kind = ("input", "output")[which]
            count = self._function(f"{self.name}_{kind}_count", ctypes.c_int64, [])()
            if count != len(tensors):
                raise PackageError(f"the library of the package has {count} {kind}s, its index {len(tensors)}")
            for choice in _corners(index.ranges):
                named = dict(zip([name for name, _, _ in index.ranges], choice, strict=True))
                for k, (_, dtype, shape) in enumerate(tensors):
                    found = self.shape(which, choice, k, dtype)
                    wanted = [named.get(n, -1) if isinstance(n, str) else n for n in shape]
                    if len(found) != len(wanted) or any(n not in (-1, m) for n, m in zip(wanted, found, strict=True)):
                        raise PackageError(f"{kind} {k} of the package's library is another one than its index says")

    def shape(self, which: int, choice: Sequence[int], number: int, dtype: str) -> tuple[int, ...]:
        """The shape of an input (0) or output (1) for a choice of sizes."""
        found = self.tensor[which](*self.sizes(choice), number)
        if not found:
            raise PackageError("the library of the package has other sizes than its index says")
        tensor = found.contents
        shape = tuple(tensor.shape[: tensor.rank])
        if tensor.dtype != dtype.encode() or tensor.nbytes != prod(shape) * DTYPES[dtype]:
            raise PackageError("a tensor of the package's library is another one than its index says")
        return shape

    def sizes(self, choice: Sequence[int]) -> list[Any]:
        """The argument that says sizes, where there is one."""
        return [(ctypes.c_int64 * len(choice))(*choice)] if self.sized else []

    def _function(self, name: str, result: Any, arguments: list[Any]) -> Any:
        try:
            found = self.library[name]
        except AttributeError:
            raise PackageError(f"the library of the package has no function {name}") from None
        found.restype, found.argtypes = result, arguments
        return found


def _corners(ranges: Sequence[tuple[str, int, int]]) -> list[tuple[int, ...]]:
    """The least sizes, and the greatest."""
    return [tuple(least for _, least, _ in ranges), tuple(most for _, _, most in ranges)]


def _opened(code: Any) -> Any:
    """A shared library from memory.  Where the system has no files in memory, from a temporary one."""
    if sys.platform != "linux":
        raise PackageError("packages are for Linux")
    try:
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("rushlight-package", getattr(os, "MFD_CLOEXEC", 1))
            with open(fd, "wb", closefd=False) as file:
                file.write(code)
            # The file stays open: the system's loader knows libraries by their paths, and would take the next one for it.
            return ctypes.CDLL(f"/proc/self/fd/{fd}")
        import tempfile

        with tempfile.NamedTemporaryFile(suffix=".so") as named:
            named.write(code)
            named.flush()
            return ctypes.CDLL(named.name)
    except OSError as error:
        raise PackageError(f"the library of the package cannot be loaded: {error}") from None


_LOADED: dict[tuple[bytes, bytes], _Library] = {}
_LOADING = allocate_lock()


class LoadedPackage:
    """A program that was compiled ahead of time: it takes NumPy arrays in the places of tensors, and gives arrays.
    `buffers` does the same without NumPy.

    Other Python threads run while it does, and any number of them may call it at one time.  `inputs` and `outputs` are
    (name, dtype, shape); `processor` is what its code was made for.

    TypeError for another structure of arguments or other dtypes, ValueError for other shapes, IndexError and
    RuntimeError for what the program's operators refuse.
    """

    def __init__(self, library: _Library, index: Index) -> None:
        self._library, self._index = library, index
        self.name, self.inputs, self.outputs = index.name, index.inputs, index.outputs
        self.processor: str = library.processor().decode()
        self._dtypes: list[Any] = []  # NumPy's, of the outputs

    def __repr__(self) -> str:
        return f"<package {self.name}: {len(self.inputs)} inputs, {len(self.outputs)} outputs, {self.processor}>"

    def set_threads(self, count: int) -> None:
        """Let so many threads run a call."""
        if self._library.set_threads(count) != 0:
            raise ValueError(f"a call runs on at least one thread, not on {count}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import numpy as np

        self._dtypes = self._dtypes or [_numpy_dtype(dtype) for _, dtype, _ in self.outputs]
        arrays = [self._array(x, k) for k, x in enumerate(self.arguments(args, kwargs))]
        choice = self.choice([x.shape for x in arrays])
        made = [np.empty(shape, dtype) for shape, dtype in zip(self.out_shapes(choice), self._dtypes, strict=True)]
        self.run([x.ctypes.data for x in arrays], [x.ctypes.data for x in made], choice)
        return built(self._index.out_tree, made)

    def buffers(self, *args: Any, **kwargs: Any) -> Any:
        """A call without NumPy: what stands in the places of tensors is row-major memory, as bytes, `array.array` or a
        memoryview; the results are memoryviews of the dtype, or of bytes for complex numbers and bfloat16.

        One-dimensional memory stands for a tensor of any shape that the program fixes.  Errors are those of a call.

            >>> scores = program.buffers(pixels)  # doctest: +SKIP
            >>> scores.shape, scores.format  # doctest: +SKIP
            ((1, 1000), 'f')
        """
        views = [memoryview(x) for x in self.arguments(args, kwargs)]
        choice = self.choice([shape_of(x, *row) for x, row in zip(views, self.inputs, strict=True)])
        shapes = self.out_shapes(choice)
        rows = zip(shapes, self.outputs, strict=True)
        made = [memoryview(bytearray(prod(shape) * DTYPES[dtype])) for shape, (_, dtype, _) in rows]
        self.run([address_of(x) for x in views], [address_of(x) for x in made], choice)
        filled = [
            filled_view(x, dtype, shape) for x, shape, (_, dtype, _) in zip(made, shapes, self.outputs, strict=True)
        ]
        return built(self._index.out_tree, filled)

    def choice(self, shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """The sizes of a call, by the shapes of its inputs.  ValueError for shapes that the program does not take."""
        found: dict[str, int] = {}
        for (name, _, wanted), shape in zip(self.inputs, shapes, strict=True):
            fits = len(shape) == len(wanted)
            for n, m in zip(wanted, shape, strict=False):
                fits = fits and (n == "" or m == (found.setdefault(n, m) if isinstance(n, str) else n))
            if not fits:
                raise ValueError(f"input {name!r} must have the shape {_shown(wanted, found)}, not {list(shape)}")
        for name, least, most in self._index.ranges:
            if not least <= found.get(name, least) <= most:
                raise ValueError(f"the size {name} is from {least} to {most} in this package, not {found[name]}")
        choice = tuple(found.get(name, least) for name, least, _ in self._index.ranges)
        if choice:
            for k, ((name, dtype, _), shape) in enumerate(zip(self.inputs, shapes, strict=True)):
                wanted = self._library.shape(0, choice, k, dtype)
                if tuple(shape) != wanted:
                    raise ValueError(f"input {name!r} must have the shape {list(wanted)}, not {list(shape)}")
        return choice

    def out_shapes(self, choice: Sequence[int]) -> list[tuple[int, ...]]:
        """The shapes of the outputs for a choice of sizes."""
        if not choice:
            return [shape for _, _, shape in self.outputs]  # type: ignore[misc]
        return [self._library.shape(1, choice, k, dtype) for k, (_, dtype, _) in enumerate(self.outputs)]

    def arguments(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """What stands in the places of tensors."""
        found: list[Any] = [None] * len(self.inputs)
        positional, by_name = self._index.in_trees
        flattened(positional, args, "the arguments", found)
        flattened(by_name, kwargs, "the keyword arguments", found)
        return found

    def result(self, leaves: Sequence[Any]) -> Any:
        """What a call returns, with these in the places of tensors."""
        return built(self._index.out_tree, leaves)

    def run(self, inputs: Sequence[int], outputs: Sequence[int], choice: Sequence[int] = ()) -> None:
        """Run the program over addresses of row-major memory, for a choice of sizes."""
        message = ctypes.create_string_buffer(_MESSAGE)
        code = self._library.run(
            *self._library.sizes(choice),
            (ctypes.c_void_p * max(len(inputs), 1))(*inputs),
            (ctypes.c_void_p * max(len(outputs), 1))(*outputs),
            message,
            _MESSAGE,
        )
        if code != 0:
            raise _ERRORS.get(code, RuntimeError)(message.value.decode("utf-8", "replace"))

    def _array(self, x: Any, number: int) -> Any:
        """An input as a row-major array."""
        import numpy as np

        name, dtype, _ = self.inputs[number]
        array = np.asarray(x)
        if array.dtype != _numpy_dtype(dtype):
            raise TypeError(f"input {name!r} must be {dtype}, not {array.dtype}")
        return np.ascontiguousarray(array).reshape(array.shape)


def _shown(shape: Sequence[int | str], known: dict[str, int]) -> str:
    """A shape for an error."""
    return "[" + ", ".join(str(known.get(n, n) if isinstance(n, str) else n) or "?" for n in shape) + "]"


def _numpy_dtype(name: str) -> Any:
    import numpy as np

    if name == "bfloat16":
        try:
            import ml_dtypes  # type: ignore[import-not-found, unused-ignore]

            return np.dtype(ml_dtypes.bfloat16)
        except ImportError:
            return np.dtype(np.uint16)  # its bits
    return np.dtype(name)


def load(path: str | os.PathLike[str], *, verify_weights: bool = False) -> LoadedPackage:
    """The package in a file.  `verify_weights` reads all of the weights to compare their digest.

    A package is machine code: load those alone that you would run.  PackageError for a file that is none, is damaged, has
    another format, or has no code for this processor; OSError where it cannot be read.
    """
    library, index = opened(path, verify_weights)
    return LoadedPackage(library, index)


def opened(path: str | os.PathLike[str], verify_weights: bool) -> tuple[_Library, Index]:
    """The library and the index of a package; a package that is loaded already is not loaded again."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise PackageError("the file is too short for a package")
        data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
    index = read_index(data)
    if verify_weights:
        check_weights(data, index)
    key = index.library[2], index.weights[2]
    with _LOADING:
        found = _LOADED.get(key)
        if found is None:
            found = _LOADED[key] = _Library(data, index)
        else:
            found.check(index)
    return found, index
