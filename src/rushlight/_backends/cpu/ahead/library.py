"""Variants of a program become one shared library, with a header for C."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rushlight._backends.ahead import CallLayout, SizeRange, TensorInfo
from rushlight._backends.cpu.ahead import front_native
from rushlight._backends.cpu.ahead.variant import Code, Front, Table, Variant, Zeros, make_variants
from rushlight._base.errors import PackageError
from rushlight._base.lazy import llvm
from rushlight._native.cache import default_cache
from rushlight._native.compiler import compile_unit
from rushlight._native.function import digest_of
from rushlight._native.llvm_compiler import ObjectCompiler
from rushlight._native.objectfiles.shared_library import Address, LinkError, SharedLibrary
from rushlight._native.target import LEVELS as KNOWN_LEVELS
from rushlight._native.target import host_target

__all__ = ["LEVELS", "header_text", "linked_library", "make_variants", "usable_levels"]

_XMM, _YMM, _OPMASK = 1 << 1, 1 << 2, 0b111 << 5
_BITS_1 = {
    "fma": 12,
    "cx16": 13,
    "movbe": 22,
    "popcnt": 23,
    "ssse3": 9,
    "sse4_1": 19,
    "sse4_2": 20,
    "xsave": 26,
    "avx": 28,
    "f16c": 29,
}
_BITS_7 = {
    "bmi1": 3,
    "avx2": 5,
    "bmi2": 8,
    "avx512f": 16,
    "avx512dq": 17,
    "avx512cd": 28,
    "avx512bw": 30,
    "avx512vl": 31,
}
_BITS_FURTHER = {"lahf_lm": 0, "abm": 5}
# What code may be made for, the best first.
LEVELS = ("x86-64-v4", "x86-64-v3")


def _masks(level: str) -> list[int]:
    """Features that a level requires of a processor: bits of three registers, and of what the system saves."""
    flags = next(each.flags for each in KNOWN_LEVELS if each.name == level)
    unknown = flags - _BITS_1.keys() - _BITS_7.keys() - _BITS_FURTHER.keys() - {"sse2"}
    if unknown:
        raise PackageError(f"no test for {', '.join(sorted(unknown))} of {level}")
    states = _XMM | _YMM | (_OPMASK if "avx512f" in flags else 0)
    return [
        *(sum(1 << bit for flag, bit in bits.items() if flag in flags) for bits in (_BITS_1, _BITS_7, _BITS_FURTHER)),
        states,
    ]


def _front_object() -> bytes:
    """The object code of the front, for any x86-64 processor."""
    front = front_native
    functions = [*(f for named in (front.FUNCTIONS, front.PLAIN, front.SIZED) for f in named.values()), *front.SHARED]
    cache = default_cache()
    key = cache.key("front", repr(llvm.llvm_version_info), digest_of(functions))
    data = cache.get(key)
    if data is None:
        text = compile_unit(functions, "x86_64", (front_native.TABLE.symbol,))
        data = ObjectCompiler(llvm, "x86-64", "").object_code(text, "native")
        cache.put(key, data)
    return data


def linked_library(
    prefix: str,
    variants: Sequence[Variant],
    calls: Sequence[CallLayout],
    ranges: Sequence[SizeRange],
    weights: bytes | None,
) -> bytes:
    """The library, whose functions begin with `prefix`; `calls` are those of each choice of sizes within the
    `ranges`.  With `weights` these are part of it, else `PREFIX_set_weights` says where they are.

    PackageError for code that needs what no library has.
    """
    library = SharedLibrary(f"lib{prefix}.so")
    try:
        _link(library, prefix, variants, bool(ranges))
        _describe(library, calls, ranges, len(variants), weights is not None)
        if weights is not None:
            library.add_bytes("weights", weights or b"\0", 4096, "weights")
        return library.link()
    except LinkError as error:
        raise PackageError(str(error)) from None


def _link(library: SharedLibrary, prefix: str, variants: Sequence[Variant], sized: bool) -> None:
    """Put code and tables of all variants in."""
    front = front_native
    own = {"rlp_cpuid": "cpuid", "rlp_xgetbv": "xgetbv", front.TABLE.symbol: "model"}
    first = library.add_object(_front_object(), own)
    library.add_bytes("cpuid", front.CPUID, 16, "code")
    library.add_bytes("xgetbv", front.XGETBV, 16, "code")
    for name, function in {**front.FUNCTIONS, **(front.SIZED if sized else front.PLAIN)}.items():
        library.export(f"{prefix}_{name}", f"{first}:{function.symbol}")
    begin = first + 1
    for variant in variants:

        def reference(word: Any, begin: int = begin, level: str = variant.level) -> int | Address:
            if isinstance(word, int):
                return word
            if isinstance(word, Code):
                return Address(f"{begin + word.number}:{word.symbol}")
            if isinstance(word, Front):
                return Address(f"{first}:{word.symbol}")
            if isinstance(word, Table):
                return Address(f"{level} table {word.number}", word.offset)
            assert isinstance(word, Zeros)
            return Address(f"{level} zeros {word.number}")

        for data, undefined in variant.objects:
            named = {name: reference(word) for name, word in undefined.items()}
            library.add_object(data, {name: a.reference for name, a in named.items() if isinstance(a, Address)})
        for number, (words, written) in enumerate(variant.tables):
            library.add_words(f"{variant.level} table {number}", [reference(w) for w in words], written)
        for number, size in enumerate(variant.zeros):
            library.add_zeros(f"{variant.level} zeros {number}", size)
        library.add_words(
            f"{variant.level} pins",
            [w for table, at, n in variant.pins for w in (Address(f"{variant.level} table {table}"), at, n)],
        )
        library.add_bytes(f"{variant.level} name", variant.level.encode() + b"\0")
        begin += len(variant.objects)
    rows: list[int | Address] = []
    for v in variants:
        library.add_words(f"{v.level} programs", [Address(f"{v.level} table {k}") for k in v.linked])
        head = Address(f"{v.level} programs"), Address(f"{v.level} name")
        rows += [*head, *_masks(v.level), len(v.pins), Address(f"{v.level} pins")]
    library.add_words("variants", rows)


def _describe(
    library: SharedLibrary, calls: Sequence[CallLayout], ranges: Sequence[SizeRange], variants: int, embedded: bool
) -> None:
    """Put the table of the model in, and what its tensors are."""
    texts: dict[str, Address] = {}
    tables: dict[tuple[Any, ...], Address] = {}

    def text(content: str) -> Address:
        if content not in texts:
            texts[content] = Address(f"text {len(texts)}")
            library.add_bytes(texts[content].reference, content.encode() + b"\0")
        return texts[content]

    def table(*words: int | Address) -> Address:
        if words not in tables:
            tables[words] = Address(f"described {len(tables)}")
            library.add_words(tables[words].reference, words)
        return tables[words]

    def tensors(infos: Sequence[TensorInfo]) -> Address:
        rows: list[int | Address] = []
        for t in infos:
            rows += [text(t.name), text(t.dtype), len(t.shape), table(*t.shape), t.nbytes]
        return table(*rows)

    rows = [
        table(tensors(call.inputs), tensors(call.outputs), table(*[w for s in call.sources for w in s]), table(*call.results)) for call in calls
    ]  # fmt: skip
    words = {
        "state": 0, "process": 0, "chosen": 0, "weights": Address("weights") if embedded else 0, "n_variants": variants,
        "variants": Address("variants"), "n_inputs": len(calls[0].inputs), "n_outputs": len(calls[0].outputs), "n_sizes": len(ranges),
        "ranges": table(*[w for r in ranges for w in (r.least, r.most, text(r.name))]), "calls": table(*rows), "running": 0,
    }  # fmt: skip
    library.add_words("model", [words[field.name] for field in front_native.MODEL], True)


def usable_levels() -> list[str]:
    """The levels that code can be made for on this machine: those that it could run."""
    target = host_target()
    if target.arch != "x86_64" or target.system != "linux":
        raise PackageError(f"packages are made for Linux on x86-64, not for {target.system} on {target.arch}")
    found = [level.name for level in KNOWN_LEVELS if level.name in LEVELS and level.flags <= target.flags]
    if not found:
        raise PackageError("packages need a processor with AVX2 and FMA")
    return found


# ***** the header *****

_MEANINGS = {
    "OK": "the outputs are filled",
    "INDEX": "an index is out of range",
    "DIVISION": "a division of whole numbers by zero",
    "MEMORY": "no memory for what lies between kernels",
    "VALUE": "a value that an operator refuses",
    "PROCESSOR": "this library has no code for the processor",
    "ARGUMENT": "an address is missing, or a number is out of range",
    "WEIGHTS": "the weights were not given yet",
    "KERNEL": "a kernel failed otherwise",
    "SIZES": "a size is out of its range",
}


def header_text(prefix: str, calls: Sequence[CallLayout], ranges: Sequence[SizeRange]) -> str:
    """The header of a library for C and C++."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", prefix):
        raise PackageError(f"{prefix!r} is no name in C")
    upper = prefix.upper()
    codes = "\n".join(
        f"    {upper}_{name} = {number}, /* {_MEANINGS[name]} */" for name, number in front_native.CODES.items()
    )
    listed = "".join(f" *   size {k}: {r.name}, from {r.least} to {r.most}\n" for k, r in enumerate(ranges))
    note = ", at the least sizes" if ranges else ""
    listed += "".join(
        f" *   {kind} {k}: {t.name}, {t.dtype}[{', '.join(map(str, t.shape))}], {t.nbytes} bytes{note}\n"
        for kind, tensors in (("input", calls[0].inputs), ("output", calls[0].outputs))
        for k, t in enumerate(tensors)
    )
    sizes = "const int64_t *sizes, " if ranges else ""
    first = f" for {len(ranges)} sizes" if ranges else ""
    return _HEADER.format(prefix=prefix, upper=upper, codes=codes, listed=listed, sizes=sizes, first=first)


