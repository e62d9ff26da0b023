"""Programs of a GPU as tables that native code reads: launches, their parameters, and where these come from."""

from __future__ import annotations

from rushlight._native import Record, i64, listed, ptr, pyobject

__all__ = [
    "ADDRESS", "ADDRESS_BYTES", "AS_DOUBLE", "AS_INTEGER", "AS_IS", "AS_SINGLE", "CALL", "INTEGER_AS_SINGLE", "LAUNCHED", "LAUNCHED_BYTES",
    "MAP", "MAP_RECORD_BYTES", "NUMBER", "NUMBER_BYTES", "PROGRAM",
]  # fmt: skip

# how a number of the call becomes the word of a parameter
AS_IS, AS_SINGLE, AS_INTEGER, AS_DOUBLE, INTEGER_AS_SINGLE = range(5)
ADDRESS = Record(
    "address",
    ("word", i64, "the parameter"),
    ("buffer", i64, "which of the addresses of a call"),
    ("offset", i64, "bytes from there"),
    ("mask", i64, "bits that an aligned address has not"),
)
NUMBER = Record(
    "number",
    ("word", i64, "the parameter"),
    ("buffer", i64, "which of the words of a call"),
    ("form", i64, "see AS_IS"),
)
MAP = Record(
    "tensor map",
    ("word", i64, "the parameter that is the array's address"),
    ("address", i64, "for which the map was encoded last"),
    ("map", ptr, "its 128 bytes"),
    ("kind", i64, "of elements, as the driver counts"),
    ("dims", i64, "of the array"),
    ("sizes", ptr, "of the array, 8 bytes each"),
    ("strides", ptr, "in bytes, of all dims but the first"),
    ("box", ptr, "sizes of a copy, 4 bytes each"),
    ("steps", ptr, "ones, or steps of windows, 4 bytes each"),
    ("lower", ptr, "the begin of the windows of an image, 4 bytes each; 0 where boxes of an array are copied"),
    ("upper", ptr, "their end, counted from that of the image"),
)
LAUNCHED = Record(
    "launch of a program",
    ("function", ptr, "the kernel, or a function of a library"),
    ("stream", i64, "the word of a library's function that is the stream; -1: this is a kernel"),
    ("x", i64, "the grid"),
    ("y", i64, "the grid"),
    ("z", i64, "the grid"),
    ("threads", i64, "of a block"),
    ("shared", i64, "bytes of shared memory"),
    ("words", ptr, "the parameters, 8 bytes each"),
    ("pointers", ptr, "an address for each of them"),
    ("n_addresses", i64, "addresses among them"),
    ("addresses", listed(ADDRESS), "they"),
    ("n_numbers", i64, "numbers among them"),
    ("numbers", listed(NUMBER), "they"),
    ("other", ptr, "the kernel for addresses that are aligned to elements alone; null: Python is asked for it"),
    ("other_threads", i64, "of its blocks"),
    ("other_shared", i64, "its shared memory"),
    ("n_words", i64, "parameters of 8 bytes"),
    ("n_maps", i64, "tensor maps, which are further parameters"),
    ("maps", listed(MAP), "they"),
    ("node", ptr, "of the program's graph"),
    ("given", i64, "whether the node has the parameters that are among `words`"),
)
PROGRAM = Record(
    "program",
    ("name", pyobject, "of the program"),
    ("run", pyobject, "a function (address of the addresses, number of the first launch) that does the same in Python"),
    ("n_launches", i64, "kernels"),
    ("launches", listed(LAUNCHED), "they"),
    (
        "executable",
        ptr,
        "a graph of them, whose nodes are given the parameters of each call; null: they are launched one by one",
    ),
)
CALL = Record(
    "call",
    ("program", ptr, "PROGRAM"),
    ("constants", ptr, "its LAUNCH"),
    ("n_words", i64, "arguments of a call"),
    ("n_results", i64, "storages that a call returns, the first ones that are made"),
    ("owner", pyobject, "of the storages"),
)
LAUNCHED_BYTES, ADDRESS_BYTES, NUMBER_BYTES, MAP_RECORD_BYTES = (
    8 * len(LAUNCHED),
    8 * len(ADDRESS),
    8 * len(NUMBER),
    8 * len(MAP),
)
