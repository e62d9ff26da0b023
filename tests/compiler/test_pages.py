"""The pages `torch.compile`, `torch.compiler`, `torch._dynamo`, `torch._inductor`, `torch._logging`: arguments, marks, settings, modules."""

from __future__ import annotations

import copy
import logging
import pickle

import pytest

import rushlight as torch
import rushlight._dynamo as dynamo
import rushlight._functorch.config
from rushlight._capture.trace import HOOKS
from rushlight.compiler.journal import parse, report

WRONG = {
    "mode and options": (lambda: torch.compile(len, mode="default", options={}), RuntimeError, "Either mode or options"),
    "unknown mode": (lambda: torch.compile(len, mode="fast"), RuntimeError, "Unrecognized mode=fast, should be one of: default, lite, reduce-"),
    "unknown backend": (lambda: torch.compile(len, backend="fast"), dynamo.exc.InvalidBackend, "Invalid backend: 'fast', see `torch._dynamo.list"),
    "unknown option": (lambda: torch.compile(len, options={"fast": 1}), RuntimeError, "Unexpected optimization option fast, known options"),
    "option's type": (lambda: torch.compile(len, options={"max_autotune": 1}), RuntimeError, "attr max_autotune, got int should be bool"),
    "no function": (lambda: torch.compile(3, backend="eager"), AssertionError, "A callable function is expected, but <class 'int'> is provided."),
    "dynamic": (lambda: torch.compile(len, backend="eager", dynamic=3), AssertionError, "Expected enable to be a bool, got <class 'int'>"),
    "allow": (lambda: torch.compiler.allow_in_graph(3), AssertionError, "allow_in_graph expects a callable"),
    "forbid": (lambda: dynamo.forbid_in_graph(3), AssertionError, "forbid_in_graph applies only to callables"),
    "substitute": (lambda: torch.compiler.substitute_in_graph(3), TypeError, "substitute_in_graph expects a function but got <class 'int'>"),
    "substitute's signature": (lambda: torch.compiler.substitute_in_graph(one)(two), TypeError, r"Signature mismatch .*: \(x\) != \(y\)"),
    "stance": (lambda: torch.compiler.set_stance("force_eager", force_backend="eager"), RuntimeError, "non-default stance cannot have force_backend"),
    "unknown stance": (lambda: torch.compiler.set_stance("fast"), RuntimeError, "invalid torch.compile stance"),
    "mark": (lambda: dynamo.mark_dynamic(torch.ones(2), "a"), AssertionError, "Expected index to be int, list, or tuple"),
    "address": (lambda: dynamo.mark_static_address(3), TypeError, "mark_static_address expects a tensor"),
    "name taken": (lambda: dynamo.register_backend(one, name="eager"), AssertionError, "duplicate name: eager"),
    "no backend": (lambda: dynamo.register_backend(3), AssertionError, "compiler_fn must be callable"),
    "unknown setting": (lambda: setattr(dynamo.config, "fast", 1), AttributeError, "torch._dynamo.config.fast does not exist"),
    "unknown patch": (lambda: dynamo.config.patch(fast=1), AttributeError, "torch._dynamo.config.fast does not exist"),
    "unknown log": (lambda: torch._logging.set_logs(fast=True), ValueError, "Unrecognized log or artifact name passed to set_logs: fast"),
    "log's type": (lambda: torch._logging.set_logs(graph_breaks=3), ValueError, "Expected bool to enable artifact graph_breaks, received 3"),
    "collectives": (lambda: torch.compiler.set_enable_guard_collectives(True), NotImplementedError, "guards hold for one process"),
}  # fmt: skip


def one(x):
    return x + 1


def two(y):
    return y + 1


@pytest.mark.parametrize("case", WRONG)
def test_wrong_calls_raise_pytorchs_errors(case: str) -> None:
    call, error, words = WRONG[case]
    with pytest.raises(error, match=words):
        call()


# ***** modules *****


def test_a_compiled_module_is_the_module_under_another_name() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 3))
    compiled = torch.compile(module, backend="eager")
    assert type(compiled) is torch.compiler.OptimizedModule and not isinstance(compiled, torch.nn.Sequential)
    assert list(compiled.state_dict()) == ["_orig_mod.0.weight", "_orig_mod.0.bias"]
    assert [name for name, _ in compiled.named_modules()] == ["", "_orig_mod", "_orig_mod.0"]
    assert compiled._orig_mod is module and len(compiled) == 1 and compiled
    compiled.note = 3
    assert module.note == 3 and "note" in dir(compiled)
    del compiled.note
    with pytest.raises(AttributeError, match="'Sequential' object has no attribute 'note'"):
        compiled.note
    compiled.eval()
    assert not module.training and not module[0].training
    module.train()
    assert compiled.training
    with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict: \"_orig_mod.0.weight\""):
        compiled.load_state_dict(module.state_dict())
    with pytest.raises(TypeError, match="Linear does not support len"):
        len(torch.compile(torch.nn.Linear(1, 1), backend="eager"))


