"""GGUF files: blocks decoded as the reference decoder does, files both ways, models that stay packed, hostile files."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight._interface.operators import BLOCK_TYPES, function_of
from rushlight.serialization import gguf as files
from rushlight.serialization.gguf.block_types import CODES, table_of

numbers, linear = function_of("gguf_numbers"), function_of("gguf_linear")


def _blocks(kind: str, rows: int, count: int, highest: int = 256) -> np.ndarray:
    rng = np.random.default_rng(len(kind) + rows)
    return rng.integers(0, highest, (rows, count, BLOCK_TYPES[kind].nbytes), dtype=np.uint8)


def test_types_are_those_of_the_format() -> None:
    library = pytest.importorskip("gguf")
    for name, code in CODES.items():
        assert library.GGMLQuantizationType[name] == code
        if name in BLOCK_TYPES:
            assert BLOCK_TYPES[name][:2] == library.GGML_QUANT_SIZES[library.GGMLQuantizationType[name]]
    packed = {t.name for t in library.quants._type_traits} - {"BF16"}
    assert packed == set(BLOCK_TYPES)


@pytest.mark.parametrize("kind", BLOCK_TYPES)
def test_blocks_are_decoded_exactly(kind: str) -> None:
    library = pytest.importorskip("gguf")
    blocks = _blocks(kind, 5, 3)
    with np.errstate(all="ignore"):
        expected = library.quants.dequantize(blocks.reshape(5, -1), library.GGMLQuantizationType[kind])
    found = numbers(torch.from_numpy(blocks), table_of(kind), kind=kind).numpy()
    nan = np.isnan(expected)  # of scales that are no numbers
    assert np.array_equal(np.isnan(found), nan) and nan.mean() < 0.2
    assert np.array_equal(found.view(np.uint32)[~nan], expected.view(np.uint32)[~nan])


@pytest.mark.parametrize("kind", ["Q4_0", "Q5_1", "Q8_0", "Q6_K", "IQ4_XS", "TQ1_0"])
@pytest.mark.parametrize("rows", [1, 6])
def test_products_are_those_of_the_numbers(kind: str, rows: int) -> None:
    size = BLOCK_TYPES[kind].numbers
    blocks = torch.from_numpy(_blocks(kind, 9, 512 // size, 40))
    x = torch.randn(rows, 512, generator=torch.Generator().manual_seed(1), requires_grad=True)
    weight = numbers(blocks, table_of(kind), kind=kind)
    y = linear(x, blocks, table_of(kind), kind=kind)
    exact = x.detach().double() @ weight.double().T
    assert (y.double() - exact).abs().max() < 1e-5 * exact.abs().max()
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert torch.allclose(grad, weight.sum(0).expand_as(x), rtol=1e-4, atol=1e-4 * float(weight.abs().max()))


def _model() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Embedding(10, 64), torch.nn.Linear(64, 32), torch.nn.GELU(), torch.nn.Linear(32, 7, bias=False)
    )


METADATA = {
    "general.architecture": "none",
    "whole": [1, -2],
    "real": [1.5],
    "yes": True,
    "texts": ["a", "b\u00e9"],
    "less": -5,
    "none": [],
}


def test_files_are_those_of_the_reference_reader(tmp_path: Path) -> None:
    library = pytest.importorskip("gguf")
    model, path = _model(), tmp_path / "model.gguf"
    files.save_file(
        model.state_dict(), path, metadata=METADATA, kinds={"0.weight": "Q8_0", "1.weight": "Q4_0", "3.weight": "F16"}
    )
    reader = library.GGUFReader(path)
    assert {name: f.contents() for name, f in reader.fields.items() if not name.startswith("GGUF.")} == METADATA
    with files.open_file(path) as file:
        assert file.metadata == METADATA and file.keys() == [t.name for t in reader.tensors]
        for t in reader.tensors:
            expected = library.quants.dequantize(t.data, t.tensor_type)
            assert np.array_equal(file.get_tensor(t.name).float().numpy(), expected)
        with pytest.raises(KeyError, match="no tensor named 'other'"):
            file.get_packed("other")


def test_a_model_runs_packed(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    model, path = _model(), tmp_path / "model.gguf"
    files.save_file(model.state_dict(), path, kinds={"0.weight": "Q4_1", "1.weight": "Q8_0", "3.weight": "Q5_0"})
    decoded = _model()
    decoded.load_state_dict(files.load_file(path))
    packed = files.load_packed(_model(), files.load_file(path, packed=True))
    assert [type(m).__name__ for m in packed] == ["PackedEmbedding", "PackedLinear", "GELU", "PackedLinear"]
    assert packed[1].blocks.nbytes * 3.7 < decoded[1].weight.nbytes
    ids = torch.randint(0, 10, (2, 5))
    assert torch.allclose(packed(ids), decoded(ids), rtol=1e-5, atol=1e-6)
    assert torch.equal(torch.compile(packed, fullgraph=True)(ids), packed(ids))
    assert torch.equal(packed[1].weight, decoded[1].weight)


def test_packed_weights_pass_through_files(tmp_path: Path) -> None:
    weight = files.PackedWeight(torch.from_numpy(_blocks("Q6_K", 4, 2)), "Q6_K")
    files.save_file({"w": weight, "v": torch.arange(3)}, tmp_path / "a.gguf")
    found = files.load_file(tmp_path / "a.gguf", packed=True)
    assert found["w"].kind == "Q6_K" and torch.equal(found["w"].blocks, weight.blocks) and found["w"].shape == (4, 512)
    assert torch.equal(found["v"], torch.arange(3))


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    weight = files.PackedWeight(torch.from_numpy(_blocks("Q8_0", 4, 2)), "Q8_0")
    with pytest.raises(
        ValueError, match=r"missing \['1.bias'.*unknown \['x'\], other shapes \['1.weight: \[4, 64\] for \[32, 64\]"
    ):
        files.load_packed(_model(), {"x": torch.ones(1), "1.weight": weight, "0.weight": torch.ones(10, 64)})
    with pytest.raises(NotImplementedError, match="Q8_K cannot be decoded"):
        files.PackedWeight(torch.zeros(1, 1, 292, dtype=torch.uint8), "Q8_K")
    with pytest.raises(ValueError, match=r"uint8 \[\*, B, 18\]"):
        files.PackedWeight(torch.zeros(1, 17, dtype=torch.uint8), "Q4_0")
    with pytest.raises(ValueError, match=r"no torch.complex64, the dtype of 'c'"):
        files.save_file({"c": torch.ones(2, dtype=torch.complex64)}, tmp_path / "c.gguf")
    with pytest.raises(ValueError, match="metadata 'k'"):
        files.save_file({}, tmp_path / "c.gguf", metadata={"k": {}})
    assert not list(tmp_path.iterdir())
    with pytest.raises(RuntimeError, match=r"bytes \[..., B, 18\]"):
        numbers(torch.zeros(1, 1, 17, dtype=torch.uint8), None, kind="Q4_0")


def _small() -> dict[str, Any]:
    return {"w": files.PackedWeight(torch.from_numpy(_blocks("Q4_0", 2, 2)), "Q4_0"), "b": torch.ones(3)}


def mutations(raw: bytes, count: int, seed: int = 0) -> Any:
    """Files with some bytes changed, cut or put in, with numbers at the ends of their ranges among them."""
    rng = random.Random(seed)
    for _ in range(count):
        data = bytearray(raw)
        for _ in range(rng.choice((1, 1, 2, 4))):
            at = rng.randrange(len(data))
            what = rng.randrange(4)
            if what == 0:
                data[at] = rng.randrange(256)
            elif what == 1:
                data[at : at + 8] = rng.choice((0, 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1)).to_bytes(8, "little")
            elif what == 2:
                del data[at : at + rng.randrange(1, 40)]
            else:
                data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
            if not data:
                break
        yield bytes(data)


def test_hostile_files_are_errors(tmp_path: Path) -> None:
    path, whole = tmp_path / "m.gguf", tmp_path / "whole.gguf"
    files.save_file(_small(), whole, metadata={"general.alignment": 32, "list": ["a", "b"], "n": [1, 2, 3]})
    raw, errors = whole.read_bytes(), 0
    for data in mutations(raw, 400):
        path.write_bytes(data)
        try:
            found = files.load_file(path, packed=True)
            assert sum(x.nbytes for x in found.values()) <= 4 * len(data)
        except (files.GGUFError, NotImplementedError):
            errors += 1
    assert errors > 100
    for data, words in (
        (b"GGUF", "at least 24 bytes"),
        (b"XGUF" + raw[4:], "begins with other bytes"),
        (raw[:4] + (3).to_bytes(4, "big") + raw[8:], "big-endian"),
        (raw[:4] + (9).to_bytes(4, "little") + raw[8:], "version 9"),
        (raw[:8] + (1 << 60).to_bytes(8, "little") + raw[16:], "tensors and"),
        (raw[: len(raw) - 8], "does not lie in a file"),
    ):
        path.write_bytes(data)
        with pytest.raises(files.GGUFError, match=words):
            files.open_file(path)
