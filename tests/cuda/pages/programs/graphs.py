"""Graphs of kernels."""

import tempfile

import numpy as np
import pytest

import rushlight as torch


def page_a_graph_is_replayed_on_its_memory() -> None:
    x = torch.full((4,), 3.0, device="cuda")
    graph = torch.cuda.CUDAGraph()
    assert not torch.cuda.is_current_stream_capturing()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        y = x * x
        z = y + 1
        del y  # its memory stays the graph's
    assert not torch.cuda.is_current_stream_capturing()
    for value in (1.0, 5.0):
        x.fill_(value)
        graph.replay()
        assert z.tolist() == [value * value + 1] * 4
    other = torch.cuda.CUDAGraph()
    with torch.cuda.graph(other, pool=graph.pool()):
        w = z + 1
    other.replay()
    assert w.tolist() == [27.0] * 4 and graph.get_graph_data()["nodes"] == 2
    graph.reset()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()


def page_streams_join_a_capture() -> None:
    x, side, graph = torch.ones(4, device="cuda"), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x * 2
        torch.cuda.current_stream().wait_stream(side)
        z = y + x
    x.fill_(4.0)
    graph.replay()
    assert z.tolist() == [12.0] * 4


def page_a_training_step() -> None:
    """Forward, backward and the step as one graph, beside the same steps one by one."""
    model, plain = (torch.nn.Linear(3, 2, device="cuda") for _ in range(2))
    plain.load_state_dict(model.state_dict())
    x, target = torch.randn(5, 3).cuda(), torch.randn(5, 2).cuda()

    def step(m):
        loss = (m(x) - target).square().mean()
        loss.backward()
        with torch.no_grad():
            for p in m.parameters():
                p.sub_(p.grad, alpha=0.1)
                p.grad.zero_()

    step(model), step(plain)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(model)
    for _ in range(3):
        graph.replay()
        step(plain)
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(mine, theirs)


def page_what_cannot_be_captured() -> None:
    x = torch.ones(4, device="cuda")
    for refused in (lambda: x.sum().item(), lambda: torch.cuda.synchronize(), lambda: x.cpu()):
        graph = torch.cuda.CUDAGraph()
        with pytest.raises(RuntimeError, match="STREAM_CAPTURE"), torch.cuda.graph(graph):
            refused()
        assert x.sum().item() == 4.0  # and the device goes on
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="non-default stream"):
        graph.capture_begin()
    with (
        pytest.raises(RuntimeError, match="Expected `global`, `thread_local`, or `relaxed`"),
        torch.cuda.graph(graph, capture_error_mode="loose"),
    ):
        pass
    with pytest.raises(RuntimeError, match="without a capture"):
        graph.capture_end()


def page_a_graph_can_be_kept_and_drawn() -> None:
    x, graph = torch.ones(4, device="cuda"), torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        y = x + 1
    assert graph.raw_cuda_graph()
    with pytest.raises(RuntimeError, match=r"until instantiate\(\)"):
        graph.raw_cuda_graph_exec()
    graph.instantiate()
    assert graph.raw_cuda_graph_exec()
    graph.replay()
    assert y.tolist() == [2.0] * 4
    with tempfile.TemporaryDirectory() as folder:
        graph.debug_dump(f"{folder}/g.dot")
        with open(f"{folder}/g.dot") as file:
            assert "digraph" in file.read()


def page_graphed_callables() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).cuda()
    plain = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).cuda()
    plain.load_state_dict(model.state_dict())
    model = torch.cuda.make_graphed_callables(model, (torch.randn(5, 3, device="cuda", requires_grad=True),))
    for _ in range(2):
        x = torch.randn(5, 3).cuda().requires_grad_()
        y = x.detach().clone().requires_grad_()
        model.zero_grad(), plain.zero_grad()
        one, other = model(x), plain(y)
        assert torch.allclose(one, other)
        (one * one).sum().backward()
        (other * other).sum().backward()
        assert torch.allclose(x.grad, y.grad, atol=1e-6)
        for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
            assert torch.allclose(mine.grad, theirs.grad, atol=1e-6)
    model.eval()
    assert model(torch.ones(1, 3, device="cuda")).shape == (1, 2)  # not as it was captured: the module itself
    with pytest.raises(TypeError, match="must contain only Tensors"):
        torch.cuda.make_graphed_callables(lambda n: n, (3,))


