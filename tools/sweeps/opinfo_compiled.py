"""Run PyTorch's operator samples with every call of the candidate compiled: `opinfo.py` around `torch.compile`.

    python tools/sweeps/opinfo_compiled.py PATH/opinfo.py [--apart] [--breaks] [--dynamic true] [--setting NAME ...] --fast --json out.json

The first argument is the tool, which the samples, the comparison and all other options are of.  Each callable of an operator (function, method,
in-place form, alias) is compiled once and serves all samples, so sizes become symbols; with `--apart` every call is compiled anew.  Failures of
the compiler and recompilation limits count as errors; with `--breaks` breaks do, too.  `--setting` sets names of `torch._dynamo.config` to True.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import warnings
from collections.abc import Callable
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


class Compiled:
    """A callable whose every call is compiled: once for all calls, or anew."""

    def __init__(self, module: Any, function: Callable[..., Any], options: argparse.Namespace) -> None:
        self.module, self.function, self.options = module, function, options
        self.__name__ = getattr(function, "__name__", "function")
        self.made = self.compile()

    def compile(self) -> Callable[..., Any]:
        function = self.function

        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        dynamic = {"true": True, "false": False}.get(self.options.dynamic)
        return self.module.compile(call, dynamic=dynamic, fullgraph=self.options.breaks)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = self.compile() if self.options.apart else self.made
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*(runs as it is|recompile).*")
            return made(*args, **kwargs)


def compile_candidate(tool: Any, options: argparse.Namespace) -> None:
    """Let the tool's candidate compile what it calls."""

    class Rebinder(tool.Rebinder):
        """What the tool asks for by calling it is called; parts of samples and of other callables stay as they are."""

        def __init__(self, torch: Any, module: Any, oracle: bool = False) -> None:
            super().__init__(torch, module, oracle)
            self.compiled: dict[int, Compiled] = {}
            self.depth = 0

        def __call__(self, function: Any) -> Any:
            self.depth += 1
            try:
                found = super().__call__(function)
            finally:
                self.depth -= 1
            if (
                self.oracle
                or self.depth
                or found is None
                or getattr(function, "__module__", "").endswith("opinfo.core")
            ):
                return found
            return self.compiled.setdefault(id(found), Compiled(self.module, found, options))

        def value(self, v: Any) -> Any:
            self.depth += 1
            try:
                return super().value(v)
            finally:
                self.depth -= 1

    class Lib(tool.Lib):
        def build(self, tree: Any, rebinder: Any) -> Any:
            rebinder.depth = getattr(rebinder, "depth", 0) + 1
            try:
                return super().build(tree, rebinder)
            finally:
                rebinder.depth -= 1

    class Candidate(tool.Candidate):
        def __init__(self, torch: Any, module: Any, args: Any) -> None:
            super().__init__(torch, module, args)
            config = module._dynamo.config
            config.recompile_limit, config.fail_on_recompile_limit_hit = 1000, True
            for name in options.setting:
                setattr(config, name, True)

    tool.Rebinder, tool.Lib, tool.Candidate = Rebinder, Lib, Candidate


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], add_help=False)
    parser.add_argument("tool")
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--breaks", action="store_true")
    parser.add_argument("--dynamic", choices=["none", "true", "false"], default="none")
    parser.add_argument("--setting", action="append", default=[])
    options, rest = parser.parse_known_args()
    sys.argv = [options.tool, *rest]
    tool = load(options.tool)
    compile_candidate(tool, options)
    return int(tool.main() or 0)


if __name__ == "__main__":
    sys.exit(main())
