"""Mutated ONNX files: whatever is done to a model, reading and running it gives a result or a typed error.

    python tools/fuzz_onnx.py --count 20000 --seed 1

Each process of the loop works on its own, so that a signal costs one and is reported with the seed that gives the file again.
Mutations are of bytes, and of the parsed model: inputs rewired, attributes and dims changed, types swapped, nodes doubled.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

EXTREMES = (-(2**63), -(2**31), -7, -2, -1, 0, 1, 2, 3, 17, 255, 2**16, 2**31, 2**40, 2**63 - 1)
# How long one file may take, and what memory: a graph may ask for as much work as it likes, the machine need not give it.
SECONDS, MEMORY = 20, 6 << 30


def seeds() -> list[bytes]:
    """Small models of many operators, from the tests of onnx."""
    import onnx
    from onnx.backend.test.loader import load_model_tests

    found = []
    for case in load_model_tests(kind="node"):
        model = case.model
        if model is None:
            path = Path(case.model_dir or "") / "model.onnx"
            model = onnx.load(str(path)) if path.exists() else None
        if model is not None and model.ByteSize() < 20_000:
            found.append(model.SerializeToString())
    return found


# ***** mutations *****


def of_bytes(data: bytes, rng: random.Random) -> bytes:
    """Bytes changed, cut out, doubled."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if not found:
            break
        at = rng.randrange(len(found))
        kind = rng.randrange(4)
        if kind == 0:
            found[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            found[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            del found[at : at + rng.randrange(1, 9)]
        else:
            found[at:at] = found[at : at + rng.randrange(1, 17)]
    return bytes(found)


def of_model(data: bytes, rng: random.Random) -> bytes:
    """The parsed model changed in one or several places."""
    import onnx

    model = onnx.ModelProto()
    model.ParseFromString(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        rng.choice((_rewire, _attribute, _tensor, _operator, _inputs, _version))(model, rng)
    return model.SerializeToString()


def _nodes(graph: Any) -> list[Any]:
    found = list(graph.node)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found += _nodes(attribute.g)
    return found


def _rewire(model: Any, rng: random.Random) -> None:
    nodes = _nodes(model.graph)
    names = [name for node in nodes for name in (*node.input, *node.output)] + ["", "nowhere"]
    node = rng.choice(nodes) if nodes else None
    if node is None:
        return
    target = node.input if rng.random() < 0.8 or not node.output else node.output
    kind = rng.randrange(3)
    if kind == 0 and target:
        target[rng.randrange(len(target))] = rng.choice(names)
    elif kind == 1 and target:
        del target[rng.randrange(len(target))]
    else:
        target.append(rng.choice(names))


def _attribute(model: Any, rng: random.Random) -> None:
    attributes = [one for node in _nodes(model.graph) for one in node.attribute]
    if not attributes:
        return
    one = rng.choice(attributes)
    kind = rng.randrange(6)
    if kind == 0:
        one.i = rng.choice(EXTREMES)
    elif kind == 1 and one.ints:
        one.ints[rng.randrange(len(one.ints))] = rng.choice(EXTREMES)
    elif kind == 2:
        one.f = rng.choice((0.0, -1.0, 1e30, float("nan"), float("inf")))
    elif kind == 3:
        one.s = rng.choice((b"", b"\xff\xfe", b"reflect", b"nearest", b"x" * 300))
    elif kind == 4:
        one.type = rng.randrange(15)
    else:
        one.name = rng.choice(("axis", "axes", "to", "perm", "shape", "body", "value", ""))


def _tensor(model: Any, rng: random.Random) -> None:
    tensors = [*model.graph.initializer]
    tensors += [one.t for node in _nodes(model.graph) for one in node.attribute if one.HasField("t")]
    if not tensors:
        return
    one = rng.choice(tensors)
    kind = rng.randrange(4)
    if kind == 0:
        one.data_type = rng.randrange(30)
    elif kind == 1:
        one.dims.append(rng.choice(EXTREMES))
    elif kind == 2 and one.dims:
        one.dims[rng.randrange(len(one.dims))] = rng.choice(EXTREMES)
    else:
        one.data_location = 1
        one.external_data.add(key="location", value=rng.choice(("../x", "/etc/passwd", "", "w", "a/../../b")))


def _operator(model: Any, rng: random.Random) -> None:
    nodes = _nodes(model.graph)
    if nodes:
        node, other = rng.choice(nodes), rng.choice(OPERATORS)
        node.domain, node.op_type = other


def _inputs(model: Any, rng: random.Random) -> None:
    if model.graph.input:
        one = rng.choice(list(model.graph.input))
        if one.type.HasField("tensor_type"):
            one.type.tensor_type.elem_type = rng.randrange(27)


def _version(model: Any, rng: random.Random) -> None:
    if model.opset_import:
        rng.choice(list(model.opset_import)).version = rng.choice((1, 6, 9, 11, 13, 18, 22, 25, 200, 0, -1))


OPERATORS: list[tuple[str, str]] = []

# ***** running *****


def inputs_for(module: Any, rng: random.Random) -> dict[str, Any]:
    """Small arrays of the declared types; shapes are sometimes others than declared."""
    import numpy as np

    import rushlight as rl

    found = {}
    for name in module.input_names:
        declared = module.declared(name)
        dtype, dims = declared if declared is not None else (rl.float32, [2])
        sizes = [dim if isinstance(dim, int) and dim < 64 else rng.choice((0, 1, 2, 3)) for dim in dims or []]
        values = np.random.default_rng(rng.randrange(2**32)).integers(-3, 9, sizes)
        found[name] = rl.from_numpy(values).to(dtype or rl.float32)
    return found


def tried(data: bytes, rng: random.Random) -> str:
    """What became of a file: `ran`, or the class of the error."""
    import rushlight as rl

    try:
        module = rl.onnx.load(data)
        with rl.no_grad():
            module(**inputs_for(module, rng))
    except (NotImplementedError, ValueError, RuntimeError, TypeError) as error:
        return type(error).__name__
    return "ran"


def child(first: int, last: int, seed: int, samples: list[bytes], report: int) -> None:
    """Work on files `first` to `last - 1`; each is announced before and told after."""
    import signal

    import rushlight as rl

    rl.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for number in range(first, last):
        rng = random.Random(seed * 1_000_003 + number)
        data = rng.choice(samples)
        data = of_bytes(data, rng) if rng.random() < 0.4 else of_model(data, rng)
        os.write(report, f"{number} begins\n".encode())
        signal.alarm(SECONDS)
        try:
            result = tried(data, rng)
        except BaseException as error:
            result = f"UNTYPED {type(error).__name__}: {error}"[:200].replace("\n", " ")
        signal.alarm(0)
        os.write(report, f"{number} {result}\n".encode())


def fuzz(count: int, seed: int, samples: list[bytes], start: int = 0) -> tuple[Counter[str], list[str]]:
    """How often each result came, and what is wrong: signals and errors without a type."""
    found: Counter[str] = Counter()
    wrong, number = [], start
    while number < start + count:
        with tempfile.TemporaryFile() as report:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # threads of this process compute nothing now
                pid = os.fork()
            if pid == 0:
                sink = os.open(os.devnull, os.O_WRONLY)
                os.dup2(sink, 1)
                os.dup2(sink, 2)
                child(number, min(number + 500, start + count), seed, samples, report.fileno())
                os._exit(0)
            _, status = os.waitpid(pid, 0)
            report.seek(0)
            lines = report.read().decode().splitlines()
        for line in lines:
            at, _, result = line.partition(" ")
            number = int(at) + 1
            if result.startswith("UNTYPED"):
                wrong.append(f"file {at} of seed {seed}: {result}")
            elif result != "begins":
                found[result] += 1
        if status:
            name = "took too long" if os.WTERMSIG(status) == 14 else f"status {status}"
            (wrong.append(f"file {number - 1} of seed {seed}: {name}") if name[0] == "s" else found.update(["slow"]))
    return found, wrong


def prepare() -> None:
    """Fill the list of operators to swap in."""
    import rushlight.onnx.importing.module
    from rushlight.onnx.importing.table import known

    assert rushlight.onnx.importing.module.load
    OPERATORS[:] = list(known())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0)
    given = parser.parse_args()
    prepare()
    samples, began = seeds(), time.time()
    found, wrong = fuzz(given.count, given.seed, samples, given.start)
    print(f"{given.count} files of {len(samples)} models in {time.time() - began:.0f} s: {dict(found.most_common())}")
    print("\n".join(wrong) or "no signal, no error without a type")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