def page_the_accelerators_graph() -> None:
    x, stream, graph = torch.ones(4, device="cuda"), torch.cuda.Stream(), torch.accelerator.Graph()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        with graph:
            y = x + 1
        x.fill_(5.0)
        graph.replay()
        assert y.tolist() == [6.0] * 4 and graph.pool() is not None
    graph.reset()


def _replayed(draw, **begin):
    """A graph of `draw` after a warm-up, and its result."""
    draw()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    for generator in begin.get("generators", ()):
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        made = draw()
    return graph, made


def page_replays_draw_what_the_calls_would_draw() -> None:
    """Numbers of replays and the offset after them, for each kernel that draws."""
    p = torch.full((300,), 0.4, device="cuda")
    draws = {
        "rand": lambda: torch.rand(300, device="cuda"),
        "randn twice": lambda: torch.randn(5, device="cuda", dtype=torch.float64) + torch.randn(5, device="cuda"),
        "randint": lambda: torch.randint(0, 1 << 40, (70,), device="cuda"),
        "bernoulli": lambda: torch.bernoulli(p),
        "randperm": lambda: torch.randperm(50, device="cuda"),
        "exponential": lambda: torch.empty(40, device="cuda").exponential_(),
        "poisson": lambda: torch.poisson(p * 20),
        "gamma": lambda: torch._standard_gamma(p * 9),
        "multinomial": lambda: torch.multinomial(p, 4, replacement=True),
        "choice": lambda: torch.multinomial(p, 1),
        "rrelu": lambda: torch.nn.functional.rrelu(-p, training=True),
        "dropout": lambda: torch.nn.functional.dropout(p, 0.5),
    }
    for name, draw in draws.items():
        graph, made = _replayed(draw)
        for seed in (3, 2**63 + 5):
            torch.cuda.manual_seed(seed)
            wanted = [draw().cpu() for _ in range(3)]
            after = torch.cuda.get_rng_state()
            torch.cuda.manual_seed(seed)
            found = [(graph.replay(), made.cpu())[1] for _ in range(3)]
            assert all(torch.equal(x, y) for x, y in zip(wanted, found, strict=True)), name
            assert torch.equal(after, torch.cuda.get_rng_state()) and not torch.equal(found[0], found[1]), name


def page_a_capture_leaves_the_generator_as_it_is() -> None:
    torch.cuda.manual_seed(7)
    before = torch.cuda.get_rng_state()
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        graph.capture_begin()
        made = torch.rand(8, device="cuda")
        graph.capture_end()
    assert torch.equal(before, torch.cuda.get_rng_state())
    torch.cuda.synchronize()
    first = torch.rand(8, device="cuda")
    graph.replay()
    torch.cuda.manual_seed(7)
    again = torch.rand(16, device="cuda")
    torch.cuda.manual_seed(7)
    assert torch.equal(first, torch.rand(8, device="cuda")) and torch.equal(made, torch.rand(8, device="cuda"))
    assert not torch.equal(first, made) and again.shape == (16,)


def page_other_generators_are_registered() -> None:
    g = torch.Generator("cuda").manual_seed(11)
    graph, made = _replayed(lambda: torch.rand(6, device="cuda", generator=g), generators=[g])
    g.manual_seed(12)
    graph.replay(), graph.replay()
    other = torch.Generator("cuda").manual_seed(12)
    torch.rand(6, device="cuda", generator=other)
    assert (
        torch.equal(made, torch.rand(6, device="cuda", generator=other)) and g.get_offset() == other.get_offset() == 8
    )
    with pytest.raises(RuntimeError, match="register_generator_state"):
        _replayed(lambda: torch.rand(6, device="cuda", generator=g))


