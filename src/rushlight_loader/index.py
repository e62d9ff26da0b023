"""The file of a package (`.rlp`): a header, an index, the library, the weights.

    0   magic (8 bytes), version of the format (4), length of the index (4), BLAKE2b of the index (32)
    48  the index, JSON: what the program takes and gives, and where the library and the weights lie
    ... the library and the weights, each from a multiple of 4,096 bytes on, zeros between them

Reading runs nothing: sizes, places and digests are checked first, and whatever does not fit is a `PackageError`.  The
digest of the weights is checked when somebody asks for it: no weight can do more harm than a wrong number.
"""

from __future__ import annotations

from math import prod
from struct import Struct
from struct import error as StructError

from rushlight_loader.errors import PackageError

try:
    from _blake2 import blake2b  # `hashlib` loads OpenSSL, which takes longer than all digests here
except ImportError:
    from hashlib import blake2b

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

__all__ = ["DTYPES", "FORMAT", "HEAD", "MAGIC", "PAGE", "Index", "check_weights", "read_index"]

FORMAT = 1
MAGIC = b"\x89RLP\r\n\x1a\n"
HEAD = Struct("<8sII32s")
PAGE = 4096
_MOST_INDEX, _MOST_TENSORS, _MOST_RANK, _MOST_DEPTH = 1 << 24, 1 << 16, 64, 64
# Bytes of an element.
DTYPES = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "float16": 2, "bfloat16": 2,
    "float32": 4, "float64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip


class Index:
    """What a package says of itself: `inputs` and `outputs` are (name, dtype, shape), where dims that vary are the name of
    one of the `ranges` (name, least, most), or "" for a formula of them; `in_trees` and `out_tree` how they
    stand among arguments and results, `library` and `weights` (place, bytes, digest).
    """

    __slots__ = ("in_trees", "inputs", "levels", "library", "name", "out_tree", "outputs", "ranges", "weights")

    def __init__(self, data: Any, size: int) -> None:
        if type(data) is not dict:
            raise PackageError("the index is no table")
        self.name = _text(data, "name")
        if not self.name.isidentifier() or not self.name.isascii():
            raise PackageError("the name of the program is no identifier")
        self.levels = [_word(x) for x in _list(data, "levels")]
        self.ranges = [_range(row) for row in _list(data, "ranges")]
        names = {name for name, _, _ in self.ranges}
        self.inputs = [_tensor(row, names) for row in _list(data, "inputs")]
        self.outputs = [_tensor(row, names) for row in _list(data, "outputs")]
        trees = _list(data, "in_trees")
        if len(trees) != 2:
            raise PackageError("the index does not say what a call takes")
        self.in_trees = trees[0], trees[1]
        leaves = _leaves(trees[0]) + _leaves(trees[1])
        if sorted(leaves) != list(range(len(self.inputs))):
            raise PackageError("the arguments of a call are not its inputs")
        self.out_tree = data.get("out_tree")
        if sorted(_leaves(self.out_tree)) != list(range(len(self.outputs))):
            raise PackageError("the result of a call is not its outputs")
        self.library, self.weights = _part(data, "library", size), _part(data, "weights", size)
        if self.library[1] == 0:
            raise PackageError("a package without a library")
        (first, length, _), (second, _, _) = sorted((self.library, self.weights))
        if first + length > second:
            raise PackageError("two parts of the package overlap")


def _list(data: dict[str, Any], name: str) -> list[Any]:
    found = data.get(name)
    if type(found) is not list or len(found) > _MOST_TENSORS:
        raise PackageError(f"the index has no list of {name}")
    return found


def _word(x: Any) -> str:
    if type(x) is not str or len(x) > 256 or "\0" in x:
        raise PackageError("the index has something else than a name")
    return x


def _text(data: dict[str, Any], name: str) -> str:
    return _word(data.get(name))


def _range(row: Any) -> tuple[str, int, int]:
    if type(row) is not list or [type(x) for x in row] != [str, int, int] or not row[0].isidentifier():
        raise PackageError("the index has something else than a range of sizes")
    if not 0 <= row[1] <= row[2] < 1 << 47:
        raise PackageError("a range of sizes that is none")
    return row[0], row[1], row[2]


