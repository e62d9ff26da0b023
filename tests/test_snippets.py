"""First lessons in PyTorch print what real PyTorch 2.13 printed for them (`tests/snippets/*.expected`).

`python tests/test_snippets.py` (with torch installed) writes the expected texts anew.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

SNIPPETS = Path(__file__).parent / "snippets"
NAMES = sorted(path.stem for path in SNIPPETS.glob("*.py"))
NUMBER = re.compile(r"-?\d+\.\d*(?:e[+-]?\d+)?")


def compare(ours: str, theirs: str) -> None:
    assert NUMBER.sub("#", ours) == NUMBER.sub("#", theirs)
    mine, other = ([float(word) for word in NUMBER.findall(text)] for text in (ours, theirs))
    assert mine == pytest.approx(other, rel=1e-4, abs=1e-4)  # four decimals are printed


@pytest.mark.parametrize("name", NAMES)
def test_snippet_prints_what_pytorch_printed(name: str) -> None:
    from tests.curves.plain import printed

    text = printed(SNIPPETS / f"{name}.py").replace("<class 'rushlight.", "<class 'torch.")  # so under the name torch
    compare(text, (SNIPPETS / f"{name}.expected").read_text())


@pytest.mark.oracle
@pytest.mark.parametrize("name", NAMES)
def test_stored_text_is_what_pytorch_prints(name: str) -> None:
    from tests.curves.plain import printed

    compare((SNIPPETS / f"{name}.expected").read_text(), printed(SNIPPETS / f"{name}.py", package="torch"))


def _store() -> None:
    sys.path.insert(0, str(SNIPPETS.parents[1]))
    from tests.curves.plain import printed

    for name in NAMES:
        text = printed(SNIPPETS / f"{name}.py", package="torch")
        (SNIPPETS / f"{name}.expected").write_text(text)


if __name__ == "__main__":
    _store()
