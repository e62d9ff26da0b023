"""Runs a program as `python` would, except that its `import torch` finds rushlight.

`sys.argv`, `sys.path[0]` and `__main__` are what the program would see under plain Python, the exit status too, and a
traceback begins in the program: our own frames are taken off.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from rushlight._base.alias import OURS, THEIRS, install
from rushlight._base.lazy import LazyModule
from rushlight._base.naming import absent_name

__all__ = ["load_main", "run_module", "run_script", "run_text"]

if TYPE_CHECKING:
    from rushlight._distributed.launch import failures
else:
    failures = LazyModule("rushlight._distributed.launch.failures")

_HERE = os.path.dirname(os.path.abspath(__file__))
_INTERRUPTED = 130


class _Program(SourceFileLoader):
    """Compiles a main program from its file, or from a text; unlike imports, that leaves no bytecode file behind."""

    def __init__(self, path: str, text: str | None = None) -> None:
        super().__init__("__main__", path)
        self.text = text

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_data(self.path) if self.text is None else self.text.encode()
        return compile(source, self.path, "exec", dont_inherit=True)

    def get_source(self, fullname: str) -> str | None:
        return super().get_source(fullname) if self.text is None else self.text


def run_script(path: str, arguments: list[str]) -> int:
    """`python PATH ARGUMENTS`; PATH may also be a folder or an archive with a `__main__.py`, or `-`: standard input."""
    if path == "-":
        _set_path_and_arguments("", ["-", *arguments])
        return _guarded(lambda: load_main("<stdin>", sys.stdin.read()))
    if not os.path.exists(path):
        print(
            f"{sys.executable}: can't open file {os.path.abspath(path)!r}: [Errno 2] No such file or directory",
            file=sys.stderr,
        )
        return 2
    absolute = os.path.abspath(path)
    if not path.endswith((".py", ".pyw")) and (os.path.isdir(path) or _is_archive(path)):
        _set_path_and_arguments(absolute, [path, *arguments])
        return _guarded(lambda: runpy.run_path(absolute, run_name="__main__"))
    _set_path_and_arguments(os.path.dirname(os.path.realpath(path)), [path, *arguments])
    return _guarded(lambda: load_main(absolute))


def run_text(text: str, arguments: list[str]) -> int:
    """`python -c TEXT ARGUMENTS`"""
    _set_path_and_arguments("", ["-c", *arguments])
    return _guarded(lambda: load_main("<string>", text))


def run_module(name: str, arguments: list[str]) -> int:
    """`python -m NAME ARGUMENTS`"""
    _set_path_and_arguments(os.getcwd(), [name, *arguments])
    return _guarded(lambda: runpy.run_module(name, run_name="__main__", alter_sys=True))


def load_main(path: str, text: str | None = None) -> ModuleType:
    """Run a file (or a text, then `path` is its name in tracebacks) as a new `__main__`; returns that module."""
    loader = _Program(path, text)
    main = ModuleType("__main__")
    main.__dict__.update(__builtins__=sys.modules["builtins"], __loader__=loader, __spec__=None)
    if text is None:
        main.__dict__.update(__file__=path, __cached__=None)
    sys.modules["__main__"] = main
    loader.exec_module(main)
    return main


def _is_archive(path: str) -> bool:
    import zipfile

    return zipfile.is_zipfile(path)


def _set_path_and_arguments(folder: str, words: list[str]) -> None:
    sys.argv[:] = words
    if not sys.flags.safe_path:  # python -P: nobody may put a folder first
        sys.path[0] = folder


# ***** what happens around the program *****


def _guarded(program: Callable[[], Any]) -> int:
    """Run `program` under the name torch; report what it raises as Python does, from the program's own frames on."""
    install()
    try:
        program()
    except KeyboardInterrupt as error:
        _report(error)
        return _INTERRUPTED
    except Exception as error:
        _report(error)
        return 1
    return 0


def _report(error: BaseException) -> None:
    if isinstance(error, ImportError):
        _name_what_is_missing(error)
    error = error.with_traceback(_from_program(error.__traceback__))
    if "TORCHELASTIC_ERROR_FILE" in os.environ:
        failures.write_error(error)
    # As the interpreter does: functions of `atexit` see that the program failed.
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    sys.excepthook(type(error), error, error.__traceback__)


def _name_what_is_missing(error: ImportError) -> None:
    """`from torch import x` says that it cannot import x from rushlight; say that rushlight lacks it, as elsewhere."""
    root, _, rest = (error.name or "").partition(".")
    if root not in (OURS, THEIRS):
        return
    name: str | None = getattr(error, "name_from", None)  # Python 3.12 knows; before, the text does
    if name is None and str(error).startswith("cannot import name '"):
        name = str(error).split("'")[1]
    if name is not None:
        error.add_note(absent_name(".".join(filter(None, (THEIRS, rest))), name))


def _from_program(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that begins in the program: without our frames and those of the import system."""
    first = trace
    while first is not None and _is_machinery(first.tb_frame.f_code.co_filename):
        first = first.tb_next
    return first


def _is_machinery(file: str) -> bool:
    return (
        file.startswith(("<frozen importlib", "<frozen runpy"))
        or os.path.dirname(file) == _HERE
        or file == runpy.__file__
    )
