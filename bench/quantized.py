"""Quantized models and products: time beside PyTorch, and the error in dB beside time.

    python bench/quantized.py [row ...] [--threads N]

Rows: resnet18 (static int8), bert (dynamic int8), gemv (weights of eight and four bits, one row of activations), gpt2 (a
token of GPT-2 behind a cache of 64, with weights of eight and four bits; ours alone; 1.3 GB of memory).  Each
is timed in turn in one process; times are the least of several runs, of the process's CPU where one thread runs.  The
error is the ratio of the float result's power to that of the difference (SQNR).

Weights are normal, which rounding serves worst; `--weights default` draws them as `nn.Linear` does, evenly from a range.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import rushlight

warnings.simplefilter("ignore")


def least(run: Callable[[], Any], seconds: float = 3.0) -> float:
    """The least time of a call in milliseconds."""
    run()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.process_time()
        run()
        best = min(best, time.process_time() - begin)
    return best * 1e3


def sqnr(exact: np.ndarray, found: np.ndarray) -> float:
    """Signal to noise in dB."""
    return float(10 * np.log10((exact**2).sum() / max(((exact - found) ** 2).sum(), 1e-30)))


def libraries() -> list[tuple[str, Any]]:
    """Ours, and PyTorch where it is installed."""
    found: list[tuple[str, Any]] = [("rushlight", rushlight)]
    try:
        found.append(("PyTorch", importlib.import_module("torch")))
        importlib.import_module("torch.ao.quantization.backend_config.utils")
    except ImportError:
        pass
    return found


WEIGHTS = ["normal"]


def filled(T: Any, model: Any) -> Any:
    """Weights from NumPy's generator, scaled so that values keep their size; or as `nn.Linear` draws them."""
    rng = np.random.default_rng(0)
    if WEIGHTS == ["default"]:
        T.manual_seed(0)
        for layer in model.modules():
            if isinstance(layer, T.nn.Linear | T.nn.Conv2d):
                layer.reset_parameters()
        return model
    with T.no_grad():
        for name, value in sorted(model.state_dict().items()):
            if value.dtype is not T.float32:
                continue
            fan = max(value.numel() // value.shape[0], 1) if value.dim() > 1 else 1
            draw = (
                rng.normal(size=tuple(value.shape)) * (2 / fan) ** 0.5
                if value.dim() > 1
                else rng.random(tuple(value.shape)) * 0.5 + 0.5
            )
            value.copy_(T.from_numpy(np.asarray(draw * (0.1 if name.endswith("bias") else 1), dtype=np.float32)))
    return model


def resnet18(T: Any) -> Any:
    """ResNet-18 (He et al., 2016)."""
    nn, F = T.nn, T.nn.functional

    class Block(nn.Module):
        def __init__(self, ins: int, outs: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(ins, outs, 3, stride, 1, bias=False), nn.BatchNorm2d(outs)
            self.conv2, self.bn2 = nn.Conv2d(outs, outs, 3, 1, 1, bias=False), nn.BatchNorm2d(outs)
            self.relu = nn.ReLU()
            self.down = None
            if stride != 1 or ins != outs:
                self.down = nn.Sequential(nn.Conv2d(ins, outs, 1, stride, bias=False), nn.BatchNorm2d(outs))

        def forward(self, x):  # type: ignore[no-untyped-def]
            y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
            return F.relu(y + (x if self.down is None else self.down(x)))

    class ResNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1, self.relu = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()
            self.pool = nn.MaxPool2d(3, 2, 1)
            ins, layers = 64, []
            for outs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
                layers += [Block(ins, outs, stride), Block(outs, outs, 1)]
                ins = outs
            self.layers, self.avg, self.fc = nn.Sequential(*layers), nn.AdaptiveAvgPool2d(1), nn.Linear(512, 1000)

        def forward(self, x):  # type: ignore[no-untyped-def]
            x = self.layers(self.pool(self.relu(self.bn1(self.conv1(x)))))
            return self.fc(T.flatten(self.avg(x), 1))

    return filled(T, ResNet().eval())


def row_resnet18(seconds: float) -> None:
    x = np.random.default_rng(1).normal(size=(1, 3, 224, 224)).astype(np.float32)
    for name, T in libraries():
        page = importlib.import_module(f"{T.__name__}.ao.quantization.quantize_fx")
        model, X = resnet18(T), T.from_numpy(x)
        with T.no_grad():
            watched = page.prepare_fx(model, T.ao.quantization.get_default_qconfig_mapping("x86"), (X,))
            watched(X)
            made = page.convert_fx(watched)
            last = X.contiguous(memory_format=T.channels_last)
            float_ms = least(lambda m=model, v=X: m(v), seconds)
            ms = least(lambda m=made, v=last: m(v), seconds)
            error = sqnr(model(X).numpy(), made(X).numpy())
        print(
            f"ResNet-18 static int8   {name:<10} float {float_ms:7.1f} ms   int8 {ms:7.1f} ms   {error:5.1f} dB",
            flush=True,
        )


def bert(T: Any) -> Any:
    """The layers of BERT-base: 12 x (4 of 768 x 768, 768 x 3072 and back), with attention, GELU and LayerNorm."""
    nn = T.nn

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = [(768, 768)] * 4 + [(768, 3072), (3072, 768)]
            self.all = nn.ModuleList([nn.Linear(*s) for _ in range(12) for s in sizes])
            self.norm = nn.LayerNorm(768)

        def forward(self, x):  # type: ignore[no-untyped-def]
            for k in range(0, len(self.all), 6):
                query, key, value, out, up, down = (self.all[k + i] for i in range(6))
                heads = [f(x).reshape(1, 128, 12, 64).transpose(1, 2) for f in (query, key, value)]
                y = nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(1, 128, 768)
                x = self.norm(x + out(y))
                x = self.norm(x + down(nn.functional.gelu(up(x))))
            return x

    return filled(T, Layers().eval())


def row_bert(seconds: float) -> None:
    x = np.random.default_rng(1).normal(size=(1, 128, 768)).astype(np.float32)
    for name, T in libraries():
        model, X = bert(T), T.from_numpy(x)
        made = T.ao.quantization.quantize_dynamic(model, {T.nn.Linear}, dtype=T.qint8)
        with T.no_grad():
            float_ms, ms = (least(lambda m=m, v=X: m(v), seconds) for m in (model, made))
            error = sqnr(model(X).numpy(), made(X).numpy())
        print(
            f"BERT-base dynamic int8  {name:<10} float {float_ms:7.1f} ms   int8 {ms:7.1f} ms   {error:5.1f} dB",
            flush=True,
        )


def row_gemv(seconds: float) -> None:
    rng, n = np.random.default_rng(2), 4096
    x, w = rng.normal(size=(1, n)).astype(np.float32), rng.normal(size=(n, n)).astype(np.float32) / 64
    if WEIGHTS == ["default"]:
        w = rng.uniform(-1 / 64, 1 / 64, (n, n)).astype(np.float32)
    exact = x @ w.T
    scale8 = abs(w).max(1) / 127
    w8 = np.rint(w / scale8[:, None]).astype(np.int8)
    groups = w.reshape(n, n // 128, 128)
    scale4 = (groups.max(-1) - groups.min(-1)) / 15
    zero4 = groups.min(-1) + 8 * scale4
    w4 = (
        np.clip(np.rint((groups - groups.min(-1, keepdims=True)) / scale4[..., None]), 0, 15)
        .astype(np.int32)
        .reshape(n, n)
    )
    pairs = np.ascontiguousarray(np.stack([scale4.T, zero4.T], -1))
    for name, T in libraries():
        X, W = T.from_numpy(x), T.from_numpy(w)
        eight = T.from_numpy(w8), T.from_numpy(scale8)
        four = T._convert_weight_to_int4pack_for_cpu(T.from_numpy(w4), 1), 128, T.from_numpy(pairs)
        runs: dict[str, Callable[[], Any]] = {
            "float": lambda T=T, X=X, W=W: T.nn.functional.linear(X, W),
            "int8": lambda T=T, X=X, a=eight: T._weight_int8pack_mm(X, *a),
            "int4": lambda T=T, X=X, a=four: T._weight_int4pack_mm_for_cpu(X, *a),
        }
        for kind, run in runs.items():
            try:
                found = run().numpy()
            except RuntimeError as error:
                print(f"4096 x 4096, one row    {name:<10} {kind:<6} {str(error).splitlines()[0][:60]}")
                continue
            print(
                f"4096 x 4096, one row    {name:<10} {kind:<6} {least(run, seconds):6.2f} ms   {sqnr(exact, found):5.1f} dB",
                flush=True,
            )
    with rushlight.no_grad():
        for name, run in integer_rows(x, w).items():
            print(
                f"4096 x 4096, one row    {name:<33} {least(run, seconds):6.3f} ms   {sqnr(exact, run()):5.1f} dB",
                flush=True,
            )


def onnxruntime_row(x: np.ndarray, w: np.ndarray, bits: int) -> Callable[[], Any] | None:
    """onnxruntime's product with a weight of few bits in groups of 128 and activations of eight; None where it is absent."""
    try:
        onnx, runtime = importlib.import_module("onnx"), importlib.import_module("onnxruntime")
    except ImportError:
        return None
    n, most = w.shape[0], 2**bits - 1
    groups = w.reshape(n, n // 128, 128)
    low = np.minimum(groups.min(-1), 0)
    scale = ((np.maximum(groups.max(-1), 0) - low) / most).astype(np.float32)
    zero = np.clip(np.rint(-low / scale), 0, most).astype(np.uint8)
    ints = np.clip(np.rint(groups / scale[..., None]) + zero[..., None], 0, most).astype(np.uint8)
    if bits == 4:
        ints, zero = ints[..., ::2] | ints[..., 1::2] << 4, zero[:, ::2] | zero[:, 1::2] << 4
    given = {"b": ints, "s": scale.reshape(-1), "z": zero.reshape(-1)}
    node = onnx.helper.make_node(
        "MatMulNBits",
        ["x", *given],
        ["y"],
        domain="com.microsoft",
        K=n,
        N=n,
        bits=bits,
        block_size=128,
        accuracy_level=4,
    )
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, n]) for name in "xy"]
    held = [onnx.numpy_helper.from_array(value, name) for name, value in given.items()]
    sets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "product", ends[:1], ends[1:], held), opset_imports=sets, ir_version=8
    )
    settings = runtime.SessionOptions()
    settings.intra_op_num_threads = rushlight.get_num_threads()
    session = runtime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": x})[0]


