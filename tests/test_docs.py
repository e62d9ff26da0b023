"""The documents tell the truth: their snippets run, their links lead somewhere, their tables are complete."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import re
import sys
from pathlib import Path

import pytest
from tests.forked import Forked

import rushlight

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").glob("*.md"),
        ROOT / "bench" / "README.md",
    ]
)
FENCE = re.compile(r"^```(\w*)\s*$")
# Above a block that needs an extra: it runs where that is installed, and must be Python anywhere.
NEEDS = re.compile(r"^<!-- needs: ([\w, ]+) -->$")
# Above a block of text: the page's Python blocks print these lines, in this order; `...` stands for anything.
PRINTED = "<!-- printed -->"
LANGUAGES = {"python", "pycon", "bash", "text"}
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
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


def above(path: Path, first: int) -> str:
    """The line above the fence of the block whose first line has this number."""
    return path.read_text(encoding="utf-8").splitlines()[max(first - 3, 0)]


def absent(path: Path, first: int) -> list[str]:
    """Packages that the block at this line needs, as the line above its fence says, and that are not installed."""
    needs = NEEDS.match(above(path, first))
    return [n for n in needs[1].split(", ") if importlib.util.find_spec(n) is None] if needs else []


def program(path: Path) -> str:
    """All Python blocks of a page as one program in which every line has its number on the page."""
    lines: list[str] = []
    for language, first, body in blocks(path):
        if language == "python":
            missing = absent(path, first)
            lines += [""] * (first - 1 - len(lines)) + (
                ["if False:", *("    " + x for x in body[1:])] if missing else body
            )
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", [p for p in PAGES if program(p).strip()], ids=name)
def test_snippets_run(path: Path, tmp_path: Path, forked: Forked) -> None:
    script = tmp_path / (path.name + ".py")
    script.write_text(program(path), encoding="utf-8")
    done = forked.run(script, cwd=tmp_path)
    assert done.returncode == 0, f"{path} (line numbers are the page's):\n{done.stderr[-3000:]}"
    shown = [
        "\n".join(body)
        for language, _, body in blocks(path)
        if language == "python" and body[0].startswith("def graph(")
    ]
    assert all(graph in done.stdout for graph in shown), f"{path} shows a graph that it does not print:\n{done.stdout}"
    printed = [body for _, first, body in blocks(path) if above(path, first) == PRINTED]
    missing = unprinted(printed, done.stdout)
    assert missing is None, f"{path} shows what it does not print:\n{missing}\nPrinted:\n{done.stdout}"


def unprinted(shown: list[list[str]], output: str) -> str | None:
    """The first of the blocks that the output does not contain after those before it; None where all are there."""
    rest = "\n".join(line.rstrip() for line in output.splitlines()) + "\n"
    for body in shown:
        lines = "\n".join(line.rstrip() for line in body)
        found = re.search(r"(?ms)^" + re.escape(lines).replace(r"\.\.\.", ".*?") + "$", rest)
        if found is None:
            return lines
        rest = rest[found.end() :]
    return None


def is_code(body: list[str]) -> bool:
    """Whether a block's lines are Python that does something, and no formula or tree of files."""
    try:
        tree = ast.parse("\n".join(body))
    except SyntaxError:
        return bool(re.search(r"^\s*(python|pip|make|pytest|\$|>>>) ", "\n".join(body), re.MULTILINE))
    return any(
        isinstance(n, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.Call))
        for n in ast.walk(tree)
    )


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_code_is_marked_as_what_it_is(path: Path) -> None:
    """A block without a language, or marked as text, is not run: so it may not be code."""
    for language, first, body in blocks(path):
        assert language in LANGUAGES, (
            f"{name(path)}:{first}: the language {language!r} is not tested: use one of {sorted(LANGUAGES)}"
        )
        assert language != "text" or above(path, first) == PRINTED or not is_code(body), (
            f"{name(path)}:{first}: this text is code: mark it as python or bash"
        )


def test_commands_of_the_pages_exist() -> None:
    """What `make` and `python -m rushlight` are asked for is there; so are the scripts and folders of the checkout."""
    from rushlight.__main__ import COMMANDS

    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in PAGES:
        for language, first, body in blocks(path):
            text = "\n".join(body) if language == "bash" else ""
            where = f"{name(path)}:{first}"
            for words in re.findall(r"^\s*make ([a-z -]+?)\s*(?:#|$)", text, re.MULTILINE):
                assert set(words.split()) <= targets, f"{where}: make {words}"
            for command in re.findall(r"-m rushlight ([a-z]+)(?=\s|$)", text):
                assert command in COMMANDS, f"{where}: python -m rushlight {command}"
            for file in re.findall(r"\b(?:bench|tools|tests|examples)/[\w/.]+", text):
                assert (ROOT / file).exists(), f"{where}: {file}"


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


