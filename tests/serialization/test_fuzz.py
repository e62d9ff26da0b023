"""Mutated and made-up files: `load` ends in an error that programs expect, or in an object; never in a crash, a hang, much memory, or code."""

from __future__ import annotations

import io
import os
import pickle
import struct
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.serialization import fuzz
from tests.serialization.test_hostile import archive, text

import rushlight as torch

INPUTS = int(os.environ.get("RUSHLIGHT_FUZZ_INPUTS", "1200"))


def test_mutated_files() -> None:
    # In a process of its own: it watches for whatever files must not reach, and may use little memory.
    done = subprocess.run(
        [sys.executable, "-m", "tests.serialization.fuzz", str(INPUTS)], capture_output=True, text=True, timeout=300 + INPUTS / 10,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "'loaded'" in done.stdout and "'UnpicklingError'" in done.stdout


_PIECES = st.one_of(
    st.sampled_from([b"(", b")", b"0", b"N", b"R", b"t", b"Q", b"}", b"]", b"a", b"b", b"s", b"u", b"e", b"\x81", b"\x85", b"\x86", b"\x87", b"\x93", b"\x94"]),
    st.sampled_from([b"c" + name for name in fuzz._NAMES]),
    st.integers(-(2**63), 2**63 - 1).map(lambda n: b"\x8a\x08" + struct.pack("<q", n)),
    st.text(max_size=8).map(lambda s: text(s) if s.isascii() else b"N"),
    st.integers(0, 9).map(lambda n: b"q" + bytes((n,))), st.integers(0, 9).map(lambda n: b"h" + bytes((n,))),
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.lists(_PIECES, max_size=40))
def test_programs_of_opcodes(pieces: list[bytes]) -> None:
    try:
        torch.load(archive(b"\x80\x02" + b"".join(pieces) + b"."))
    except fuzz.ERRORS:
        pass


# ***** small files that ask for much *****


def refused(data: bytes | io.BytesIO, seconds: float = 5.0) -> None:
    begin = time.process_time()  # of this process: how busy the machine is does not count
    with pytest.raises(fuzz.ERRORS):
        torch.load(data if isinstance(data, io.BytesIO) else archive(data))
    assert time.process_time() - begin < seconds


@pytest.mark.slow
def test_keys_that_are_nested_deeply_or_manifold() -> None:
    deep = b")" + b"\x85" * 100_000
    manifold = b")q\x00" + b"h\x00h\x00\x86q\x00" * 60
    for key in (deep, manifold):
        refused(b"\x80\x02}" + key + b"Ns.")
        refused(b"\x80\x04\x8f(" + key + b"\x90.")
        refused(b"\x80\x02ccollections\nCounter\n(](" + key + b"etR.")
        refused(b"\x80\x02cbuiltins\nset\n(](" + key + b"etR.")


def test_calls_that_copy_again_and_again() -> None:
    blob = b"X" + struct.pack("<I", 200_000) + b"a" * 200_000 + b"q\x01"
    refused(b"\x80\x02](" + b"c_codecs\nencode\nq\x02" + blob + b"0" + b"h\x02h\x01\x85R" * 60_000 + b"e.", 20)


def _view(kind: str, size: bytes, stride: bytes, numel: int = 1) -> bytes:
    stored = (
        b"("
        + text("storage")
        + b"ctorch\n"
        + kind.encode()
        + b"\n"
        + text("0")
        + text("cpu")
        + b"K"
        + bytes((numel,))
        + b"tQ"
    )
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + stored + b"K\x00" + size + stride + b"\x89}tR"


def test_views_that_repeat_one_element() -> None:
    many = b"\x8a\x06" + (10**12).to_bytes(6, "little")
    indices = _view("LongStorage", b"K\x01" + many + b"\x86", b"K\x00K\x00\x86")
    values = _view("LongStorage", many + b"\x85", b"K\x00\x85")
    sparse = (b"ctorch._utils\n_rebuild_sparse_tensor\n(ctorch.serialization\n_get_layout\n" + text("torch.sparse_coo") + b"\x85R("
              + indices + values + many + b"\x85ttR.")  # fmt: skip
    record = {"data/0": bytes(8)}
    for program in (
        sparse,
        b"ctorch._utils\n_rebuild_nested_tensor\n(" + values + indices + indices + values + b"tR.",
        b"ctorch._utils\n_rebuild_device_tensor_from_cpu_tensor\n("
        + values
        + b"ctorch\nfloat64\n"
        + text("cpu")
        + b"\x89tR.",
    ):
        refused(archive(b"\x80\x02" + program, record))


def test_a_legacy_stream_that_announces_more_than_it_has() -> None:
    out = io.BytesIO()
    torch.save(torch.ones(3), out, _use_new_zipfile_serialization=False)
    whole = out.getvalue()
    at = whole.index(b"cpu") + 5
    assert whole[at : at + 2] == b"K\x03"
    refused(io.BytesIO(whole[:at] + b"\x8a\x06" + (10**12).to_bytes(6, "little") + whole[at + 2 :]))
    for end in range(0, len(whole), 5):
        refused(io.BytesIO(whole[:end]))


def test_names_that_lead_outside() -> None:
    outside = (
        b"\x80\x02"
        + _view("LongStorage", b"K\x01\x85", b"K\x01\x85").replace(text("0"), text("../../../../etc/passwd"))
        + b"."
    )
    with pytest.raises(RuntimeError, match="there is no record"):
        torch.load(archive(outside, {"data/0": bytes(8)}))
    with pytest.raises(pickle.UnpicklingError):
        torch.load(archive(b"\x80\x02ctorch.serialization\nmkdtemp\n)R."))
