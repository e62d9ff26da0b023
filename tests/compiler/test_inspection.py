"""`torch.explain` of compiled functions and modules, and its page."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import rushlight as torch


def test_a_compiled_function_is_explained(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))

    def f(x: Any) -> Any:
        y = model(x).softmax(-1)
        torch._dynamo.graph_break()
        return (y * 2).sum()

    x = torch.ones(5, 8)
    found = torch.explain(torch.compile(f))(x)
    assert torch.equal(found.result, f(x)) and [p.title for p in found.programs][0] == "from the beginning to a break"
    first, second = found.programs
    assert (
        second.title.endswith("to the end")
        and first.calls == 4
        and len(first.kernels) == 3
        and first.saved == ["float32[5, 16]"]
    )
    assert "prim.erf" in first.graph and "cluster 0" in first.execution and "memory between kernels" in first.execution
    assert any(text.startswith("type(x) is ") for text in first.conditions)
    assert not any(" v4 " in f" {text} " for text in first.conditions)
    assert "graph_break" in found.breaks[0] and "break: Call to" in found.summary() and "***** program 2" in str(found)

    class Checked(HTMLParser):
        """Counts tags, and sees that each is closed and nothing is loaded from elsewhere."""

        opened: list[str] = []
        seen: set[str] = set()

        def handle_starttag(self, tag: str, attrs: Any) -> None:
            self.seen.add(tag)
            assert not {"src", "href"} & {name for name, _ in attrs}
            if tag != "meta":
                self.opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert self.opened.pop() == tag

    page = Checked()
    page.feed(found.html(tmp_path / "f.html").read_text())
    assert not page.opened and {"details", "pre", "table", "style"} <= page.seen


def test_modules_backends_and_functions_that_are_not_compiled() -> None:
    model = torch.nn.Linear(3, 2)
    found = torch.explain(torch.compile(model))(torch.ones(1, 3))
    assert found.name == "Linear" and len(found.programs) == 1 and found.programs[0].conditions
    other = torch.explain(torch.compile(model, backend="eager"))(torch.ones(1, 3))
    assert "torch.nn.functional.linear" in other.programs[0].graph and other.programs[0].calls == 1
    assert torch.explain(model)(torch.ones(1, 3)).operators == ["linear"]
