"""The serving example: its scheduler over a model that needs no arithmetic, and the whole service over packages."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

SERVE = Path(__file__).resolve().parents[2] / "examples" / "serve"
CONFIG = {"vocab": 32, "layers": 1, "heads": 1, "width": 2, "page": 4, "pages": 8, "slots": 4, "chunk": 4}


@pytest.fixture(scope="module", autouse=True)
def on_path():
    sys.path.insert(0, str(SERVE))
    yield
    sys.path.remove(str(SERVE))


def program(tokens, positions, last, table, keys, values):
    """A model whose next token is the sum of all tokens so far, read from the pages of the cache."""
    B, S = tokens.shape
    page = keys.shape[2]
    logits = np.zeros((B, CONFIG["vocab"]), np.float32)
    for b in range(B):
        before = sum(keys[0, table[b, p // page], p % page, 0, 0] for p in range(positions[b, 0]))
        logits[b, int(before + tokens[b, : last[b] + 1].sum()) % CONFIG["vocab"]] = 1
    new = np.repeat(tokens.reshape(1, B, S, 1, 1), 2, 4).astype(np.float32)
    return logits, new, new


def expected(prompt, count):
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(sum(tokens) % CONFIG["vocab"])
    return tokens[len(prompt) :]


def answers(engine, jobs):
    """The tokens of several requests at once."""
    module = importlib.import_module("engine")
    found, ended = [[] for _ in jobs], [threading.Event() for _ in jobs]

    def emit(k, token):
        found[k].append(token) if token is not None else ended[k].set()

    for k, (prompt, count) in enumerate(jobs):
        engine.submit(module.Sequence(prompt, count, lambda token, k=k: emit(k, token)))
    assert all(event.wait(20) for event in ended)
    return found


@pytest.mark.parametrize("pages", [None, 9])
def test_sequences_share_calls_and_pages(pages):
    """Also where the cache is too small for all: sequences give pages back and are computed anew."""
    engine = importlib.import_module("engine").Engine(CONFIG, program, program, pages)
    rng = np.random.default_rng(0)
    jobs = [(rng.integers(0, 32, rng.integers(1, 14)).tolist(), int(rng.integers(1, 18))) for _ in range(12)]
    assert answers(engine, jobs) == [expected(prompt, count) for prompt, count in jobs]
    numbers = engine.metrics()
    assert (
        numbers["pages_used"] == 0 and numbers["running"] == 0 and numbers["tokens"] == sum(count for _, count in jobs)
    )
    assert numbers["calls"] < numbers["tokens"]
    assert (numbers["preemptions"] > 0) is (pages is not None)
    engine.stop()
    assert not engine.thread.is_alive()


def test_what_the_engine_refuses():
    module = importlib.import_module("engine")
    engine = module.Engine(CONFIG, program, program)
    for prompt, count in (([], 3), ([1], 0), ([99], 1), ([1] * 30, 3)):
        with pytest.raises(ValueError):
            engine.submit(module.Sequence(prompt, count, print))
    engine.stop()
    with pytest.raises(RuntimeError, match="stopping"):
        engine.submit(module.Sequence([1], 1, print))


def test_a_sequence_that_nobody_reads_gives_its_pages_back():
    module = importlib.import_module("engine")

    def slow(*args):
        time.sleep(0.01)
        return program(*args)

    engine = module.Engine(CONFIG, slow, program)
    ended = threading.Event()
    sequence = module.Sequence([1, 2, 3], 28, lambda token: ended.set() if token is None else None)
    engine.submit(sequence)
    time.sleep(0.05)
    engine.cancel(sequence)
    assert ended.wait(5) and sequence.left > 0
    engine.stop()
    assert engine.metrics()["pages_used"] == 0 and engine.metrics()["cancelled"] == 1


def test_a_program_that_fails_ends_its_requests_and_no_others():
    module = importlib.import_module("engine")
    broken = [True]

    def fails(*args):
        if broken[0]:
            raise RuntimeError("a kernel failed")
        return program(*args)

    engine = module.Engine(CONFIG, fails, program)
    assert answers(engine, [([1, 2], 3)]) == [[]]
    broken[0] = False
    assert answers(engine, [([1, 2], 3)]) == [expected([1, 2], 3)]
    assert engine.metrics()["failures"] == 1
    engine.stop()


def test_requests_share_a_batch():
    batching = importlib.import_module("batching")
    calls = []

    def double(items):
        calls.append(len(items))
        time.sleep(0.005)
        return items * 2

    batcher = batching.Batcher(double, most=4, seconds=0.05)
    futures = [batcher.submit(np.full(3, k)) for k in range(10)]
    assert [f.result(5).tolist() for f in futures] == [[2 * k] * 3 for k in range(10)]
    assert max(calls) == 4 and sum(calls) == 10
    batcher.stop()
    bad = batching.Batcher(lambda items: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        bad.submit(np.zeros(1)).result(5)
    bad.stop()


# ***** with packages *****


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A folder of packages, and the tokens that the whole model gives without a cache."""
    folder = tmp_path_factory.mktemp("served")
    program = f"""
import json, sys
sys.path.insert(0, {str(SERVE)!r})
from rushlight._base.alias import install
install()
import torch
from model import Classifier, Config, PagedGPT, example, write
torch.manual_seed(0)
config = Config(layers=2, heads=2, width=32, pages=3, slots=4)
model = PagedGPT(config).eval()
write({str(folder)!r}, model, Classifier().eval())
answers = []
with torch.no_grad():
    for k in range(5):
        tokens = list(f"prompt number {{k}} of five".encode())
        for _ in range(12):
            tokens_, positions, last, table, keys, values = example(config, 1, len(tokens))
            tokens_[0] = torch.tensor(tokens)
            last[0] = len(tokens) - 1
            tokens.append(int(model(tokens_, positions, last, table, keys, values)[0][0].argmax()))
        answers.append(tokens[-12:])
json.dump(answers, open({str(folder)!r} + "/answers.json", "w"))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
    return folder, json.loads((folder / "answers.json").read_text())


@pytest.mark.slow
def test_packages_generate_what_the_whole_model_does(served):
    from rushlight_loader import load

    folder, wanted = served
    engine = importlib.import_module("engine").engine_of(str(folder), load, pages=7)
    jobs = [(list(f"prompt number {k} of five".encode()), 12) for k in range(5)]
    assert answers(engine, jobs) == wanted
    engine.stop()


@pytest.mark.slow
def test_the_service_without_llvm(served):
    pytest.importorskip("fastapi")
    httpx = pytest.importorskip("httpx")
    pytest.importorskip("uvicorn")
    folder, wanted = served
    program = f"""
