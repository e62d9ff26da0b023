"""Pages of settings, as `torch._dynamo.config`: names and defaults of PyTorch 2.13 that programs read, set and patch.

The names are data, in `setting_tables`.  A line `name = default` is a setting whose type is that of its default,
`name ~ default` one of several types, `name -> page.name` another name for a setting.  Names with a dot
belong to an attribute of the page (`config.triton.cudagraphs`).

>>> import rushlight as torch
>>> torch._dynamo.config.recompile_limit
8
>>> with torch._dynamo.config.patch(recompile_limit=2):
...     torch._dynamo.config.cache_size_limit
2
"""

from __future__ import annotations

import ast
import functools
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["Settings", "SettingsPage", "install", "settings"]

_TABLES = Path(__file__).parent / "setting_tables"
_PAGES: dict[str, Settings] = {}


class Settings:
    """The settings of one page: their defaults, and the values that were set.  `name` is the page's full name in
    PyTorch.
    """

    def __init__(self, name: str, table: str) -> None:
        self.name = name
        self.defaults: dict[str, Any] = {}
        self.several_types: set[str] = set()
        self.aliases: dict[str, tuple[str, str]] = {}
        self.values: dict[str, Any] = {}
        self.told: dict[str, Callable[[Any], None]] = {}  # who is told of new values
        for line in (_TABLES / table).read_text(encoding="utf-8").splitlines():
            word, kind, text = line.split(" ", 2)
            if kind == "->":
                page, _, target = text.rpartition(".config.")
                self.aliases[word] = (f"{page}.config", target)
                continue
            self.defaults[word] = ast.literal_eval(text)
            if kind == "~":
                self.several_types.add(word)

    def _missing(self, word: str) -> AttributeError:
        return AttributeError(f"{self.name}.{word} does not exist")

    def _home(self, word: str) -> tuple[Settings, str]:
        """The page that holds a setting, and its name there."""
        if word in self.aliases:
            page, target = self.aliases[word]
            return settings(page)._home(target)
        if word not in self.defaults:
            raise self._missing(word)
        return self, word

    def __contains__(self, word: str) -> bool:
        return word in self.defaults or word in self.aliases

    def get(self, word: str) -> Any:
        """The value of a setting; AttributeError for an unknown name."""
        home, word = self._home(word)
        if word not in home.values and isinstance(home.defaults[word], (list, dict, set)):
            home.values[word] = home.defaults[word].copy()  # programs append to it
        return home.values.get(word, home.defaults[word])

    def set(self, word: str, value: Any) -> None:
        """Set a setting; AttributeError for an unknown name."""
        home, word = self._home(word)
        home.values[word] = value
        if word in home.told:
            home.told[word](value)

    def reset(self, word: str) -> None:
        """The default again."""
        home, word = self._home(word)
        home.values.pop(word, None)
        if word in home.told:
            home.told[word](home.defaults[word])

    def type_of(self, word: str) -> type | None:
        """The type of a setting's values; None where there are several."""
        home, word = self._home(word)
        return None if word in home.several_types else type(home.defaults[word])

    def copy(self) -> dict[str, Any]:
        """All values by name."""
        return {word: self.get(word) for word in self.defaults}


_TABLE_OF = {
    "torch._dynamo.config": "dynamo.txt",
    "torch._inductor.config": "inductor.txt",
    "torch._functorch.config": "functorch.txt",
    "torch.compiler.config": "compiler.txt",
}


def settings(name: str) -> Settings:
    """The settings of a page, by its full name in PyTorch ("torch._dynamo.config")."""
    if name not in _PAGES:
        _PAGES[name] = Settings(name, _TABLE_OF[name])
    return _PAGES[name]


