"""Programs that PyTorch's tutorials teach for RPC, each on several workers and in one process: they must agree."""

from __future__ import annotations

import threading
from typing import Any

from tests.distributed.programs.rpc_programs import HELD, workers

import rushlight as torch
import rushlight.distributed as dist
import rushlight.distributed.autograd as dist_autograd
import rushlight.nn as nn
import rushlight.nn.functional as F
from rushlight.distributed import rpc
from rushlight.distributed.nn import RemoteModule
from rushlight.distributed.optim import DistributedOptimizer
from rushlight.nn.parallel import DistributedDataParallel as DDP

STEPS, BATCH = 4, 6


def batches(seed: int, *shape: int) -> list[tuple[Any, Any]]:
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(BATCH, *shape, generator=generator), torch.randint(0, 3, (BATCH,), generator=generator))
        for _ in range(STEPS)
    ]


# ***** parameter server: the model is split over it and the trainer *****


class Server:
    """Has the body of the model."""

    def __init__(self) -> None:
        torch.manual_seed(7)
        self.body = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, x: Any) -> Any:
        return self.body(x)

    def parameters(self) -> list[Any]:
        return [rpc.RRef(p) for p in self.body.parameters()]

    def values(self) -> list[Any]:
        return [p.detach() for p in self.body.parameters()]


def head() -> nn.Linear:
    torch.manual_seed(8)
    return nn.Linear(4, 3)


def split_alone(optimizer: Any) -> tuple[list[float], list[Any]]:
    server, top = Server(), head()
    step = optimizer([*server.body.parameters(), *top.parameters()], lr=0.1)
    losses = []
    for x, y in batches(1, 5):
        step.zero_grad()
        loss = F.cross_entropy(top(server.forward(x)), y)
        loss.backward()
        step.step()
        losses.append(loss.item())
    return losses, server.values()


@workers
def parameter_server(rank: int, size: int) -> None:
    """Worker 0 trains a model whose body is on worker 1, with two optimizers."""
    if rank:
        return
    for optimizer in (torch.optim.SGD, torch.optim.Adam):
        server, top = rpc.remote("w1", Server), head()
        references = [*server.rpc_sync().parameters(), *(rpc.RRef(p) for p in top.parameters())]
        step = DistributedOptimizer(optimizer, references, lr=0.1)
        losses = []
        for x, y in batches(1, 5):
            with dist_autograd.context() as number:
                loss = F.cross_entropy(top(server.rpc_sync().forward(x)), y)
                dist_autograd.backward(number, [loss])
                step.step(number)
                losses.append(loss.item())
        expected, values = split_alone(optimizer)
        assert losses == expected
        assert all(torch.equal(a, b) for a, b in zip(server.rpc_sync().values(), values, strict=True))


# ***** data parallel trainers with a remote embedding *****


def embed(x: Any) -> Any:
    return HELD.setdefault("embedding", seeded_embedding())(x)


def embedding_gradient(number: int) -> Any:
    return dist_autograd.get_gradients(number)[HELD["embedding"].weight]


@workers
def data_parallel(rank: int, size: int) -> None:
    """Two trainers average the gradients of what they have by DDP; those of the embedding are each trainer's own."""
    group = dist.new_group([0, 1])
    if rank > 1:
        return
    dense = DDP(seeded_decoder_of(4), process_group=group)
    alone = seeded_embedding(), seeded_decoder_of(4)
    for x, y in words()[:2]:
        parts = [(x[:, k::2].flatten(), y.view(7, BATCH)[:, k::2].flatten()) for k in range(2)]
        with dist_autograd.context() as number:
            own_x, own_y = parts[rank]
            loss = F.cross_entropy(dense(rpc.rpc_sync("w2", embed, args=(own_x,))), own_y)
            dist_autograd.backward(number, [loss])
            found = dist_autograd.get_gradients(number)
            there = rpc.rpc_sync("w2", embedding_gradient, args=(number,))
        grads = []
        for part_x, part_y in parts:
            expected = F.cross_entropy(alone[1](alone[0](part_x)), part_y)
            grads.append(torch.autograd.grad(expected, [p for m in alone for p in m.parameters()]))
        assert torch.equal(there, grads[rank][0])
        for p, a, b in zip(dense.module.parameters(), grads[0][1:], grads[1][1:], strict=True):
            assert torch.equal(found[p], (a + b) / 2) and p.grad is None


