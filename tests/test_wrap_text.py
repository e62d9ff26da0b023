"""`tools/wrap_text.py`: long lines of docstrings and comments are wrapped, all else stays, and the program is the same."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from tools import wrap_text

LONG = " ".join(["words"] * 30)


def lines(source: str) -> list[str]:
    return wrap_text.rewritten(textwrap.dedent(source)).splitlines()


def test_one_line_becomes_several() -> None:
    made = lines(f'''
        def f():
            """Says {LONG}."""
            return 1
    ''')
    assert made[2].startswith('    """Says words') and made[-2:] == ['    """', "    return 1"]
    assert max(map(len, made)) <= 120 and " ".join(made).count("words") == 30


def test_paragraphs_lists_and_examples() -> None:
    made = lines(f'''
        """A summary.

        First sentence.  {LONG}
        - a point about {LONG}
        - another

            code = "{LONG}"

            >>> print("{LONG}")  # an example
            {LONG}
        """
    ''')
    assert made[1:3] == ['"""A summary.', ""] and made[3].startswith("First sentence.  words")
    assert any(line.startswith("- a point") for line in made) and "- another" in made
    assert any(line.startswith("  words") for line in made)
    assert f'    code = "{LONG}"' in made and f'    >>> print("{LONG}")  # an example' in made and f"    {LONG}" in made


def test_comments() -> None:
    made = lines(f"""
        x = 1  # trailing {LONG}
        # short
        y = 2
        # {LONG}
        # and on
        z = 3
        # fmt: off
    """)
    assert f"x = 1  # trailing {LONG}" in made and "# short" in made and "# fmt: off" in made
    at = made.index("y = 2") + 1
    assert made[at].startswith("# words") and made[at + 1].endswith("words and on") and made[at + 2] == "z = 3"


def test_short_and_empty_files_stay() -> None:
    source = '"""Short."""\n\nx = """\n' + LONG + '\n"""\n'
    assert wrap_text.rewritten(source) == source and wrap_text.rewritten("") == ""


def test_files_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    kept, other = tmp_path / "rushlight" / "_ops" / "a.py", tmp_path / "rushlight" / "_engine" / "a.py"
    for path in (kept, other):
        path.parent.mkdir(parents=True)
        path.write_text(f'"""{LONG}"""\n')
    monkeypatch.setattr("sys.argv", ["wrap_text.py", "--check", str(tmp_path)])
    assert wrap_text.main() == 1 and other.read_text() == kept.read_text()
    monkeypatch.setattr("sys.argv", ["wrap_text.py", str(tmp_path)])
    assert wrap_text.main() == 0 and len(other.read_text().splitlines()) > 1 and len(kept.read_text().splitlines()) == 1
    assert "wrapped" in capsys.readouterr().out
