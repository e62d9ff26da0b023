"""`python -m rushlight demo --export`: the digits network is trained, leaves in every form, and each form is run and tested."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import rushlight as torch
from rushlight._base.errors import install_command

__all__ = ["main"]

_NEEDS = ("tqdm", "matplotlib", "sklearn")
_CALLS = 200  # timed calls with one image; the median counts
_WITHIN = 1e-5  # of the largest value: how far a form in floats may be from the model
_LOSES = 0.01  # accuracy that eight bits may cost


class Form(NamedTuple):
    """Outcome of one exported form: its file, microseconds for an image, what it gives for the held-out images."""

    name: str
    size: int | None  # bytes
    microseconds: float | None
    answers: np.ndarray | None  # [images, classes]
    note: str = ""


def main(folder: Path, out: Path, arguments: list[str], train: Callable[[Path, list[str]], None]) -> int:
    """Train by `train`, make every form in `out`, print one table; the exit status is 1 if a form answers otherwise."""
    absent = sorted(name for name in _NEEDS if find_spec(name) is None)
    if absent:
        print(f"the demo needs {', '.join(absent)}: {install_command('examples')}", file=sys.stderr)
        return 1
    train(out, arguments)
    program: Any = importlib.import_module("digits_cnn")
    model = program.Net()
    model.load_state_dict(torch.load(out / "checkpoint.pt")["model"])
    model.eval()
    digits = program.Digits()
    seen, held_out = torch.utils.data.random_split(digits, [1437, 360], generator=torch.Generator().manual_seed(42))
    images, labels = digits.images[held_out.indices], digits.labels[held_out.indices].numpy()
    example = images[:1]
    exported = torch.export.export(model, (example,))
    torch.export.save(exported, out / "digits.pt2")
    forms = [
        _tried("model, call by call", None, model, images),
        _tried("torch.compile", None, torch.compile(model), images),
        _tried("exported program", out / "digits.pt2", torch.export.load(out / "digits.pt2").module(), images),
        _onnx(model, example, images, out / "digits.onnx"),
        _package(exported, images, out / "digits.rlp"),
        _library(exported, images, out),
        _eight_bits(model, digits.images[seen.indices], images, out / "digits_int8.pt"),
    ]
    return _report(forms, labels, out)


@torch.no_grad()
def _tried(name: str, path: Path | None, run: Callable[[Any], Any], images: Any) -> Form:
    """Run something that takes a tensor with one image."""
    parts = [images[i : i + 1] for i in range(len(images))]
    answers = np.concatenate([run(x).numpy() for x in parts])
    return Form(name, None if path is None else path.stat().st_size, _microseconds(lambda: run(parts[0])), answers)


def _microseconds(call: Callable[[], Any]) -> float:
    times = []
    for _ in range(_CALLS):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


# ***** other runtimes *****


def _onnx(model: Any, example: Any, images: Any, path: Path) -> Form:
    name = "ONNX, by onnxruntime"
    absent = [module for module in ("onnx", "onnxruntime") if find_spec(module) is None]
    if absent:
        return Form(name, None, None, None, f"not there: pip install {' '.join(absent)}")
    torch.onnx.export(model, (example,), path, dynamo=True, verbose=False)
    runtime: Any = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (taken,) = session.get_inputs()
    rows = images.numpy()
    answers = np.concatenate([session.run(None, {taken.name: rows[i : i + 1]})[0] for i in range(len(rows))])
    size = path.stat().st_size + sum(p.stat().st_size for p in path.parent.glob(f"{path.name}.data"))
    return Form(name, size, _microseconds(lambda: session.run(None, {taken.name: rows[:1]})), answers)


_LOAD_AND_RUN = """
import json, statistics, sys, time
sys.modules["llvmlite"] = None  # importing it would be an error
import numpy as np
began = time.perf_counter()
from rushlight_loader import load
package, images = load(sys.argv[1]), np.load(sys.argv[2])
first = package(images[:1])
taken, times = time.perf_counter() - began, []
for _ in range(int(sys.argv[4])):
    began = time.perf_counter()
    package(images[:1])
    times.append(time.perf_counter() - began)
