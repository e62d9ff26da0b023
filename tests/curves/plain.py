"""Plain PyTorch programs as modules of this process: their `import torch` finds the package that the test names.

`sys.modules` stays as it is, so that one process may hold a program over rushlight beside the same one over real PyTorch.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any


def _import_under(package: str) -> Callable[..., Any]:
    """An `__import__` for which torch and everything below it is `package`."""

    def import_(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        root, dot, rest = name.partition(".")
        if level or root != "torch":
            return builtins.__import__(name, globals, locals, fromlist, level)
        try:
            module = import_module(package + dot + rest)
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith(package):
                raise
            raise ModuleNotFoundError(f"No module named '{name}'", name=name) from None
        for part in fromlist or ():
            if part != "*" and not hasattr(module, part):
                raise ImportError(f"cannot import name {part!r} from {name!r}", name=name)
        return module if fromlist else import_module(package)

    return import_


class _Loader(SourceFileLoader):
    """Runs a file whose builtins have another `__import__`; leaves no bytecode behind."""

    def __init__(self, name: str, path: str, package: str) -> None:
        super().__init__(name, path)
        self.package = package

    def set_data(self, path: str, data: Any, *, _mode: int = 0o666) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import_under(self.package)}
        super().exec_module(module)


def load(path: Path, package: str = "rushlight") -> ModuleType:
    """The file as a module of its own; what stands under `if __name__ == "__main__"` isn't run."""
    name = f"{path.stem}_over_{package}"
    spec = spec_from_loader(name, _Loader(name, str(path), package))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # pickling and dataclasses look there
    spec.loader.exec_module(module)
    return module


def printed(path: Path, package: str = "rushlight") -> str:
    """What the program prints; the modes and the default dtype that it leaves behind are put back."""
    torch = import_module(package)
    mode, dtype, out = torch.is_grad_enabled(), torch.get_default_dtype(), StringIO()
    try:
        with redirect_stdout(out):
            load(path, package)
    finally:
        torch.set_grad_enabled(mode)
        torch.set_default_dtype(dtype)
        torch.set_printoptions(profile="default")
    return out.getvalue()


def losses(path: Path, steps: int, package: str = "rushlight", **options: Any) -> list[float]:
    """The losses that the program's `train(steps, seed=0, **options)` returns; it may return more beside them."""
    found = load(path, package).train(steps, seed=0, **options)
    return list(found[0] if isinstance(found, tuple) else found)
