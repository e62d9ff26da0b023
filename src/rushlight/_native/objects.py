"""How CPython lays its objects out in memory, as the native code takes it to be; and a look at living objects, whether
that is true.

The layouts are those of CPython 3.11 and newer with the GIL.  They are no part of any promise of CPython's, so a
version that nobody has tried is neither trusted nor refused by its number: `faults` reads objects whose contents are
known, and the runtime starts where all are as expected.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rushlight._base.lazy import LazyModule

if TYPE_CHECKING:
    import ctypes
else:
    ctypes = LazyModule("ctypes")

__all__ = ["DIGIT_BITS", "IMMORTAL_FROM", "NEW_INTS", "TUPLE_ITEMS", "faults", "require_layouts", "slot_offset"]

# Int objects hold digits of 30 bits from byte 24 on. The word before them is the number of digits (negative: so is the
# number); from 3.12 on it is a tag: the number of digits above three bits, of which the lowest two are 0 for positive
# numbers, 1 for zero and 2 for negative ones.
NEW_INTS = sys.version_info >= (3, 12)
DIGIT_BITS = 30
# Objects whose count, the low 32 bits, is at least this never die, and their counts stay; 0 where there are none.
IMMORTAL_FROM = 0 if sys.version_info < (3, 12) else (1 << 32) - 1 if sys.version_info < (3, 14) else 3 << 30
TUPLE_ITEMS = tuple.__basicsize__ // 8  # the word of a tuple's first item: from 3.14 on its hash lies before


def _word(address: int) -> int:
    value: int = ctypes.c_uint64.from_address(address).value
    return value


class _Slotted:
    __slots__ = ("first", "second")
    first: object
    second: object


def slot_offset(cls: type, name: str, word: Callable[[int], int] = _word) -> int:
    """Where a slot lies in instances of a class, in bytes: read from its descriptor, which points to the name, the type
    and the offset.
    """
    return word(word(id(cls.__dict__[name]) + 40) + 16)


def _int_tag(value: int) -> int:
    digits = -(-abs(value).bit_length() // DIGIT_BITS)
    if not NEW_INTS:
        return digits if value >= 0 else -digits & (1 << 64) - 1
    return digits << 3 | (1 if value == 0 else 2 if value < 0 else 0)


def faults(word: Callable[[int], int] = _word) -> list[str]:
    """The kinds of objects that do not lie in memory as the native code expects; `word` gives the 64-bit word at an
    address.
    """

    def at(obj: Any, place: int) -> int:
        return word(id(obj) + 8 * place)

    a, b, c = object(), object(), object()
    found = []
    if any(at(x, 1) != id(type(x)) for x in (a, 1, 1.5, (), [], "")):
        found.append("objects")
    if not _ints_lie(at):
        found.append("ints")
    if at(1.5, 2) != 0x3FF8000000000000:
        found.append("floats")
    items, listed, cut = (a, b, c), [a, b, c], slice(a, b, c)
    if [at(items, 2), *(at(items, TUPLE_ITEMS + k) for k in range(3))] != [3, id(a), id(b), id(c)]:
        found.append("tuples")
    if at(listed, 2) != 3 or [word(at(listed, 3) + 8 * k) for k in range(3)] != [id(a), id(b), id(c)]:
        found.append("lists")
    if [at(cut, 2 + k) for k in range(3)] != [id(a), id(b), id(c)]:
        found.append("slices")
    filled = _Slotted()
    filled.first, filled.second = a, b
    if not _slots_lie(filled, word):
        found.append("slots")
    return found


def _ints_lie(at: Callable[[Any, int], int]) -> bool:
    """Whether ints of no digit, one, two and three, of both signs, look as they should; CPython 3.14 has a mark of its
    own in the tag.
    """
    if sys.int_info.bits_per_digit != DIGIT_BITS:
        return False
    for value in (0, 1, 255, 2**30 - 1, 2**30, 2**60 - 1, 2**60, -1, -(2**30)):
        tag = at(value, 2)
        if (tag & ~4 if NEW_INTS else tag) != _int_tag(value):
            return False
        low = at(value, 3)
        if value == 0:
            continue
        if low & 0xFFFFFFFF != abs(value) & (1 << DIGIT_BITS) - 1:
            return False
        if abs(value) >> DIGIT_BITS and low >> 32 != abs(value) >> DIGIT_BITS & (1 << DIGIT_BITS) - 1:
            return False
    return True


def _slots_lie(filled: Any, word: Callable[[int], int]) -> bool:
    """Whether both slots hold their objects where their descriptors say."""
    for name in _Slotted.__slots__:
        offset = slot_offset(type(filled), name, word)
        if not 16 <= offset <= 64 or offset % 8 or word(id(filled) + offset) != id(getattr(filled, name)):
            return False
    return True


def require_layouts(word: Callable[[int], int] = _word) -> None:
    """NotImplementedError where this interpreter's objects lie in memory otherwise than the native code expects."""
    wrong = faults(word)
    if wrong:
        version = sys.version.split()[0]
        raise NotImplementedError(
            f"the CPU runtime cannot run on Python {version}: it expects CPython's objects as they lie in memory from 3.11 on, and here "
            f"{', '.join(wrong)} do not"
        )
