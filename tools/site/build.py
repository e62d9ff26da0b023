"""Builds the documentation as a site: `make docs`, or `python tools/site/build.py --out FOLDER` where the extra `docs` is installed.

The pages are those of the repository, in the same places, and one for every operator. Links that lead to other files of the repository (a module, an
example, a folder) get a page that shows the file, so that every link stays inside the site. A link that leads nowhere fails the build.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PAGES = (
    "README.md",
    "README.zh-CN.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "bench/README.md",
    "examples/README*.md",
    "docs/**/*.md",
)
# The place of a page in the site, where it is another one
FIRST = {"README.md": "index.md", "README.zh-CN.md": "zh.md"}
OPERATORS = "docs/operators"
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
PICTURES = (".svg", ".png")
LANGUAGES = {".py": "python", ".toml": "toml", ".css": "css"}
ALONE = "---\norphan: true\n---\n\n"
SHOWN = "---\norphan: true\nnosearch: true\n---\n\n"


class Site:
    """The folder that Sphinx reads, as it grows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: set[str] = set()  # of the repository, that get a page because they are linked

    def write(self, place: str, text: str) -> None:
        path = self.folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def add(self, place: str, text: str) -> None:
        """A page that stands at `place` in the repository, its links led to pages of the site."""
        self.write(
            FIRST.get(place, place), outside_of_code(text, lambda part: LINK.sub(lambda m: self._link(place, m), part))
        )

    def _link(self, place: str, match: re.Match[str]) -> str:
        before, target, after = match.groups()
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        named = os.path.normpath(os.path.join(os.path.dirname(place), target))
        if named in FIRST:
            target = os.path.relpath(FIRST[named], os.path.dirname(place))
        elif named.endswith(PICTURES) and (ROOT / named).is_file():
            (self.folder / named).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / named, self.folder / named)
        elif not named.endswith(".md") and (ROOT / named).exists():
            self.files.add(named)
            target, after = os.path.relpath(page_of(named), os.path.dirname(place)), ")"
        return before + target + after

    def show_files(self) -> None:
        """The pages of linked files and folders; a folder's page links the files in it."""
        shown: set[str] = set()
        while self.files > shown:
            for named in sorted(self.files - shown):
                path = ROOT / named
                shown.add(named)
                if path.is_dir():
                    inside = sorted(p.name for p in path.iterdir() if p.suffix in LANGUAGES and p.is_file())
                    self.add(page_of(named), f"{SHOWN}# {named}\n\n" + "".join(f"- [{n}]({n})\n" for n in inside))
                else:
                    self.write(
                        page_of(named),
                        f"{SHOWN}# {named}\n\n{fenced(path.read_text(encoding='utf-8'), LANGUAGES.get(path.suffix, 'text'))}",
                    )


def page_of(named: str) -> str:
    """Where the site shows a file or a folder of the repository."""
    return f"{named}/index.md" if (ROOT / named).is_dir() else f"{named}.md"


def fenced(text: str, language: str) -> str:
    ticks = "`" * (max(map(len, re.findall("`{3,}", text)), default=2) + 1)
    return f"{ticks}{language}\n{text.rstrip()}\n{ticks}\n"


def outside_of_code(text: str, change: Callable[[str], str]) -> str:
    """The text with everything but fenced blocks changed."""
    parts = re.split(r"(?ms)^(```.*?^```[ ]*$)", text)
    return "".join(part if i % 2 else change(part) for i, part in enumerate(parts))


def contents() -> str:
    """The site's table of contents: the sections and pages of docs/README.md."""
    lines = [
        "",
        "```{toctree}",
        ":hidden:",
        "",
        "中文 <zh>",
        "示例程序 <examples/README.zh-CN>",
        "All pages <docs/README>",
        "```",
        "",
    ]
    for line in (ROOT / "docs" / "README.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            lines += ["```{toctree}", ":hidden:", f":caption: {line[3:]}", "", "```", ""]
        found = re.match(r"\| \[[^\]]+\]\(([^)]+)\)", line)
        if found:
            lines.insert(-2, os.path.normpath(f"docs/{found[1]}").removesuffix(".md"))
    return "\n".join(lines)


def gather(folder: Path, operators: Iterable[str] | None = None) -> None:
    """Write everything that Sphinx reads; with `operators`, the pages of these files alone."""
    from rushlight._surface.reference import pages

    site = Site(folder)
    for pattern in PAGES:
        for path in sorted(ROOT.glob(pattern)):
            place = path.relative_to(ROOT).as_posix()
            text = path.read_text(encoding="utf-8")
            if place == "README.md":
                text += "\n" + contents()
            site.add(
                place,
                pages.index("operators/" if operators is None else None)
                if place == "docs/operators-index.md"
                else text,
            )
    made = pages.pages(os.path.relpath(".", OPERATORS))
    for name in made if operators is None else operators:
        if name != "index.md":
            site.add(f"{OPERATORS}/{name}", ALONE + made[name])
    site.show_files()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "site", help="where the site is written (%(default)s)"
    )
    parser.add_argument(
        "--operators", nargs="*", metavar="PAGE", help="only these pages of operators (softmax.md): a quick look"
    )
    given = parser.parse_args()
    out = given.out
    with tempfile.TemporaryDirectory() as folder:
        gather(Path(folder), given.operators)
        words = [
            "-b",
            "html",
            "-W",
            "--keep-going",
            "-q",
            "-j",
            "auto",
            "-d",
            f"{folder}/.doctrees",
            "-c",
            str(HERE),
            folder,
            str(out),
        ]
        status = subprocess.run([sys.executable, "-m", "sphinx", *words], check=False).returncode
    print(f"written: {out / 'index.html'}" if status == 0 else "the site was not built")
    return status


if __name__ == "__main__":
    sys.exit(main())
