"""`.pt2` files: written and read here, PyTorch's files (`archives/`, written by PyTorch 2.13), damaged ones."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch
from rushlight._export.serde.expressions import parsed
from rushlight._export.serde.schema import SchemaError

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from said import exported, said  # noqa: E402
from table import PROGRAMS  # noqa: E402

QUICK = ("linear", "gpt_block", "nested", "batch_norm")
EACH = [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in PROGRAMS if n != "derived"]


def saved(program: Any) -> bytes:
    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


@pytest.mark.parametrize("name", EACH)
def test_a_program_is_the_same_after_a_file(name: str) -> None:
    program = exported(torch, PROGRAMS[name])
    again = torch.export.load(io.BytesIO(saved(program)))
    # a part of the graph is named after its module when it is read, in PyTorch too
    assert said(again) == said(program).replace("submod_3", "submod_1")
    for key, value in program.state_dict.items():
        assert torch.equal(again.state_dict[key], value) and type(again.state_dict[key]) is type(value)
    args, kwargs = again.example_inputs
    module = again.module()
    if name not in ("mlp_dynamic", "transformer_layer"):  # which draw numbers
        found, wanted = (
            module(*args, **kwargs),
            program.module()(*program.example_inputs[0], **program.example_inputs[1]),
        )
        flat = torch.utils._pytree.tree_leaves
        assert all(
            torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
            for a, b in zip(flat(found), flat(wanted), strict=True)
        )


@pytest.mark.parametrize("path", sorted((HERE / "archives").glob("*.pt2")), ids=lambda p: p.stem)
def test_files_of_pytorch_are_read(path: Path) -> None:
    program = torch.export.load(path)
    name, decomposed = path.stem.removesuffix("_d"), path.stem.endswith("_d")
    folder = "traces_decomposed" if decomposed else "traces"
    assert said(program) == (HERE / folder / f"{name}.txt").read_text()
    mod, args, *rest = PROGRAMS[name](torch)
    mod.load_state_dict(program.state_dict)
    kwargs = (rest[0] if rest else None) or {}
    with torch.no_grad():
        found, wanted = program.module()(*args, **kwargs), mod(*args, **kwargs)
    for a, b in zip(torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(wanted), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.oracle
def test_files_are_read_by_pytorch(tmp_path: Path) -> None:
    for name in PROGRAMS:
        if name not in (
            "nested",
            "reductions",
            "no_grad_part",
        ):  # texts as results, and named results: not read there either
            torch.export.save(exported(torch, PROGRAMS[name]), tmp_path / f"{name}.pt2")
    script = (
        "import glob, torch\n"
        f"for path in glob.glob({str(tmp_path / '*.pt2')!r}):\n"
        "    program = torch.export.load(path)\n"
        "    program.module()(*program.example_inputs[0], **program.example_inputs[1])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, env={"PATH": ""}
    )
    assert done.returncode == 0, done.stderr[-2000:]


# ***** damaged files *****


def changed(data: bytes, record: str, change: Any) -> bytes:
    """A file with another record."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as new:
        for info in old.infolist():
            raw = old.read(info)
            if info.filename.endswith(record):
                raw = change(raw)
            new.writestr(info.filename, raw)
    return out.getvalue()


def edited(data: bytes, change: Any) -> bytes:
    """A file whose graph is changed by a function of its JSON."""

    def by_json(raw: bytes) -> bytes:
        table = json.loads(raw)
        change(table)
        return json.dumps(table).encode()

    return changed(data, "models/model.json", by_json)


@pytest.fixture(scope="module")
def good() -> bytes:
    return saved(exported(torch, PROGRAMS["mlp_dynamic"]))


@pytest.mark.parametrize(
    "target", ["os.system", "builtins.eval", "torch.ops.aten.__class__.x", "torch.load", "torch.ops.os.system", "subprocess.run", "_operator.attrgetter"]
)  # fmt: skip
def test_a_file_calls_operators_alone(good: bytes, target: str) -> None:
    def change(table: Any) -> None:
        table["graph_module"]["graph"]["nodes"][0]["target"] = target

    with pytest.raises(SchemaError, match="no operator"):
        torch.export.load(io.BytesIO(edited(good, change)))


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "Symbol('s1').__class__",
        "Pow(Integer(9), Integer(99999999))",
        "(" * 9999,
        "Mul(",
        "lambda: 0",
    ],
)
def test_formulas_are_arithmetic(text: str) -> None:
    with pytest.raises(SchemaError):
        parsed(text, {"s1": 3})


def test_tensors_lie_in_their_bytes(good: bytes) -> None:
    def larger(raw: bytes) -> bytes:
        return raw.replace(b'"sizes": [{"as_int": 5}', b'"sizes": [{"as_int": 50000}')

    def outside(raw: bytes) -> bytes:
        return raw.replace(b'"path_name": "weight_0"', b'"path_name": "../../etc/passwd"')

    def unnamed(raw: bytes) -> bytes:
        return json.dumps({"config": ["x"]}).encode()

    for change in (larger, outside, unnamed):
        with pytest.raises(SchemaError):
            torch.export.load(io.BytesIO(changed(good, "model_weights_config.json", change)))


def test_other_versions_and_other_files_are_refused(good: bytes) -> None:
    with pytest.raises(SchemaError, match="version"):
        torch.export.load(io.BytesIO(changed(good, "archive_version", lambda _: b"9")))
    with pytest.raises(SchemaError, match="version 7"):
        torch.export.load(io.BytesIO(edited(good, lambda t: t["schema_version"].update(major=7))))
    for data in (b"", b"PK\x03\x04", good[: len(good) // 2], b"\x80\x02}q\x00."):
        with pytest.raises(SchemaError):
            torch.export.load(io.BytesIO(data))


def mutated(data: bytes, seed: int) -> bytes:
    """A file with a few bytes or values of its graph changed."""
    rng = random.Random(seed)
    if seed % 2:
        raw = bytearray(data)
        for _ in range(rng.randint(1, 8)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        return bytes(raw)

    def walk(value: Any) -> None:
        places = list(value) if isinstance(value, dict) else range(len(value))
        key = rng.choice(list(places)) if places else None
        if key is None:
            return
        if isinstance(value[key], (dict, list)) and value[key] and rng.random() < 0.85:
            walk(value[key])
        else:
            value[key] = rng.choice([None, -1, 1 << 70, "x", [], {}, True, 0.5, {"as_int": 3}, "s77"])

    return edited(data, walk)


def read_or_refused(data: bytes) -> None:
    try:
        program = torch.export.load(io.BytesIO(data))
    except RuntimeError:  # SchemaError is one
        return
    try:
        program.module()(*(program.example_inputs or ((), {}))[0])
    except Exception:  # a graph that was changed may compute nothing
        return


@pytest.mark.filterwarnings("ignore")
def test_mutated_files_are_read_or_refused(good: bytes) -> None:
    for seed in range(60):
        read_or_refused(mutated(good, seed))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_many_mutated_files_are_read_or_refused(good: bytes) -> None:
    for seed in range(60, 1500):
        read_or_refused(mutated(good, seed))
