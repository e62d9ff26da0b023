"""Strings, as NumPy arrays of objects."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable
from typing import Any

import rushlight as torch
from rushlight.onnx.importing.table import Value, operator
from rushlight.onnx.importing.values import numpy, tensor

__all__ = ["texts"]


def texts(items: list[str], shape: Any) -> Any:
    """A tensor of strings."""
    result = numpy.empty(len(items), dtype=object)
    result[:] = items
    return result.reshape(tuple(shape))


@operator("StringConcat", since=20)
def string_concat(x: Value, y: Value) -> Any:
    return numpy.asarray(numpy.add(x, y), dtype=object)


@operator("StringSplit", since=20)
def string_split(x: Value, *, delimiter: str = "", maxsplit: int | None = None) -> Any:
    """The parts of each string, filled with empty ones to the longest, and how many there are."""
    parts = [text.split(delimiter or None, -1 if maxsplit is None else maxsplit) for text in x.ravel()]
    longest = max(map(len, parts), default=0)
    filled = [part for one in parts for part in [*one, *[""] * (longest - len(one))]]
    counts = torch.tensor([len(one) for one in parts], dtype=torch.int64).reshape(x.shape)
    return texts(filled, (*x.shape, longest)), counts


@operator("RegexFullMatch", since=20)
def regex_full_match(x: Value, *, pattern: str = "") -> Any:
    try:
        rule = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"RegexFullMatch: {pattern!r} is no pattern ({error})") from None
    return torch.tensor([rule.fullmatch(text) is not None for text in x.ravel()], dtype=torch.bool).reshape(x.shape)


@operator("StringNormalizer", since=10)
def string_normalizer(
    x: Value,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str = "en_US",
    stopwords: list[str] | None = None,
) -> Any:
    """Remove stop words, then change case; rules of case are Unicode's, whatever the locale."""
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise ValueError(f"StringNormalizer takes (C) or (1, C), not {x.shape}")
    changes: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
    change = changes[case_change_action]
    fold: Callable[[str], str] = str if is_case_sensitive else str.lower
    stops = {fold(word) for word in stopwords or ()}
    kept = [change(_without_accents(text)) for text in x.ravel() if fold(text) not in stops]
    kept = [text for text in kept if text] or [""]
    return texts(kept, (len(kept),) if x.ndim == 1 else (1, len(kept)))


def _without_accents(text: str) -> str:
    if text.isascii():
        return text
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))


@operator("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(
    x: Value,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: list[int],
    ngram_indexes: list[int],
    pool_int64s: list[int] | None = None,
    pool_strings: list[str] | None = None,
    weights: list[float] | None = None,
) -> Any:
    """How often each n-gram of a pool occurs in each row, with up to `max_skip_count` elements left out between two."""
    pool: list[Any] = list(pool_strings if pool_strings is not None else pool_int64s or [])
    grams: dict[tuple[Any, ...], int] = {}
    starts = [*ngram_counts, len(pool)]
    for n, (start, end) in enumerate(itertools.pairwise(starts), 1):
        for at in range(start, end, n):
            grams[tuple(pool[at : at + n])] = len(grams)
    items = tensor(x).tolist()
    rows = items if len(x.shape) == 2 else [items if isinstance(items, list) else [items]]
    width = max(ngram_indexes) + 1
    result = [
        _counted(row, grams, (min_gram_length, max_gram_length, max_skip_count), ngram_indexes, width) for row in rows
    ]
    scale = [1.0] * width
    for i, at in enumerate(ngram_indexes):
        scale[at] = weights[i] if weights else 1.0
    if mode not in ("TF", "IDF", "TFIDF"):
        raise ValueError(f"mode of TfIdfVectorizer is TF, IDF or TFIDF, not {mode!r}")
    if mode == "IDF":
        result = [[float(count > 0) for count in row] for row in result]
    if mode != "TF":
        result = [[count * factor for count, factor in zip(row, scale)] for row in result]
    return torch.tensor(result, dtype=torch.float32).reshape(*x.shape[:-1], width)


def _counted(
    row: list[Any], grams: dict[tuple[Any, ...], int], limits: tuple[int, int, int], places: list[int], width: int
) -> list[float]:
    shortest, longest, skips = limits
    counts = [0.0] * width
    for n in range(shortest, longest + 1):
        # Single elements have nothing between them to skip.
        for step in range(1, (skips if n > 1 else 0) + 2):
            for start in range(len(row) - (n - 1) * step):
                found = grams.get(tuple(row[start : start + (n - 1) * step + 1 : step]))
                if found is not None:
                    counts[places[found]] += 1
    return counts
