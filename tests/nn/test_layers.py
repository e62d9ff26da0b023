"""Every layer against stored results of real PyTorch: printed form, initial values, result, gradients, buffers."""

from __future__ import annotations

import copy
import inspect
import io
import json
import pathlib
import pickle
from typing import Any

import pytest
from tests.nn.cases import LAYERS, WITHOUT_CASE, build, run, tensors

import rushlight
from rushlight import nn

EXPECTED = json.loads(pathlib.Path(__file__).with_name("expected.json").read_text())

# Parametrizations, of which some compute their start.
COMPUTED = ("orthogonal", "spectral", "weight", "old")


def close(found: Any, wanted: Any, tolerance: float = 2e-5) -> None:
    assert len(found) == len(wanted)
    for f, w in zip(found, wanted, strict=True):
        assert f == w or (f != f and w != w) or abs(f - w) <= tolerance * max(1.0, abs(w)), (f, w)


def test_every_case_is_stored() -> None:
    assert list(LAYERS) == list(EXPECTED)


def public_classes(library: Any) -> dict[str, Any]:
    """The classes of modules that a library shows."""
    found = {name: getattr(library.nn, name) for name in dir(library.nn) if not name.startswith("_")}
    return {name: cls for name, cls in found.items() if isinstance(cls, type) and issubclass(cls, library.nn.Module)}


def test_every_class_has_a_case() -> None:
    seen = {type(part).__name__ for name in LAYERS for part in build(rushlight, name)[0].modules()}
    assert set(public_classes(rushlight)) - seen == WITHOUT_CASE


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name: str) -> None:
    found, wanted = run(rushlight, name), EXPECTED[name]
    assert found["repr"] == wanted["repr"]
    assert list(found["start"]) == list(wanted["start"])
    for key, value in wanted["start"].items():
        if isinstance(value, str):
            assert found["start"][key] == value
        else:
            assert found["start"][key][0] == value[0]
            # Some parametrizations compute their start.
            close(found["start"][key][1], value[1], 2e-6 if name.startswith(COMPUTED) else 1e-7)
    assert found["shape"] == wanted["shape"]
    close(found["out"], wanted["out"])
    assert (found["grad"] is None) == (wanted["grad"] is None)
    if wanted["grad"] is not None:
        close(found["grad"], wanted["grad"])
    assert list(found["grads"]) == list(wanted["grads"])
    for key, values in wanted["grads"].items():
        close(found["grads"][key], values)
    for key, values in wanted["end"].items():
        close(found["end"][key], values)
    assert found["after"] == wanted["after"]
    # The layer drew as many random numbers as PyTorch's, so what is drawn after it agrees as well.
    close(found["draw"], wanted["draw"], 0.0)


def values(tensor: Any) -> Any:
    """What can be compared, of tensors without a shape too."""
    return repr(tensor) if nn.parameter.is_lazy(tensor) else (tensor.dtype, tensor.tolist())


def contents(layer: Any) -> dict[str, Any]:
    return {key: values(value) for key, value in layer.state_dict().items()}


@pytest.mark.parametrize("name", LAYERS)
def test_copies(name: str) -> None:
    layer, args = build(rushlight, name)
    twins = []
    if name.startswith("pruned"):
        with pytest.raises(RuntimeError, match="graph leaves"):
            copy.deepcopy(layer)
    else:
        twins.append(copy.deepcopy(layer))
    if nn.utils.parametrize.is_parametrized(layer):
        with pytest.raises(RuntimeError, match="only supported through state_dict"):
            pickle.dumps(layer)
    else:
        twins.append(pickle.loads(pickle.dumps(layer)))
    rushlight.manual_seed(3)
    before = contents(layer)
    outs = [out.tolist() for out in tensors(layer(*args))]
    for twin in twins:
        assert contents(twin) == before and list(twin.state_dict()) == list(layer.state_dict())
        assert {id(t) for t in (*twin.parameters(), *twin.buffers())}.isdisjoint(
            id(t) for t in (*layer.parameters(), *layer.buffers())
        )
        rushlight.manual_seed(3)
        assert [out.tolist() for out in tensors(twin(*args))] == outs
        assert repr(twin) == repr(layer) and type(twin) is type(layer)


