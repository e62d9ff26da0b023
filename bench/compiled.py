"""Compiled programs: our eager, our `compile`, PyTorch's eager and `torch.compile`, and JAX's `jit` where that is installed.

    python bench/compiled.py                         all rows, each target in a process of its own, in turn
    python bench/compiled.py --only 'mlp|gpt' --rounds 3

A row's first call is timed from an empty cache of kernels (`cold`), then the best of many calls (`warm`).  A second process finds the caches
filled: its first call is `from disk`, and `peak` is how much memory its calls take beyond what model and data take (MB).  Beside them stands
what the machine could do at best: the bytes that a row must move at the speed of copying.  `--jax python` names an interpreter that has JAX.
"""

from __future__ import annotations

import argparse
import compileall
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

Row = Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...]]]
ROWS: dict[str, Row] = {}
MOVED: dict[str, float] = {}  # bytes that a row moves at least


def row(name: str, moved: float = 0.0) -> Callable[[Row], Row]:
    """Declare a row: a function from the module to a callable and its arguments."""

    def declare(function: Row) -> Row:
        ROWS[name] = function
        MOVED[name] = moved
        return function

    return declare


# ***** memory *****


@row("x * sigmoid(x) + b, 16M", 2 * 4 * 2.0**24)
def swish(t: Any) -> Any:
    x, b = t.randn(4096, 4096), t.randn(4096)
    return lambda x, b: x * t.sigmoid(x) + b, (x, b)


@row("layer norm, gelu, dropout, residual, both ways", 9 * 4 * 2.0**22)
def norm_block(t: Any) -> Any:
    norm, x = t.nn.LayerNorm(1024), t.randn(4096, 1024)
    f = t.nn.functional

    def step(x: Any) -> Any:
        y = x.detach().requires_grad_()
        (y + f.dropout(f.gelu(norm(y)), 0.1)).sum().backward()
        return y.grad

    return step, (x,)


# ***** small programs *****


def mlp(t: Any, depth: int, width: int, last: int) -> Any:
    layers = []
    for _ in range(depth - 1):
        layers += [t.nn.Linear(width, width), t.nn.ReLU()]
    return t.nn.Sequential(*layers, t.nn.Linear(width, last))


def training(t: Any, model: Any, optimizer: Any, *data: Any) -> Any:
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        out = model(x)
        loss = t.nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]).float(), y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, data


@row("training step of an MLP 32-32-32-10, batch 8")
def tiny(t: Any) -> Any:
    model = mlp(t, 3, 32, 10)
    return training(t, model, t.optim.SGD(model.parameters(), lr=0.01), t.randn(8, 32), t.randint(0, 10, (8,)))


@row("100 operations on one number")
def chain(t: Any) -> Any:
    def run(x: Any) -> Any:
        for k in range(50):
            x = t.tanh(x) + 0.01 * k
        return x

    return run, (t.randn(1),)


@row("LSTM cell, 100 steps, hidden 64")
def lstm(t: Any) -> Any:
    cell, x, h = t.nn.LSTMCell(64, 64), t.randn(100, 1, 64), t.zeros(1, 64)

    def run(x: Any, h: Any) -> Any:
        c = h
        with t.no_grad():
            for k in range(100):
                h, c = cell(x[k], (h, c))
        return h

    return run, (x, h)


@row("policy of a balancing pole")
def pole(t: Any) -> Any:
    model = t.nn.Sequential(t.nn.Linear(4, 128), t.nn.ReLU(), t.nn.Linear(128, 2), t.nn.Softmax(-1))

    def run(x: Any) -> Any:
        with t.no_grad():
            return model(x)

    return run, (t.randn(1, 4),)


# ***** models *****


