"""`torch` as another name for rushlight, in this process alone.

`install` puts a finder before all others: whoever imports `torch` or `torch.nn.functional` from then on receives the
module `rushlight` or `rushlight.nn.functional` itself, not a copy.  What does not exist is reported by the name that was
asked for, whether it was wanted as a module, as an attribute or in a `from` import.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

__all__ = ["install", "missing"]

OURS, THEIRS = "rushlight", "torch"


def missing(name: str) -> str:
    """What is said of a name of PyTorch's that rushlight lacks; `name` is without the leading `torch.`."""
    return f"rushlight has no {name!r} yet (asked for as '{THEIRS}.{name}')"


def _is_public(dotted: str) -> bool:
    """Whether a name below the package is the users'; `_C` is one of PyTorch's that programs do use."""
    return not any(part.startswith("_") and part != "_C" for part in dotted.split("."))


class _Same(Loader):
    """Loads `torch.x` by putting `rushlight.x` in its place."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None  # an empty module that lives until exec_module replaces it

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        real = OURS + name[len(THEIRS) :]
        try:
            sys.modules[name] = importlib.import_module(real)
        except ModuleNotFoundError as error:
            if error.name is None or not (real == error.name or real.startswith(error.name + ".")):
                raise  # something that rushlight itself needs is absent
            raise ModuleNotFoundError(missing(name[len(THEIRS) + 1 :]), name=name) from None


class _Watched(Loader):
    """Loads a module of ours as usual, then lets it report missing names."""

    def __init__(self, inner: Loader) -> None:
        self.inner = inner

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self.inner, attribute)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.inner.exec_module(module)
        _report_missing(module)


class _Finder(MetaPathFinder):
    """Answers for `torch` and everything below it, and for the public modules of rushlight."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root, _, rest = fullname.partition(".")
        if root == THEIRS:
            if not _is_public(rest):  # PyTorch's private modules; ours of the same name are something else
                raise ModuleNotFoundError(missing(rest), name=fullname)
            return ModuleSpec(fullname, _Same(), origin=OURS + fullname[len(THEIRS) :], is_package=True)
        if root == OURS and _is_public(rest):
            spec = PathFinder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _Watched(spec.loader)
            return spec
        return None


def _report_missing(module: ModuleType) -> None:
    """Give a public module of ours a `__getattr__` whose error says what rushlight lacks."""
    prefix = module.__name__[len(OURS) + 1 :]
    inner: Callable[[str], Any] | None = module.__dict__.get("__getattr__")

    def __getattr__(name: str) -> Any:
        if inner is not None:
            try:
                return inner(name)
            except AttributeError as error:
                if error.__cause__ is not None:
                    raise  # it knows more than that the name is missing
        if name.startswith("__"):
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name, obj=module)
        full = f"{prefix}.{name}" if prefix else name
        raise AttributeError(missing(full), name=name, obj=module)

    module.__dict__["__getattr__"] = __getattr__


def install() -> None:
    """Make `import torch` mean rushlight from now on, in this process; calling it again changes nothing.

    RuntimeError where real PyTorch is already loaded: half a program would then speak of other tensors.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    if THEIRS in sys.modules:
        raise RuntimeError("PyTorch is already imported in this process; start the program with `python -m rushlight`")
    sys.meta_path.insert(0, _Finder())
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == OURS and _is_public(name.partition(".")[2]):
            _report_missing(module)
