"""Inference of ONNX models by `rushlight.onnx.load`, compiled whole, beside onnxruntime in the same run.

    python bench/onnx_models.py --threads 1 --rounds 5
    python bench/onnx_models.py --models resnet18 gpt --folder /tmp/onnx

The models are defined here, get random weights, and are exported by PyTorch (the extra `oracle`) once into the folder.  Every row says
which of our forms it is: `eager`, `compiled` (eager's bits), `freed` (sums may be added in another order, batch norm folded, weights packed).
Rounds alternate between both libraries, so that load on the machine strikes both; the medians are of CPU time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# ***** models *****


def resnet18(nn: Any, t: Any) -> tuple[Any, Any]:
    class Block(nn.Module):
        def __init__(self, inputs: int, width: int, stride: int) -> None:
            super().__init__()
            self.one, self.two = (
                nn.Conv2d(inputs, width, 3, stride, 1, bias=False),
                nn.Conv2d(width, width, 3, 1, 1, bias=False),
            )
            self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
            short = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))
            self.short = short if stride != 1 or inputs != width else nn.Identity()

        def forward(self, x: Any) -> Any:
            return t.relu(self.norm2(self.two(t.relu(self.norm1(self.one(x))))) + self.short(x))

    blocks, inputs = [], 64
    for width, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        blocks.append(Block(inputs, width, stride))
        inputs = width
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)]
    return nn.Sequential(*stem, *blocks, *head), t.randn(1, 3, 224, 224)


def mobilenet_v2(nn: Any, t: Any) -> tuple[Any, Any]:
    def layer(inputs: int, width: int, kernel: int, stride: int = 1, groups: int = 1) -> list[Any]:
        conv = nn.Conv2d(inputs, width, kernel, stride, kernel // 2, groups=groups, bias=False)
        return [conv, nn.BatchNorm2d(width), nn.ReLU6()]

    class Block(nn.Module):
        def __init__(self, inputs: int, width: int, stride: int, expand: int) -> None:
            super().__init__()
            inner = inputs * expand
            first = layer(inputs, inner, 1) if expand != 1 else []
            last = [nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width)]
            self.body = nn.Sequential(*first, *layer(inner, inner, 3, stride, inner), *last)
            self.adds = stride == 1 and inputs == width

        def forward(self, x: Any) -> Any:
            return x + self.body(x) if self.adds else self.body(x)

    parts, inputs = layer(3, 32, 3, 2), 32
    for expand, width, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):  # fmt: skip
        for i in range(count):
            parts.append(Block(inputs, width, stride if i == 0 else 1, expand))
            inputs = width
    parts += [*layer(320, 1280, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000)]
    return nn.Sequential(*parts), t.randn(1, 3, 224, 224)


def _transformer(nn: Any, t: Any, width: int, heads: int, layers: int, causal: bool) -> Any:
    class Layer(nn.Module):
        """GPT normalises before its parts, BERT after them."""

        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

        def attend(self, x: Any) -> Any:
            n, length, _ = x.shape
            parts = [p.reshape(n, length, heads, -1).transpose(1, 2) for p in self.qkv(x).chunk(3, -1)]
            y = nn.functional.scaled_dot_product_attention(*parts, is_causal=causal)
            return self.out(y.transpose(1, 2).reshape(n, length, width))

        def feed(self, x: Any) -> Any:
            return self.down(nn.functional.gelu(self.up(x)))

        def forward(self, x: Any) -> Any:
            if causal:
                x = x + self.attend(self.norm1(x))
                return x + self.feed(self.norm2(x))
            x = self.norm1(x + self.attend(x))
            return self.norm2(x + self.feed(x))

    return nn.Sequential(*[Layer() for _ in range(layers)])


def _language_model(nn: Any, t: Any, width: int, heads: int, layers: int, vocabulary: int, length: int, causal: bool) -> tuple[Any, Any]:  # fmt: skip
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.body = _transformer(nn, t, width, heads, layers, causal)
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, vocabulary if causal else width)

        def forward(self, tokens: Any) -> Any:
            x = self.tokens(tokens) + self.places(t.arange(tokens.shape[1]))
            return self.head(self.norm(self.body(x)))

    return Model(), t.randint(0, vocabulary, (1, length))


MODELS: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "resnet18": resnet18,
    "mobilenet_v2": mobilenet_v2,
    "gpt": lambda nn, t: _language_model(nn, t, 256, 8, 6, 65, 256, True),
    "bert": lambda nn, t: _language_model(nn, t, 768, 12, 12, 30522, 128, False),
}


def exported(name: str, folder: Path) -> tuple[Path, Path]:
    """The model's file and its input, written by PyTorch where they are not there yet."""
    import numpy as np
    import torch

    path, sample = folder / f"{name}.onnx", folder / f"{name}.npy"
    if not path.exists():
        torch.manual_seed(0)
        module, x = MODELS[name](torch.nn, torch)
        with torch.no_grad():
            # Statistics as after training, so that folding them is no identity.
            for buffer_name, buffer in module.named_buffers():
                if buffer.is_floating_point():
                    buffer.uniform_(0.5, 1.5) if "var" in buffer_name else buffer.normal_(0, 0.1)
        torch.onnx.export(module.eval(), (x,), str(path), dynamo=True, external_data=False, verbose=False)
        np.save(sample, x.numpy())
    return path, sample


# ***** measuring *****


def ours(path: Path, x: Any, form: str, threads: int) -> Callable[[], Any]:
    import rushlight as rl

    rl.set_num_threads(threads)
    module = rl.onnx.load(path, trainable=form != "freed").eval()
    call: Any = module
    if form != "eager":
        options = {"allow_reordering": True, "packed_weights": True} if form == "freed" else {}
        call = rl.compile(module, fullgraph=True, options=options)
    given = rl.from_numpy(x)

    def run() -> Any:
        with rl.no_grad():
            return call(given).numpy()

    return run


def theirs(path: Path, x: Any, threads: int) -> Callable[[], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda: session.run(None, {name: x})[0]


def timed(call: Callable[[], Any], least: float = 0.3) -> float:
    """CPU seconds of a call: all threads of the process."""
    count, start, wall = 0, time.process_time(), time.perf_counter()
    while count < 2 or time.perf_counter() - wall < least:
        call()
        count += 1
    return (time.process_time() - start) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--forms", nargs="*", default=["compiled", "freed"], choices=["eager", "compiled", "freed"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", default=os.path.join(tempfile.gettempdir(), "rushlight_onnx_models"))
    given = parser.parse_args()
    import numpy as np

    folder = Path(given.folder)
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{'model':14}{'form':10}{'ours ms':>10}{'onnxruntime ms':>16}{'ratio':>8}{'differs by':>14}")
    for name in given.models:
        path, sample = exported(name, folder)
        x = np.load(sample)
        other = theirs(path, x, given.threads)
        for form in given.forms:
            call = ours(path, x, form, given.threads)
            expected, found = other(), call()
            error = float(np.abs(expected - found).max() / np.abs(expected).max())
            call()
            pairs = [(timed(call), timed(other)) for _ in range(given.rounds)]
            mine, others = (statistics.median(column) * 1e3 for column in zip(*pairs, strict=True))
            print(f"{name:14}{form:10}{mine:10.2f}{others:16.2f}{mine / others:8.2f}{error:14.1e}", flush=True)


if __name__ == "__main__":
    main()