def gpt_of(t: Any) -> Any:
    nn, f = t.nn, t.nn.functional

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, d: int, h: int) -> None:
            super().__init__()
            self.ln1, self.ln2, self.h = nn.LayerNorm(d), nn.LayerNorm(d), h
            self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.fc, self.out = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x: Any) -> Any:
            b, n, d = x.shape
            q, k, v = (z.view(b, n, self.h, d // self.h).transpose(1, 2) for z in self.qkv(self.ln1(x)).split(d, 2))
            y = f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, d)
            x = x + self.proj(y)
            return x + self.out(f.gelu(self.fc(self.ln2(x))))

    class GPT(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, layers: int = 6, d: int = 384, h: int = 6, words: int = 65, n: int = 128) -> None:
            super().__init__()
            self.token, self.place = nn.Embedding(words, d), nn.Parameter(0.02 * t.randn(n, d))
            self.blocks = nn.ModuleList([Block(d, h) for _ in range(layers)])
            self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, words, bias=False)

        def forward(self, i: Any) -> Any:
            x = self.token(i) + self.place[: i.shape[1]]
            for block in self.blocks:
                x = block(x)
            return self.head(self.ln(x))

    return GPT


def gpt(t: Any, dtype: Any) -> Any:
    model = gpt_of(t)().to(dtype)
    words = [t.randint(0, 65, (4, 128)) for _ in range(2)]
    return training(t, model, t.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9), *words)


@row("GPT small, training step, float32")
def gpt_float(t: Any) -> Any:
    return gpt(t, t.float32)


@row("GPT small, training step, bfloat16")
def gpt_half(t: Any) -> Any:
    return gpt(t, t.bfloat16)


def resnet_of(t: Any) -> Any:
    nn, f = t.nn, t.nn.functional

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, i: int, o: int, s: int) -> None:
            super().__init__()
            self.c1, self.b1 = nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o)
            self.c2, self.b2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
            self.down = nn.Sequential(nn.Conv2d(i, o, 1, s, bias=False), nn.BatchNorm2d(o)) if i != o else None

        def forward(self, x: Any) -> Any:
            y = self.b2(self.c2(f.relu(self.b1(self.c1(x)))))
            return f.relu(y + (x if self.down is None else self.down(x)))

    sizes = [
        (64, 64, 1),
        (64, 64, 1),
        (64, 128, 2),
        (128, 128, 1),
        (128, 256, 2),
        (256, 256, 1),
        (256, 512, 2),
        (512, 512, 1),
    ]
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    pool = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)]
    return nn.Sequential(*stem, *[Block(*size) for size in sizes], *pool)


@row("ResNet-18, training step, 4 images of 64")
def resnet(t: Any) -> Any:
    model = resnet_of(t)
    optimizer = t.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return training(t, model, optimizer, t.randn(4, 3, 64, 64), t.randint(0, 1000, (4,)))


@row("ResNet-18, inference, 4 images of 64")
def resnet_eval(t: Any) -> Any:
    model = resnet_of(t).eval()

    def run(x: Any) -> Any:
        with t.no_grad():
            return model(x)

    return run, (t.randn(4, 3, 64, 64),)


@row("200-layer MLP, inference")
def deep(t: Any) -> Any:
    model = mlp(t, 200, 64, 64)

    def run(x: Any) -> Any:
        with t.no_grad():
            return model(x)

    return run, (t.randn(8, 64),)


@row("200-layer MLP, training step")
def deep_training(t: Any) -> Any:
    model = mlp(t, 200, 64, 64)
    return training(t, model, t.optim.SGD(model.parameters(), lr=0.01), t.randn(8, 64), t.randint(0, 64, (8,)))


@row("BERT base, forward, 128 words")
def bert(t: Any) -> Any:
    layer = t.nn.TransformerEncoderLayer(768, 12, 3072, 0.0, "gelu", batch_first=True)
    model = t.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).eval()
    for p in model.parameters():
        p.requires_grad_(False)

    def run(x: Any) -> Any:
        with t.no_grad():
            return model(x)

    return run, (t.randn(1, 128, 768),)