def integer_rows(x: np.ndarray, w: np.ndarray) -> dict[str, Callable[[], Any]]:
    """Products with weights of few bits and activations of eight, ours and onnxruntime's."""
    page = importlib.import_module("rushlight.ao.quantization.weight_only")
    layer = rushlight.nn.Linear(*w.shape, bias=False)
    with rushlight.no_grad():
        layer.weight.copy_(rushlight.from_numpy(w))
    runs: dict[str, Callable[[], Any]] = {}
    for bits in (8, 4):
        made = page.Int8ActivationLinear.from_float(layer, bits)
        runs[f"rushlight  int{bits}, int8 activations"] = lambda m=made: m(rushlight.from_numpy(x)).numpy()
        peer = onnxruntime_row(x, w, bits)
        if peer is not None:
            runs[f"onnxruntime int{bits}, int8 activations"] = peer
    return runs


def gpt2(T: Any, past: int) -> Any:
    """GPT-2 small with a cache of keys and values: one token in, its logits out."""
    nn = T.nn

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(50257, 768), nn.Embedding(1024, 768)
            sizes = {"qkv": (768, 2304), "out": (768, 768), "up": (768, 3072), "down": (3072, 768)}
            self.layers = nn.ModuleList(
                [nn.ModuleDict({name: nn.Linear(*size) for name, size in sizes.items()}) for _ in range(12)]
            )
            self.norms = nn.ModuleList([nn.LayerNorm(768) for _ in range(25)])
            self.head = nn.Linear(768, 50272, bias=False)  # the vocabulary, to a multiple of 32 rows
            self.register_buffer("cache", T.zeros(12, 2, 1, 12, past + 1, 64))

        def forward(self, token):  # type: ignore[no-untyped-def]
            x = self.tokens(token) + self.places.weight[past]
            for k, layer in enumerate(self.layers):
                q, key, value = layer["qkv"](self.norms[2 * k](x)).reshape(1, 1, 3, 12, 64).permute(2, 0, 3, 1, 4)
                keys, values = self.cache[k]
                keys[:, :, past:] = key
                values[:, :, past:] = value
                y = nn.functional.scaled_dot_product_attention(q, keys, values)
                x = x + layer["out"](y.transpose(1, 2).reshape(1, 1, 768))
                x = x + layer["down"](nn.functional.gelu(layer["up"](self.norms[2 * k + 1](x)), approximate="tanh"))
            return self.head(self.norms[24](x))

    return filled(T, Decoder().eval())


