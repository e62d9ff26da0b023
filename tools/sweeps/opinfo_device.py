"""Run PyTorch's operator samples with the candidate's tensors on another device: `opinfo.py` with a `--device`.

    python tools/sweeps/opinfo_device.py PATH/opinfo.py --device guarded --register tests/devices/guarded.py --fast --json out.json

The first argument is the tool, which the samples, the comparison and all other options are of.  Inputs are built on the host and copied to
the device, factories make tensors there by default, results are copied back.  `--register` names a file with a function `register()` that
makes the device type known.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any


def load(path: str) -> Any:
    """A file as a module of its own name."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def move_candidate(tool: Any, device: str) -> None:
    """Let the tool's candidate have its tensors on a device."""

    class Moved(tool.Lib):
        def __init__(self, module: Any, oracle: bool) -> None:
            super().__init__(module, oracle)
            if not oracle:
                module.set_default_device(device)

        def from_flat(self, arr: Any, dtype: str) -> Any:
            if self.oracle:
                return super().from_flat(arr, dtype)
            with self.m.device("cpu"):
                made = super().from_flat(arr, dtype)
            return made.to(device)

        def build(self, tree: Any, rebinder: Any) -> Any:
            return super().build(tree if self.oracle else self.on_device(tree), rebinder)

        def on_device(self, value: Any) -> Any:
            """The arguments with the device in the place of the CPU, however it was written."""
            if isinstance(value, tool.Ref):
                named = value.kind == "device" and value.value.startswith("cpu")
                return tool.Ref("device", device) if named else value
            if isinstance(value, dict):
                return {key: self.on_device(item) for key, item in value.items()}
            if isinstance(value, (tuple, list)):
                items = [self.on_device(item) for item in value]
                return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
            return device if isinstance(value, str) and value == "cpu" else value

        def attr(self, name: str) -> Any:
            found = super().attr(name)
            return (lambda: found(device)) if name == "Generator" and not self.oracle else found

        def read(self, tensor: Any) -> Any:
            if self.oracle:
                return super().read(tensor)
            if tensor.device.type != device.partition(":")[0] and tensor.device.type != "meta":
                raise AssertionError(f"a result is on {tensor.device}")
            with self.m.device("cpu"):
                return super().read(tensor.cpu())

    tool.Lib = Moved


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], add_help=False)
    parser.add_argument("tool")
    parser.add_argument("--device", required=True)
    parser.add_argument("--register", default="")
    options, rest = parser.parse_known_args()
    sys.argv = [options.tool, *rest]
    tool = load(options.tool)
    if options.register:
        load(options.register).register()
    move_candidate(tool, options.device)
    return int(tool.main() or 0)


if __name__ == "__main__":
    sys.exit(main())
