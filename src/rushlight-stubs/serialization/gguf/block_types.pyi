"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import bytes as _bytes, dict as _dict, int as _int, str as _str
from functools import _lru_cache_wrapper as _lru_cache_wrapper
from rushlight.serialization.gguf.block_types import BlockType as _BlockType
from typing import Any as _Any, NamedTuple as _NamedTuple

ALIGNMENT: _int
class BlockType(_NamedTuple):
    name: _str
    numbers: _int
    nbytes: _int
    dtype: _Any
CODES: _dict[_str, _Any]
LIST: _int
MAGIC: _bytes
NUMBERS: _dict[_str, _Any]
PLAIN: _dict[_str, _Any]
TEXT: _int
def block_type_of(code: _int) -> _BlockType | None: ...
table_of: _lru_cache_wrapper