def row_gpt2(seconds: float) -> None:
    T, past = rushlight, 64
    page = importlib.import_module("rushlight.ao.quantization.weight_only")
    model, token = gpt2(T, past), T.tensor([[17]])
    with T.no_grad():
        exact = model(token).numpy()
        first = least(lambda: model(token), seconds)
        print(f"GPT-2 decode, one token  rushlight  float  {first:6.1f} ms", flush=True)
        for bits, activations in ((8, "float"), (4, "float"), (8, "int8"), (4, "int8")):
            made = page.quantize_weights(copy.deepcopy(model), bits, activations=activations)
            ms = least(lambda m=made: m(token), seconds)
            again = least(lambda: model(token), seconds)  # in turn: other programs slow both
            times = min(first, again) / ms
            print(
                f"GPT-2 decode, one token  rushlight  int{bits}, {activations:<5} {ms:6.1f} ms   {times:4.2f} times float   "
                f"{sqnr(exact, made(token).numpy()):5.1f} dB",
                flush=True,
            )


ROWS = {"resnet18": row_resnet18, "bert": row_bert, "gemv": row_gemv, "gpt2": row_gpt2}

if __name__ == "__main__":
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given.add_argument("rows", nargs="*", default=[])
    given.add_argument("--threads", type=int, default=1)
    given.add_argument("--seconds", type=float, default=3.0)
    given.add_argument("--weights", choices=["normal", "default"], default="normal")
    options = given.parse_args()
    WEIGHTS[:] = [options.weights]
    for _, library in libraries():
        library.set_num_threads(options.threads)
    for row in options.rows or ROWS:
        ROWS[row](options.seconds)
