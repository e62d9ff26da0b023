"""Export the cases of PyTorch's export database here: read from an installed PyTorch, run with rushlight in its place.

    python tools/export_database.py [FOLDER of torch/_export/db/examples] [--torch]

A case that PyTorch supports must export and compute what its module computes; one that it does not may raise.
"""

from __future__ import annotations

import copy
import importlib.util
import sys
import types
import warnings
from pathlib import Path
from typing import Any


def cases(folder: Path) -> list[tuple[str, Any]]:
    """Name and module of each case."""
    found = []
    for path in sorted(folder.glob("*.py")):
        if path.stem.startswith("_"):
            continue
        source = path.read_text()
        module = types.ModuleType(f"case_{path.stem}")
        module.__file__ = str(path)
        exec(compile(source, str(path), "exec"), module.__dict__)  # noqa: S102 - cases of an installed PyTorch
        found.append((path.stem, module))
    return found


def is_supported(module: Any) -> bool:
    """Whether PyTorch says that it exports the case."""
    level = getattr(module, "support_level", None)
    return level is None or level.name == "SUPPORTED"


def run(torch: Any, module: Any) -> str:
    """ "same", "other values" or the error."""
    model, args = module.model, module.example_args
    kwargs = getattr(module, "example_kwargs", {})
    shapes = getattr(module, "dynamic_shapes", None)
    try:
        program = torch.export.export(model, args, kwargs, dynamic_shapes=shapes)
        flat = torch.utils._pytree.tree_leaves
        rounds = [args, *([module.extra_inputs] if hasattr(module, "extra_inputs") else [])]
        for given in rounds:
            mine = flat(program.module()(*copy.deepcopy(given), **copy.deepcopy(kwargs)))
            wanted = flat(copy.deepcopy(model)(*copy.deepcopy(given), **copy.deepcopy(kwargs)))
            for a, b in zip(mine, wanted, strict=True):
                if isinstance(b, torch.Tensor) and not torch.equal(a, b) or not isinstance(b, torch.Tensor) and a != b:
                    return "other values"
        return "same"
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0][:110] if str(error) else ''}"


def _stand_in(torch: Any) -> None:
    """The modules that cases import beside torch itself."""
    for name in (
        "torch._export.db",
        "torch._export.db.case",
        "functorch.experimental",
        "functorch.experimental.control_flow",
    ):
        sys.modules[name] = types.ModuleType(name)
    levels = {word: types.SimpleNamespace(name=word) for word in ("SUPPORTED", "NOT_SUPPORTED_YET")}
    sys.modules["torch._export.db.case"].SupportLevel = types.SimpleNamespace(**levels)  # type: ignore[attr-defined]
    control = sys.modules["functorch.experimental.control_flow"]
    control.cond, control.map = torch.cond, torch._higher_order_ops.map  # type: ignore[attr-defined]


def main() -> int:
    """Print a line for each case; 1 where a supported one fails."""
    warnings.simplefilter("ignore")
    words = [w for w in sys.argv[1:] if not w.startswith("--")]
    if words:
        folder = Path(words[0])
    else:
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.origin is None:
            sys.exit("give the folder torch/_export/db/examples of an installed PyTorch")
        folder = Path(spec.origin).parent / "_export" / "db" / "examples"
    if "--torch" in sys.argv:
        import torch
    else:
        from rushlight._base.alias import install_as_torch

        install_as_torch()
        import rushlight as torch

        _stand_in(torch)
    failed = total = 0
    for name, module in cases(folder):
        said, supported = run(torch, module), is_supported(module)
        total += supported
        failed += supported and said != "same"
        print(f"{name:45} {'supported' if supported else '-':10} {said}")
    print(f"{total - failed} of {total} supported cases")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
