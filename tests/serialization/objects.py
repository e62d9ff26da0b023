"""Objects that go through files, made with PyTorch or with rushlight (`t`), each under a name."""

from __future__ import annotations

import importlib
from collections import Counter, OrderedDict
from typing import Any

DTYPES = (
    "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex32 complex64 complex128 "
    "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu"
).split()
# PyTorch cannot read these from its own legacy format: it makes tensors before their numbers are there, and wants storages with a dtype.
ZIP_ONLY = ("nested",)
ZIP_ONLY_IN_PYTORCH = (
    "storage", "bits", "uint16", "uint32", "uint64", "complex32", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float8_e8m0fnu",
)  # fmt: skip


def objects(t: Any) -> dict[str, Any]:
    """Each can be loaded without trust."""
    base = t.arange(12, dtype=t.float32)
    marked, parameter = t.ones(2), t.nn.Parameter(t.ones(2), requires_grad=False)
    marked.note, parameter.note = {"made by": "hand"}, [1, base]
    dense = t.tensor([[0.0, 2.0, 0.0, 1.0], [3.0, 0.0, 0.0, 0.0]])
    generator = t.Generator()
    generator.manual_seed(7)
    found = {name: t.tensor([0.0, 1.0, 1.0]).to(getattr(t, name)) for name in DTYPES}
    return found | {
        "bits": base.view(t.uint8)[:4].clone().view(t.float8_e5m2),
        "views": [base, base[2:8:2], base.reshape(3, 4).T, base[3]],
        "empty": t.empty(0, 3),
        "expanded": t.ones(1, 3).expand(4, 3),
        "needs grad": t.ones(2, requires_grad=True),
        "meta": t.empty(2, 3, device="meta"),
        "coo": dense.to_sparse(),
        "hybrid": dense.to_sparse(1),
        "uncoalesced": t.sparse_coo_tensor(t.tensor([[0, 0]]), t.tensor([1.0, 2.0]), (3,)),
        "csr": dense.to_sparse_csr(), "csc": dense.to_sparse_csc(),
        "bsr": dense.to_sparse_bsr((1, 2)), "bsc": dense.to_sparse_bsc((2, 2)),
        "quint8": t.quantize_per_tensor(dense, 0.5, 3, t.quint8),
        "qint32": t.quantize_per_tensor(dense, 0.25, 0, t.qint32)[1],
        "channels": t.quantize_per_channel(dense, t.tensor([0.5, 0.25]), t.tensor([0, 1]), 0, t.qint8),
        "nested": t.nested.nested_tensor([t.ones(2, 3), t.zeros(1, 2)]),
        "jagged": t.nested.nested_tensor([t.arange(2.0), t.ones(3)], layout=t.jagged),
        "parameter": t.nn.Parameter(t.ones(2)), "marked": marked, "marked parameter": parameter,
        "conjugate": t.tensor([1 + 2j]).conj(),
        "plain": [1, 2.5, "text ☃", None, True, False, 2**70, -3, {1, 2}, (), (1,), (1, 2, 3, 4), 2j, b"bytes", bytearray(b"ab")],
        "dicts": [OrderedDict(b=1, a=2), Counter("aab"), {1: {2: 3}, (1, 2): 4}],
        "torch": [t.Size([2, 3]), t.float16, t.uint16, t.device("cpu"), t.device("cuda", 1), t.per_tensor_affine, t.sparse_csr, t.strided],
        "generator": [generator.get_state()],
        "storage": [base.untyped_storage()],
    }  # fmt: skip


def same(a: Any, b: Any) -> None:
    """Equal, whichever of the two libraries each belongs to."""
    if hasattr(a, "is_nested") and a.is_nested:
        assert a.layout.__repr__() == b.layout.__repr__()
        same(list(a.unbind()), list(b.unbind()))
    elif hasattr(a, "is_quantized") and a.is_quantized:
        assert repr(a.qscheme()) == repr(b.qscheme()) and repr(a.dtype) == repr(b.dtype)
        same(a.int_repr(), b.int_repr())
        same(a.dequantize(), b.dequantize())
    elif hasattr(a, "layout") and "sparse" in repr(a.layout):
        assert repr(a.layout) == repr(b.layout) and tuple(a.shape) == tuple(b.shape)
        assert "coo" not in repr(a.layout) or a.is_coalesced() == b.is_coalesced()
        same(a.to_dense(), b.to_dense())
    elif hasattr(a, "storage_offset"):
        assert type(a).__name__ == type(b).__name__
        assert tuple(a.shape) == tuple(b.shape) and repr(a.dtype) == repr(b.dtype)
        assert tuple(a.stride()) == tuple(b.stride()) and a.storage_offset() == b.storage_offset()
        assert a.requires_grad == b.requires_grad and str(a.device) == str(b.device)
        same(vars(a), vars(b))
        if not a.is_meta:
            assert _numbers(a) == _numbers(b)
    elif hasattr(a, "untyped"):
        assert a.nbytes() == b.nbytes() and list(a.untyped()) == list(b.untyped())
    elif isinstance(a, dict):
        assert type(a) is type(b) and list(a) == list(b)
        assert getattr(a, "_metadata", None) == getattr(b, "_metadata", None)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    else:
        assert repr(a) == repr(b)


def _numbers(x: Any) -> Any:
    home = importlib.import_module(type(x.dtype).__module__.split(".")[0])
    return x.detach().resolve_conj().to(home.complex128 if x.dtype.is_complex else home.float64).tolist()
