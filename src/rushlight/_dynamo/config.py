"""Settings of graph capture, as `torch._dynamo.config`: every name of PyTorch 2.13.

These have an effect; the others are accepted, and say things that are decided otherwise here or that are always so:

| setting | effect |
| --- | --- |
| `disable` | `compile` gives back what it is given |
| `recompile_limit`, `accumulated_recompile_limit`, `fail_on_recompile_limit_hit` | how many programs a function has at most |
| `error_on_recompile` | a recompilation raises `RecompileError` |
| `suppress_errors` | errors of a backend are logged, and the program runs eagerly |
| `dynamic_shapes`, `assume_static_by_default`, `automatic_dynamic_shapes` | when sizes become symbols |
| `capture_scalar_outputs` | `item` gives a number of the program, in the place of a break |
| `capture_dynamic_output_shape_ops` | operators like `nonzero` run between two programs, or are nodes of graphs for others |
| `trace_numpy` | NumPy on arrays is traced; False leaves it to NumPy, between two graphs |
| `compiled_autograd` | backward calls that are not part of a compiled function are compiled |
| `verbose` | longer reports |
"""

from __future__ import annotations

import os

from rushlight._interface.base import import_whole
from rushlight.compiler.settings import install, settings

install(__name__)
settings("torch._dynamo.config").told["compiled_autograd"] = lambda on: import_whole(
    "rushlight._dynamo.compiled_autograd"
)._set_by_settings(on)
if "1" in (os.environ.get("TORCH_COMPILE_DISABLE"), os.environ.get("TORCHDYNAMO_DISABLE")):
    settings("torch._dynamo.config").set("disable", True)
