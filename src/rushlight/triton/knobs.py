"""`triton.knobs`: settings, each read from its environment variable unless it is set in code.

>>> from rushlight.triton import knobs
>>> knobs.runtime.interpret, knobs.autotuning.print
(False, False)
"""

from __future__ import annotations

import os
from typing import Any

__all__ = ["autotuning", "cache", "compilation", "language", "runtime"]


class Group:
    """Settings of one subject: name -> (environment variable, default).  Setting one sets its variable."""

    def __init__(self, **settings: tuple[str, Any]) -> None:
        self.__dict__["_settings"] = settings

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self._settings:
            raise AttributeError(f"triton.knobs has no setting {name!r}; there are {', '.join(self._settings)}")
        variable, default = self._settings[name]
        text = os.environ.get(variable)
        if text is None:
            return default
        return text.lower() in ("1", "true", "on", "yes") if isinstance(default, bool) else text

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._settings:
            raise AttributeError(f"triton.knobs has no setting {name!r}; there are {', '.join(self._settings)}")
        variable = self._settings[name][0]
        if value is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = str(int(value)) if isinstance(value, bool) else str(value)


runtime = Group(interpret=("TRITON_INTERPRET", False), debug=("TRITON_DEBUG", False))
compilation = Group(allow_non_constexpr_globals=("TRITON_ALLOW_NON_CONSTEXPR_GLOBALS", False))
autotuning = Group(print=("TRITON_PRINT_AUTOTUNING", False), cache=("TRITON_CACHE_AUTOTUNING", False))
cache = Group(dir=("TRITON_CACHE_DIR", None))
language = Group(fp32_default=("TRITON_F32_DEFAULT", None))
