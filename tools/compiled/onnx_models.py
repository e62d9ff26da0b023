"""Export models of torchvision, timm, transformers and diffusers as they are, and compare onnxruntime's results with eager.

    python -m rushlight tools/compiled/onnx_models.py torchvision [part of a name ...] [--json out.json] [--seconds 120] [--opset 20]

A model is right where the greatest difference is at most 1e-5 of the greatest value.  Every model runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections import Counter
from typing import Any

import torch
from compiled_models import FAMILIES, in_process

LIMIT = 1e-5


def tensors_of(value: Any) -> list[Any]:
    return [t for t in torch.utils._pytree.tree_flatten(value)[0] if isinstance(t, torch.Tensor)]


def measure(maker: Any, stage: Any) -> dict[str, Any]:
    """What became of one model."""
    import onnx

    torch.manual_seed(0)
    model, args, kwargs = maker()
    model.eval()
    config = getattr(model, "config", None)
    if hasattr(config, "use_cache"):
        config.use_cache = False  # caches are no tensors: PyTorch exports none either
    with torch.no_grad():
        wanted = tensors_of(model(*args, **kwargs))
    start = time.perf_counter()
    try:
        program = torch.onnx.export(model, args, kwargs=kwargs, opset_version=OPSET)
    except Exception as error:
        return {"kind": "export", "why": f"{type(error).__name__}: {error}"[:300]}
    seconds = time.perf_counter() - start
    proto = program.model_proto
    try:
        onnx.checker.check_model(proto, full_check=True)
        found = program(*args, **kwargs)
    except Exception as error:
        return {"kind": "run", "why": f"{type(error).__name__}: {error}"[:300], "seconds": seconds}
    worst = 0.0
    if len(found) != len(wanted):
        return {"kind": "differs", "why": f"{len(found)} results, not {len(wanted)}", "seconds": seconds}
    for have, want in zip(found, wanted, strict=True):
        if have.shape != want.shape:
            return {"kind": "differs", "why": f"shape {tuple(have.shape)}, not {tuple(want.shape)}", "seconds": seconds}
        if want.numel():
            a, b = have.double(), want.double()
            worst = max(worst, float((a - b).abs().max() / b.abs().max().clamp_min(1e-30)))
    return {
        "kind": "same" if worst <= LIMIT else "differs",
        "why": f"{worst:.2g}",
        "seconds": seconds,
        "nodes": len(proto.graph.node),
    }


OPSET = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("family", choices=[*FAMILIES, "all"])
    parser.add_argument("names", nargs="*", help="parts of names; without any all models")
    parser.add_argument("--json", default="", help="a file for the results, which are added to")
    parser.add_argument("--seconds", type=int, default=120, help="limit for each model")
    parser.add_argument("--every", type=int, default=1, help="only each so many-th model")
    parser.add_argument("--opset", type=int, default=20)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    global OPSET
    OPSET = options.opset
    results = json.load(open(options.json)) if options.json and os.path.exists(options.json) else {}
    counts: Counter[str] = Counter()
    for family in FAMILIES if options.family == "all" else [options.family]:
        for place, (name, maker) in enumerate(FAMILIES[family]()):
            if options.names and not any(part in name for part in options.names) or place % options.every:
                continue
            found = results[name] = in_process(maker, options.seconds, measure)
            counts[found.get("kind", "failed")] += 1
            print(name, json.dumps(found), flush=True)
            if options.json:
                json.dump(results, open(options.json, "w"), indent=1)
    print(dict(counts))


if __name__ == "__main__":
    sys.exit(main())
