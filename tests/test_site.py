"""The site: all pages are gathered, every link stays inside; where the extra `docs` is installed, Sphinx takes the pages without a warning."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "tools" / "site"
FEW = ("softmax.md", "linalg.norm.md", "nn.functional.gelu.md")
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


@pytest.fixture(scope="module")
def gathered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = importlib.util.spec_from_file_location("site_build", HERE / "build.py")
    assert spec is not None and spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    folder: Path = tmp_path_factory.mktemp("site")
    build.gather(folder, FEW)
    return folder


def test_every_page_is_in_the_table_of_contents(gathered: Path) -> None:
    listed = re.findall(
        r"^(?:.*<)?([\w/.-]+)>?$",
        (gathered / "index.md").read_text(encoding="utf-8").split("```{toctree}", 1)[1],
        re.MULTILINE,
    )
    pages = {p.relative_to(ROOT).with_suffix("").as_posix() for p in (ROOT / "docs").rglob("*.md")}
    assert pages | {"zh", "CONTRIBUTING", "bench/README", "examples/README"} <= set(listed)


def test_no_link_leaves_the_site(gathered: Path) -> None:
    found = 0
    for page in gathered.rglob("*.md"):
        text = re.sub(r"(?ms)^(`{3,}).*?^\1", "", page.read_text(encoding="utf-8"))
        for target in LINK.findall(text):
            if "://" not in target:
                found += 1
                led = (page.parent / target).resolve()
                assert led.is_relative_to(gathered) and led.is_file(), f"{page.relative_to(gathered)}: {target}"
    assert found > 100


def test_the_pages_of_operators_show_their_source_inside(gathered: Path) -> None:
    page = (gathered / "docs/operators/softmax.md").read_text(encoding="utf-8")
    assert "(../../src/rushlight/_ops/nn/softmax.py.md)" in page
    assert "def softmax(" in (gathered / "src/rushlight/_ops/nn/softmax.py.md").read_text(encoding="utf-8")


def test_the_settings_are_python_and_ask_no_other_host() -> None:
    compile((HERE / "conf.py").read_text(encoding="utf-8"), "conf.py", "exec")
    for path in HERE.rglob("*"):
        if path.suffix in (".py", ".css"):
            assert "http" not in path.read_text(encoding="utf-8"), path


@pytest.mark.skipif(
    importlib.util.find_spec("sphinx") is None or importlib.util.find_spec("furo") is None,
    reason="needs the extra docs",
)
def test_sphinx_takes_the_pages_without_a_warning(gathered: Path, tmp_path: Path) -> None:
    words = [
        "-b",
        "html",
        "-W",
        "--keep-going",
        "-q",
        "-d",
        str(tmp_path / "trees"),
        "-c",
        str(HERE),
        str(gathered),
        str(tmp_path / "out"),
    ]
    done = subprocess.run([sys.executable, "-m", "sphinx", *words], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    english, chinese = ((tmp_path / "out" / f).read_text(encoding="utf-8") for f in ("index.html", "zh.html"))
    assert "searchindex" in (tmp_path / "out" / "search.html").read_text(encoding="utf-8") and "张量" in chinese
    assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="https?:', english + chinese)
    words_found = (tmp_path / "out" / "searchindex.js").read_text(encoding="utf-8")
    assert "\\u7b97\\u5b50" in words_found or "算子" in words_found