def anchors(path: Path) -> set[str]:
    """What `page.md#anchor` may name: headings in small letters, without punctuation, words joined by hyphens."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"(?ms)^```.*?^```", "", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)  # `kernel[grid](x)` is no link
    targets = [t for t in LINK.findall(prose) if "://" not in t]
    broken = [t for t in targets if not (path.parent / t).exists()]
    assert not broken, f"{path}: {broken}"
    for target, anchor in re.findall(r"\]\(([^)#\s]*\.md|)#([^)\s]+)\)", text):
        assert anchor in anchors(path.parent / target if target else path), f"{path}: {target} has no heading #{anchor}"


# Names of files that the pages take as examples of the reader's own.
EXAMPLES_OF_FILES = {"train.py", "program.py", "script.py", "utils.py", "hubconf.py", "mydev.py", "model.py"}
FOLDERS = {p.name for folder in (ROOT, ROOT / "src" / "rushlight") for p in folder.iterdir() if p.is_dir()}


def exists(place: str, page: Path) -> bool:
    """Whether a file or folder is there: from the root, in the package, beside the page, or, for a plain name, anywhere in the sources."""
    if "/" not in place:
        return any(any((ROOT / folder).rglob(place)) for folder in ("src", "tests", "tools", "bench", "examples"))
    return any(any(base.glob(place)) for base in (ROOT, ROOT / "src" / "rushlight", page.parent))


def files_named(path: Path) -> list[str]:
    """What a page sets as code and what looks like a file of the repository or a room's folder; `{a,b}` is written out."""
    text = re.sub(r"(?ms)^```.*?^```", "", path.read_text(encoding="utf-8"))
    found = []
    for word in re.findall(r"(?<!`)`([\w.*/{},-]+)`(?!`)", text):
        if word.endswith(".py") or (word.split("/")[0] in FOLDERS and "/" in word) or re.match(r"_[a-z]+/", word):
            head, brace, tail = word.partition("{")
            choices, _, end = tail.partition("}")
            found += [head + choice + end for choice in choices.split(",")] if brace else [word]
    return [word for word in found if word not in EXAMPLES_OF_FILES]


@pytest.mark.parametrize("path", [p for p in PAGES if p.name != "CHANGELOG.md"], ids=name)
def test_files_that_pages_name_exist(path: Path) -> None:
    """A file that moves takes its name on the pages with it.  (The changelog tells of files as they were.)"""
    missing = [word for word in files_named(path) if not exists(word, path)]
    assert not missing, f"{name(path)} names files that do not exist: {missing}"


def test_walks_find_what_they_look_for() -> None:
    page = ROOT / "docs" / "walks.md"
    for section in page.read_text(encoding="utf-8").split("\n## ")[1:]:
        for table in section.split("| --- |"):
            rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", table, re.MULTILINE)
            assert len(rows) <= 5, f"a walk opens {len(rows)} files: {section.splitlines()[0]}"
            for file, words in rows:
                path = next(p for p in (ROOT / file, ROOT / "src" / "rushlight" / file) if p.is_file())
                assert words in path.read_text(encoding="utf-8"), f"{words} is not in {file}"


def test_the_index_names_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    named = {(index.parent / target).resolve() for target in LINK.findall(index.read_text(encoding="utf-8"))}
    other_language = {p for p in PAGES if p.name == "README.zh-CN.md"}
    missing = sorted(map(name, {*PAGES} - named - other_language - {index}))
    assert not missing, f"docs/README.md does not name {missing}"


@pytest.mark.parametrize("folder", [".", "examples"])
def test_both_readmes_have_the_same_content(folder: str) -> None:
    english, chinese = ROOT / folder / "README.md", ROOT / folder / "README.zh-CN.md"

    def code(path: Path) -> list[list[str]]:  # comments are translated
        return [[line.split("#")[0].rstrip() for line in body] for _, _, body in blocks(path)]

    def shape(path: Path) -> list[str]:
        return [
            line[:2] for line in path.read_text(encoding="utf-8").splitlines() if line.startswith(("#", "| ", "- "))
        ]

    assert code(english) == code(chinese)
    assert shape(english) == shape(chinese)
    assert [t for t in LINK.findall(english.read_text()) if "README" not in t] == [
        t for t in LINK.findall(chinese.read_text()) if "README" not in t
    ]