def test_compiled_modules_are_pickled_copied_and_saved() -> None:
    module = torch.nn.Linear(2, 3)
    compiled, x = torch.compile(module, backend="eager"), torch.ones(4, 2)
    for other in (pickle.loads(pickle.dumps(compiled)), copy.deepcopy(compiled)):
        assert type(other) is torch.compiler.OptimizedModule and other._orig_mod is not module
        assert torch.equal(other(x), module(x))
        with torch.no_grad():
            other.weight.add_(1)
        assert not torch.equal(other(x), module(x))
        other.load_state_dict(compiled.state_dict())
        assert torch.equal(other(x), module(x))


def test_a_module_is_compiled_in_place() -> None:
    module = torch.nn.Linear(2, 3)
    expected = module(torch.ones(2))
    module.compile(backend="eager")
    assert list(module.state_dict()) == ["weight", "bias"] and torch.equal(module(torch.ones(2)), expected)
    assert pickle.loads(pickle.dumps(module))._compiled_call_impl is None


def test_hooks_run_once_around_a_compiled_module() -> None:
    module, seen = torch.nn.Linear(2, 3), []
    module.register_forward_hook(lambda m, args, out: seen.append("inner"))
    compiled = torch.compile(module, backend="eager")
    compiled.register_forward_hook(lambda m, args, out: seen.append("outer"))
    compiled(torch.ones(2))
    assert seen == ["inner", "outer"]


# ***** functions *****


def test_a_compiled_function_shows_what_it_was_made_of() -> None:
    @torch.compile(backend="eager")
    def double(x: torch.Tensor) -> torch.Tensor:
        """Twice."""
        return x * 2

    assert (
        double.__name__ == "double"
        and double.__doc__ == "Twice."
        and double._torchdynamo_orig_callable is double.__wrapped__
    )
    again = torch.compile(double, backend="eager")
    assert again._torchdynamo_orig_callable is double.__wrapped__
    assert torch.compile(double, disable=True) is double
    with dynamo.config.patch(disable=True):
        assert torch.compile(double, backend="nothing") is double


def test_disabled_functions_modules_and_classes() -> None:
    disabled = torch.compiler.disable(one, recursive=False, reason="slow")
    assert disabled(1) == 2 and disabled._torchdynamo_disable and not dynamo.is_dynamo_disable_recursive(disabled)
    assert (
        disabled._torchdynamo_disable_msg == "slow"
        and torch.compiler.disable(disabled)._torchdynamo_orig_callable is one
    )
    module = torch.nn.Linear(1, 1)
    assert torch.equal(torch.compiler.disable(module)(torch.ones(1)), module(torch.ones(1)))

    @torch.compiler.disable
    class Doubler(torch.nn.Module):
        def forward(self, x):
            return x * 2

    assert Doubler()(3) == 6 and Doubler._call_impl._torchdynamo_disable
    assert dynamo.is_dynamo_disable_recursive(one) is None


def test_sizes_are_marked_on_tensors() -> None:
    x = torch.ones(3, 4, 5)
    dynamo.mark_dynamic(x, [0, 1], min=2, max=10)
    dynamo.maybe_mark_dynamic(x, 2)
    dynamo.mark_static(x, 1)
    assert x._dynamo_dynamic_indices == {0, 1} and x._dynamo_dynamic_range == {(0, 2, 10), (1, 2, 10)}
    assert x._dynamo_weak_dynamic_indices == {2} and x._dynamo_static_indices == {1}
    y = torch.ones(2, 2)
    dynamo.mark_static(y)
    dynamo.mark_static_address(y)
    assert y._dynamo_static_indices == {0, 1} and y._dynamo_static_input_type == "unguarded"


def test_functions_are_marked() -> None:
    def local(x):
        return x

    number = id(local)
    assert torch.compiler.allow_in_graph([local, one]) == [local, one] and number in HOOKS.leaves
    assert dynamo.disallow_in_graph(local) is local and number in HOOKS.breaks and number not in HOOKS.leaves
    del local
    assert number not in HOOKS.breaks
    assert (
        torch.compiler.substitute_in_graph(len, skip_signature_check=True)(one) is one
        and HOOKS.replaced[id(len)][1] is one
    )
    del HOOKS.replaced[id(len)], HOOKS.leaves[id(one)]
    assert torch.compiler.assume_constant_result(two)._dynamo_marked_constant and id(two) in HOOKS.constant
    del HOOKS.constant[id(two)]
    region = torch.compiler.nested_compile_region(one)
    assert region(1) == 2 and region.__marked_compile_region_fn__ is one


