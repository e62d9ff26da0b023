"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from typing import Any as _Any, NoReturn as _NoReturn

from rushlight.distributed.checkpoint import hf_storage as hf_storage
def load(*args: _Any, **kwargs: _Any) -> _NoReturn: ...
def save(*args: _Any, **kwargs: _Any) -> _NoReturn: ...
