"""`rushlight.explain` and `RUSHLIGHT_LOG`: what they tell is what ran."""

from __future__ import annotations

import os
import re

import pytest

import rushlight as torch


def program(x, w):
    y = torch.softmax(x @ w, -1)
    y = torch.nn.functional.gelu(y)
    y.sum().backward()
    return y


def test_report_has_every_layer() -> None:
    w = torch.randn(8, 8, requires_grad=True)
    report = torch.explain(program)(torch.randn(4, 8), w)
    assert report.operators[:4] == ["matmul", "softmax", "gelu", "sum"]
    assert "SoftmaxBackward0" in report.operators and w.grad is not None
    assert report.result.shape == (4, 8)
    assert len(report.kernels) >= len(report.operators) and report.seconds > 0
    text = str(report)
    for word in ("exp", "fusion", "for i", "GB/s", "test_explain.py", "torch.softmax(x @ w, -1)"):
        assert word in text, word
    assert "define i32" not in text and ".globl" not in text and "graph" in text
    assert (
        report.llvm.count("define i32 @") >= len(set(report.kernels)) - 3 and ".globl" in report.assembly
    )  # products are library calls
    assert "define i32" in report.details(code=True) and ".globl" in report.details(code=True)
    assert len(report.table().splitlines()) == len(report.kernels) + 2


def test_a_softmax_is_told_on_a_page() -> None:
    """625 lines with the code."""
    report = torch.explain(torch.softmax)(torch.randn(64, 64), -1)
    assert len(str(report).splitlines()) < 80 and len(report.details(code=True).splitlines()) > 200


def test_a_page_of_everything(tmp_path) -> None:
    report = torch.explain(lambda x: torch.softmax(x * 2, 1))(torch.randn(4, 8))
    text = report.html(tmp_path / "page.html").read_text()
    assert text.startswith("<!doctype html>") and "<h2>2. softmax</h2>" in text and "http" not in text
    assert "define" in text and ".globl" in text and "&lt;" in text


def test_fusion_can_be_seen() -> None:
    report = torch.explain(torch.nn.functional.layer_norm)(torch.randn(16, 32), (32,))
    assert len(report.kernels) == 1, "layer_norm is one kernel"


def test_inplace_and_out_are_seen() -> None:
    x, out = torch.ones(5), torch.empty(5)
    report = torch.explain(lambda: (x.add_(1), torch.exp(x, out=out)))()
    assert report.operators == ["add_", "exp"]
    assert x.tolist() == [2.0] * 5 and out[0].item() == pytest.approx(7.389, abs=1e-3)


def test_nobody_listens_afterwards() -> None:
    x = torch.ones(3)
    report = torch.explain(torch.exp)(x)
    torch.exp(x)
    assert report.operators == ["exp"]
    with pytest.raises(ZeroDivisionError):
        torch.explain(lambda: 1 / 0)()
    torch.exp(x)
    assert torch.explain(lambda: None)().operators == []


@pytest.mark.slow
def test_log_topics(run_python, tmp_path) -> None:
    says = {
        "plan": "exp: new signature",
        "graph": "= exp(",
        "schedule": "group 0",
        "loops": "exp x0",
        "llvm": "define",
        "asm": "ret",
        "cache": "miss",
    }
    written = {}
    for topics in (",".join(says), "plan"):
        env = {**os.environ, "RUSHLIGHT_LOG": topics, "RUSHLIGHT_CACHE_DIR": str(tmp_path / topics)}
        text = run_python("-c", "import rushlight as t; t.exp(t.ones(3))", env=env, check=True).stderr
        parts = re.split(r"^\[rushlight (\w+)\]", text, flags=re.MULTILINE)
        written[topics] = dict.fromkeys(parts[1::2], "")
        for topic, part in zip(parts[1::2], parts[2::2], strict=True):
            written[topics][topic] += part
    every = written[",".join(says)]
    assert every.keys() == says.keys() and written["plan"].keys() == {"plan"}
    for topic, words in says.items():
        assert words in every[topic]


def test_unknown_log_topic(run_python) -> None:
    done = run_python("-c", "import rushlight as t; t.exp(t.ones(3))", env={**os.environ, "RUSHLIGHT_LOG": "nonsense"})
    assert done.returncode != 0 and "RUSHLIGHT_LOG" in done.stderr and "nonsense" in done.stderr
