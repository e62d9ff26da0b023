"""Specs are interned; dtypes and devices are what PyTorch's are."""

from __future__ import annotations

import copy
import gc
import pickle

import pytest

from rushlight._types.device import CPU, META, Device, as_device
from rushlight._types.dtype import ALL_DTYPES, BFLOAT16, COMPLEX32, COMPLEX64, FLOAT16, FLOAT32, INT64, from_numpy_name
from rushlight._types.spec import Spec, check_memory


def test_equal_specs_are_one_object() -> None:
    a = Spec.of(FLOAT32, CPU, (2, 3))
    assert a is Spec.of(FLOAT32, CPU, [2, 3], (3, 1)) and a is not Spec.of(FLOAT32, META, (2, 3))
    assert (a.numel, a.ndim, a.nbytes, a.contiguous, a.strides) == (6, 2, 24, True, (3, 1))
    assert not Spec.of(FLOAT32, CPU, (2, 3), (1, 2)).contiguous


def test_a_spec_without_memory_is_another_and_says_so() -> None:
    plain, released = Spec.of(FLOAT32, CPU, (2, 3)), Spec.of(FLOAT32, CPU, (2, 3), released=True)
    assert released is not plain and released is Spec.of(FLOAT32, CPU, (2, 3), (3, 1), False, True)
    assert released.device is CPU and repr(released) == "Spec(float32, cpu, [2, 3], strides=[3, 1], released)"
    assert released.conjugated().released and released.conjugated().conjugated() is released
    assert Spec.of(FLOAT32, CPU, (0, 3), released=True) is Spec.of(FLOAT32, CPU, (0, 3))  # it has no elements to lack
    check_memory(plain, None)
    with pytest.raises(RuntimeError, match="not allocated"):
        check_memory(plain, released)


@pytest.mark.slow
def test_specs_are_forgotten_when_nobody_holds_them() -> None:
    from rushlight._types import spec

    gc.collect()
    before = len(spec._TABLE)
    for n in range(3 * spec._MAX_RECENT):  # a few of the latest are kept for reuse
        Spec.of(INT64, CPU, (7, 7, n))
    gc.collect()
    assert len(spec._RECENT) <= spec._MAX_RECENT
    assert len(spec._TABLE) <= before + spec._MAX_RECENT


def test_dtypes() -> None:
    for dtype in ALL_DTYPES:
        assert (
            pickle.loads(pickle.dumps(dtype)) is dtype and copy.deepcopy(dtype) is dtype and copy.copy(dtype) is dtype
        )
        assert repr(dtype) == f"torch.{dtype.name}"
        if dtype.numpy_name:
            assert from_numpy_name(dtype.name) is dtype
    assert BFLOAT16.numpy_name is None
    assert FLOAT16.to_complex() is COMPLEX32 and COMPLEX64.to_real() is FLOAT32 and FLOAT32.to_real() is FLOAT32
    with pytest.raises(TypeError, match=r"numpy\.object"):
        from_numpy_name("object")
    with pytest.raises(RuntimeError, match="Unknown Complex ScalarType for Long"):
        INT64.to_complex()


def test_devices() -> None:
    assert repr(Device("cuda:1")) == "device(type='cuda', index=1)" and str(Device("cuda", 1)) == "cuda:1"
    assert (
        as_device("cpu") is CPU
        and as_device(None) is CPU
        and as_device("cpu:0") is CPU
        and as_device(Device("meta")) is META
    )
    assert Device("cpu") == CPU and hash(Device("cpu")) == hash(CPU) and Device(CPU) == CPU
    assert pickle.loads(pickle.dumps(Device("cuda:1"))) == Device("cuda", 1)
    with pytest.raises(RuntimeError, match="has only: cpu, meta|there is no CUDA GPU"):
        as_device("cuda")
    for bad in ("gpu", "cuda:", "cuda:x"):
        with pytest.raises(RuntimeError):
            Device(bad)
    with pytest.raises(RuntimeError, match="must not include an index"):
        Device("cuda:1", 1)
    with pytest.raises(RuntimeError, match="accelerator"):  # a number is one of the accelerator's
        Device(3)  # type: ignore[arg-type]
