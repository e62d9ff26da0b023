"""Backward on the streams of the forward: the emulated driver runs streams in any order that events allow."""

import numpy as np

import rushlight as torch


def _on(stream: torch.cuda.Stream, first: torch.cuda.Stream) -> torch.cuda.StreamContext:
    stream.wait_stream(first)
    return torch.cuda.stream(stream)


def page_nodes_run_where_their_forward_ran() -> None:
    main, s, t = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()
    rng = np.random.default_rng(0)
    a0, b0 = (rng.standard_normal((32, 32)).astype(np.float32) for _ in range(2))
    x0 = np.tanh(a0.astype(np.float64) @ b0)
    flow = (2 * x0 + np.cos(x0)) * (1 - x0 * x0)
    want = flow @ b0.T.astype(np.float64) + 2, a0.T.astype(np.float64) @ flow
    for _ in range(3):
        a, b = (torch.tensor(v, device="cuda", requires_grad=True) for v in (a0, b0))
        seen = []
        with _on(s, main):
            x = (a @ b).tanh()
            x.register_hook(lambda g, seen=seen: seen.append(torch.cuda.current_stream() == s))
        with _on(t, s):
            y, z = (x * x).t().contiguous(), x.sin()
            y.register_hook(lambda g, seen=seen: seen.append(torch.cuda.current_stream() == t))
        main.wait_stream(t)
        ((y + z).sum() + (a * 2).sum()).backward()
        assert seen == [True, True] and torch.cuda.current_stream() == main
        for leaf, expected in zip((a, b), want, strict=True):
            np.testing.assert_allclose(leaf.grad.cpu().numpy(), expected, rtol=1e-4, atol=1e-4)


def page_the_caller_may_have_another_stream() -> None:
    main, s = torch.cuda.current_stream(), torch.cuda.Stream()
    w = torch.ones(64, device="cuda", requires_grad=True)
    for k in range(1, 4):
        loss = (w * w).view(8, 8)[1:].sum()
        with _on(s, main):
            loss.backward()
            w.grad.mul_(1)
            assert torch.cuda.current_stream() == s
        main.wait_stream(s)
        assert w.grad.tolist() == [0.0] * 8 + [2.0 * k] * 56


def page_gradients_that_are_asked_for_and_second_ones() -> None:
    main, s = torch.cuda.current_stream(), torch.cuda.Stream()
    x = torch.arange(1.0, 9.0, device="cuda", requires_grad=True)
    with _on(s, main):
        y = x.pow(3).sum()
    main.wait_stream(s)
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert first.tolist() == [3.0 * k * k for k in range(1, 9)] and second.tolist() == [6.0 * k for k in range(1, 9)]


def page_functions_of_users_and_two_devices() -> None:
    main, s, far = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream("cuda:1")
    seen = []

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            seen.append((torch.cuda.current_stream() == s, torch.cuda.current_stream("cuda:1") == far))
            return grad * 2

    x = torch.ones(16, device="cuda", requires_grad=True)
    with _on(s, main), torch.cuda.stream(far), torch.cuda.device(0):
        y = Doubled.apply(x).to("cuda:1") * 3
    torch.cuda.current_stream("cuda:1").wait_stream(far)
    y.sum().backward()
    assert seen == [(True, True)] and x.grad.tolist() == [6.0] * 16


def page_streams_without_a_device_are_the_accelerators() -> None:
    assert torch.Stream().device == torch.device("cuda:0") and torch.Event().device.type == "cuda"
    with torch.cuda.device(1):
        assert torch.Stream().device == torch.Stream("cuda").device == torch.device("cuda:1")
    assert torch.Stream("cpu").device == torch.device("cpu")