@pytest.mark.parametrize("name", LAYERS)
def test_conversions(name: str) -> None:
    layer, args = build(rushlight, name)
    rushlight.manual_seed(3)
    outs = [out.tolist() for out in tensors(layer(*args))]  # lazy ones have shapes from here on
    floats = [t for t in (*layer.parameters(), *layer.buffers()) if t.is_floating_point()]
    identities = [id(p) for p in layer.parameters()]
    before = contents(layer)
    state = {key: value.clone() for key, value in layer.state_dict().items()}
    for dtype in (rushlight.float64, rushlight.float16):
        layer.to(dtype)
        assert {t.dtype for t in (*layer.parameters(), *layer.buffers()) if t.is_floating_point()} == (
            {dtype} if floats else set()
        )
        assert all(t.dtype is rushlight.int64 for t in layer.buffers() if not t.is_floating_point())
    assert [id(p) for p in layer.float().parameters()] == identities
    layer.to("meta")
    assert all(t.is_meta for t in (*layer.parameters(), *layer.buffers())) and list(layer.state_dict()) == list(state)
    layer.to_empty(device="cpu").load_state_dict(state)
    assert contents(layer) == before
    layer.load_state_dict(state, assign=True)
    assert contents(layer) == before and all(isinstance(p, nn.Parameter) for p in layer.parameters())
    assert len(outs) == len(tensors(layer(*args)))


@pytest.mark.oracle
def test_initial_values_have_the_bits_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    for name in LAYERS:
        if name.startswith(COMPUTED):
            continue
        theirs, ours = build(torch, name)[0].state_dict(), build(rushlight, name)[0].state_dict()
        assert list(theirs) == list(ours) and dict(theirs._metadata) == dict(ours._metadata), name
        for key, value in theirs.items():
            if not torch.nn.parameter.is_lazy(value):
                assert str(value.dtype) == str(ours[key].dtype) and value.tolist() == ours[key].tolist(), (name, key)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
def test_whole_layers_travel_in_files() -> None:
    torch = pytest.importorskip("torch")
    for name in list(LAYERS)[::4]:
        if name.startswith(COMPUTED):
            continue
        (theirs, given), (ours, args) = build(torch, name), build(rushlight, name)
        for source, layer, target, inputs in ((torch, theirs, rushlight, args), (rushlight, ours, torch, given)):
            file = io.BytesIO()
            source.save(layer, file)
            file.seek(0)
            arrived = target.load(file, weights_only=False)
            assert repr(arrived) == repr(layer), name
            arrived(*inputs)


@pytest.mark.oracle
def test_classes_have_the_bases_and_arguments_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    theirs, ours = public_classes(torch), public_classes(rushlight)
    assert set(theirs) == set(ours)
    for name, cls in theirs.items():
        found = ours[name]
        assert found.__module__.replace("rushlight", "torch") == cls.__module__
        for other in theirs:
            assert issubclass(found, ours[other]) == issubclass(cls, theirs[other]), (name, other)
        # Private bases too: programs look for `_BatchNorm`, and make convolutions from `_ConvNd`.
        assert {base.__name__ for base in cls.__mro__} - {"Generic"} <= {base.__name__ for base in found.__mro__}, name
        arguments = list(inspect.signature(cls).parameters)
        if arguments != ["args", "kwargs"]:
            assert arguments == list(inspect.signature(found).parameters), name
        if name not in ("DataParallel", "RNNBase"):
            assert list(inspect.signature(cls.forward).parameters) == list(
                inspect.signature(found.forward).parameters
            ), name


@pytest.mark.oracle
def test_stored_results_are_those_of_the_installed_pytorch() -> None:
    torch = pytest.importorskip("torch")
    for name in LAYERS:
        found = run(torch, name)
        assert found["repr"] == EXPECTED[name]["repr"]
        close(found["out"], EXPECTED[name]["out"])


def test_a_missing_class_is_named() -> None:
    with pytest.raises(AttributeError, match=r"module 'rushlight.nn' has no attribute 'NoSuchLayer'$"):
        rushlight.nn.NoSuchLayer
    with pytest.raises(AttributeError, match=r"module 'rushlight.nn.functional' has no attribute 'not_there'$"):
        rushlight.nn.functional.not_there


def test_lazy_layers_of_another_dtype_stay_lazy() -> None:
    model = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d()).double()
    assert model(rushlight.ones(2, 4, dtype=rushlight.float64)).dtype is rushlight.float64
    assert {x.dtype for x in (*model.parameters(), model[1].running_mean)} == {rushlight.float64}
