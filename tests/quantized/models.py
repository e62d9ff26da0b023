"""Models that both packages make, calibrate or train, and convert in eager mode."""

from __future__ import annotations

from typing import Any

import numpy as np

X = np.random.default_rng(0).normal(size=(4, 3, 16, 16)).astype(np.float32)
SEQUENCES = np.random.default_rng(0).normal(size=(5, 2, 6)).astype(np.float32)
FUSED = [["c1", "b1", "r1"], ["c2", "b2"], ["fc", "r2"]]


def network(T: Any) -> Any:
    """A small network with what eager mode has: fused layers, depthwise, a sum, pooling, activations of their own scale."""
    nn, q = T.nn, T.ao.quantization

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quant, self.deq = q.QuantStub(), q.DeQuantStub()
            self.c1, self.b1, self.r1 = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()
            self.c2, self.b2 = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8), nn.BatchNorm2d(8)
            self.pool, self.c3, self.avg = nn.MaxPool2d(2), nn.Conv2d(8, 8, 1), nn.AdaptiveAvgPool2d(1)
            self.add, self.fl = T.ao.nn.quantized.FloatFunctional(), nn.Flatten()
            self.fc, self.r2, self.fc2 = nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 4)
            self.hs, self.sig = nn.Hardswish(), nn.Sigmoid()

        def forward(self, x: Any) -> Any:
            x = self.r1(self.b1(self.c1(self.quant(x))))
            x = self.pool(self.b2(self.c2(x)))
            x = self.fl(self.avg(self.add.add_relu(x, self.c3(x))))
            return self.deq(self.sig(self.hs(self.fc2(self.r2(self.fc(x))))))

    return filled(T, Network(), 5)


def filled(T: Any, model: Any, seed: int) -> Any:
    """The model with weights from NumPy's generator."""
    rng = np.random.default_rng(seed)
    with T.no_grad():
        for name, value in sorted(model.state_dict().items()):
            if value.dtype is T.float32:
                norm = name.startswith(("b1", "b2"))
                numbers = (
                    rng.random(tuple(value.shape)) * 0.5 + 0.2 if norm else rng.normal(size=tuple(value.shape)) * 0.4
                )
                value.copy_(T.from_numpy(numbers.astype(np.float32)))
    return model


def converted(T: Any, trained: bool) -> tuple[Any, Any, Any, Any]:
    """(prepared model, converted model, result before, result after)."""
    q, model, x = T.ao.quantization, network(T), T.from_numpy(X)
    if trained:
        model = q.fuse_modules_qat(model.train(), FUSED)
        model.qconfig = q.get_default_qat_qconfig("x86")
        model = q.prepare_qat(model)
        optimizer = T.optim.SGD(model.parameters(), lr=0.05)
        for _ in range(3):
            loss = model(x).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
    else:
        model = q.fuse_modules(model.eval(), FUSED)
        model.qconfig = q.get_default_qconfig("x86")
        model = q.prepare(model)
        for k in range(3):
            model(x * (1 + 0.2 * k))
    before, made = model(x), q.convert(model)
    return model, made, before.detach(), made(x).detach()


def dynamic(T: Any) -> tuple[Any, list[Any]]:
    """A model of dynamic layers, and what each makes of sequences."""
    nn = T.nn
    layers = {
        "l": nn.Linear(6, 7), "lstm": nn.LSTM(6, 5, 2, bidirectional=True), "gru": nn.GRU(6, 4, batch_first=True),
        "c": nn.LSTMCell(6, 3), "g": nn.GRUCell(6, 3), "r": nn.RNNCell(6, 3),
    }  # fmt: skip
    made = T.ao.quantization.quantize_dynamic(filled(T, nn.ModuleDict(layers), 1))
    x = T.from_numpy(SEQUENCES)
    packed = nn.utils.rnn.pack_padded_sequence(x, [5, 3])
    found = [
        made["l"](x),
        made["lstm"](x)[0],
        *made["lstm"](x)[1],
        made["gru"](x)[0],
        *made["c"](x[0]),
        made["g"](x[0]),
    ]
    return made, [y.detach() for y in (*found, made["r"](x[0]), made["lstm"](packed)[0].data)]
