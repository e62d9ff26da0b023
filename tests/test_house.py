"""The counts of `tools/house.py`, on a made-up package in which each thing that is counted occurs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tools import house

FILES = {
    "LAYERS": "# from the ground up\n_base\n_prims\n_backends\n_engine\n_surface\npublic\n_cli\n",
    "__init__.py": '"""A package."""\nfrom made_up._base import alias\n',
    "_base/__init__.py": "",
    "_base/alias.py": 'PRIVATE_PAGES = frozenset(("_C",))\nHOOK: list[object] = [None]\nOWN = [0]\nOWN[0] = 1\nPAIR = [1, 2]\n',
    "_prims/__init__.py": '"""The primitives: 120 of them."""\nPRIMITIVES = dict.fromkeys(range(3))\n',
    "_backends/__init__.py": "from made_up._base.alias import PAIR\nPAIR[0] = 3\n",
    "_backends/cpu.py": "def run(a, b, c, d, e, f, g, h):\n    return a\n",
    "_engine/__init__.py": "",
    "_engine/a.py": (
        '"""A circle with b that a late import closes."""\n'
        "from typing import TYPE_CHECKING\n"
        "from made_up._backends import cpu\n"
        "from made_up._base import alias\n"
        "if TYPE_CHECKING:\n    from made_up._engine.c import x\n"
        "alias.HOOK[0] = cpu\n"
        "def late(device, CPU=None):\n"
        '    """A text that is not counted\n    among the lines."""\n'
        "    from made_up._engine import b\n"
        "    from . import c\n"
        "    return device is CPU and device.type == 'cpu', b, c\n"
    ),
    "_engine/b.py": "from made_up._engine.a import late\nTABLE = [1]  # fmt: skip\n",
    "_engine/c.py": "from made_up._engine import d\nx = 1\n" + "y = 1  #" + " " * 120 + "\n",
    "_engine/d.py": "import made_up._engine.c\n",
    "_C/__init__.py": "import made_up._engine.a\nfrom made_up.page import function\n",
    "page.py": (
        "from made_up._surface import method\n"
        "def function(a, b, c, d, *, e, f, g, h): return a in ('cpu', 'meta')\n"
        "class Page:\n    def _hidden(self, a, b, c, d, e, f, g): return a\n"
    ),
    "cpu/__init__.py": "import made_up._backends.cpu\n",
    "_surface/__init__.py": "method = 1\n",
}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    (root / "README.md").write_text("Made of about a hundred primitives.\n150 other things.\n")
    for name, text in FILES.items():
        path = root / "src" / "made_up" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root / "src" / "made_up"


@pytest.fixture(scope="module")
def figures(package: Path) -> dict[str, house.Figure]:
    return house.counted(package)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("files", 15), ("folders", 8), ("files in the largest folder", 5), ("folders of more than 20 files", 0),
        ("functions", 4), ("longest function, lines", 3), ("median function, lines", 1),
        ("private functions of 8 or more parameters", 2), ("public ones of 8 or more parameters", 1),
        ("lines over 120 columns", 1), ("`fmt: skip`", 1), ("late imports", 2), ("circles of imports, at module level", 1),
        ("circles of imports, with late imports", 2), ("modules in circles, with late imports", 4),
        ("modules in the largest circle, with late imports", 2),
        ("lines of _engine that name `_backends.cpu`", 1), ("lines of public that name `_backends.cpu`", 0),
        ("lines of _engine that compare with the CPU", 1), ("lines of public that compare with the CPU", 1),
        ("imports of private rooms from public packages", 4), ("one-element lists set from elsewhere", 1),
        ("primitives", 3), ("numbers of primitives that are stated", "120, about a hundred"), ("of them ours", 3),
    ],
)  # fmt: skip
def test_counts(figures: dict[str, house.Figure], name: str, value: float | str) -> None:
    assert figures[name].value == value, figures[name].places


def test_places(figures: dict[str, house.Figure]) -> None:
    assert figures["one-element lists set from elsewhere"].places == ["_base/alias.py:2 HOOK: list[object] = [None]"]
    assert figures["circles of imports, at module level"].places == ["2 made_up._engine.c made_up._engine.d"]
    assert figures["private functions of 8 or more parameters"].places == [
        "_backends/cpu.py:1 run: 8",
        "page.py:4 _hidden: 8",
    ]


def test_table_and_file(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(house, "COUNTS", (house.files,))
    file = tmp_path / "figures.json"
    for words in (["--json", str(file)], ["--before", str(file)], ["--places", "`fmt: skip`"]):
        monkeypatch.setattr("sys.argv", ["house.py", str(package), *words])
        house.main()
    assert json.loads(file.read_text())["files"] == 15
    printed = capsys.readouterr().out
    assert "before" in printed and printed.endswith("_engine/b.py:2 TABLE = [1]  # fmt: skip\n")
