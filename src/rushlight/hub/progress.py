"""The bar that shows how far a download is: tqdm's where it is installed, a plain one elsewhere."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["PlainBar", "bar_class"]


class PlainBar:
    """Per cent, or bytes, on stderr; takes what tqdm takes, and draws nothing of what it does not know."""

    def __init__(
        self, total: int | None = None, disable: bool = False, unit: str | None = None, *args: Any, **kwargs: Any
    ) -> None:
        self.total, self.disable, self.n = total, disable, 0

    def update(self, n: int = 1) -> None:
        """`n` more are done."""
        if not self.disable:
            self.n += n
            sys.stderr.write(f"\r{100 * self.n / self.total:.1f}%" if self.total else f"\r{self.n} bytes")
            sys.stderr.flush()

    def set_description(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: there is no room for a text."""

    def write(self, s: str) -> None:
        """A line of text on stderr."""
        sys.stderr.write(f"{s}\n")

    def close(self) -> None:
        """End the line."""
        if not self.disable:
            sys.stderr.write("\n")
        self.disable = True

    def __enter__(self) -> PlainBar:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def bar_class() -> Any:
    """tqdm, or `PlainBar` where tqdm is not installed."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return PlainBar
    return tqdm