def test_stances_are_calls_contexts_and_decorators() -> None:
    from rushlight.compiler.stances import current_stance

    def name() -> str:
        return current_stance().stance

    with torch.compiler.set_stance("force_eager"):
        assert name() == "force_eager"
        with torch.compiler.set_stance("fail_on_recompile"):
            assert name() == "fail_on_recompile"
        assert name() == "force_eager"
    assert torch.compiler.set_stance("eager_on_recompile")(name)() == "eager_on_recompile" and name() == "default"
    torch.compiler.set_stance("force_eager")
    assert name() == "force_eager"
    torch.compiler.set_stance("default", force_backend="eager")
    assert current_stance().backend == "eager"
    torch.compiler.set_stance("default")


# ***** backends, settings, logs *****


def test_backends_have_names() -> None:
    @dynamo.register_backend(name="mine for a test", tags=("debug",))
    def mine(gm, inputs):
        return gm.forward

    try:
        assert dynamo.lookup_backend("mine for a test") is mine is dynamo.lookup_backend(mine)
        assert (
            "mine for a test" not in torch.compiler.list_backends()
            and "mine for a test" in torch.compiler.list_backends(None)
        )
        torch.compiler.set_default_backend("eager")
        assert torch.compiler.get_default_backend() == "eager" and torch.compile(one)(1) == 2
        torch.compiler.set_default_backend(None)
        assert torch.compiler.get_default_backend() == "inductor"
        with pytest.raises(TypeError, match="backend must be a string or callable"):
            torch.compiler.set_default_backend(3)
    finally:
        from rushlight.compiler import backends

        del backends._FUNCTIONS["mine for a test"]
        torch.compiler.set_default_backend(None)


def test_settings_are_read_set_and_patched() -> None:
    config = dynamo.config
    assert config.recompile_limit == config.cache_size_limit == torch.compiler.config.recompile_limit == 8
    with config.patch({"recompile_limit": 2}), torch._inductor.config.patch("triton.cudagraphs", True):
        assert config.cache_size_limit == 2 and torch._inductor.config.triton.cudagraphs
        assert config.codegen_config() == "torch._dynamo.config.recompile_limit = 2"
        saved = config.save_config()
    assert config.recompile_limit == 8 and not torch._inductor.config.triton.cudagraphs
    config.load_config(saved)
    assert config.recompile_limit == 2
    del config.recompile_limit
    assert config.patch(verbose=True)(lambda: config.verbose)() and not config.verbose
    triton, before = torch._inductor.config.triton, torch._inductor.config.triton.unique_kernel_names
    triton.unique_kernel_names = not before
    assert torch._inductor.config.get_config_copy()["triton.unique_kernel_names"] is not before
    triton.unique_kernel_names = before
    assert torch._functorch.config.activation_memory_budget == 1.0 and "recompile_limit" in dir(config)
    assert (
        torch._inductor.list_mode_options()["max-autotune"]["max_autotune"]
        and "max_autotune" in torch._inductor.list_options()
    )


def test_reports_go_through_pythons_logging(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("rushlight.compiler.breaks")
    report("breaks", "never seen")
    torch._logging.set_logs(graph_breaks=True)
    try:
        report("breaks", "seen")
        report("recompiles", "not asked for")
    finally:
        torch._logging.set_logs()
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
    report("breaks", "over")
    assert capsys.readouterr().err == "[rushlight breaks] seen\n"
    assert parse("+dynamo,graph_breaks, -recompiles") == {
        "dynamo": logging.DEBUG,
        "graph_breaks": True,
        "recompiles": False,
    }
    with pytest.raises(ValueError, match="Invalid log settings: nothing"):
        parse("nothing")


@pytest.mark.oracle
def test_settings_are_pytorchs() -> None:
    import importlib

    from rushlight.compiler.settings import _TABLE_OF, Settings

    for page in ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config", "torch.compiler.config"):
        ours, theirs = Settings(page, _TABLE_OF[page]), importlib.import_module(page).get_config_copy()
        private = {"TYPE_CHECKING", "_save_config_ignore", "_cache_config_ignore_prefix", "_cache_config_factory_keys"}
        assert set(ours.defaults) == set(theirs) - private