def _tensor(row: Any, names: Collection[str]) -> tuple[str, str, tuple[int | str, ...]]:
    if (
        type(row) is not list
        or len(row) != 3
        or type(row[1]) is not str
        or row[1] not in DTYPES
        or type(row[2]) is not list
    ):
        raise PackageError("the index has something else than a tensor")
    shape = row[2]
    plain = [n for n in shape if type(n) is int]
    if len(shape) > _MOST_RANK or any(n < 0 for n in plain) or any(type(n) not in (int, str) for n in shape):
        raise PackageError("a tensor of the index has no shape")
    if any(type(n) is str and n and n not in names for n in shape):
        raise PackageError("a tensor of the index has a size that is not there")
    if prod(plain) * DTYPES[row[1]] >= 1 << 47 or any(n >= 1 << 47 for n in plain):
        raise PackageError("a tensor of the index is larger than memory can be")
    return _word(row[0]), row[1], tuple(shape)


def _part(data: dict[str, Any], name: str, size: int) -> tuple[int, int, bytes]:
    row = data.get(name)
    if type(row) is not list or len(row) != 3 or [type(x) for x in row] != [int, int, str]:
        raise PackageError(f"the index does not say where the {name} is")
    place, length, text = row
    if place % PAGE or place < HEAD.size or length < 0 or place + length > size:
        raise PackageError(f"the {name} is not where the index says: the file may be cut off")
    try:
        digest = bytes.fromhex(text)
    except ValueError:
        raise PackageError(f"the index has no digest of the {name}") from None
    return place, length, digest


def _leaves(tree: Any, depth: int = 0) -> list[int]:
    """The numbers of tensors in a tree: a number, or [kind, items] (see `_packages.trees`)."""
    if depth > _MOST_DEPTH:
        raise PackageError("the arguments or results of a package are nested too deeply")
    if type(tree) is int:
        return [tree]
    if type(tree) is not list or len(tree) != 2:
        raise PackageError("the index does not say how tensors are nested")
    kind, items = tree
    if kind == "value" and (items is None or type(items) in (bool, int, float, str)):
        return []
    if kind not in ("tuple", "list", "dict") or type(items) is not list or len(items) > _MOST_TENSORS:
        raise PackageError("the index does not say how tensors are nested")
    found: list[int] = []
    for item in items:
        if kind == "dict":
            if type(item) is not list or len(item) != 2 or type(item[0]) not in (str, int):
                raise PackageError("the index has a table without keys")
            item = item[1]
        found += _leaves(item, depth + 1)
    return found


class _Scanning:
    """How Python's scanner of JSON reads numbers and tables: as `json.loads`."""

    strict, object_hook, object_pairs_hook = True, None, None
    parse_float, parse_int, parse_constant = float, int, float


def _parsed(text: str) -> Any:
    """The value of a text in JSON.  `json` imports `re` and `enum`, which takes longer than all of the loader; its scanner needs neither."""
    try:
        from _json import make_scanner
    except ImportError:
        from json import loads

        return loads(text)
    scan: Any = make_scanner
    value, end = scan(_Scanning)(text, 0)
    if end != len(text):
        raise ValueError("something follows the value")
    return value


def read_index(data: Any) -> Index:
    """The index of a package, whose bytes are `data`; the library has been found whole."""
    view = memoryview(data)
    try:
        magic, version, length, digest = HEAD.unpack_from(view)
    except StructError:
        raise PackageError("the file is too short for a package") from None
    if magic != MAGIC:
        raise PackageError("the file is no package of rushlight")
    if version != FORMAT:
        raise PackageError(
            f"the package has format {version}, and this version of rushlight reads format {FORMAT}: package the program anew"
        )
    if length > _MOST_INDEX or HEAD.size + length > len(view):
        raise PackageError("the index of the package is cut off")
    text = bytes(view[HEAD.size : HEAD.size + length])
    if blake2b(text, digest_size=32).digest() != digest:
        raise PackageError("the index of the package is damaged")
    try:
        table = _parsed(text.decode())
    except (ValueError, RecursionError, StopIteration):
        raise PackageError("the index of the package is not JSON") from None
    index = Index(table, len(view))
    place, size, digest = index.library
    if blake2b(view[place : place + size], digest_size=32).digest() != digest:
        raise PackageError("the library of the package is damaged")
    return index


def check_weights(data: Any, index: Index) -> None:
    """PackageError where the weights are not those that were packaged."""
    place, size, digest = index.weights
    if blake2b(memoryview(data)[place : place + size], digest_size=32).digest() != digest:
        raise PackageError("the weights of the package are damaged")
