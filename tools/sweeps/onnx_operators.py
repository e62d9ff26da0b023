"""Export PyTorch's operator samples to ONNX, run them by onnxruntime and compare with eager.

    PYTHONPATH=src:tests/func python tools/sweeps/onnx_operators.py [--only NAME] [--samples 4] [--dtypes float32] [--opset 20] [--dynamic]

Where onnxruntime has no kernel for a dtype, onnx's reference runs the model.  What was not translated is listed by operator.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections import Counter, defaultdict
from typing import Any

import op_samples
import torch as oracle
from recorded_operators import filled, in_slots

import rushlight as torch
from rushlight.onnx.errors import OnnxExporterError, UnsupportedOperatorError


class Call(torch.nn.Module):
    """A sample as a module of its tensors."""

    def __init__(self, sample: Any) -> None:
        super().__init__()
        self.args, self.kwargs = in_slots((sample.args, sample.kwargs), iter(range(len(sample.tensors))))
        self.function = sample.mine_op

    def forward(self, *tensors: Any) -> Any:
        return op_samples.flat(self.function(*filled(self.args, tensors), **filled(self.kwargs, tensors)))


def mine(t: Any) -> Any:
    if str(t.dtype) != "torch.bfloat16":
        return op_samples.to_mine(t)
    return op_samples.to_mine(t.float()).to(torch.bfloat16)


def worst(found: Any, wanted: Any) -> float:
    """The greatest difference, as a part of the greatest finite value; infinite where specials differ."""
    a, b = found.detach(), wanted.detach()
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if not b.numel():
        return 0.0
    a, b = a.double(), b.double()
    special = ~b.isfinite()
    if not torch.equal(a.isnan(), b.isnan()) or not torch.equal(a[special & ~b.isnan()], b[special & ~b.isnan()]):
        return float("inf")
    a, b = a[~special], b[~special]
    return float((a - b).abs().max() / b.abs().max().clamp_min(1e-30)) if b.numel() else 0.0


def run(program: Any, given: list[Any]) -> tuple[Any, str]:
    """(results, who ran it)."""
    try:
        return program(*given), "onnxruntime"
    except Exception as error:
        if "NOT_IMPLEMENTED" not in str(error) and "Type Error" not in str(error) and "INVALID_GRAPH" not in str(error):
            raise
        if "INVALID_GRAPH" in str(error) and "is invalid" not in str(error):
            raise
        return program.call_reference(*given), "reference"


def attempt(sample: Any, opset: int, dynamic: bool, limit: float) -> tuple[str, str]:
    """(kind, words) of one sample."""
    import onnx

    given = [mine(t) for t in sample.tensors]
    model = Call(sample)
    try:
        wanted = model(*[t.clone() for t in given])
    except Exception as error:
        return "eager", f"{type(error).__name__}: {error}"[:150]
    if any(isinstance(w, torch.Tensor) and (w.is_complex() or w.is_sparse) for w in (*wanted, *given)):
        return "complex", ""
    shapes = [dict.fromkeys(range(t.ndim), torch.export.Dim.AUTO) for t in given] if dynamic else None
    try:
        program = torch.onnx.export(
            model, tuple(given), opset_version=opset, dynamic_shapes=None if shapes is None else (tuple(shapes),)
        )
    except UnsupportedOperatorError as error:
        return ("untranslated" if "no translation" in str(error) else "refused"), str(error)[:160]
    except OnnxExporterError as error:
        return "error", str(error)[:300]
    except Exception as error:
        return "capture", f"{type(error).__name__}: {error}"[:200]
    try:
        onnx.checker.check_model(program.model_proto, full_check=True)
        found, who = run(program, [t.contiguous() for t in given])
    except Exception as error:
        return "runtime", f"{type(error).__name__}: {error}"[:400].replace("\n", " ")
    wanted = [w for w in wanted if w is not None]
    if len(found) != len(wanted):
        return "differs", f"{len(found)} results, not {len(wanted)}"
    for have, want in zip(found, wanted, strict=True):
        want = want if isinstance(want, torch.Tensor) else torch.tensor(want)
        gap = worst(have, want)
        if not gap <= limit:
            return "differs", f"{gap:.3g} of {have.dtype}{list(have.shape)} and {want.dtype}{list(want.shape)} by {who}"
    return ("same" if who == "onnxruntime" else "reference"), ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--opset", type=int, default=20)
    parser.add_argument("--dynamic", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    words: dict[str, dict[str, str]] = defaultdict(dict)
    for info in op_samples.infos():
        label = f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name
        if options.only and label not in options.only.split(","):
            continue
        for name in options.dtypes.split(","):
            dtype = getattr(oracle, name)
            if dtype not in info.supported_dtypes("cpu"):
                continue
            function = op_samples.found_here(info)
            limit = 2e-2 if name in ("float16", "bfloat16") else 1e-5
            samples = itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=False), options.samples)
            for sample in samples:
                kind, word = attempt(op_samples.Sample(info, sample, function), options.opset, options.dynamic, limit)
                counts[kind] += 1
                if kind not in ("same", "reference", "eager", "complex"):
                    words[kind].setdefault(f"{label} {name}", word)
    for kind, found in words.items():
        print(f"== {kind}")
        for label, word in found.items():
            print(f"{label}: {word}")
    print(dict(counts))


if __name__ == "__main__":
    main()