def seeded_decoder_of(width: int) -> Any:
    return seeded(5, nn.Linear, width, 11)


# ***** a recurrent model with a remote embedding and decoder *****


def words() -> list[tuple[Any, Any]]:
    generator = torch.Generator().manual_seed(3)
    return [
        (torch.randint(0, 11, (7, BATCH), generator=generator), torch.randint(0, 11, (7 * BATCH,), generator=generator))
        for _ in range(STEPS)
    ]


def seeded(seed: int, cls: Any, *args: Any) -> Any:
    torch.manual_seed(seed)
    return cls(*args)


@workers
def recurrent(rank: int, size: int) -> None:
    """Embedding on one worker, LSTM here, decoder on a third: `RemoteModule`, and its parameters in one optimizer."""
    if rank:
        return
    torch.manual_seed(0)
    embedding, decoder = RemoteModule("w1/cpu", seeded_embedding), RemoteModule("rank:2", seeded_decoder)
    lstm = seeded(6, nn.LSTM, 4, 5)
    step = DistributedOptimizer(
        torch.optim.SGD,
        [*embedding.remote_parameters(), *decoder.remote_parameters(), *(rpc.RRef(p) for p in lstm.parameters())],
        lr=0.3,
    )
    alone = seeded_embedding(), seeded(6, nn.LSTM, 4, 5), seeded_decoder()
    plain = torch.optim.SGD([p for m in alone for p in m.parameters()], lr=0.3)
    hidden = expected_hidden = None
    for x, y in words():
        with dist_autograd.context() as number:
            out, hidden = lstm(embedding(x), None if hidden is None else tuple(h.detach() for h in hidden))
            loss = F.cross_entropy(decoder.forward_async(out).wait().flatten(0, 1), y)
            dist_autograd.backward(number, [loss])
            step.step(number)
        plain.zero_grad()
        out, expected_hidden = alone[1](
            alone[0](x), None if expected_hidden is None else tuple(h.detach() for h in expected_hidden)
        )
        expected = F.cross_entropy(alone[2](out).flatten(0, 1), y)
        expected.backward()
        plain.step()
        assert loss.item() == expected.item()
    assert rpc.rpc_sync("w2", norm_of, args=(decoder,)) == norm(alone[2])
    assert not embedding.eval().training and embedding.train().training
    for name in ("state_dict", "parameters", "cpu", "zero_grad"):
        try:
            getattr(embedding, name)()
        except ValueError as error:
            assert f"Method ``{name}`` not supported for RemoteModule" in str(error)
        else:
            raise AssertionError(name)


def seeded_embedding() -> Any:
    return seeded(4, nn.Embedding, 11, 4)


def seeded_decoder() -> Any:
    return seeded(5, nn.Linear, 5, 11)


def norm(module: Any) -> float:
    return float(sum(p.detach().square().sum() for p in module.parameters()))


def norm_of(module: Any) -> float:
    """A remote module as an argument."""
    return norm(module.get_module_rref().local_value())


# ***** batches of updates: a server that waits for all trainers without a thread for each *****


class BatchServer:
    """Averages the gradients of all trainers, steps once, and answers all of them."""

    def __init__(self, trainers: int) -> None:
        self.model, self.trainers = head(), trainers
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.2, momentum=0.9)
        self.lock, self.future, self.count = threading.Lock(), torch.futures.Future[Any](), 0

    def get_model(self) -> Any:
        return self.model

    @staticmethod
    @rpc.functions.async_execution
    def update(reference: Any, grads: list[Any]) -> Any:
        self = reference.local_value()
        with self.lock:
            self.count += 1
            for p, g in zip(self.model.parameters(), grads, strict=True):
                p.grad = g if p.grad is None else p.grad + g
            future = self.future
            if self.count == self.trainers:
                for p in self.model.parameters():
                    p.grad /= self.trainers
                self.count = 0
                self.optimizer.step()
                self.optimizer.zero_grad()
                future.set_result(self.model)
                self.future = torch.futures.Future()
        return future


