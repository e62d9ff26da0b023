"""`python -m rushlight quantize FILE.py:NAME`: a model in integers, in several ways, with a table of size, time and error.

NAME is a module, or a function (or class) without arguments that makes one; FILE.py runs as a PyTorch program.  `--data`
is an .npz file with `x` (inputs, the batch first) and, for accuracy, `y` (labels); without it inputs are drawn by
`--shape`.
"""

from __future__ import annotations

import argparse
import copy
import runpy
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import rushlight as rl
from rushlight._base.lazy import numpy

__all__ = ["main"]

WAYS = ("float32", "int8 static", "int8 dynamic", "int8 weights", "int4 weights", "int8 products", "int4 products")


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    given = _parser().parse_args(argv)
    try:
        model, (x, y) = _model(given.model), _data(given)
        with rl.no_grad():
            made = _table(model, x, y, given)
            if given.layers:
                sensitivity = rl.ao.ns.sensitivity
                print("\nEach layer alone in int8 (static), the worst first:")
                print(sensitivity.plot_sensitivity(sensitivity.layer_sensitivity(model, list(x.split(given.batch)))))
        if given.output:
            rl.save(made[given.way].state_dict(), given.output)
            print(f"\n{given.output}: the state of {given.way}")
    except (ImportError, KeyError, NotImplementedError, OSError, RuntimeError, TypeError, ValueError) as error:
        print(f"{given.model}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rushlight quantize", description=__doc__)
    parser.add_argument("model", metavar="FILE.py:NAME")
    parser.add_argument("--data", help="an .npz file with x and, for accuracy, y")
    parser.add_argument("--shape", help="the shape of drawn inputs, such as 8,3,224,224")
    parser.add_argument("--batch", type=int, default=32, help="inputs of one call")
    parser.add_argument("--group-size", type=int, default=64, help="numbers that share a scale in int4")
    parser.add_argument("--layers", action="store_true", help="the error of each layer alone")
    parser.add_argument("--way", choices=WAYS[1:], default="int8 static", help="the form that is written")
    parser.add_argument("--output", "-o", help="a file for the state of the form")
    return parser


def _model(words: str) -> Any:
    path, _, name = words.rpartition(":")
    if not path:
        raise ValueError("expected FILE.py:NAME")
    rl.install_as_torch()
    space = runpy.run_path(path, run_name="__quantize__")
    if name not in space:
        raise ValueError(f"{path} has no {name}")
    found = space[name]
    model = found if isinstance(found, rl.nn.Module) else found()
    if not isinstance(model, rl.nn.Module):
        raise TypeError(f"{name} made {type(model).__name__}, not a module")
    return model.eval()


def _data(given: Any) -> tuple[Any, Any]:
    if given.data:
        with numpy.load(given.data, allow_pickle=False) as file:
            x = rl.from_numpy(file["x"])
            return x, rl.from_numpy(file["y"]) if "y" in file.files else None
    if not given.shape:
        raise ValueError("--data or --shape is needed: inputs to calibrate by")
    return rl.randn(*(int(n) for n in given.shape.split(","))), None


def _static(model: Any, x: Any, batch: int) -> Any:
    page, mapping = rl.ao.quantization.quantize_fx, rl.ao.quantization.get_default_qconfig_mapping("x86")
    watched = page.prepare_fx(model, mapping, (x[:batch],))
    for part in x.split(batch):
        watched(part)
    return page.convert_fx(watched)


def _ways(model: Any, x: Any, given: Any) -> dict[str, Callable[[], Any]]:
    weights = rl.ao.quantization.weight_only.quantize_weights
    return {
        WAYS[0]: lambda: model,
        WAYS[1]: lambda: _static(model, x, given.batch),
        WAYS[2]: lambda: rl.ao.quantization.quantize_dynamic(model),
        WAYS[3]: lambda: weights(copy.deepcopy(model), 8),
        WAYS[4]: lambda: weights(copy.deepcopy(model), 4, given.group_size),
        WAYS[5]: lambda: weights(copy.deepcopy(model), 8, activations="int8"),
        WAYS[6]: lambda: weights(copy.deepcopy(model), 4, given.group_size, activations="int8"),
    }


def _table(model: Any, x: Any, y: Any, given: Any) -> dict[str, Any]:
    """Print a row for each way; what could not be made says why."""
    made: dict[str, Any] = {}
    exact = rl.cat([model(part) for part in x.split(given.batch)])
    print(
        f"{'form':<14}{'MB':>8}{'ms a call':>11}{'dB':>8}{'accuracy':>10}"
        if y is not None
        else f"{'form':<14}{'MB':>8}{'ms a call':>11}{'dB':>8}"
    )
    for way, make in _ways(model, x, given).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                form = make()
                found = rl.cat([form(part) for part in x.split(given.batch)])
            except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
                print(f"{way:<14}  {type(error).__name__}: {str(error).splitlines()[0][:80]}")
                continue
        made[way] = form
        error_db = "exact" if way == WAYS[0] else f"{float(rl.ao.ns.fx.utils.compute_sqnr(exact, found)):.1f}"
        row = f"{way:<14}{_bytes(form.state_dict()) / 1e6:>8.2f}{_milliseconds(form, x[: given.batch]):>11.2f}{error_db:>8}"
        if y is not None:
            row += f"{float((found.argmax(-1) == y).float().mean()):>10.4f}"
        print(row)
    if given.output and given.way not in made:
        raise RuntimeError(f"{given.way} could not be made")
    return made


def _bytes(state: Any) -> int:
    """The bytes of a state: those of integers are counted as they are kept."""
    total = 0
    for value in state.values():
        parts = value if isinstance(value, tuple) else value.unpack() if hasattr(value, "unpack") else (value,)
        for part in parts if isinstance(parts, tuple) else (parts,):
            if isinstance(part, rl.Tensor):
                total += part.numel() * part.element_size()
    return total


def _milliseconds(form: Any, x: Any, seconds: float = 0.5) -> float:
    form(x)
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        form(x)
        best = min(best, time.perf_counter() - begin)
    return best * 1e3
