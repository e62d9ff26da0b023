"""Small public pages: named results, versions, the CPU as a device, no accelerator, overrides, settings of conversions."""

from __future__ import annotations

import importlib
import inspect
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rushlight
from rushlight.torch_version import TorchVersion

# ***** named results *****


def test_a_named_result_is_a_tuple_with_names() -> None:
    found = rushlight.max(rushlight.tensor([[1.0, 5.0], [7.0, 2.0]]), 1)
    assert type(found) is rushlight.return_types.max
    assert isinstance(found, tuple) and not hasattr(found, "_fields")
    assert found.values is found[0] and found.indices.tolist() == [1, 0]
    assert type(found).__mro__[1] is tuple and type(found).n_fields == 2
    with pytest.raises(AttributeError):
        found.values = 3  # type: ignore[misc]


def test_named_results_are_made_from_one_sequence() -> None:
    make = rushlight.return_types.max
    assert make([1, 2]) == (1, 2) and repr(make((1, 2))) == "torch.return_types.max(\nvalues=1,\nindices=2)"
    with pytest.raises(TypeError, match="takes a 2-sequence \\(1-sequence given\\)"):
        make([1])
    with pytest.raises(TypeError, match="requires a sequence"):
        make(5)


def test_results_written_to_out_have_a_type_of_their_own() -> None:
    x = rushlight.ones(2, 2)
    out = (rushlight.empty(2), rushlight.empty(2, dtype=rushlight.int64))
    assert type(rushlight.max(x, 0, out=out)) is rushlight.return_types.max_out
    q = (rushlight.empty(0), rushlight.empty(0))
    assert type(rushlight.linalg.qr(rushlight.eye(2), out=q)) is rushlight.return_types.linalg_qr_out


MATRIX = [[4.0, 1.0], [1.0, 3.0]]
CALLS = {
    "aminmax": lambda t, x: t.aminmax(x),
    "cummax": lambda t, x: t.cummax(x, 0),
    "frexp": lambda t, x: t.frexp(x),
    "histogram": lambda t, x: t.histogram(x, 2),
    "kthvalue": lambda t, x: t.kthvalue(x, 1),
    "linalg_cholesky_ex": lambda t, x: t.linalg.cholesky_ex(x),
    "linalg_eig": lambda t, x: t.linalg.eig(x),
    "linalg_eigh": lambda t, x: t.linalg.eigh(x),
    "linalg_inv_ex": lambda t, x: t.linalg.inv_ex(x),
    "linalg_lu": lambda t, x: t.linalg.lu(x),
    "linalg_lu_factor": lambda t, x: t.linalg.lu_factor(x),
    "linalg_qr": lambda t, x: t.linalg.qr(x),
    "linalg_slogdet": lambda t, x: t.linalg.slogdet(x),
    "linalg_svd": lambda t, x: t.linalg.svd(x),
    "linalg_lstsq": lambda t, x: t.linalg.lstsq(x, x),
    "median": lambda t, x: t.median(x, 0),
    "mode": lambda t, x: t.mode(x, 0),
    "nanmedian": lambda t, x: t.nanmedian(x, 0),
    "sort": lambda t, x: t.sort(x),
    "svd": lambda t, x: t.svd(x),
    "slogdet": lambda t, x: t.slogdet(x),
    "topk": lambda t, x: t.topk(x, 1),
}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_functions_return_the_types_of_the_page(name: str) -> None:
    found = CALLS[name](rushlight, rushlight.tensor(MATRIX))
    assert type(found) is getattr(rushlight.return_types, name)


@pytest.mark.oracle
def test_named_results_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    for name in dir(rushlight.return_types):
        mine, theirs = getattr(rushlight.return_types, name), getattr(torch.return_types, name)
        if isinstance(mine, type):
            assert mine.__match_args__ == theirs.__match_args__ and mine.__module__ == theirs.__module__, name
    for name, call in CALLS.items():
        mine, theirs = (call(t, t.tensor(MATRIX)) for t in (rushlight, torch))
        assert type(mine).__name__ == type(theirs).__name__ == name
    assert str(rushlight.max(rushlight.ones(2, 2), 0)) == str(torch.max(torch.ones(2, 2), 0))


