"""Words of the host's table, of dispatchers, of plan caches and their entries; kinds of arguments."""

from __future__ import annotations

from rushlight._native import static

__all__ = [
    "BIRTH", "DEEPEST", "DEFAULT", "DICT_NAME", "DISPATCHER_BYTES", "DISPATCHER_TYPE", "DYNAMIC", "D_CALL", "D_COUNT", "D_DEFAULTS", "D_DICT", "D_FALLBACK",
    "D_SHAPE_CLASSES", "D_KIND_BYTES", "D_NAMES", "D_PLANS", "D_SIZED", "D_WEAK", "EITHER", "ENTRY_BYTES", "ENTRY_TYPE", "E_COUNT", "E_HASH", "E_KEEP",
    "E_PICKS", "E_PICK_COUNT", "E_PLAN", "E_WORDS", "E_WRAP", "HOST", "HOST_WORDS", "FLOAT", "G_FUNCTION", "G_MASK", "G_MOST", "G_NAMED", "HANDLE_TYPE", "INT", "ITEMS", "LEAST_BIRTH", "LIST", "NAME", "NEW_TUPLE",
    "NUMBER_BOOL", "NUMBER_FLOAT", "NUMBER_INT", "O_META", "O_NODE", "O_PTR", "O_RG", "O_SPEC", "O_STORAGE", "PLAIN", "PLAIN_COUNT", "PLAN_TYPE",
    "ROOM", "SETTINGS", "SHORTEN", "SIZE", "SIZES", "SIZE_TYPE", "SLICE", "SPEC", "SPEC_CONJ", "SPEC_CONTIGUOUS", "SPEC_DEVICE", "SPEC_DTYPE", "SPEC_PLAIN",
    "SPEC_RELEASED", "SPEC_SHAPE", "SPEC_STRIDES", "STATE_OBJECT", "STORAGE_TYPE", "TENSORS", "TENSOR_TYPE", "THREAD", "THREAD_DICT", "TUPLE", "T_MASK", "T_SLOTS", "T_USED",
    "WORD_NAME",
]  # fmt: skip

HOST_WORDS = 128
HOST = static("rl_host", 8 * HOST_WORDS)
# words of HOST, set by `runtime` and `native_plans`: types, then offsets of slots of tensors and nodes in bytes
DISPATCHER_TYPE, ENTRY_TYPE, PLAN_TYPE, TENSOR_TYPE, SIZE_TYPE = range(5)
PLAIN_COUNT, PLAIN = 5, 6  # subclasses of Tensor that override nothing; at most PLAIN_MAX
PLAIN_MAX = 10
SETTINGS = 16  # four types whose objects are settings: dtypes, devices, layouts, memory formats
O_STORAGE, O_SPEC, O_PTR, O_RG, O_NODE, O_META = range(20, 26)
STATE_OBJECT, WORD_NAME, DICT_NAME, THREAD, THREAD_DICT = range(26, 31)
NEW_TUPLE = 31  # `tuple.__new__`
SHORTEN = 32  # the function that takes the package's frames off a traceback
STORAGE_TYPE, HANDLE_TYPE = 33, 34
BIRTH, LEAST_BIRTH = 35, 36  # the stamp of storages made now; those with less are not changed without asking
# Slots of a spec
SPEC_DTYPE, SPEC_DEVICE, SPEC_SHAPE, SPEC_STRIDES, SPEC_PLAIN, SPEC_CONTIGUOUS, SPEC_CONJ, SPEC_RELEASED = range(
    96, 104
)

# words of a dispatcher
(
    D_CALL,
    D_DICT,
    D_WEAK,
    D_FALLBACK,
    D_KINDS,
    D_DEFAULTS,
    D_NAMES,
    D_COUNT,
    D_KIND_BYTES,
    D_PLANS,
    D_SHAPE_CLASSES,
    D_SIZED,
) = (*range(2, 12), 14, 17)
DISPATCHER_BYTES = 8 * 18
# words of a guard: a dispatcher with one function and no table
G_FUNCTION, G_MOST, G_NAMED, G_MASK = D_KINDS, D_COUNT, D_KIND_BYTES, D_SIZED
# words of a table: of plans by call keys, or of casting functions by shape classes
T_SLOTS, T_MASK, T_USED = range(3)
# words of an entry: a key, its plan, and which arguments the plan takes
E_HASH, E_COUNT, E_WORDS, E_PLAN, E_WRAP, E_KEEP, E_PICKS, E_PICK_COUNT = range(2, 10)
ENTRY_BYTES = 8 * 10

# kinds of arguments
STATIC, DYNAMIC, LIST, EITHER = 0, 1, 2, 3  # EITHER: a tensor by its spec (also in a tuple), anything else by its value
# tags before values in a call key; objects are their addresses
INT, FLOAT, TUPLE, ITEMS, SLICE, NUMBER_INT, NUMBER_FLOAT, NUMBER_BOOL, DEFAULT, TENSORS, SIZE, NAME = range(1, 13)
SPEC = 2  # a bit that marks the address of a spec; the lowest bit says whether a gradient is required
ROOM = 480  # words of a call key on the stack
SIZES = 24  # the most different sizes of a call whose plan can be cast
DEEPEST = 3  # the deepest nesting of sequences in a call key
