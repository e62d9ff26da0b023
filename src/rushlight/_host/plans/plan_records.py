"""The tables of native plans: one record for each kind of plan, which `plan_native` and `node_native` read and Python
packs (`packed`).

Every table begins with the tag of its kind.  With the knob `check_tables` the packer checks that each value is of the
type that its field declares, and native code that the table in its hands is of the kind that it reads.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from rushlight._base.knobs import Knob
from rushlight._native import Listed, Record, i64, listed, ptr, pyobject

__all__ = [
    "CAST", "CAST_CONSTANTS", "CAST_OFFSET", "CHECKED", "CHECK_TABLES", "CHOOSE", "CONSTANT", "DETACH", "FRESH", "FROM_NUMBER", "FROM_RESULT", "FROM_TENSOR",
    "IDENTITY", "INPLACE", "ITEM", "KERNEL", "KINDS", "PLAN", "PROGRAM", "RECORDING", "RETYPE", "SAVED", "SEQUENCE", "SEQUENCE_STEP", "SHOW", "SHOWN",
    "STEP", "VIEW", "VIEWED", "list_place", "packed", "tag_of",
]  # fmt: skip

CHECK_TABLES: Knob[bool] = Knob(
    "check_tables",
    env="RUSHLIGHT_CHECK_TABLES",
    kind=bool,
    default=False,
    doc="Whether tables of native plans are checked as they are made and read (a debug build of the host runtime).",
)
CHECKED: bool = CHECK_TABLES.get()  # read once: native code is compiled with it

TAG = ("tag", i64, "which kind of plan the table is of")
GIVEN = ("given", i64, "how many arguments the plan takes; calls with others go to its Python fallback")
SEVERAL = ("several", i64, "1: the plan gives a tuple, 0: one tensor")
PLAN = Record("plan", TAG)

# ***** programs *****

STEP = Record(
    "step",
    ("kernel", ptr, "where its code lies"),
    ("constants", ptr, "the constants of its launch, which begin as `LAUNCH` says"),
    ("n_words", i64, "how many words it takes"),
    ("words", listed(i64), "the slots of these words"),
    ("fresh", i64, "how many results it makes; they take the next slots"),
    ("n_dead", i64, "how many slots nobody reads after it"),
    ("dead", listed(i64), "these slots"),
)
PROGRAM = Record(
    "program",
    ("device", ptr, "the functions of the device that runs it (`DEVICE`)"),
    ("n_inputs", i64, "inputs: they take the first slots"),
    ("n_tensors", i64, "how many of the inputs are tensors; those come first"),
    ("order", listed(i64), "for each input which argument it is; -1 - k: the k-th of the constants"),
    ("constants", listed(i64), "words that stand for inputs"),
    ("offset", i64, "bytes that are added to the address of the first input"),
    ("n_steps", i64, "kernels"),
    ("steps", listed(STEP), "they"),
    ("n_slots", i64, "slots for inputs and for what the steps make"),
    ("largest", i64, "the most words, results included, that a step takes"),
    ("n_results", i64, "results"),
    ("results", listed(i64), "their slots; -1: a result without elements"),
    (
        "bounded",
        i64,
        "1: numbers among the arguments must be ints from `least` to `most`, else the Python fallback is called",
    ),
    ("least", i64, "the least such int"),
    ("most", i64, "the greatest such int"),
)

# ***** nodes *****

FROM_TENSOR, FROM_NUMBER, FROM_RESULT = 0, 1, 2
SAVED = Record(
    "saved value",
    (
        "source",
        i64,
        "FROM_TENSOR, FROM_NUMBER (arguments) or FROM_RESULT (a result, or what the program makes for backward alone)",
    ),
    ("index", i64, "which of them"),
)
RECORDING = Record(
    "recording",
    ("backward_spec", pyobject, "how the call is differentiated"),
    ("node_type", pyobject, "the class of its node"),
    ("n_edges", i64, "edges of the node"),
    ("edges", listed(i64), "the arguments to which they lead"),
    ("n_saved", i64, "values that the node keeps"),
    ("saved", listed(SAVED), "they"),
    ("differentiable", i64, "a bit for each result that has a gradient"),
)
RECORDS = ("records", i64, "1: the plan records a node")

# ***** kinds of plans *****

KERNEL = Record(
    "kernel plan", TAG, GIVEN,
    ("program", PROGRAM, "makes the results"),
    ("specs", listed(pyobject), "the specs of the results"),
    ("input_specs", listed(pyobject), "those of the tensors that go in; null: any.  With others the Python fallback is called"),
    ("n_shown", i64, "how many results the caller gets; those behind them are for backward"),
    SEVERAL, RECORDS,
    ("recording", RECORDING, "its node"),
)  # fmt: skip
INPLACE = Record(
    "in-place plan",
    TAG,
    GIVEN,
    ("program", PROGRAM, "changes the target; it has no results"),
    ("target", i64, "which argument is changed"),
    ("target_spec", pyobject, "operands of this spec may be the target itself, element for element; null: none may"),
    ("quiet", i64, "1: gradients are off, so the target may want one"),
    ("gives_none", i64, "1: the plan gives None, 0: the target"),
)
VIEWED = Record(
    "views of one spec",
    ("offset", i64, "bytes from the argument's first element to the first of them"),
    ("spec", pyobject, "their spec"),
    ("count", i64, "how many"),
    ("step", i64, "bytes from one to the next"),
)
VIEW = Record(
    "view plan",
    TAG,
    ("n_views", i64, "views of the first argument"),
    ("n_runs", i64, "runs of views of one spec"),
    ("runs", listed(VIEWED), "they"),
    SEVERAL,
    ("creation", pyobject, "how autograd takes the views: a text"),
    ("bounded", i64, "1: there must be `span` bytes, else the Python fallback is called"),
    ("span", i64, "bytes that the views reach over"),
    ("whole", i64, "1: offsets and `span` count from the start of the storage, 0: from the first element"),
    RECORDS,
    ("recording", RECORDING, "their node"),
)
DETACH = Record("detach plan", TAG)
IDENTITY = Record("identity plan", TAG)
CONSTANT = Record("constant plan", TAG, ("value", pyobject, "what it gives"))
FRESH = Record(
    "fresh plan",
    TAG,
    ("device", ptr, "the functions of the device (`DEVICE`)"),
    ("spec", pyobject, "of the tensor"),
    ("nbytes", i64, "of its memory"),
    ("zeroed", i64, "1: memory of zeros, 0: as it comes"),
)
ITEM = Record(
    "item plan", TAG, ("reader", ptr, "ptr(ptr): the element at an address as a Python number; the device's own")
)
CHOOSE = Record(
    "choose plan", TAG, ("n_picks", i64, "items of the tuple"), ("picks", listed(i64), "which arguments they are")
)
SHOWN = Record(
    "shown argument",
    ("argument", i64, "which"),
    ("offset", i64, "bytes from its first element"),
    ("spec", pyobject, "the spec under which it is shown"),
)
SHOW = Record("show plan", TAG, ("n_shown", i64, "items of the tuple"), ("shown", listed(SHOWN), "they"))
RETYPE = Record("retype plan", TAG, ("spec", pyobject, "the spec under which the argument is shown"))
SEQUENCE_STEP = Record(
    "step of a sequence",
    ("plan", pyobject, "what runs"),
    ("n_inputs", i64, "its arguments"),
    ("inputs", listed(i64), "their slots; -1 - k: the k-th of the constants"),
    ("several", i64, "how many results it gives as a tuple; 0: it gives one, as it is"),
    ("first", i64, "the slot of the first result"),
    ("n_dead", i64, "how many slots nobody reads after it"),
    ("dead", listed(i64), "these slots"),
)
SEQUENCE = Record(
    "sequence plan",
    TAG,
    GIVEN,
    ("n_steps", i64, "plans"),
    ("steps", listed(SEQUENCE_STEP), "they"),
    ("constants", listed(pyobject), "objects that steps take"),
    ("n_slots", i64, "slots for arguments, which take the first ones, and for results"),
    ("n_results", i64, "results"),
    ("results", listed(i64), "their slots; below zero as of `inputs`"),
    SEVERAL,
)

KINDS = (KERNEL, VIEW, INPLACE, DETACH, IDENTITY, CONSTANT, FRESH, ITEM, CHOOSE, SHOW, RETYPE, SEQUENCE)
_TAGS = {record: 0x504C0000 + number for number, record in enumerate(KINDS)}


def tag_of(record: Record) -> int:
    """The tag at the beginning of tables of this record."""
    return _TAGS[record]


# ***** casts: plans that differ from another in a few words *****

CAST_CONSTANTS = Record(
    "constants of a cast step",
    ("place", i64, "the word of the table that says where they lie"),
    ("start", i64, "the first of the values that they are"),
    ("stop", i64, "the first that they are not"),
)
CAST_OFFSET = Record(
    "offset of a cast view", ("place", i64, "its word"), ("value", i64, "which of the values it is, in elements")
)
CAST = Record(
    "cast",
    ("n_words", i64, "words of the table"),
    ("n_constants", i64, "words of constants, which are put behind it"),
    ("n_steps", i64, "steps with constants"),
    ("steps", listed(CAST_CONSTANTS), "they"),
    ("n_specs", i64, "specs"),
    ("specs", listed(i64), "their words"),
    ("n_offsets", i64, "views"),
    ("offsets", listed(CAST_OFFSET), "where they begin"),
    ("itemsize", i64, "bytes of an element of the views"),
    ("backward_spec", i64, "the word of the backward spec; 0: there is none"),
)


# ***** packing *****


def packed(record: Record, values: Mapping[str, Any]) -> tuple[array[int], list[Any]]:
    """The words of a table with these values, and the objects whose addresses are among them.  The tag of a plan's kind
    is added.

    A list is given as a sequence, its records as sequences of their values; a record within as a mapping.  Raises
    TypeError where a field has no value or there is no such field, and with the knob `check_tables` where a value is
    not of the field's type.
    """
    words: list[int] = [0] * len(record)
    keep: list[Any] = []
    _fill(words, 0, record, {"tag": _TAGS[record], **values} if record in _TAGS else values, keep)
    return array("q", words), keep


_INT, _OBJECT, _INTS, _OBJECTS, _RECORD, _RECORDS = range(6)
_LAYOUTS: dict[Record, list[tuple[int, int, Any]]] = {}


def _layout(record: Record) -> list[tuple[int, int, Any]]:
    """(word, what is put there, declared type) of each field: looked up once, since plans are packed all the time."""
    found = _LAYOUTS.get(record)
    if found is None:
        found = _LAYOUTS[record] = [(field.place, *_put_as(field.declared)) for field in record]
    return found


def _put_as(kind: Any) -> tuple[int, Any]:
    if isinstance(kind, Record):
        return _RECORD, kind
    if isinstance(kind, Listed):
        item = kind.item
        return (_RECORDS if isinstance(item, Record) else _OBJECTS if item is pyobject else _INTS), item
    return (_OBJECT if kind is pyobject else _INT), kind


def _fill(words: list[int], base: int, record: Record, values: Mapping[str, Any], keep: list[Any]) -> None:
    names = record.by_name
    if len(values) != len(names) or not values.keys() <= names.keys():
        missing, unknown = names.keys() - values.keys(), values.keys() - names.keys()
        raise TypeError(f"{record.label}: no value for {sorted(missing)}, no such field as {sorted(unknown)}")
    _put(words, base, record, [values[name] for name in names], keep)


def _put(words: list[int], base: int, record: Record, row: Sequence[Any], keep: list[Any]) -> None:
    """Put the values of a record's fields, in their order, at a word."""
    if CHECKED:
        _check_row(record, row)
    for (place, how, kind), value in zip(_layout(record), row, strict=True):
        at = base + place
        if how == _INT:
            words[at] = int(value)
        elif how == _OBJECT:
            keep.append(value)
            words[at] = 0 if value is None else id(value)
        elif how == _RECORD:
            _fill(words, at, kind, value, keep)
        else:
            start = len(words)
            words[at] = start - at
            if how == _INTS:
                words += value
            elif how == _OBJECTS:
                keep += value
                words += [0 if item is None else id(item) for item in value]
            else:
                width = len(kind)
                words += [0] * (width * len(value))
                for k, item in enumerate(value):
                    _put(words, start + k * width, kind, item, keep)


def _check_row(record: Record, row: Sequence[Any]) -> None:
    """TypeError where a value is not of its field's type."""
    for field, value in zip(record, row, strict=True):
        kind = field.declared
        if isinstance(kind, Listed):
            if kind.item is not pyobject and not isinstance(kind.item, Record):
                for item in value:
                    _check_word("an item of a list", kind.item, item)
        elif kind is not pyobject and not isinstance(kind, Record):
            _check_word(f"{record.label}.{field.name}", kind, value)


def _check_word(where: str, kind: Any, value: Any) -> None:
    if type(value) is not int or not (0 if kind is ptr else -1 << 63) <= value < 1 << 63:
        raise TypeError(f"{where} is {kind!r}, not {value!r}")


def list_place(words: Sequence[int], field_at: int) -> int:
    """The word with which the list begins that is named at word `field_at`."""
    return field_at + words[field_at]