def train(reference: Any, seed: int) -> float:
    model, last = reference.rpc_sync().get_model(), 0.0
    for x, y in batches(seed, 4):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        last = loss.item()
        model = rpc.rpc_sync(
            reference.owner(), BatchServer.update, args=(reference, [p.grad for p in model.parameters()])
        )
    return last


@workers
def batched_updates(rank: int, size: int) -> None:
    """Two trainers and a server, whose answers are futures."""
    if rank:
        return
    server = rpc.RRef(BatchServer(2))
    losses = torch.futures.wait_all([rpc.rpc_async(f"w{k}", train, args=(server, k)) for k in (1, 2)])
    model = head()
    step = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for one, two in zip(batches(1, 4), batches(2, 4), strict=True):
        step.zero_grad()
        expected = [F.cross_entropy(model(x), y) for x, y in (one, two)]
        grads = [torch.autograd.grad(loss, list(model.parameters())) for loss in expected]
        for p, a, b in zip(model.parameters(), *grads, strict=True):
            p.grad = (a + b) / 2
        step.step()
    assert losses == [loss.item() for loss in expected]
    for p, q in zip(server.local_value().model.parameters(), model.parameters(), strict=True):
        assert torch.equal(p, q)


# ***** reinforcement learning: observers act in their worlds, the agent learns *****


class Walk:
    """A world: a point is pushed to the left or right, and near the origin it is rewarded."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.state = torch.zeros(2)

    def reset(self) -> Any:
        self.state = torch.rand(2, generator=self.generator) - 0.5
        return self.state.clone()

    def step(self, action: int) -> tuple[Any, float]:
        self.state = self.state + torch.tensor([self.state[1].item() * 0.1, 0.1 if action else -0.1])
        return self.state.clone(), float(self.state[0].abs() < 0.4)


class Observer:
    """Plays in its world; the agent chooses, because it has the policy."""

    def __init__(self, seed: int) -> None:
        self.world = Walk(seed)
        self.me = seed

    def run_episode(self, agent: Any, steps: int) -> float:
        state, total = self.world.reset(), 0.0
        for _ in range(steps):
            action = agent.rpc_sync().select_action(self.me, state)
            state, reward = self.world.step(action)
            agent.rpc_sync().report_reward(self.me, reward)
            total += reward
        return total


class Agent:
    """Has the policy; remembers what it chose for each observer."""

    def __init__(self, seeds: list[int]) -> None:
        torch.manual_seed(0)
        self.policy = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=0.05)
        self.chosen: dict[int, list[Any]] = {seed: [] for seed in seeds}
        self.rewards: dict[int, list[float]] = {seed: [] for seed in seeds}

    def select_action(self, observer: int, state: Any) -> int:
        scores = self.policy(state)
        action = int(scores.argmax()) if len(self.chosen[observer]) % 3 else len(self.chosen[observer]) % 2
        self.chosen[observer].append(F.log_softmax(scores, 0)[action])
        return action

    def report_reward(self, observer: int, reward: float) -> None:
        self.rewards[observer].append(reward)

    def learn(self) -> float:
        losses = []
        for observer in sorted(self.chosen):
            total = 0.0
            for log, reward in zip(reversed(self.chosen[observer]), reversed(self.rewards[observer]), strict=True):
                total = reward + 0.9 * total
                losses.append(-log * total)
            self.chosen[observer], self.rewards[observer] = [], []
        loss = torch.stack(losses).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


class Local:
    """A reference without RPC, for one process."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def rpc_sync(self) -> Any:
        return self.value


@workers
def reinforcement(rank: int, size: int) -> None:
    """Observers on two workers ask the agent here at the same time."""
    if rank:
        return
    agent = Agent([1, 2])
    reference = rpc.RRef(agent)
    observers = [rpc.remote(f"w{k}", Observer, args=(k,)) for k in (1, 2)]
    alone, players = Agent([1, 2]), [Observer(1), Observer(2)]
    for _ in range(3):
        totals = torch.futures.wait_all([o.rpc_async().run_episode(reference, 6) for o in observers])
        expected = [player.run_episode(Local(alone), 6) for player in players]
        assert totals == expected
        assert agent.learn() == alone.learn()
