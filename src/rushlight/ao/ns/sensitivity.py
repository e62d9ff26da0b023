"""Which layers lose most: each is quantized alone, and the error of the whole model's result is measured."""

from __future__ import annotations

import warnings
from typing import Any

import rushlight as torch
from rushlight import nn
from rushlight.ao.ns.fx.utils import compute_sqnr
from rushlight.ao.quantization import quantize_fx
from rushlight.ao.quantization.qconfig import get_default_qconfig
from rushlight.ao.quantization.qconfig_mapping import QConfigMapping

__all__ = ["LAYERS", "layer_sensitivity", "plot_sensitivity"]

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def layer_sensitivity(model: Any, inputs: Any, backend: str = "x86") -> list[tuple[str, float]]:
    """(name of a layer, signal to noise in dB with that layer alone in int8), the worst first.

    `inputs` is a list of tensors (or of tuples of them) to calibrate by; the first is measured.

    >>> import rushlight as torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)).eval()
    >>> sorted(name for name, _ in layer_sensitivity(net, [torch.randn(16, 8)]))
    ['0', '2']
    """
    calls = [x if isinstance(x, tuple) else (x,) for x in inputs]
    found = []
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact = model(*calls[0])
        for name, module in model.named_modules():
            if type(module) not in LAYERS:
                continue
            mapping = QConfigMapping().set_module_name(name, get_default_qconfig(backend))
            watched = quantize_fx.prepare_fx(model, mapping, calls[0])
            for call in calls:
                watched(*call)
            found.append((name, float(compute_sqnr(exact, quantize_fx.convert_fx(watched)(*calls[0])))))
    return sorted(found, key=lambda row: row[1])


def plot_sensitivity(rows: list[tuple[str, float]], width: int = 40) -> str:
    """The rows as a chart of text: the longer a bar, the less a layer loses."""
    most = max((error for _, error in rows if error != float("inf")), default=1.0)
    wide = max((len(name) for name, _ in rows), default=0)
    lines = []
    for name, error in rows:
        length = width if error == float("inf") else max(round(width * error / max(most, 1e-9)), 0)
        lines.append(f"{name:<{wide}}  {error:6.1f} dB  {'#' * length}")
    return "\n".join(lines)