np.save(sys.argv[3], np.concatenate([package(images[i : i + 1]) for i in range(len(images))]))
print(json.dumps({"first": taken, "median": statistics.median(times)}))
"""


def _package(exported: Any, images: Any, path: Path) -> Form:
    torch._inductor.aoti_compile_and_package(exported, package_path=str(path))
    with tempfile.TemporaryDirectory() as folder:
        given, answered = Path(folder, "images.npy"), Path(folder, "answers.npy")
        np.save(given, images.numpy())
        paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        command = [sys.executable, "-c", _LOAD_AND_RUN, str(path), str(given), str(answered), str(_CALLS)]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"the package did not run:\n{done.stderr}")
        said = json.loads(done.stdout.splitlines()[-1])
        note = f"from file to first answer {said['first'] * 1000:.0f} ms"
        return Form("package, without llvmlite", path.stat().st_size, said["median"] * 1e6, np.load(answered), note)


_C_PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "digits.h"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int count, char **words) {
    float image[64], answer[10];
    double times[4096];
    char text[200];
    int n = 0;
    FILE *in = fopen(words[1], "rb"), *out = fopen(words[2], "wb");
    if (count != 3 || !in || !out) return 2;
    while (fread(image, sizeof image, 1, in) == 1) {
        const void *inputs[] = {image};
        void *outputs[] = {answer};
        double began = now();
        if (digits_run(inputs, outputs, text, sizeof text) != DIGITS_OK) {
            fprintf(stderr, "%s\n", text);
            return 1;
        }
        if (n < 4096) times[n++] = now() - began;
        fwrite(answer, sizeof answer, 1, out);
    }
    fclose(out);
    qsort(times, n, sizeof *times, by_size);
    printf("%.3f\n", times[n / 2]);
    return 0;
}
"""


def _library(exported: Any, images: Any, out: Path) -> Form:
    name, library = "library, from a C program", out / "libdigits.so"
    torch._inductor.aot_compile(exported.module(), (images[:1],), options={"aot_inductor.output_path": str(library)})
    size, compiler = library.stat().st_size, shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return Form(
            name, size, None, None, f"{library.name} and digits.h are written; there is no C compiler to call them"
        )
    source, binary = out / "digits.c", out / "digits"
    source.write_text(_C_PROGRAM.lstrip())
    command = [compiler, "-O2", str(source), "-o", str(binary), f"-L{out}", "-ldigits", f"-Wl,-rpath,{out.resolve()}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return Form(name, size, None, None, f"{' '.join(command)} failed:\n{done.stderr}")
    with tempfile.TemporaryDirectory() as folder:
        given, answered = Path(folder, "images"), Path(folder, "answers")
        given.write_bytes(images.numpy().tobytes())
        done = subprocess.run([str(binary), str(given), str(answered)], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{binary} ended with status {done.returncode}: {done.stderr}")
        answers = np.frombuffer(answered.read_bytes(), np.float32).reshape(len(images), -1)
        return Form(name, size, float(done.stdout), answers)


# ***** eight bits *****


def _eight_bits(model: Any, seen: Any, images: Any, path: Path) -> Form:
    """Static quantization: batch norm is folded into convolutions, ranges are observed on some images that were learnt from."""
    quantization: Any = importlib.import_module("rushlight.ao.quantization")
    pairs = [[f"conv{i}", f"bn{i}"] for i in (1, 2, 3)]
    fused = quantization.fuse_modules(model, pairs)
    wrapped = quantization.QuantWrapper(fused).eval()
    wrapped.qconfig = quantization.get_default_qconfig("x86")
    quantization.prepare(wrapped, inplace=True)
    with torch.no_grad():
        wrapped(seen[:256])
    quantization.convert(wrapped, inplace=True)
    torch.save(wrapped.state_dict(), path)
    return _tried("static int8", path, wrapped, images)


# ***** the table *****


def _report(forms: list[Form], labels: np.ndarray, out: Path) -> int:
    exact = forms[0].answers
    assert exact is not None
    largest, right = float(abs(exact).max()), float((exact.argmax(1) == labels).mean())
    print(f"\n{'form':28}{'KB':>9}{'us an image':>13}{'accuracy':>10}{'furthest':>10}")
    wrong = []
    for form in forms:
        size = "" if form.size is None else f"{form.size / 1024:.0f}"
        if form.answers is None:
            print(f"{form.name:28}{size:>9}   {form.note}")
            continue
        furthest = float(abs(form.answers - exact).max()) / largest
        accuracy = float((form.answers.argmax(1) == labels).mean())
        eight = form.name == "static int8"
        if accuracy < right - _LOSES if eight else furthest > _WITHIN:
            wrong.append(form.name)
        note = f"   {form.note}" if form.note else ""
        print(f"{form.name:28}{size:>9}{form.microseconds:13.0f}{accuracy:10.2%}{furthest:10.1e}{note}")
    print(f"furthest: from the model's answers, in parts of the largest. The files are in {out}")
    for name in wrong:
        print(f"{name} does not answer as the model does", file=sys.stderr)
    return 1 if wrong else 0