# ***** versions *****

VERSIONS = [
    "2.13.0",
    "2.13",
    "2.9",
    "2.13.0+cpu",
    "2.13.0a0",
    "2.13.0rc1",
    "2.13.0.dev20250101",
    "2.13.0.post1",
    "10.0",
    "1!1.0",
    "nonsense",
]
OTHERS: list[Any] = [*VERSIONS, (2, 13), [2, 9, 1], (2, 13, "0+cpu"), (3,)]


def test_versions_compare_as_versions() -> None:
    assert TorchVersion("2.13.0") > "2.9" and TorchVersion("2.13.0") == "2.13" and TorchVersion("2.13.0") >= (2, 13)
    assert TorchVersion("2.13.0a0") < "2.13" < TorchVersion("2.13.0.post1") and TorchVersion("2.1.0.dev3") < "2.1.0a1"
    assert TorchVersion("2.13.0+cpu") > "2.13.0" and TorchVersion("1!1.0") > "99"
    assert isinstance(rushlight.__version__, TorchVersion) and rushlight.__version__[:1].isdigit()
    assert hash(TorchVersion("2.1")) == hash("2.1")
    with pytest.raises(TypeError):
        TorchVersion("2.1") > 5  # type: ignore[operator]
    assert rushlight.version.rocm is None and type(rushlight.version.__version__) is str


@pytest.mark.oracle
def test_versions_compare_as_pytorchs() -> None:
    theirs = pytest.importorskip("torch").torch_version.TorchVersion
    for text in VERSIONS:
        for other in OTHERS:
            for method in ("__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__"):
                mine = getattr(TorchVersion(text), method)(other)
                assert mine is getattr(theirs(text), method)(other), (text, method, other)


# ***** pages of functions, annotations, configuration *****


def test_functional_shows_the_same_functions() -> None:
    assert rushlight.functional.einsum is rushlight.einsum and "split" in dir(rushlight.functional)
    with pytest.raises(AttributeError, match=r"rushlight\.functional has no 'add'"):
        rushlight.functional.add


def test_storage_is_a_word_for_annotations() -> None:
    assert not isinstance(rushlight.ones(1).untyped_storage(), rushlight.types.Storage)
    with pytest.raises(NotImplementedError):
        rushlight.types.Storage().nbytes()


def test_configuration_names_what_is_there() -> None:
    text = rushlight.__config__.show()
    assert np.__version__ in text and "LLVM" in text and str(rushlight.__version__) in text
    assert f"{rushlight.get_num_threads()}" in rushlight.__config__.parallel_info()


def test_conversions_can_make_new_parameters() -> None:
    future = rushlight.__future__
    assert not future.get_overwrite_module_params_on_conversion() and not future.get_swap_module_params_on_conversion()
    layer = rushlight.nn.Linear(2, 2)
    weight = layer.weight
    layer.double()
    assert layer.weight is weight
    future.set_overwrite_module_params_on_conversion(True)
    try:
        layer.float()
        assert (
            layer.weight is not weight and weight.dtype is rushlight.float64 and layer.weight.dtype is rushlight.float32
        )
    finally:
        future.set_overwrite_module_params_on_conversion(False)


# ***** devices *****


def test_the_cpu_is_one_device_with_streams_that_do_nothing() -> None:
    cpu = rushlight.cpu
    assert cpu.is_available() and cpu.is_initialized() and cpu.device_count() == 1 and cpu.current_device() == "cpu"
    assert cpu.set_device(0) is None and cpu.synchronize() is None and cpu.Event().query()
    mine = cpu.Stream()
    before = cpu.current_stream()
    with cpu.stream(mine):
        assert cpu.current_stream() is mine
    assert cpu.current_stream() is before
    facts = cpu.get_capabilities()
    assert facts["num_logical_cores"] >= 1 and isinstance(facts["cpu_name"], str)
    assert rushlight.cpu.amp.autocast.__mro__[1] is rushlight.amp.autocast


