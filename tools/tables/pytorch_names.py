"""Write the public names of the installed PyTorch to `src/rushlight/_base/pytorch_names.txt`.

    python tools/tables/pytorch_names.py

One line a module: its name, then what it shows, without what it merely imports from elsewhere; of modules that lie deep, their names alone.  Errors about names that rushlight lacks say
"yet" only of these.  It needs PyTorch (`pip install -e '.[oracle]'`); the file names the version.
"""

from __future__ import annotations

import importlib
import io
import pkgutil
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType

OUT = Path(__file__).resolve().parents[2] / "src" / "rushlight" / "_base" / "pytorch_names.txt"
# Packages whose inner modules few programs name: the modules are listed, and not what they show.
_NAMED = (
    "torch.ao.quantization",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.fx.experimental.proxy_tensor",
)
_DEEP = ("torch.ao.", "torch.distributed.", "torch.fx.", "torch.onnx.symbolic", "torch.package.", "torch.testing.", "torch.utils.benchmark.",
    "torch.utils.bottleneck", "torch.utils.data.datapipes", "torch.utils.hipify", "torch.utils.tensorboard")  # fmt: skip


def is_public(name: str) -> bool:
    """Whether no part of a dotted name is private."""
    return not any(part.startswith("_") for part in name.split("."))


def modules(package: ModuleType) -> list[str]:
    """The public modules below a package, itself included."""
    found = [package.__name__]
    for info in pkgutil.walk_packages(package.__path__, package.__name__ + ".", onerror=lambda name: None):
        if is_public(info.name):
            found.append(info.name)
    return sorted(found)


def shown(module: ModuleType) -> list[str]:
    """The names that a module shows: what `__all__` lists, and what is PyTorch's own."""
    listed = set(getattr(module, "__all__", ()))
    found = []
    for name in {*dir(module), *listed}:
        value = getattr(module, name, None)
        home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None) or "torch"
        if not name.startswith("_") and (name in listed or str(home).partition(".")[0] in ("torch", "builtins")):
            found.append(name)
    return sorted(found)


def main() -> None:
    """Write the file."""
    import torch

    lines = [
        f"# Public names of PyTorch {torch.__version__.partition('+')[0]}, written by tools/tables/pytorch_names.py."
    ]
    for name in modules(torch):
        try:
            with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                warnings.simplefilter("ignore")
                names = (
                    []
                    if name.startswith(_DEEP) and name.count(".") > 1 and name not in _NAMED
                    else shown(importlib.import_module(name))
                )
        except (
            Exception,
            SystemExit,
        ):  # of another system, or of a package that is not installed: it is there all the same
            names = []
        lines.append(" ".join([name, *names]))
        if name == "torch":
            lines[-1] += "".join(
                f" {info.name}" for info in pkgutil.iter_modules(torch.__path__) if info.name.startswith("_")
            )
    lines.append(" ".join(["torch.Tensor", *[name for name in dir(torch.Tensor) if not name.startswith("_")]]))
    OUT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