@row("GPT-2 of 124M, a word with a cache of keys and values", 4 * 124e6)
def decode(t: Any) -> Any:
    """The cache has room for 256 words; the place of the word is a tensor, so that all calls have one program."""
    model = gpt_of(t)(12, 768, 12, 50257, 256).eval()
    cache = [(t.zeros(1, 12, 256, 64), t.zeros(1, 12, 256, 64)) for _ in range(12)]
    places = t.arange(256)
    for p in model.parameters():
        p.requires_grad_(False)

    def attended(block: Any, x: Any, place: Any, keys: Any, values: Any) -> Any:
        q, k, v = (z.view(1, 1, 12, 64).transpose(1, 2) for z in block.qkv(block.ln1(x)).split(768, 2))
        keys.index_copy_(2, place, k)
        values.index_copy_(2, place, v)
        seen = (places <= place).view(1, 1, 1, 256)
        y = t.nn.functional.scaled_dot_product_attention(q, keys, values, attn_mask=seen)
        x = x + block.proj(y.transpose(1, 2).reshape(1, 1, 768))
        return x + block.out(t.nn.functional.gelu(block.fc(block.ln2(x))))

    def step(word: Any, place: Any) -> Any:
        with t.no_grad():
            x = model.token(word) + model.place[place]
            for block, (keys, values) in zip(model.blocks, cache, strict=True):
                x = attended(block, x, place, keys, values)
            return model.head(model.ln(x))[:, -1].argmax(-1, keepdim=True)

    return step, (t.randint(0, 50257, (1, 1)), t.tensor([17]))


@row("five batch sizes of an MLP, all of them")
def sizes(t: Any) -> Any:
    model = mlp(t, 4, 256, 10)
    batches = [t.randn(n, 256) for n in (8, 24, 40, 56, 72)]

    def one(x: Any) -> Any:
        with t.no_grad():
            return model(x)

    return one, (batches,)


@row("a module of 100 tensors, called")
def many(t: Any) -> Any:
    model = mlp(t, 50, 4, 4)

    def run(x: Any) -> Any:
        with t.no_grad():
            return model(x)

    return run, (t.randn(1, 4),)


# ***** JAX: the rows that need no modules *****


def jax_row(name: str) -> Any:
    """The same row for JAX; None where there is none."""
    import jax  # type: ignore[import-not-found]
    import jax.numpy as jnp  # type: ignore[import-not-found]

    def chained(x: Any) -> Any:
        for k in range(50):
            x = jnp.tanh(x) + 0.01 * k
        return x

    def layers(ws: Any, x: Any) -> Any:
        for w in ws[:-1]:
            x = jax.nn.relu(x @ w)
        return x @ ws[-1]

    def trained(ws: Any, x: Any) -> Any:
        grads = jax.grad(lambda ws: jnp.mean(jax.nn.logsumexp(layers(ws, x), -1)))(ws)
        return [w - 0.01 * g for w, g in zip(ws, grads, strict=True)]

    key = jax.random.PRNGKey(0)
    small, large = [[0.1 * jax.random.normal(key, (n, n)) for _ in range(k)] for n, k in ((32, 3), (64, 200))]
    rows = {
        "x * sigmoid(x) + b, 16M": (lambda x, b: x * jax.nn.sigmoid(x) + b, (jnp.ones((4096, 4096)), jnp.ones(4096))),
        "100 operations on one number": (chained, (jnp.ones(1),)),
        "training step of an MLP 32-32-32-10, batch 8": (trained, (small, jnp.ones((8, 32)))),
        "200-layer MLP, inference": (layers, (large, jnp.ones((8, 64)))),
        "200-layer MLP, training step": (trained, (large, jnp.ones((8, 64)))),
    }
    found = rows.get(name)
    return None if found is None else (jax.jit(found[0]), found[1], jax.block_until_ready)


# ***** measuring *****


def measure(target: str, name: str, seconds: float) -> dict[str, float]:
    """Cold and warm seconds of a row in this process."""
    module, mode = target.split(":")
    if module == "jax":
        found = jax_row(name)
        if found is None:
            return {}
        call, args, wait = found
    else:
        t = importlib.import_module(module)
        t.manual_seed(0)
        call, args = ROWS[name](t)
        if mode == "compile":
            call = t.compile(call)
        if isinstance(args[0], list):  # the call is made for each
            one, many = call, args[0]
            call, args = lambda: [one(x) for x in many], ()
        wait = _same
    held = _status("VmRSS")
    began = time.perf_counter()
    wait(call(*args))
    cold = time.perf_counter() - began
    for _ in range(3):
        wait(call(*args))
    warm, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        wait(call(*args))
        warm = min(warm, time.perf_counter() - began)
    return {"cold": cold, "warm": warm, "peak": _peak(lambda: wait(call(*args))) - held}


