"""Other processes: forks are refused, spawned ones share memory."""

import os

import pytest

import rushlight as torch
import rushlight.multiprocessing as mp


def page_a_fork_cannot_use_what_its_parent_uses() -> None:
    x = torch.ones(2, device="cuda")
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            assert torch.cuda._is_in_bad_fork() and torch.ones(2).sum().item() == 2.0
            torch.ones(2, device="cuda")
        except BaseException as error:
            os.write(write, repr(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert (
        b"RuntimeError" in (told := os.read(read, 4096)) and b"Cannot re-initialize CUDA in forked subprocess" in told
    )
    assert x.sum().item() == 2.0 and not torch.cuda._is_in_bad_fork()


def _add(queue, back) -> None:
    x = queue.get()
    assert x.is_cuda and x.device.index == 1
    x.add_(1)
    torch.cuda.synchronize(1)
    back.put(x.sum().item())
    del x


def page_a_tensor_is_sent_to_a_process() -> None:
    context = mp.get_context("spawn")
    queue, back = context.Queue(), context.Queue()
    process = context.Process(target=_add, args=(queue, back))
    process.start()
    x = torch.ones(10, device="cuda:1")
    queue.put(x)
    assert back.get(timeout=60) == 20.0
    process.join(60)
    assert process.exitcode == 0 and x.tolist() == [2.0] * 10
    torch.cuda.ipc_collect()


def page_an_event_is_sent() -> None:
    event = torch.cuda.Event(interprocess=True)
    event.record()
    assert len(event.ipc_handle()) == 64 and torch.cuda.Event.from_ipc_handle("cuda:0", event.ipc_handle()).query()
    with pytest.raises(RuntimeError, match="interprocess=True"):
        torch.cuda.Event().ipc_handle()
    with pytest.raises(ValueError, match="no timing"):
        torch.cuda.Event(enable_timing=True, interprocess=True)
