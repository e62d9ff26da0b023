"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import NotImplementedError as _NotImplementedError, OSError as _OSError, set as _set
from typing import Any as _Any

class LibraryRefusedError(_NotImplementedError, _OSError):
    ...
def load_library(path: _Any) -> None: ...
loaded_libraries: _set
refused_libraries: _set
