"""Open pages in a real browser and see what it makes of them: errors, requests, sizes; and a picture of each.

    python tools/browser_pages.py page.html [...] [--pictures folder]

It wants `playwright` and a Chromium (`--browser`, else the one in the path).  A page fails where it writes an error to
the console, asks for anything outside of itself, has folds that do not open, or is wider than its window.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any


def looked_at(context: Any, path: Path, pictures: Path | None) -> list[str]:
    """What is wrong with a page."""
    page, wrong = context.new_page(), []
    page.on("console", lambda m: wrong.append(f"console: {m.text}") if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: wrong.append(f"error: {e}"))
    page.on("request", lambda r: wrong.append(f"asks for {r.url}") if r.url != path.as_uri() else None)
    page.goto(path.as_uri())
    folds = page.locator("details")
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    closed = page.evaluate(
        "[...document.querySelectorAll('details > *:not(summary)')].filter(x => !x.getClientRects().length).length"
    )
    wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    headings = page.locator("h1, h2").all_inner_texts()
    if closed:
        wrong.append(f"{closed} folds show nothing")
    if wide > 0:
        wrong.append(f"{wide} pixels wider than the window")
    if pictures is not None:
        page.screenshot(path=str(pictures / f"{path.stem}.png"))
    print(
        f"{path.name}: {page.title()!r}, {len(headings)} headings, {folds.count()} folds; {'; '.join(wrong) or 'nothing wrong'}"
    )
    page.close()
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--browser", default=shutil.which("chromium") or shutil.which("google-chrome"))
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=given.browser, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        wrong = [text for path in given.pages for text in looked_at(context, path.resolve(), given.pictures)]
        browser.close()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