_HEADER = """\
/* {prefix}: a program that rushlight compiled ahead of time.  It needs the C library alone.
 *
{listed} *
 * Tensors are row-major.  Any number of threads may call {prefix}_run at one time; it never ends the process.
 * The interface is rushlight's own, not that of PyTorch's AOTInductor.
 */
#ifndef {upper}_H
#define {upper}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

enum {prefix}_code {{
{codes}
}};

typedef struct {{
    const char *name;
    const char *dtype;
    int64_t rank;
    const int64_t *shape;
    int64_t bytes;
}} {prefix}_tensor;

/* Runs the program{first} on {prefix}_input_count() addresses of inputs, which it reads, and {prefix}_output_count() addresses
 * of outputs, which it fills.  Returns a code; where it is not {upper}_OK, the text at `message` (may be NULL) says why. */
int32_t {prefix}_run({sizes}const void *const *inputs, void *const *outputs, char *message, int64_t message_size);

int64_t {prefix}_input_count(void);
int64_t {prefix}_output_count(void);

/* What an input or output is; NULL where there is none of that number. */
const {prefix}_tensor *{prefix}_input({sizes}int64_t number);
const {prefix}_tensor *{prefix}_output({sizes}int64_t number);

/* The kind of processor whose code runs here; NULL where this library has none for it. */
const char *{prefix}_processor(void);

/* How many threads one call uses, at least 1; at first RUSHLIGHT_NUM_THREADS, else OMP_NUM_THREADS, else the cores that
 * the process may use.  Not while a call runs in another thread that should still use the old number. */
int32_t {prefix}_set_threads(int64_t count);

/* Where the weights are, for a library without its own: they stay there, aligned to 64 bytes. */
int32_t {prefix}_set_weights(const void *weights);

#ifdef __cplusplus
}}
#endif
#endif
"""