def _status(word: str) -> float:
    """MB that the kernel tells of this process."""
    with open("/proc/self/status") as lines:
        return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(word + ":")), 0.0)


def _peak(call: Callable[[], Any]) -> float:
    """The most memory while `call()` runs three times, in MB."""
    try:
        with open("/proc/self/clear_refs", "w") as asked_for:
            asked_for.write("5")
    except OSError:  # then it counts since the process began
        pass
    for _ in range(3):
        call()
    return _status("VmHWM")


def _same(x: Any) -> Any:
    return x


def asked(target: str, name: str, seconds: float, python: str = sys.executable) -> dict[str, Any]:
    """The same in a process of its own whose caches are empty, and in a second one that finds them filled (`disk`).

    Byte code is no part of these caches: what is installed has it.
    """
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "RUSHLIGHT_CACHE_DIR": folder, "TORCHINDUCTOR_CACHE_DIR": folder, "JAX_COMPILATION_CACHE_DIR": folder,
               "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}  # fmt: skip
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        argv = [python, __file__, "--measure", target, name, "--seconds"]
        found = _told(subprocess.run([*argv, str(seconds)], capture_output=True, text=True, env=env, check=False))
        if "cold" not in found:
            return found
        again = _told(subprocess.run([*argv, "0.1"], capture_output=True, text=True, env=env, check=False))
    return found | {"disk": again.get("cold", float("nan")), "peak": again.get("peak", float("nan"))}


def _told(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1][:160]}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def _has(python: str, module: str) -> bool:
    """Whether an interpreter has a module."""
    look = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
    return not subprocess.run([python, "-c", look], check=False).returncode


def shown(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.0f} ns"


def limit_of(name: str, copy: dict[int, float]) -> str:
    """The least time for the bytes of a row, at the speed at which this machine copies."""
    return shown(MOVED[name] / copy[max(copy)]) if MOVED[name] and copy else ""


def copying() -> dict[int, float]:
    """Bytes a second of copying, by footprint."""
    from rushlight._backends.cpu.program.peak import copy_rates

    return copy_rates(os.cpu_count() or 1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="rows whose names match")
    parser.add_argument("--targets", default="rushlight:eager,rushlight:compile,torch:eager,torch:compile,jax:jit")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="of measuring a row with a target")
    parser.add_argument("--jax", default=sys.executable, help="the interpreter that has JAX")
    parser.add_argument("--measure", nargs=2, metavar=("TARGET", "ROW"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(*given.measure, given.seconds)))
        return
    pythons = {x: given.jax if x.startswith("jax") else sys.executable for x in given.targets.split(",")}
    targets = [x for x, python in pythons.items() if _has(python, x.split(":")[0])]
    if "rushlight" in given.targets:
        spec = importlib.util.find_spec("rushlight")
        assert spec is not None
        compileall.compile_dir(os.path.dirname(spec.origin or ""), quiet=1)
    copy = copying()
    print("| row | limit |", " | ".join(f"{x}: cold, from disk, warm, peak" for x in targets), "|")
    print("| --- | --- |", " | ".join("---" for _ in targets), "|")
    for name in ROWS:
        if not re.search(given.only, name):
            continue
        best: dict[str, dict[str, Any]] = {}
        for _ in range(given.rounds):
            for target in targets:
                found, known = asked(target, name, given.seconds, pythons[target]), best.get(target, {})
                best[target] = {k: min(v, known.get(k, v)) for k, v in found.items()} if "error" not in found else found
        cells = [
            f"{shown(x['cold'])}, {shown(x['disk'])}, {shown(x['warm'])}, {x['peak']:.0f} MB" if "warm" in x else x.get("error", "-") for x in map(best.get, targets) if x is not None
        ]  # fmt: skip
        print(f"| {name} | {limit_of(name, copy)} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
