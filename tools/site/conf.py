"""Sphinx's settings for the site; `build.py` beside this file gathers the pages and calls Sphinx."""

from __future__ import annotations

import re

from sphinx.search import languages
from sphinx.search.en import SearchEnglish

project = "rushlight"
copyright = "The rushlight authors, Apache License 2.0"
extensions = ["myst_parser"]
root_doc = "index"
language = "en"
highlight_language = "text"
nitpicky = True
myst_heading_anchors = 4
html_theme = "furo"
html_title = "rushlight"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["site.css"]
pygments_style, pygments_dark_style = "friendly", "monokai"

_CHINESE = "\u3400-\u9fff"


class BothLanguages(SearchEnglish):
    """English words, and of Chinese text every two characters that stand side by side: there are no spaces between its words."""

    js_splitter_code = """
var splitQuery = (query) => query.split(/[^\\p{Letter}\\p{Number}_]+/gu).flatMap((part) => part.split(/([%s]+)/)).flatMap((run) =>
  /[%s]/.test(run) && run.length > 1 ? Array.from({ length: run.length - 1 }, (_, i) => run.slice(i, i + 2)) : [run]).filter((word) => word);
""" % (_CHINESE, _CHINESE)  # noqa: UP031

    def split(self, input: str) -> list[str]:
        found = []
        for run in re.findall(rf"[{_CHINESE}]+|[^\W{_CHINESE}]+", input):
            chinese = len(run) > 1 and re.match(f"[{_CHINESE}]", run)
            found += [run[i : i + 2] for i in range(len(run) - 1)] if chinese else [run]
        return found


languages["en"] = BothLanguages