@pytest.mark.oracle
def test_capabilities_are_pytorchs() -> None:
    theirs = pytest.importorskip("torch").cpu.get_capabilities()
    mine = rushlight.cpu.get_capabilities()
    flags = [name for name, value in theirs.items() if isinstance(value, bool) and name in mine]
    assert len(flags) > 20 and {n: mine[n] for n in flags} == {n: theirs[n] for n in flags}


def test_there_is_no_accelerator() -> None:
    accelerator = rushlight.accelerator
    assert (
        not accelerator.is_available() and accelerator.device_count() == 0 and accelerator.current_accelerator() is None
    )
    for name in ("current_stream", "synchronize", "memory_stats", "empty_cache", "Graph", "current_device_index"):
        with pytest.raises(RuntimeError, match="Cannot access accelerator device when none is available"):
            getattr(accelerator, name)()
    with accelerator.device_index(None):
        pass
    with pytest.raises(RuntimeError, match="none is available"), accelerator.device_index(0):
        pass


# ***** overrides *****


def doubled_plus_one(torch: Any) -> Any:
    """A function of a user that asks before it computes."""

    def function(a: Any) -> Any:
        if torch.overrides.has_torch_function((a,)):
            return torch.overrides.handle_torch_function(function, (a,), a)
        return torch.add(torch.mul(a, 2), 1)

    return function


