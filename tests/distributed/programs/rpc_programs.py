"""What the ranks of `test_rpc` do: calls, references and gradients across workers, beside the same in one process."""

from __future__ import annotations

import gc
import io
import os
import pickle
import signal
import socket
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

import rushlight as torch
import rushlight.distributed as dist
import rushlight.distributed.autograd as dist_autograd
import rushlight.nn as nn
from rushlight.distributed import rpc
from rushlight.distributed.rpc.running import current_agent

HELD: dict[str, Any] = {}


def workers(program: Callable[..., Any]) -> Callable[..., Any]:
    """Run a program as worker `w<rank>` of a job that meets in a file; rank 0's result counts."""

    @wraps(program)
    def run(rank: int, size: int, path: str, *arguments: Any, graceful: bool = True) -> Any:
        options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{path}", rpc_timeout=30)
        rpc.init_rpc(f"w{rank}", rank=rank, world_size=size, rpc_backend_options=options)
        try:
            result = program(rank, size, *arguments)
        except BaseException:
            rpc.shutdown(graceful=False)  # the others see that this worker has gone
            raise
        rpc.shutdown(graceful=graceful)
        HELD.clear()
        return result

    return run


def raised(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Exception:
    try:
        function(*args, **kwargs)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


# ***** what others call *****


def rank_of_caller(given: int) -> tuple[int, int]:
    return given, rpc.get_worker_info().id


def fail(text: str) -> None:
    raise KeyError(text)


class TwoPartError(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(a, b)


def fail_oddly() -> None:
    raise TwoPartError(1, 2)


def double(x: Any) -> Any:
    return x * 2


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def describe(x: Any) -> tuple[Any, ...]:
    return type(x).__name__, x.requires_grad, x.is_leaf, x.stride()


def chain(names: list[str], x: Any) -> Any:
    """Through workers one after the other, each of which adds one."""
    return x + 1 if not names else rpc.rpc_sync(names[0], chain, args=(names[1:], x)) + 1


@rpc.functions.async_execution
def chain_later(names: list[str], x: Any) -> Any:
    if not names:
        done: torch.futures.Future[Any] = torch.futures.Future()
        done.set_result(x + 1)
        return done
    return rpc.rpc_async(names[0], chain_later, args=(names[1:], x)).then(lambda f: f.wait() + 1)


@rpc.functions.async_execution
def no_future() -> int:
    return 3


class Counter:
    """An object that others reach by a reference."""

    alive = 0

    def __init__(self, start: int = 0) -> None:
        self.value = start
        Counter.alive += 1

    def __del__(self) -> None:
        Counter.alive -= 1

    def add(self, amount: int) -> int:
        self.value += amount
        return self.value

    @rpc.functions.async_execution
    def add_later(self, amount: int) -> Any:
        done: torch.futures.Future[int] = torch.futures.Future()
        threading.Timer(0.01, lambda: done.set_result(self.add(amount))).start()
        return done

    @staticmethod
    @rpc.functions.async_execution
    def static_later(value: int) -> Any:
        done: torch.futures.Future[int] = torch.futures.Future()
        done.set_result(value)
        return done


def alive() -> int:
    gc.collect()
    return Counter.alive


def keep(name: str, value: Any) -> None:
    HELD[name] = value


def drop(name: str) -> None:
    del HELD[name]


def counted(reference: Any) -> int:
    """A use of a reference that came as an argument."""
    return int(reference.rpc_sync().add(1))


def pass_on(reference: Any, names: list[str]) -> Any:
    return rpc.rpc_sync(names[0], pass_on, args=(reference, names[1:])) if names else reference


# ***** calls *****


@workers
def calls(rank: int, size: int) -> None:
    """Every worker calls every worker at once: values, tensors, exceptions, time limits."""
    for to in range(size):
        assert rpc.rpc_sync(f"w{to}", rank_of_caller, args=(rank,)) == (rank, to)
        info = rpc.get_worker_info(f"w{to}")
        assert (info.id, info.name, repr(info)) == (to, f"w{to}", f"WorkerInfo(id={to}, name=w{to})")
        assert rpc.rpc_sync(info, torch.add, args=(torch.ones(2), to)).tolist() == [1.0 + to] * 2
        futures = [rpc.rpc_async(to, double, args=(k,)) for k in range(50)]
        assert torch.futures.wait_all(futures) == [2 * k for k in range(50)]
        assert rpc.rpc_async(to, double, kwargs={"x": 4}).then(lambda f: f.wait() + 1).wait() == 9
    other = f"w{(rank + 1) % size}"
    error = raised(rpc.rpc_sync, other, fail, args=("nothing here",))
    assert type(error) is KeyError and "On WorkerInfo(id=" in str(error) and "raise KeyError(text)" in str(error)
    error = raised(rpc.rpc_sync, other, fail_oddly)
    assert type(error) is RuntimeError and "TwoPartError" in str(error)
    assert "ran for more than set timeout (50 ms)" in str(raised(rpc.rpc_sync, other, sleep, args=(0.3,), timeout=0.05))
    assert f"name:w{rank},rank:{rank} could not find destination name w9" in str(raised(rpc.rpc_sync, "w9", sleep))
    assert "local object" in str(raised(rpc.rpc_sync, other, lambda: 1)) or "pickle" in str(
        raised(rpc.rpc_sync, other, lambda: 1)
    )
    assert "function should be callable" in str(raised(rpc.rpc_sync, other, 5))
    assert "cannot pickle" in str(raised(rpc.rpc_sync, other, threading.Lock))  # a result that cannot be sent
    assert "RPC is already initialized" in str(raised(rpc.init_rpc, "again", rank=0, world_size=1))
    names = [f"w{(rank + k) % size}" for k in range(1, size + 1)]
    assert rpc.rpc_sync(names[0], chain, args=(names[1:], 0)) == size
    assert rpc.rpc_sync(names[0], chain_later, args=(names[1:] * 10, 0)) == 10 * (size - 1) + 1
    assert "must return a torch.futures.Future object" in str(raised(rpc.rpc_sync, other, no_future))
    assert rpc.rpc_sync(other, Counter.static_later, args=(7,)) == 7
    assert rpc.api._all_gather(rank) == {f"w{k}": k for k in range(size)}
    if rank < 2:
        rpc._barrier({"w0", "w1"})


@workers
def tensors(rank: int, size: int) -> None:
    """Tensors keep dtype, layout and values; large ones go both ways at once."""
    to = f"w{(rank + 1) % size}"
    given = [
        torch.arange(6.0).reshape(2, 3).t(), torch.ones(4, 4)[:, ::2], torch.tensor(3), torch.empty(0, 3), torch.tensor([True, False]),
        torch.tensor([1.5, 2.5], dtype=torch.bfloat16), torch.tensor([1 + 2j]).conj(), torch.eye(3).to_sparse(),
    ]  # fmt: skip
    for x in given:
        y = rpc.rpc_sync(to, double, args=(x,))
        assert y.dtype == (x * 2).dtype and y.shape == x.shape
        assert torch.equal(
            (x * 2).to_dense() if x.layout is torch.sparse_coo else x * 2,
            y.to_dense() if y.layout is torch.sparse_coo else y,
        )
    x = torch.ones(3)
    same = rpc.rpc_sync(to, double, args=(1,)), rpc.rpc_async(to, list, args=((x, x),))
    x.zero_()  # what was sent does not change
    a, b = same[1].wait()
    assert a is b and a.tolist() == [1, 1, 1]
    leaf, parameter = torch.ones(2, requires_grad=True), nn.Parameter(torch.ones(2))
    assert rpc.rpc_sync(to, describe, args=(leaf * 2,)) == ("Tensor", True, True, (1,))  # as PyTorch: a leaf there
    assert rpc.rpc_sync(to, describe, args=(parameter,)) == ("Parameter", True, True, (1,))
    assert rpc.rpc_sync(to, describe, args=(torch.ones(3, 4).t(),)) == ("Tensor", False, True, (1, 4))
    big = torch.full((1 << 20,), float(rank))
    futures = [rpc.rpc_async(to, double, args=(big,)) for _ in range(4)]
    assert all(float(f.wait().sum()) == 2.0 * rank * (1 << 20) for f in futures)


# ***** references *****


@workers
def references(rank: int, size: int) -> int:
    """References: values, proxies, sending on, and that owners free values when the last one is gone."""
    owner, third = f"w{(rank + 1) % size}", f"w{(rank + 2) % size}"
    counter = rpc.remote(owner, Counter, args=(10,))
    assert counter.rpc_sync().add(1) == 11 and counter.rpc_async().add(1).wait() == 12
    assert counter.remote().add(1).to_here() == 13 and counter.rpc_sync().add_later(1) == 14
    assert counter.remote().add_later(1).to_here() == 15
    assert (counter.owner_name(), counter.is_owner(), counter.owner().name) == (owner, False, owner)
    assert counter.confirmed_by_owner() and repr(counter).startswith("UserRRef(RRefId = GloballyUniqueId(created_on=")
    assert "can't call localValue() on user" in str(raised(counter.local_value))
    assert counter._get_type() is Counter
    assert rpc.rpc_sync(third, counted, args=(counter,)) == 16  # a third worker
    assert rpc.rpc_sync(owner, counted, args=(counter,)) == 17  # back at the owner
    back = rpc.rpc_sync(third, pass_on, args=(counter, [owner, third, f"w{rank}"]))
    assert back.rpc_sync().add(1) == 18
    own = rpc.RRef(torch.ones(2))
    assert own.is_owner() and own.to_here() is own.local_value() and own.confirmed_by_owner()
    again = rpc.rpc_sync(third, pass_on, args=(own, [owner]))
    assert again.is_owner() and again.local_value() is own.local_value()
    assert "can only be pickled when using RPC" in str(raised(pickle.dumps, own))
    failed = rpc.remote(owner, fail, args=("in vain",))
    assert type(raised(failed.to_here)) is KeyError
    assert "no attribute" in str(raised(counter.rpc_sync().nothing))
    slow = rpc.remote(owner, sleep, args=(0.3,))
    assert "set timeout" in str(raised(slow.to_here, timeout=0.05)) and slow.to_here() == 0.3
    rpc.rpc_sync(third, keep, args=(f"kept{rank}", counter))
    del counter, back
    gc.collect()
    rpc._barrier({f"w{k}" for k in range(size)})
    assert alive() == 1  # the third worker refers to it
    rpc._barrier({f"w{k}" for k in range(size)})
    rpc.rpc_sync(third, drop, args=(f"kept{rank}",))
    until = time.monotonic() + 5
    while rpc.rpc_sync(owner, alive) and time.monotonic() < until:
        time.sleep(0.01)
    assert rpc.rpc_sync(owner, alive) == 0
    rpc._barrier({f"w{k}" for k in range(size)})
    del own, again, failed, slow
    gc.collect()
    until = time.monotonic() + 5
    held = current_agent().references
    while (held.owned or held.children or held.users) and time.monotonic() < until:
        time.sleep(0.01)
    assert not held.owned and not held.children and not held.users, (held.owned, held.children, held.users)
    return held.running


# ***** gradients *****


def product(x: Any, y: Any) -> Any:
    return x * y


def ask_back(name: str, x: Any, y: Any) -> Any:
    """A call within a call: to the worker that has called, whose graph is reached in the middle."""
    return rpc.rpc_sync(name, product, args=(x, y)) * torch.sin(x)


def weighted(x: Any) -> Any:
    """Uses a leaf of this worker."""
    w = HELD.setdefault("weight", torch.tensor([0.5, -1.0, 2.0], requires_grad=True))
    return (x * w).cos()


def own_gradient(context_id: int) -> Any:
    return dist_autograd.get_gradients(context_id).get(HELD["weight"])


def known_contexts() -> int:
    return len(dist_autograd.CONTEXTS.by_number)


@workers
def gradients(rank: int, size: int) -> None:
    """Gradients over several workers are those of one process, to the bit."""
    torch.manual_seed(rank)
    x, y = (torch.randn(3, requires_grad=True) for _ in range(2))
    first, second = f"w{(rank + 1) % size}", f"w{(rank + 2) % size}"
    w = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
    for _ in range(2):
        with dist_autograd.context() as number:
            a = rpc.rpc_sync(first, product, args=(x, y))
            b = rpc.rpc_sync(second, ask_back, args=(f"w{rank}", a, x))
            c = rpc.rpc_async(first, torch.add, args=(b, a)).wait()
            held = rpc.remote(second, weighted, args=(c,))
            rpc.rpc_sync(first, product, args=(a, y))  # nobody needs it: PyTorch waits for it in vain
            loss = held.to_here().sum() + a.sum()
            assert a.requires_grad and not a.is_leaf and type(a.grad_fn).__name__ == "RecvRpcBackward"
            dist_autograd.backward(number, [loss], retain_graph=True)
            there = rpc.rpc_sync(second, own_gradient, args=(number,))
            dist_autograd.backward(number, [loss])  # adds up
            twice = dist_autograd.get_gradients(number)
        expected_a = x * y
        expected_b = expected_a * x * torch.sin(expected_a)
        expected = ((expected_b + expected_a) * w).cos().sum() + expected_a.sum()
        wanted = torch.autograd.grad(expected, (x, y, w))
        for leaf, grad in zip((x, y), wanted, strict=False):
            torch.testing.assert_close(twice[leaf] / 2, grad, rtol=1e-6, atol=1e-6)
            assert leaf.grad is None
        torch.testing.assert_close(there, wanted[2], rtol=1e-6, atol=1e-6)
        assert torch.equal(loss.detach(), expected.detach())
    assert "Could not find autograd context" in str(raised(dist_autograd.get_gradients, number))
    rpc._barrier({f"w{k}" for k in range(size)})
    until = time.monotonic() + 5
    while known_contexts() and time.monotonic() < until:
        time.sleep(0.01)
    assert known_contexts() == 0


def fails_backward(x: Any) -> Any:
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            raise ValueError("broken on purpose")

    return Broken.apply(x)


@workers
def gradient_errors(rank: int, size: int) -> None:
    """What backward refuses, and an error on another worker."""
    to = f"w{(rank + 1) % size}"
    x = torch.ones(2, requires_grad=True)
    with dist_autograd.context() as number:
        assert "Already have an autograd context id" in str(raised(dist_autograd.context().__enter__))
        for roots, text in (
            ([], "No tensors"),
            ([x], "exactly one element"),
            ([torch.ones(1)], "requires_grad not set"),
        ):
            assert text in str(raised(dist_autograd.backward, number, roots))
        assert "Could not find autograd context with id: 777" in str(raised(dist_autograd.backward, 777, [x.sum()]))
        y = rpc.rpc_sync(to, fails_backward, args=(x,)).sum()
        error = raised(dist_autograd.backward, number, [y])
        assert "broken on purpose" in str(error) and "On WorkerInfo(id=" in str(error)
        z = rpc.rpc_sync(to, double, args=(x,)).sum()
        assert "dist" in str(raised(z.backward))
    alone = rpc.rpc_sync(to, double, args=(x,))
    assert alone.is_leaf and alone.requires_grad  # outside of a context
    held = rpc.RRef((x * 3).sum())
    held.backward()
    assert x.grad.tolist() == [3.0, 3.0]
    assert "should contain a tensor" in str(raised(rpc.remote(to, double, args=(1,)).backward))
    with dist_autograd.context() as number:
        loss = rpc.remote(to, torch.sum, args=(x,))
        loss.backward(number)
        assert dist_autograd.get_gradients(number)[x].tolist() == [1.0, 1.0]


# ***** failures *****


def strangers(rank: int, size: int, path: str) -> int:
    """Connections without the token, and frames that are none: refused, and the workers go on."""
    return int(workers(_strangers)(rank, size, path))


def _strangers(rank: int, size: int) -> int:
    from rushlight._distributed.calls import frames, links

    agent = current_agent()
    me, to = agent.me.id, (rank + 1) % size
    refused = 0
    for token, asked in ((b"wrong", to), (agent.members.token, rank)):
        with socket.create_connection(agent.members.address_of(to), 5) as stranger:
            try:
                links.greet(stranger, token, me, asked)
            except (links.Stranger, OSError):
                refused += 1
    for data in (b"", b"x" * 200, b"GET / HTTP/1.1\r\n\r\n"):
        with socket.create_connection(agent.members.address_of(to), 5) as stranger:
            try:
                stranger.sendall(data)
                stranger.shutdown(socket.SHUT_WR)
                stranger.settimeout(5)
                while stranger.recv(1000):
                    pass
            except OSError:  # it was faster to close
                pass
            refused += 1
    assert rpc.rpc_sync(to, double, args=(4,)) == 8
    for head in (
        b"\xff" * 16,
        frames._HEAD.pack(frames.FrameType.CALL, 0, 9, 1, 0),
        frames._HEAD.pack(frames.FrameType.FETCH, 0, 2, 1 << 20, 0),
    ):
        try:
            frames.read_frame(io.BytesIO(head))
        except frames.Malformed:
            refused += 1
    return refused


def killed(rank: int, size: int, path: str) -> list[str]:
    """The last worker dies: calls to it fail at once, by its name, and so does a graceful end."""
    if rank == size - 1:
        if os.fork() == 0:  # a process of its own: the pool's rank lives on
            try:
                workers(_wait_for_the_end)(rank, size, path)
            finally:
                os._exit(0)
        os.wait()
        return []
    return list(workers(_see_the_end)(rank, size, path, graceful=False))


def _wait_for_the_end(rank: int, size: int) -> None:
    threading.Event().wait(30)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _see_the_end(rank: int, size: int) -> list[str]:
    last = f"w{size - 1}"
    rpc._barrier({f"w{k}" for k in range(size - 1)})
    waiting = rpc.rpc_async(last, sleep, args=(30,))
    reference = rpc.remote(last, sleep, args=(30,))
    rpc._barrier({f"w{k}" for k in range(size - 1)})
    if rank == 0:
        rpc.rpc_async(last, die)
    began = time.monotonic()
    found = [
        str(raised(waiting.wait)),
        str(raised(reference.to_here)),
        str(raised(rpc.rpc_sync, last, double, args=(1,))),
    ]
    assert time.monotonic() - began < 10
    rpc._barrier({f"w{k}" for k in range(size - 1)})
    found.append(str(raised(rpc.api._wait_all_workers)))
    rpc._barrier({f"w{k}" for k in range(size - 1)})
    return found


@workers
def ends_at_work(rank: int, size: int) -> None:
    """A graceful end waits for calls that have begun, and those that they begin."""
    HELD["sum"] = 0
    rpc.rpc_async(f"w{(rank + 1) % size}", later_steps, args=([f"w{k}" for k in range(size)] * 2,))


def later_steps(names: list[str]) -> None:
    time.sleep(0.01)
    if names:
        rpc.rpc_async(names[0], later_steps, args=(names[1:],))


def late_member(rank: int, size: int, path: str) -> list[str]:
    """Workers come and go where no number of them is given."""
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{path}")
    dist.barrier()
    if rank == 0:
        rpc.init_rpc("first", rank=0, rpc_backend_options=options)
    dist.barrier()
    found = []
    if rank == 1:
        rpc.init_rpc("second", rank=7, rpc_backend_options=options)
        found.append(str(rpc.rpc_sync("first", rpc.get_worker_info)))
        rpc.shutdown()
    dist.barrier()
    if rank == 0:
        found.append(str(raised(rpc.rpc_sync, "second", double, args=(1,))))
        rpc.shutdown()
    return found