@pytest.mark.parametrize("file", ["README.md", "README.zh-CN.md"])
def test_the_figures_of_the_front_pages_are_those_of_the_other_pages(file: str) -> None:
    """How many packages, operators and examples; the rows of the table of speed; the Pythons on the badge."""
    text = (ROOT / file).read_text(encoding="utf-8")
    packages = [line for line in (ROOT / "tests/packages/packages.txt").read_text().splitlines() if "==" in line]
    whole, of = re.findall(r"\| \*\*all\*\* \| (\d+) of (\d+)", (ROOT / "docs/conformance.md").read_text())[0]
    assert f"**{len(packages)} " in text and {whole, of} <= set(re.findall(r"\d+", text))
    examples = len(list((ROOT / "examples").glob("*.py")))
    assert f"[examples/](examples) holds {examples} " in text or f"[examples/](examples) 里有 {examples} 个" in text
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        page = importlib.import_module("page")
        front = page.front((ROOT / "docs/performance.md").read_text(encoding="utf-8"), page.FRONT_PAGES[file])
    finally:
        sys.path.remove(str(ROOT / "bench"))
    shown = text.partition("<!-- speed: begin -->")[2].partition("<!-- speed: end -->")[0]
    assert shown.strip() == "\n".join(front).strip(), "run `python bench/page.py --front`"
    page_text = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith(("On one thread", "单线程")))
    assert [x for x in re.findall(r"\d+ ms", line) if f"| {x} |" not in page_text] == []
    badge = (ROOT / "docs/pictures/badge-python.svg").read_text(encoding="utf-8")
    versions = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert f"{versions[0]} – {versions[-1]}" in badge and versions[0] in text and versions[-1] in text


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
    former = {knob.former for knob in KNOBS.values()}
    for path in PAGES:
        named = set(re.findall(r"\bRUSHLIGHT_[A-Z_]+[A-Z]\b", path.read_text(encoding="utf-8")))
        assert named <= expected | former | NOT_KNOBS, (
            f"{path} names settings that do not exist: {sorted(named - expected)}"
        )


def test_log_topics_are_documented() -> None:
    from rushlight._base.log import TOPICS

    page = (ROOT / "docs" / "knobs.md").read_text()
    missing = [topic for topic in TOPICS if f"`{topic}`" not in page]
    assert not missing, missing


def test_the_architecture_page_names_every_room() -> None:
    layers = [x for x in (ROOT / "src/rushlight/LAYERS").read_text().split("\n") if x and not x.startswith("#")]
    page = (ROOT / "docs" / "architecture.md").read_text()
    order = re.findall(r"^\| \[`(\w+)`\]\(rooms/(\w+)\.md\)", page, re.MULTILINE)
    assert order == [(room, room.lstrip("_")) for room in layers]


def test_the_pages_of_rooms_name_every_file() -> None:
    """What the sentences say is up to the files; `python tools/rooms.py` writes them anew."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        rooms = importlib.import_module("rooms")
    finally:
        sys.path.remove(str(ROOT / "tools"))
    assert rooms.PICTURE.read_text(encoding="utf-8") == rooms.drawing(), "run `python tools/rooms.py`"
    for room in rooms.layers():
        page = rooms.page_of(room).read_text(encoding="utf-8")
        named = re.findall(r"^\| `([^`]+)` \|", page.partition(rooms.BEGIN)[2].partition(rooms.END)[0], re.MULTILINE)
        files = re.findall(r"^\| `([^`]+)` \|", "\n".join(rooms.table(room)), re.MULTILINE)
        assert named == files, f"run `python tools/rooms.py`: {sorted({*files} ^ {*named})}"
        assert files or room == "_capture"
        assert "```python" in page or room == "_cli", f"{room}: an example that runs"
        for part in ("## Where to begin", "**Tests**") if files else ():
            assert part in page, f"{room}: {part}"
        known = {word for path in rooms.files_in(room) for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
        for table in re.findall(r"^\| (?:type|name|function) \|.*\n\| ---.*\n((?:\|.*\n)+)", page, re.MULTILINE):
            for word in re.findall(r"`(\w+)", " ".join(row.split(" | ")[0] for row in table.splitlines())):
                assert word in known, f"{name(rooms.page_of(room))}: {word} is not in the room"


def test_pages_state_one_number_of_primitives() -> None:
    from rushlight._prims import PRIMITIVES

    for path in PAGES:
        if path.name != "CHANGELOG.md":
            stated = re.findall(
                r"\b(\d+|[Aa]bout a hundred) (?:\*\*|strict )?(?:primitives|operations that op)", path.read_text()
            )
            assert {*stated} <= {str(len(PRIMITIVES))}, f"{name(path)}: {stated}"


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
