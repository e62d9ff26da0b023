"""Lines of LLVM text that the functions of a twin have in common, written short.

`expanded` replaces a line that begins with `!`:

| line | stands for |
| --- | --- |
| `!get %x %record 3 name i64` | `%name`, the address of the record's word 3, and `%x`, what lies there |
| `!put %record 3 name i64 %x` | `%name`, and a store of `%x` to it |
| `!context %x 24 name ptr` | `%name`, the address of byte 24 of `Context` (see `runtime`), and `%x`, what lies there |
| `!splat %v name <32 x i64> i64 %x` | `%v`, a vector that has `%x` everywhere; `%name` has it in the first place |
| `!shuffle %v <4 x i32> %a %b 0 5 2 7` | `%v`, the places 0 and 2 of `%a` and 1 and 3 of `%b` |
| `!turn i name 32 loop done` | the end of a loop over `%i`: `%i1`, whether it is below 32 (`%name`), the jump to either label |

>>> print(expanded("  !put %e 1 p i64 7"))
  %p = getelementptr i64, ptr %e, i64 1
  store i64 7, ptr %p
"""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["constant_text", "expanded", "messages"]


def _get(to: str, record: str, place: str, name: str, type: str) -> list[str]:
    return [f"%{name} = getelementptr i64, ptr {record}, i64 {place}", f"{to} = load {type}, ptr %{name}"]


def _put(record: str, place: str, name: str, type: str, x: str) -> list[str]:
    return [f"%{name} = getelementptr i64, ptr {record}, i64 {place}", f"store {type} {x}, ptr %{name}"]


def _context(to: str, offset: str, name: str, type: str) -> list[str]:
    return [f"%{name} = getelementptr i8, ptr %ctx, i64 {offset}", f"{to} = load {type}, ptr %{name}"]


def _splat(to: str, name: str, vector: str, type: str, x: str) -> list[str]:
    lanes = vector.split()[0].removeprefix("<")
    return [
        f"%{name} = insertelement {vector} poison, {type} {x}, i64 0",
        f"{to} = shufflevector {vector} %{name}, {vector} poison, <{lanes} x i32> zeroinitializer",
    ]


def _shuffle(to: str, vector: str, a: str, b: str, *places: str) -> list[str]:
    mask = ", ".join(f"i32 {place}" for place in places)
    return [f"{to} = shufflevector {vector} {a}, {vector} {b}, <{len(places)} x i32> <{mask}>"]


def _turn(index: str, name: str, limit: str, again: str, end: str) -> list[str]:
    return [
        f"%{index}1 = add i64 %{index}, 1",
        f"%{name} = icmp ult i64 %{index}1, {limit}",
        f"br i1 %{name}, label %{again}, label %{end}",
    ]


_SHORT: dict[str, Callable[..., list[str]]] = {
    "get": _get, "put": _put, "context": _context, "splat": _splat, "shuffle": _shuffle, "turn": _turn,
}  # fmt: skip


def expanded(text: str) -> str:
    """The text with every short line written out."""
    lines = []
    for line in text.split("\n"):
        if line.startswith("  !"):
            name, *words = re.findall(r"<[^>]*>|\S+", line[3:])
            lines += [f"  {made}" for made in _SHORT[name](*words)]
        else:
            lines.append(line)
    return "\n".join(lines)


def constant_text(name: str, text: str) -> str:
    """A constant of LLVM with the bytes of a text, and 0."""
    data = text.encode() + b"\0"
    return f'{name} = private constant [{len(data)} x i8] c"' + "".join(f"\\{byte:02X}" for byte in data) + '"'


def messages(texts: dict[str, str]) -> dict[str, str]:
    """Constants with the texts of messages, by their names."""
    return {f"@rl.{key}.text": constant_text(f"@rl.{key}.text", text) for key, text in texts.items()}
