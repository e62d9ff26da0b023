"""Programs that `python -m rushlight` runs: what looks at the names of our modules finds them under `torch` too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import torch
from torch.ao.quantization import get_default_qat_qconfig, prepare_qat
from torch.utils._python_dispatch import TorchDispatchMode

names = []

class Log(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        names.append(str(func))
        return func(*args, **(kwargs or {}))

norm, x = torch.nn.LayerNorm(3), torch.ones(2, 3, requires_grad=True)
with Log():
    norm(x).sum().backward()
    torch.nn.functional.unfold(torch.ones(1, 1, 3, 3), 2)
assert norm.bias.grad.tolist() == [2.0] * 3, norm.bias.grad
assert "aten.native_layer_norm_backward.default" in names and "aten.im2col.default" in names, names

layers = torch.nn.Sequential(torch.nn.Linear(4, 4)).train()
layers.qconfig = get_default_qat_qconfig("x86")
assert type(prepare_qat(layers)[0].to_float()) is torch.nn.Linear

# PyTorch's import loads these; files that PyTorch does not have stay out of sight.
assert torch.fx.passes.shape_prop.ShapeProp.__module__ == "torch.fx.passes.shape_prop"
assert torch.fx.experimental.const_fold.FoldedGraphModule and torch.utils.data.datapipes.iter.filelister
assert not hasattr(torch.fx.experimental, "sized_nodes") and not hasattr(torch.fx.passes, "not_there")

# A compiled function decorates one of its own.
decorators = [torch.no_grad, torch.enable_grad, torch.no_grad(), torch.inference_mode(), torch.set_grad_enabled(True)]
decorators += [torch.autocast("cpu", torch.bfloat16), torch.profiler.record_function("x")]

def decorating(decorate, breaks):
    def f(x):
        def inner(y):
            return y.sin() * x
        with torch.no_grad():
            inner = decorate(inner)
            if breaks:
                torch._dynamo.graph_break()
        with torch.no_grad():
            found = inner(x)
            return found, found.requires_grad
    return f

for decorate in decorators:
    for breaks, backend in ((False, "inductor"), (True, "inductor"), (False, "eager")):
        f, x = decorating(decorate, breaks), torch.linspace(0.1, 1, 5, requires_grad=True)
        compiled = torch.compile(f, backend=backend)
        for _ in range(2):
            (want, grad), (found, compiled_grad) = f(x), compiled(x)
            assert torch.equal(want, found) and grad == compiled_grad, (decorate, breaks, backend)
print("done")
"""


def test_modules_are_known_by_both_names(tmp_path: Path) -> None:
    """One process, since the name belongs to a whole process."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "rushlight", str(script)], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip().endswith("done"), done.stderr
