"""A version that is a text and compares as a version, as `torch.torch_version`.

>>> from rushlight.torch_version import TorchVersion
>>> TorchVersion("2.13.0") > "2.9" and TorchVersion("2.13.0") >= (2, 13)
True
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

__all__ = ["TorchVersion"]


class InvalidVersion(ValueError):
    """A text is no version; comparisons with such a text take it as it is."""


# Parts of a version as PEP 440 writes them: release, pre-release, post-release, development release, local build.
_PATTERN = (
    r"v?(?:(\d+)!)?(\d+(?:\.\d+)*)(?:[-_.]?(a|b|rc|alpha|beta|c|pre|preview)[-_.]?(\d*))?"
    r"(?:-(\d+)|[-_.]?(post|rev|r)[-_.]?(\d*))?(?:[-_.]?(dev)[-_.]?(\d*))?(?:\+([a-z0-9]+(?:[-_.][a-z0-9]+)*))?"
)
_PRE = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}
_Key = tuple[Any, ...]


def _key(text: str) -> _Key | None:
    """Sort key of versions: 1.0.dev1 < 1.0a1 < 1.0 < 1.0+local < 1.0.post1; None for what is no version."""
    found = re.fullmatch(_PATTERN, text.strip().lower())
    if found is None:
        return None
    epoch, release, pre, pre_number, bare_post, post, post_number, dev, dev_number, local = found.groups()
    numbers = [int(n) for n in release.split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    has_post = post is not None or bare_post is not None
    if pre is not None:
        before: tuple[int, int] = (_PRE[pre], int(pre_number or 0))
    else:  # a development release of the final version comes before its pre-releases
        before = (-1, 0) if dev is not None and not has_post else (3, 0)
    after = int(bare_post or post_number or 0) if has_post else -1
    working = float(dev_number or 0) if dev is not None else float("inf")
    words = re.split(r"[-_.]", local) if local is not None else []
    parts = tuple((1, int(w), "") if w.isdigit() else (0, 0, w) for w in words)
    return (int(epoch or 0), tuple(numbers), before, after, working, parts)


class TorchVersion(str):
    """A version text that may be compared with versions, texts, and tuples of numbers; what is no version is compared
    as text.
    """

    __slots__ = ()

    def _compare(self, other: Any, method: str) -> bool:
        if isinstance(other, str):
            words = str(other)
        elif isinstance(other, Iterable):
            words = ".".join(str(part) for part in other)
        else:
            return NotImplemented
        mine, theirs = _key(str(self)), _key(words)
        if mine is None or theirs is None:
            return getattr(str, method)(str(self), other)
        return getattr(tuple, method)(mine, theirs)

    def __gt__(self, other: Any) -> bool:
        return self._compare(other, "__gt__")

    def __lt__(self, other: Any) -> bool:
        return self._compare(other, "__lt__")

    def __eq__(self, other: Any) -> bool:
        return self._compare(other, "__eq__")

    def __ge__(self, other: Any) -> bool:
        return self._compare(other, "__ge__")

    def __le__(self, other: Any) -> bool:
        return self._compare(other, "__le__")

    def __ne__(self, other: Any) -> bool:
        # PyTorch leaves `!=` to `str`: only the same text is not unequal.
        return str.__ne__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)
