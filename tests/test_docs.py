"""The documents tell the truth: their snippets run, their links lead somewhere, their tables are complete."""

from __future__ import annotations

import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rushlight

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "bench" / "README.md"])
FENCE = re.compile(r"^```(\w*)\s*$")
LINK = re.compile(r"\[[^\]]+\]\(([^)#\s]+)[^)]*\)")
# Set by the tests themselves.
NOT_KNOBS = {"RUSHLIGHT_TEST_ORACLE", "RUSHLIGHT_FUZZ_INPUTS", "RUSHLIGHT_KILLS"}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path) -> list[tuple[str, int, list[str]]]:
    """(language, first line's number, lines) of every fenced block."""
    found: list[tuple[str, int, list[str]]] = []
    inside: tuple[str, int, list[str]] | None = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fence = FENCE.match(line)
        if inside is None:
            inside = (fence[1], number + 1, []) if fence else None
        elif fence and not fence[1]:
            found.append(inside)
            inside = None
        else:
            inside[2].append(line)
    assert inside is None, f"{path}: a block is not closed"
    return found


def program(path: Path) -> str:
    """All Python blocks of a page as one program in which every line has its number on the page."""
    lines: list[str] = []
    for language, first, body in blocks(path):
        if language == "python":
            lines += [""] * (first - 1 - len(lines)) + body
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", [p for p in PAGES if program(p).strip()], ids=name)
def test_snippets_run(path: Path, tmp_path: Path) -> None:
    script = tmp_path / (path.name + ".py")
    script.write_text(program(path), encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, timeout=600)
    assert done.returncode == 0, f"{path} (line numbers are the page's):\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("path", [p for p in PAGES if any(b[0] == "pycon" for b in blocks(p))], ids=name)
def test_sessions_print_what_the_page_shows(path: Path) -> None:
    text = "\n".join("\n".join([*body, ""]) for language, _, body in blocks(path) if language == "pycon")
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    output: list[str] = []
    runner.run(doctest.DocTestParser().get_doctest(text, {}, name(path), str(path), 0), out=output.append)
    assert runner.failures == 0, "".join(output)


def modules_with_examples() -> list[str]:
    package = ROOT / "src" / "rushlight"
    found = [p for p in sorted(package.rglob("*.py")) if ">>> " in p.read_text(encoding="utf-8")]
    return [".".join(p.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__") for p in found]


@pytest.mark.parametrize("module", modules_with_examples())
def test_docstring_examples(module: str) -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
    ours = importlib.import_module("rushlight")
    names = {"rushlight": ours, "torch": ours}
    result = doctest.testmod(importlib.import_module(module), optionflags=flags, extraglobs=names)
    assert result.failed == 0, f"{result.failed} of {result.attempted} examples in {module} print something else"


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    targets = [t for t in LINK.findall(path.read_text(encoding="utf-8")) if "://" not in t]
    broken = [t for t in targets if not (path.parent / t).exists()]
    assert not broken, f"{path}: {broken}"


def test_both_readmes_have_the_same_content() -> None:
    english, chinese = ROOT / "README.md", ROOT / "README.zh-CN.md"

    def code(path: Path) -> list[list[str]]:  # comments are translated
        return [[line.split("#")[0].rstrip() for line in body] for _, _, body in blocks(path)]

    def shape(path: Path) -> list[str]:
        return [line[:2] for line in path.read_text(encoding="utf-8").splitlines() if line.startswith(("#", "| "))]

    assert code(english) == code(chinese)
    assert shape(english) == shape(chinese)
    assert [t for t in LINK.findall(english.read_text()) if "README" not in t] == [
        t for t in LINK.findall(chinese.read_text()) if "README" not in t
    ]


def test_every_knob_is_documented() -> None:
    from rushlight._base.knobs import KNOBS
    from rushlight._cli.info import load_every_room

    load_every_room()
    page = (ROOT / "docs" / "knobs.md").read_text()
    rows = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `RUSHLIGHT_")}
    expected = {knob.env for knob in KNOBS.values() if not knob.name.startswith("example")}  # those are docstrings'
    assert expected <= rows, f"docs/knobs.md lacks {sorted(expected - rows)}"
    assert rows <= expected, f"docs/knobs.md has knobs that do not exist: {sorted(rows - expected)}"
    for knob in KNOBS.values():
        assert knob.doc and knob.doc[-1] == ".", f"the knob {knob.name} is not described in a sentence"
    for path in PAGES:
        named = set(re.findall(r"\bRUSHLIGHT_[A-Z_]+[A-Z]\b", path.read_text(encoding="utf-8")))
        assert named <= expected | NOT_KNOBS, f"{path} names settings that do not exist: {sorted(named - expected)}"


def test_log_topics_are_documented() -> None:
    from rushlight._base.log import TOPICS

    page = (ROOT / "docs" / "knobs.md").read_text()
    missing = [topic for topic in TOPICS if f"`{topic}`" not in page]
    assert not missing, missing


def test_the_architecture_page_names_every_room() -> None:
    layers = [x for x in (ROOT / "src/rushlight/LAYERS").read_text().split("\n") if x and not x.startswith("#")]
    page = (ROOT / "docs" / "architecture.md").read_text()
    order = [line.split("`")[1] for line in page.splitlines() if line.startswith(("| `_", "| `public"))]
    assert order == layers


def test_the_changelog_knows_this_version() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"## {project['version']}" in (ROOT / "CHANGELOG.md").read_text()
    assert str(rushlight.__version__) == project["version"], "the package and pyproject.toml disagree about the version"


def test_the_hard_dependencies_are_two() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [re.match(r"\w+", d)[0] for d in project["dependencies"]] == ["numpy", "llvmlite"]
    assert "torch==2.13.0" in project["optional-dependencies"]["oracle"]