def redispatched(torch: Any) -> tuple[list[str], list[float]]:
    """What a subclass and a mode see of the parts of a function that they let run."""
    seen: list[str] = []

    class Noting(torch.Tensor):  # type: ignore[misc]
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(f"class {func.__name__}")
            return torch.overrides.redispatch_function(func, types, args, kwargs)

    class Mode(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(f"mode {func.__name__}")
            with self:
                return torch.overrides.redispatch_function(func, types, args, kwargs)

    function = doubled_plus_one(torch)
    first = function(torch.tensor([3.0]).as_subclass(Noting))
    four = torch.tensor([4.0])
    with Mode():
        second = function(four)
    return seen, [float(first[0]), float(second[0])]


def test_an_override_can_let_a_function_run_and_see_its_parts() -> None:
    seen, values = redispatched(rushlight)
    assert values == [7.0, 9.0]
    assert seen[:2] == ["class function", "class mul"] and seen[-3:] == ["mode function", "mode mul", "mode add"]


@pytest.mark.oracle
def test_redispatch_as_pytorch() -> None:
    torch = pytest.importorskip("torch")
    assert redispatched(rushlight) == redispatched(torch)


def test_which_functions_ask() -> None:
    asking = rushlight.overrides.get_overridable_functions()
    assert rushlight.add in asking[rushlight] and rushlight.nn.functional.relu in asking[rushlight.nn.functional]
    assert any(f.__name__ == "add" for f in asking[rushlight.Tensor])
    ignored = rushlight.overrides.get_ignored_functions()
    assert rushlight.zeros in ignored and rushlight.add not in ignored
    overrides = rushlight.overrides.get_testing_overrides()
    assert overrides[rushlight.add](1, 2) == -1
    assert list(inspect.signature(overrides[rushlight.add]).parameters)[:2] == ["input", "other"]
    with rushlight.overrides.enable_reentrant_dispatch():
        pass


def test_named_results_survive_pickling_of_their_parts() -> None:
    kind, (items, extra) = rushlight.sort(rushlight.tensor([2.0, 1.0])).__reduce__()
    assert (
        kind is rushlight.return_types.sort and extra == {} and pickle.loads(pickle.dumps(items[1].tolist())) == [1, 0]
    )


# ***** dispatch keys, scalers, norms of sparse tensors *****


def _guarded(t: Any) -> list[bool]:
    x = t.ones(2, requires_grad=True)
    with t.ExcludeDispatchKeyGuard(t.DispatchKeySet(t.DispatchKey.AutogradCPU)):
        inside = (x * 2).requires_grad
    return [inside, (x * 2).requires_grad]


def test_a_guard_against_autograd_keys() -> None:
    assert _guarded(rushlight) == [False, True]
    with pytest.raises(TypeError, match="DispatchKeySet"):
        rushlight.ExcludeDispatchKeyGuard(3)
    with pytest.raises(NotImplementedError, match="no layer to pass over for CPU"):
        rushlight.ExcludeDispatchKeyGuard(rushlight.DispatchKeySet(rushlight.DispatchKey.CPU))


@pytest.mark.oracle
def test_a_guard_against_autograd_keys_as_pytorchs() -> None:
    assert _guarded(rushlight) == _guarded(pytest.importorskip("torch"))


def test_a_disabled_scaler_remembers_what_is_set() -> None:
    scaler = rushlight.amp.GradScaler(enabled=False)
    with pytest.raises(AttributeError):
        scaler.get_growth_factor()
    scaler.set_growth_factor(3.0)
    scaler.set_backoff_factor(0.25)
    scaler.set_growth_interval(7)
    kept = pickle.loads(pickle.dumps(scaler))
    assert (kept.get_growth_factor(), kept.get_backoff_factor(), kept.get_growth_interval()) == (3.0, 0.25, 7)


def _native_norms(t: Any) -> list[Any]:
    sparse = t.tensor([[1.0, 0, 2], [0, 3, 0]]).to_sparse()
    doubled = t.sparse_coo_tensor(t.tensor([[0, 0]]), t.tensor([1.0, 2.0]), (3,))
    calls: list[Any] = [
        lambda: t.native_norm(sparse), lambda: t.native_norm(sparse, 1), lambda: t.native_norm(sparse, 3.0), lambda: t.native_norm(doubled),
        lambda: t.native_norm(sparse, float("inf")), lambda: t.native_norm(sparse, None, [], False, None), lambda: t.native_norm(sparse, 0),
        lambda: t.native_norm(sparse, 2, [0, 1], False, None), lambda: t.native_norm(sparse, 2, [0], False, None),
        lambda: t.native_norm(sparse, 2, [0, 1], True, None), lambda: t.native_norm(sparse, 2, [], False, t.float64),
    ]  # fmt: skip
    found: list[Any] = []
    for call in calls:
        try:
            found.append(call().item())
        except RuntimeError as error:
            found.append(str(error))
    return found


def test_the_native_norm_is_one_of_sparse_tensors() -> None:
    found = _native_norms(rushlight)
    assert found[:7] == pytest.approx([14**0.5, 6.0, 36 ** (1 / 3), 3.0, 3.0, 14**0.5, 3.0])
    with pytest.raises(NotImplementedError, match="native_norm"):
        rushlight.native_norm(rushlight.ones(3))


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
def test_the_native_norm_is_pytorchs() -> None:
    theirs = _native_norms(pytest.importorskip("torch"))
    ours = _native_norms(rushlight)
    assert ours[:8] == pytest.approx(theirs[:8]) and ours[8:] == theirs[8:]


# ***** names with an underscore, and older ones, that packages use *****


def test_removed_functions_say_what_took_their_place() -> None:
    x = rushlight.eye(2)
    for name in ("eig", "symeig", "matrix_rank"):
        with pytest.raises(
            RuntimeError,
            match=f"deprecated since version 1.9 and is now removed from PyTorch: {name}; use torch.linalg",
        ):
            getattr(rushlight, name)(x)
    for name in ("solve", "lstsq"):
        for call in (lambda name=name: getattr(rushlight, name)(x, x), lambda name=name: getattr(x, name)(x)):
            with pytest.raises(RuntimeError, match="now removed"):
                call()


def test_softmax_by_its_native_names() -> None:
    x = rushlight.randn(3, 5, dtype=rushlight.float64, requires_grad=True)
    g = rushlight.randn(3, 5, dtype=rushlight.float64)
    for plain, native, backward in (
        (rushlight.softmax, rushlight._softmax, rushlight._softmax_backward_data),
        (rushlight.log_softmax, rushlight._log_softmax, rushlight._log_softmax_backward_data),
    ):
        y = plain(x, 1)
        assert rushlight.equal(native(x, 1, False), y)
        (wanted,) = rushlight.autograd.grad(y, x, g)
        np.testing.assert_allclose(backward(g, y.detach(), 1, x.dtype).numpy(), wanted.numpy(), rtol=1e-12, atol=1e-15)
        with pytest.raises(RuntimeError, match="half to float"):
            native(x, 1, True)


def test_rows_are_compressed_and_written_out() -> None:
    rows, columns = rushlight.tensor([0, 0, 2, 3]), rushlight.tensor([1, 2, 0, 3])
    starts = rushlight._convert_indices_from_coo_to_csr(rows, 5)
    assert starts.tolist() == np.searchsorted(rows.numpy(), np.arange(6)).tolist()
    assert rushlight._convert_indices_from_csr_to_coo(starts, columns).tolist() == [rows.tolist(), columns.tolist()]
    turned = rushlight._convert_indices_from_csr_to_coo(starts, columns, transpose=True, out_int32=True)
    assert turned.dtype is rushlight.int32 and turned.tolist() == [columns.tolist(), rows.tolist()]
    with pytest.raises(RuntimeError, match="supposed to be a vector"):
        rushlight._convert_indices_from_coo_to_csr(rows.view(2, 2), 5)


def test_casts_and_segments_by_their_native_names() -> None:
    x = rushlight.tensor([1.7, -2.2])
    assert rushlight._cast_Long(x).tolist() == [1, -2] and rushlight._cast_Float(x) is x
    assert rushlight._cast_Half(x).dtype is rushlight.float16
    offsets = rushlight.tensor([0, 1, 3])
    assert rushlight._segment_reduce(rushlight.tensor([1.0, 2.0, 4.0]), "sum", offsets=offsets).tolist() == [1.0, 6.0]


def test_native_operators_that_python_writes_otherwise() -> None:
    x, aten = rushlight.arange(6.0).view(2, 3), rushlight.ops.aten
    assert aten.slice(x, 1, 0, None, 2).tolist() == [[0.0, 2.0], [3.0, 5.0]]
    assert aten.index(x, [None, rushlight.tensor([2, 0])]).tolist() == [[2.0, 0.0], [5.0, 3.0]]
    copied = aten._to_copy(x, dtype=rushlight.int32)
    assert copied.dtype is rushlight.int32 and aten._to_copy(x).data_ptr() != x.data_ptr()
    assert aten.alias(x).data_ptr() == x.data_ptr() and aten.alias.default(x) is not x


def test_backward_calls_have_numbers_and_run_callbacks_at_their_end() -> None:
    seen: list[Any] = []

    def hook(grad: Any) -> None:
        seen.append(rushlight._C._current_graph_task_id())
        rushlight.autograd.Variable._execution_engine.queue_callback(lambda: seen.append("end"))

    assert rushlight._C._current_graph_task_id() == -1
    for _ in range(2):
        x = rushlight.ones(2, requires_grad=True)
        x.register_hook(hook)
        (x * 2).sum().backward()
    first, _, second, _ = seen
    assert seen[1] == seen[3] == "end" and first >= 0 and second >= 0 and first != second
    with pytest.raises(RuntimeError, match="during backward"):
        rushlight.autograd.Variable._execution_engine.queue_callback(print)


def test_composites_tell_what_they_take_by_name() -> None:
    assert rushlight.meshgrid.__kwdefaults__ == {"indexing": None}


def test_subclasses_may_keep_what_they_like_under_short_names() -> None:
    class Noted(rushlight.Tensor):
        def __init__(self, *args: Any) -> None:
            self._meta = {"affine": 1}

    x = Noted(rushlight.arange(4.0))
    assert x[...].tolist() == [0.0, 1.0, 2.0, 3.0] and x._meta == {"affine": 1}
    assert type(x.as_subclass(rushlight.Tensor)) is rushlight.Tensor and (x + 1).sum().item() == 10


def test_wrappers_are_known() -> None:
    from rushlight.utils._python_dispatch import is_traceable_wrapper_subclass

    class Pair(rushlight.Tensor):
        def __tensor_flatten__(self) -> Any: ...

        @staticmethod
        def __tensor_unflatten__(*args: Any) -> Any: ...

    assert is_traceable_wrapper_subclass(rushlight.ones(2).as_subclass(Pair)) and not is_traceable_wrapper_subclass(
        rushlight.ones(2)
    )


def test_contexts_of_packages_decorate() -> None:
    from rushlight.utils._contextlib import _DecoratorContextManager

    seen: list[str] = []

    class Marked(_DecoratorContextManager):
        def __enter__(self) -> None:
            seen.append("in")

        def __exit__(self, *exc: object) -> None:
            seen.append("out")

    @Marked()
    def work(x: int) -> int:
        seen.append("work")
        return x + 1

    assert work(1) == 2 and seen == ["in", "work", "out"]


def test_members_are_exchanged_by_name() -> None:
    from rushlight.nn.utils._named_member_accessor import swap_tensor

    layer = rushlight.nn.BatchNorm1d(2)
    old, new = layer.weight, rushlight.zeros(2)
    assert swap_tensor(layer, "weight", new) is old and layer.weight is new
    assert swap_tensor(layer, "running_mean", new).tolist() == [0.0, 0.0] and layer.running_mean is new
    with pytest.raises(AttributeError, match="has no attribute"):
        swap_tensor(layer, "other", new)
    with pytest.raises(KeyError):
        swap_tensor(layer, "a.b", new)
    with pytest.raises(TypeError):
        swap_tensor(layer, "weight", 3)


def test_collectives_without_a_group() -> None:
    with pytest.raises(ValueError, match="has not been initialized"):
        rushlight.distributed.all_reduce(rushlight.ones(2))
    for page in ("_tensor.experimental", "_composable.fsdp", "optim", "rpc"):
        assert importlib.import_module(f"rushlight.distributed.{page}")


def test_a_negative_gpu_is_none() -> None:
    with rushlight.cuda.device(-1), rushlight.cuda.device("cpu"), rushlight.cuda.device(None):
        pass
    with pytest.raises(RuntimeError, match="needs a CUDA GPU"), rushlight.cuda.device(0):
        pass
    assert not isinstance(rushlight.ones(2), rushlight.cuda.FloatTensor) and not rushlight.cuda._initialized


# ***** optimizers of other packages *****


def test_steps_of_other_packages_follow_differentiable() -> None:
    from rushlight.optim.optimizer import Optimizer, _default_to_fused_or_foreach, _use_grad_for_differentiable

    class Plain(Optimizer):
        def __init__(self, params: Any, differentiable: bool) -> None:
            super().__init__(params, {"lr": 0.5, "differentiable": differentiable})

        @_use_grad_for_differentiable
        def step(self, closure: Any = None) -> bool:
            return rushlight.is_grad_enabled()

    w = rushlight.nn.Parameter(rushlight.ones(2))
    assert [Plain([w], flag).step() for flag in (False, True)] == [False, True] and rushlight.is_grad_enabled()
    assert _default_to_fused_or_foreach([w], False) == (False, False)
    assert _default_to_fused_or_foreach([w, None], False, use_fused=True) == (True, False)
    assert _default_to_fused_or_foreach([w], True, use_fused=True) == (False, False)


def test_the_command_for_an_extra_works_where_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a checkout the package is installed from there; there is none of that name to download for sure."""
    from rushlight._base import errors

    checkout = Path(rushlight.__file__).resolve().parents[2]
    assert errors.install_command("examples") == f"pip install -e '{checkout}[examples]'"
    assert "pip install -e" in str(errors.MissingExtraError("safetensors", "safetensors"))
    monkeypatch.setattr(errors, "PACKAGE", str(tmp_path / "site-packages" / "rushlight") + "/")
    assert errors.install_command("examples") == "pip install 'rushlight[examples]'"


# ***** pages for what is not here *****


def test_there_is_no_accelerator_of_meta() -> None:
    assert not rushlight.mtia.is_available() and rushlight.mtia.device_count() == 0
    rushlight.mtia.manual_seed(3)
    with pytest.raises(RuntimeError, match="it needs one of Meta's accelerators"):
        rushlight.mtia.synchronize()


def test_there_are_no_classes_in_other_languages() -> None:
    assert rushlight.classes.loaded_libraries == set() and not hasattr(rushlight.classes, "__path__")
    with pytest.raises(RuntimeError, match="class 'some.Thing', but it does not exist"):
        rushlight.classes.some.Thing
    with pytest.raises(NotImplementedError, match="loads no libraries of C\\+\\+"):
        rushlight.classes.load_library("some.so")


def test_reference_implementations_are_the_public_functions() -> None:
    refs = importlib.import_module("rushlight._refs")
    assert refs.softmax is rushlight.softmax and refs.linalg is rushlight.linalg
    with pytest.raises(AttributeError, match="_refs.nosuch"):
        refs.nosuch


def test_functions_have_a_second_name_for_layers() -> None:
    functions = importlib.import_module("rushlight._VF")
    assert functions is rushlight._VF and functions.lstm is rushlight.lstm
    with pytest.raises(AttributeError, match="_VariableFunctionsClass' has no attribute 'nosuch'"):
        functions.nosuch


def test_pages_below_others() -> None:
    pages = importlib.import_module("rushlight.utils._import_utils")
    assert pages._check_module_exists("json") and not pages._check_module_exists("no_such_module")
    modes = importlib.import_module("rushlight.utils._mode_utils")
    assert modes.all_same_mode([1, 1]) and not modes.all_same_mode([1, 2])
    comparison = importlib.import_module("rushlight.testing._comparison")
    half = rushlight.ones(1, dtype=rushlight.float16)
    assert comparison.default_tolerances(rushlight.float32, half) == (1e-3, 1e-5)
    with pytest.raises(RuntimeError, match="Assignment not supported"):
        rushlight.backends.xnnpack.enabled = True  # type: ignore[misc]


def test_classes_of_nodes_and_kinds_of_devices() -> None:
    node = rushlight.ones(2, requires_grad=True).exp().grad_fn
    functions = importlib.import_module("rushlight._C._functions")
    assert isinstance(node, functions.ExpBackward0) and isinstance(node.next_functions[0][0], functions.AccumulateGrad)
    assert str(rushlight.autograd.DeviceType.CUDA) == "DeviceType.CUDA" and rushlight.autograd.DeviceType.MTIA == 19
    state = importlib.import_module("rushlight._C._autograd")
    assert state._saved_tensors_hooks_is_enabled()
    with rushlight.autograd.graph.disable_saved_tensors_hooks("not here"):
        assert state._saved_tensors_hooks_get_disabled_error_message() == "not here"


def test_whether_elements_share_memory() -> None:
    found = [
        rushlight._debug_has_internal_overlap(x)
        for x in (rushlight.ones(3, 3), rushlight.ones(3, 1).expand(3, 3), rushlight.ones(3, 3)[:, ::2])
    ]
    assert found == [0, 1, 2]


# ***** sizes *****


class _Right:
    def __radd__(self, other: Any) -> str:
        return "right"


def test_a_size_joins_tuples_alone() -> None:
    size = rushlight.Size([1])
    assert size + (2,) == (1, 2) and (2,) + size == (2, 1) and size + _Right() == "right"
    for other in ([2], 5, "a"):
        with pytest.raises(TypeError):
            size + other


def test_subclasses_are_subclasses_of_tensor() -> None:
    for make in (rushlight.Tensor._make_subclass, lambda cls, x: x.as_subclass(cls)):
        with pytest.raises(
            TypeError, match="Creating a Tensor subclass from a class that does not inherit from Tensor"
        ):
            make(_Right, rushlight.ones(1))


def test_interop_threads_are_a_positive_number() -> None:
    with pytest.raises(RuntimeError, match="set_num_interop_threads expects a positive integer"):
        rushlight.set_num_interop_threads(0)