class Patch:
    """Settings that hold inside a `with` or a decorated function; made by a page's `patch`."""

    def __init__(self, page: Settings, changes: dict[str, Any]) -> None:
        for word in changes:
            page._home(word)
        self.page, self.changes = page, changes
        self.before: list[dict[str, Any]] = []

    def __enter__(self) -> None:
        self.before.append({word: self.page.get(word) for word in self.changes})
        for word, value in self.changes.items():
            self.page.set(word, value)

    def __exit__(self, *_: object) -> None:
        for word, value in self.before.pop().items():
            self.page.set(word, value)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if isinstance(function, type):
            for name, member in list(vars(function).items()):
                if name.startswith("test") and callable(member):
                    setattr(function, name, self(member))
            return function

        @functools.wraps(function)
        def patched(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return patched


class _Section:
    """Settings under one word of a page, as `config.triton`."""

    def __init__(self, page: Settings, prefix: str) -> None:
        object.__setattr__(self, "_where", (page, prefix))

    def __getattr__(self, word: str) -> Any:
        page, prefix = object.__getattribute__(self, "_where")
        return _find(page, f"{prefix}{word}")

    def __setattr__(self, word: str, value: Any) -> None:
        page, prefix = object.__getattribute__(self, "_where")
        page.set(f"{prefix}{word}", value)

    def __dir__(self) -> list[str]:
        page, prefix = object.__getattribute__(self, "_where")
        return sorted({word[len(prefix) :].split(".")[0] for word in page.defaults if word.startswith(prefix)})


def _find(page: Settings, word: str) -> Any:
    """A setting, or the section with that name."""
    if word in page:
        return page.get(word)
    if any(known.startswith(f"{word}.") for known in page.defaults):
        return _Section(page, f"{word}.")
    raise page._missing(word)


class SettingsPage(ModuleType):
    """A module whose attributes are settings: unknown names raise AttributeError when they are read, set or patched."""

    _settings: Settings

    def __getattr__(self, word: str) -> Any:
        if word.startswith("__"):
            raise AttributeError(word)
        return _find(self._settings, word)

    def __setattr__(self, word: str, value: Any) -> None:
        if word.startswith("__") or word == "_settings" or isinstance(value, ModuleType):
            super().__setattr__(word, value)
        else:
            self._settings.set(word, value)

    def __delattr__(self, word: str) -> None:
        self._settings.reset(word)

    def __dir__(self) -> list[str]:
        words = {word.split(".")[0] for word in (*self._settings.defaults, *self._settings.aliases)}
        return sorted({*super().__dir__(), *words})

    def patch(self, arg1: Any = None, arg2: Any = None, **kwargs: Any) -> Patch:
        """Settings that hold inside a `with` or a decorated function: a name and a value, a dict, or keywords."""
        if isinstance(arg1, str):
            changes = {arg1: arg2}
        elif arg1 is not None and not isinstance(arg1, dict):
            raise AssertionError(f"expected `dict` got {type(arg1)}")
        else:
            changes = {**(arg1 or {}), **kwargs}
        return Patch(self._settings, changes)

    def get_config_copy(self) -> dict[str, Any]:
        """All settings by name, in a new dict."""
        return self._settings.copy()

    shallow_copy_dict = to_dict = get_config_copy

    def get_type(self, word: str) -> Any:
        """The type of a setting's values; `object` where there are several."""
        return self._settings.type_of(word) or object

    def save_config(self) -> bytes:
        """The settings that were changed, for `load_config`."""
        return pickle.dumps(dict(self._changed()), protocol=2)

    def load_config(self, maybe_pickled_config: bytes | dict[str, Any]) -> None:
        """Set what `save_config` kept, or a dict of settings."""
        given = maybe_pickled_config
        for word, value in (pickle.loads(given) if isinstance(given, bytes) else given).items():
            if word in self._settings:
                self._settings.set(word, value)

    def codegen_config(self) -> str:
        """Statements that set what was changed."""
        return "\n".join(f"{self._settings.name}.{word} = {value!r}" for word, value in self._changed())

    def _changed(self) -> Iterator[tuple[str, Any]]:
        return ((w, v) for w, v in self._settings.values.items() if v != self._settings.defaults[w])


def install(module: str) -> None:
    """Make a module of ours the page of its settings."""
    page: Any = sys.modules[module]
    page.__class__ = SettingsPage
    page._settings = settings(module.replace("rushlight", "torch", 1))