def page_dropout_in_graphed_callables() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Dropout(0.5)).cuda()
    graphed = torch.cuda.make_graphed_callables(model, (torch.ones(4, 8, device="cuda", requires_grad=True),))
    seen = []
    for _ in range(2):
        x = torch.ones(4, 8, device="cuda", requires_grad=True)
        y = graphed(x)
        kept = (y != 0).cpu()
        y.sum().backward()
        weight = model[0].weight
        bias = kept.float().sum(0).numpy() * 2
        assert np.allclose(model[0].bias.grad.cpu().numpy(), bias)
        assert np.allclose(weight.grad.cpu().numpy(), np.repeat(bias[:, None], 8, 1))
        model.zero_grad()
        seen.append(kept)
    assert not torch.equal(*seen) and 0.3 < seen[0].float().mean().item() < 0.7


def page_inputs_of_a_graph_must_live() -> None:
    x, w, graph = torch.ones(3, device="cuda"), torch.full((3,), 2.0, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, check_input_liveness=True):
        y = x + 1
        z = y[0:] * w
        del y
    graph.replay()
    assert z.tolist() == [4.0] * 3
    shape = x.shape
    del x
    with pytest.raises(
        RuntimeError, match=r"1 dead tensor\(s\)(.|\n)*first read at .*y = x \+ 1\n  and freed at .*del x"
    ):
        graph.replay()
    other = torch.cuda.CUDAGraph()
    with torch.cuda.graph(other):
        z = w + 1
    other.replay()
    assert z.shape == shape


def page_a_replay_cannot_be_captured() -> None:
    x, inner, outer = torch.ones(3, device="cuda"), torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(inner):
        x + 1
    with pytest.raises(RuntimeError, match="Cannot prepare for replay during capturing stage"), torch.cuda.graph(outer):
        x + 2
        inner.replay()
    inner.replay()
    assert x.tolist() == [1.0] * 3


def page_kernels_are_loaded_and_memory_is_pinned_while_captures_go_on() -> None:
    x = torch.arange(5.0, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        held = torch.full((3,), 2.0).pin_memory()
        y = torch.cumsum(x * 1.25, 0)  # kernels that nobody asked for before
    graph.replay()
    assert y.tolist() == [0.0, 1.25, 3.75, 7.5, 12.5] and held.tolist() == [2.0] * 3


def page_pinned_memory_of_a_capture_stays_for_its_replays() -> None:
    source, y, graph = torch.full((300,), 3.0).pin_memory(), torch.zeros(300, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y.copy_(source, non_blocking=True)
        del source
    others = [torch.full((300,), 9.0).pin_memory() for _ in range(3)]
    graph.replay()
    assert y.tolist() == [3.0] * 300 and len(others) == 3


def page_destructors_of_other_threads_spoil_no_capture() -> None:
    import threading

    side, x = torch.cuda.Stream(), torch.ones(1 << 10, device="cuda")
    pinned, y = torch.ones(1 << 10).pin_memory(), torch.ones(1 << 10, device="cuda")
    with torch.cuda.stream(side):
        x.copy_(pinned, non_blocking=True)
    y.record_stream(side)
    held = [pinned, y, torch.cuda.Event()]
    held[-1].record()
    del pinned, y
    graph, failed = torch.cuda.CUDAGraph(), []

    def forget() -> None:
        try:
            held.clear()
            torch.ones(10).pin_memory()
            torch.ones(10, device="cuda:1")
        except Exception as error:
            failed.append(error)

    with torch.cuda.graph(graph):
        z = x + 1
        thread = threading.Thread(target=forget)
        thread.start()
        thread.join()
    graph.replay()
    assert not failed and z.tolist() == [2.0] * (1 << 10)
