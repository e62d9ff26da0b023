"""The examples run, learn, and give PyTorch's numbers: the first losses against those of real PyTorch 2.13.

`python tests/test_examples.py` (with torch installed) writes tests/data/example_losses.json anew.  `RUSHLIGHT_TEST_FULL=1`
adds whole runs of all examples, each of which checks what it has learnt (two minutes).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
STORED = Path(__file__).parent / "data" / "example_losses.json"

# The documentation inside CPython differs from one release to the next; the licence does not.
RUNS = {
    "gpt_chars": ["gpt_chars.py", "--steps", "20", "--sample", "8"],
    "gpt_chars_licence": [
        "gpt_chars.py",
        "--steps",
        "20",
        "--sample",
        "8",
        "--lr",
        "1e-3",
        "--text",
        str(ROOT / "LICENSE"),
    ],
    "digits_cnn": ["digits_cnn.py", "--steps", "20"],
}
# Examples whose `train(steps, seed)` returns losses: how many steps are compared, in this process.
TRAINS = {
    "resnet_digits": 3, "lstm_tagging": 3, "seq2seq_transformer": 3, "vae_digits": 5, "dcgan_digits": 3, "policy_gradient": 2,
    "gnn_karate": 10, "lora_finetuning": 3, "maml_sines": 5, "data_pipeline": 5, "moe_distributed": 5,
    "layouts_distributed": 5,
}  # fmt: skip
PRINTS = {"hello": ["hello.py"], "custom_function": ["custom_function.py", "--steps", "101"]}
OF_RANKS = {"gpt_distributed.py"}  # tests/distributed/test_examples.py runs them
NUMBER = re.compile(r"-?\d+\.\d+")


def topics_digest() -> str:
    from pydoc_data.topics import topics

    return hashlib.sha256("\n\n".join(topics[name] for name in sorted(topics)).encode()).hexdigest()


def run(python_args: list[str], words: list[str], cwd: Path, timeout: float = 900) -> str:
    env = {**os.environ, "OMP_NUM_THREADS": "2"}
    argv = [sys.executable, *python_args, str(EXAMPLES / words[0]), *words[1:]]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=cwd, timeout=timeout, env=env)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def losses_of(python_args: list[str], words: list[str], folder: Path) -> list[float]:
    run(python_args, [*words, "--out", str(folder)], folder)
    return [float(line) for line in (folder / "losses.txt").read_text().split()]


@pytest.fixture(scope="module")
def stored() -> dict:
    return json.loads(STORED.read_text())


@pytest.mark.parametrize("name", RUNS)
def test_first_losses_are_pytorchs(name: str, stored: dict, tmp_path: Path) -> None:
    ours = losses_of(["-m", "rushlight"], RUNS[name], tmp_path)
    assert len(ours) == 20 and all(math.isfinite(loss) for loss in ours)
    written = {path.name for path in tmp_path.iterdir()}
    assert {"losses.txt", "loss.png", "checkpoint.pt"} <= written
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    if name == "gpt_chars" and topics_digest() != stored["topics_sha256"]:
        # Another Python has another text; its losses are not stored, but learning shows.
        assert ours[-1] < ours[0] - 0.5
        return
    for step, (mine, theirs) in enumerate(zip(ours, stored[name], strict=True)):
        assert mine == pytest.approx(theirs, rel=1e-4), f"step {step}: {mine} here, {theirs} in PyTorch"


@pytest.mark.parametrize("name", PRINTS)
def test_prints_what_pytorch_prints(name: str, stored: dict, tmp_path: Path) -> None:
    ours, theirs = run(["-m", "rushlight"], PRINTS[name], tmp_path), stored["prints"][name]
    assert NUMBER.sub("#", ours) == NUMBER.sub("#", theirs)
    mine, torchs = NUMBER.findall(ours), NUMBER.findall(theirs)
    assert [float(x) for x in mine] == pytest.approx([float(x) for x in torchs], rel=1e-3, abs=2e-4)


def compare(ours: list[float], theirs: list[float]) -> None:
    for step, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        assert mine == pytest.approx(other, rel=1e-4), f"loss {step}: {mine} here, {other} in PyTorch"


@pytest.mark.parametrize("name", TRAINS)
def test_training_begins_as_pytorchs(name: str, stored: dict) -> None:
    from tests.curves.plain import losses

    compare(losses(EXAMPLES / f"{name}.py", TRAINS[name]), stored["trains"][name])


@pytest.mark.oracle
@pytest.mark.parametrize("name", TRAINS)
def test_stored_losses_are_what_pytorch_gives(name: str, stored: dict) -> None:
    from tests.curves.plain import losses

    compare(stored["trains"][name], losses(EXAMPLES / f"{name}.py", TRAINS[name], package="torch"))


@pytest.mark.slow
@pytest.mark.skipif(
    os.environ.get("RUSHLIGHT_TEST_FULL") != "1", reason="two minutes: RUSHLIGHT_TEST_FULL=1 asks for it"
)
@pytest.mark.parametrize("name", TRAINS)
def test_what_was_to_be_learnt_is_learnt(name: str, tmp_path: Path) -> None:
    run(["-m", "rushlight"], [f"{name}.py"], tmp_path)  # an example that has not learnt ends with an error


def test_every_example_is_tested() -> None:
    tested = {words[0] for words in [*RUNS.values(), *PRINTS.values()]} | {f"{name}.py" for name in TRAINS}
    others = {path.name for path in EXAMPLES.glob("triton_*.py")}  # tests/triton_language/test_examples.py runs them
    assert tested | OF_RANKS | others == {path.name for path in EXAMPLES.glob("*.py")}


@pytest.mark.slow
def test_digits_are_read(tmp_path: Path) -> None:
    text = run(["-m", "rushlight"], ["digits_cnn.py", "--out", str(tmp_path)], tmp_path)
    found = re.search(r"test accuracy ([\d.]+)%", text)
    assert found is not None and float(found[1]) >= 98.0, text


@pytest.mark.slow
def test_demo_summary(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "rushlight", "demo", "--steps", "3", "--out", str(tmp_path / "out")]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    summary = done.stdout[done.stdout.rindex("--- done") :]
    assert "gpt_chars" in summary and "digits_cnn" in summary and summary.count("->") == 2
    assert done.stdout.count(" ms compiled, ") == 2 and done.stdout.count(" ms as it is; first call ") == 2
    assert (tmp_path / "out" / "gpt_chars" / "sample.txt").stat().st_size > 100
    assert (tmp_path / "out" / "digits_cnn" / "checkpoint.pt").stat().st_size > 1000


def test_demo_says_why_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    argv = [sys.executable, "-m", "rushlight", "demo", "--out", str(tmp_path / "file" / "out")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600)
    assert done.returncode == 1 and "could not write" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["gpt_chars_licence", "digits_cnn"])
def test_pytorch_reads_our_checkpoint(name: str, tmp_path: Path) -> None:
    import torch

    losses_of(["-m", "rushlight"], [*RUNS[name][:1], "--steps", "2", *RUNS[name][3:]], tmp_path)
    checkpoint = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    tensors = checkpoint["model"]
    assert tensors and all(isinstance(t, torch.Tensor) and torch.isfinite(t.float()).all() for t in tensors.values())
    if "wte.weight" in tensors:  # weights that are tied stay tied in the file
        assert tensors["wte.weight"].untyped_storage().data_ptr() == tensors["head.weight"].untyped_storage().data_ptr()


def _store() -> None:
    import tempfile

    sys.path.insert(0, str(ROOT))
    from tests.curves.plain import losses

    out: dict = {"torch": "2.13.0", "topics_sha256": topics_digest()}
    for name, words in RUNS.items():
        with tempfile.TemporaryDirectory() as folder:
            out[name] = losses_of([], words, Path(folder))
    out["prints"] = {name: run([], words, ROOT) for name, words in PRINTS.items()}
    out["trains"] = {
        name: [float(f"{loss:.8g}") for loss in losses(EXAMPLES / f"{name}.py", steps, package="torch")]
        for name, steps in TRAINS.items()
    }
    rows = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in out.items())
    STORED.write_text(f"{{\n{rows}\n}}\n")


if __name__ == "__main__":
    _store()


@pytest.mark.slow
def test_the_demo_of_exports_answers_alike_in_every_form(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "rushlight", "demo", "--export", "--steps", "66", "--out", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = done.stdout.split("furthest\n")[1].splitlines()
    assert [row[:28].strip() for row in rows[:7]] == [
        "model, call by call", "torch.compile", "exported program", "ONNX, by onnxruntime", "package, without llvmlite",
        "library, from a C program", "static int8",
    ]  # fmt: skip
    assert {path.name for path in tmp_path.iterdir()} >= {
        "digits.pt2",
        "digits.rlp",
        "libdigits.so",
        "digits.h",
        "digits_int8.pt",
    }
