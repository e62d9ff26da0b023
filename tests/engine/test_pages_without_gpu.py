"""What programs ask at their start about GPUs, back ends and mixed precision."""

import importlib

import pytest

import rushlight as torch


def test_no_cuda() -> None:
    assert torch.cuda.is_available() is False and torch.cuda.device_count() == 0
    torch.cuda.manual_seed_all(0)
    torch.cuda.empty_cache()
    with pytest.raises(RuntimeError, match="set_device needs a CUDA GPU"):
        torch.cuda.set_device(0)
    with pytest.raises(RuntimeError, match="needs a CUDA GPU"):
        torch.cuda.synchronize()


def test_backends_are_absent_and_their_switches_settable() -> None:
    cudnn = importlib.import_module("rushlight.backends.cudnn")
    assert cudnn is torch.backends.cudnn and not cudnn.is_available() and cudnn.version() is None
    cudnn.benchmark = True
    assert torch.backends.cudnn.benchmark
    cudnn.benchmark = False
    assert not torch.backends.mps.is_available()
    assert torch.backends.cuda.matmul.allow_tf32 is False


def test_version_has_no_cuda() -> None:
    assert torch.version.cuda is None and torch.version.__version__ == torch.__version__


def test_mixed_precision_of_a_gpu_disables_itself() -> None:
    with pytest.warns(UserWarning, match="CUDA is not available"), torch.autocast("cuda"):
        assert not torch.is_autocast_enabled("cuda") and not torch.is_autocast_enabled("cpu")
    with pytest.warns(FutureWarning, match="torch.amp.GradScaler"):
        scaler = torch.cuda.amp.GradScaler(enabled=False)
    loss = torch.ones(1)
    assert scaler.scale(loss) is loss and scaler.get_scale() == 1.0 and scaler.state_dict() == {}


def test_disabled_autocast_decorates() -> None:
    @torch.autocast("cpu", enabled=False)
    def double(x: int) -> int:
        return 2 * x

    assert double(3) == 6
