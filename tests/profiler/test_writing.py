"""Files of the profiler: whole or not at all."""

from __future__ import annotations

import gzip

import pytest

from rushlight.profiler.writing import write_text


@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_is_replaced_whole_or_stays(tmp_path, compressed):
    path = tmp_path / "trace"
    write_text(str(path), "first", compressed)
    kept = path.read_bytes()
    assert (gzip.decompress(kept) if compressed else kept) == b"first"
    with pytest.raises(UnicodeEncodeError):
        write_text(str(path), "half of it \ud800", compressed)
    assert path.read_bytes() == kept and [p.name for p in tmp_path.iterdir()] == ["trace"]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_text(str(tmp_path / "no" / "trace"), "x", False)