import sys
sys.modules["llvmlite"] = None
sys.path.insert(0, {str(SERVE)!r})
sys.argv = ["server.py", {str(folder)!r}, "--port", "8431"]
import server
server.main()
"""
    process = subprocess.Popen([sys.executable, "-c", program], env={**os.environ})
    try:
        with httpx.Client(base_url="http://127.0.0.1:8431", timeout=60) as client:
            for _ in range(200):
                try:
                    assert client.get("/health").json()["status"] == "ok"
                    break
                except httpx.TransportError:
                    time.sleep(0.1)
            body = {"prompt": "prompt number 0 of five", "max_tokens": 12}
            lines = [json.loads(line) for line in client.post("/generate", json=body).text.splitlines()]
            assert [line["token"] for line in lines[:-1]] == wanted[0] and lines[-1] == {
                "done": True,
                "tokens": 12,
                "complete": True,
            }
            whole = client.post("/generate", json={**body, "stream": False}).json()
            assert whole["tokens"] == wanted[0]
            assert client.post("/generate", json={**body, "max_tokens": 1000}).status_code == 422
            scores = client.post("/classify", json={"image": [[0.5] * 8] * 8}).json()["scores"]
            assert abs(sum(scores) - 1) < 1e-5
            assert client.post("/classify", json={"image": [[0.5] * 8, [1]]}).status_code == 422
            assert "rushlight_tokens 24" in client.get("/metrics").text.splitlines()
            process.terminate()
        assert process.wait(30) in (0, -15)
    finally:
        process.kill()
