"""Packages that train: lightning, accelerate, skorch, higher, optimizers of others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.packages.environment import needs


@needs("lightning")
def test_lightning(same, tmp_path: Path) -> None:
    import lightning
    import torch
    from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
    from torch.utils.data import DataLoader, TensorDataset

    lightning.seed_everything(0, verbose=False)
    x = torch.randn(64, 8)
    data = TensorDataset(x, (x.sum(1) > 0).long())

    class Classifier(lightning.LightningModule):
        def __init__(self, lr: float = 0.05) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
            self.losses: list[float] = []

        def training_step(self, batch, number):
            loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            self.log("train_loss", loss, on_epoch=True, on_step=True)
            self.losses.append(loss.item())
            return loss

        def validation_step(self, batch, number):
            self.log("val_loss", torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

        def configure_optimizers(self):
            optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
            return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)}

    kept = ModelCheckpoint(dirpath=tmp_path, monitor="val_loss")
    model = Classifier()
    trainer = lightning.Trainer(
        max_epochs=4, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=True, gradient_clip_val=1.0,
        callbacks=[kept, EarlyStopping("val_loss")], default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(model, DataLoader(data, 16, shuffle=True), DataLoader(data, 32))
    same("losses", model.losses)
    same("metrics", trainer.callback_metrics)
    again = Classifier.load_from_checkpoint(kept.best_model_path)
    same("loaded", trainer.validate(again, DataLoader(data, 32), verbose=False))
    assert again.hparams.lr == 0.05


@needs("accelerate")
def test_accelerate(same, tmp_path: Path) -> None:
    import torch
    from accelerate import Accelerator
    from accelerate.utils import set_seed
    from torch.utils.data import DataLoader, TensorDataset

    set_seed(0)
    x = torch.randn(32, 4)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.95**step)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), 8, shuffle=True)
    net, optimizer, loader, schedule = accelerator.prepare(net, optimizer, loader, schedule)
    losses = []
    for _ in range(3):
        for inputs, targets in loader:
            with accelerator.accumulate(net):
                loss = torch.nn.functional.mse_loss(net(inputs), targets)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather(loss).mean().item())
    same("losses", losses)
    accelerator.save_state(str(tmp_path / "state"))
    before = [p.detach().clone() for p in net.parameters()]
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
    accelerator.load_state(str(tmp_path / "state"))
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))


@pytest.fixture
def own_state() -> Iterator[None]:
    """accelerate keeps one state a process; a test with another precision begins and ends without one."""
    from accelerate.state import AcceleratorState, GradientState

    def forget() -> None:
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()

    forget()
    yield
    forget()


@needs("accelerate")
def test_accelerate_in_bfloat16_with_recomputed_layers(same, own_state, tmp_path: Path) -> None:
    import torch
    from accelerate import Accelerator
    from accelerate.utils import set_seed
    from torch.utils.checkpoint import checkpoint
    from torch.utils.data import DataLoader, TensorDataset

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Linear(8, 16)
            self.blocks = torch.nn.ModuleList(
                [torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.Dropout(0.1)) for _ in range(2)]
            )
            self.norm, self.head = torch.nn.LayerNorm(16), torch.nn.Linear(16, 3)

        def forward(self, x):
            x = self.embed(x)
            for block in self.blocks:
                x = x + checkpoint(block, x, use_reentrant=False)
            return self.head(self.norm(x))

    set_seed(0)
    accelerator = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=3)
    x = torch.randn(60, 8)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.02, total_steps=40)
    train, test = (
        DataLoader(TensorDataset(x[:40], y[:40]), 8, shuffle=True),
        DataLoader(TensorDataset(x[40:], y[40:]), 8),
    )
    net, optimizer, train, test, schedule = accelerator.prepare(net, optimizer, train, test, schedule)
    accelerator.register_for_checkpointing(schedule)

    def epoch():
        net.train()
        told = []
        for inputs, targets in train:  # five batches: the last two make a step of their own
            with accelerator.accumulate(net):
                with accelerator.autocast():
                    scores = net(inputs)
                    loss = torch.nn.functional.cross_entropy(scores, targets)
                accelerator.backward(loss)
                norm = accelerator.clip_grad_norm_(net.parameters(), 0.5) if accelerator.sync_gradients else None
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            told.append(
                [
                    loss.item(),
                    float(norm) if norm is not None else 0.0,
                    schedule.get_last_lr()[0],
                    float(accelerator.sync_gradients),
                ]
            )
        assert scores.dtype is torch.float32 and all(p.dtype is torch.float32 for p in net.parameters())
        return told

    def evaluate():
        net.eval()
        found = []
        for inputs, targets in test:
            with torch.no_grad():
                found.append(accelerator.gather_for_metrics((net(inputs), targets)))
        scores, targets = (torch.cat(part) for part in zip(*found, strict=True))
        assert len(scores) == 20  # the last batch is a short one
        return [
            torch.nn.functional.cross_entropy(scores, targets).item(),
            (scores.argmax(1) == targets).float().mean().item(),
        ]

    same("first epochs", [epoch(), epoch()])
    same("evaluated", evaluate())
    accelerator.save_state(str(tmp_path / "state"))
    after = [epoch(), evaluate()]
    same("third epoch", after)
    accelerator.load_state(str(tmp_path / "state"))  # weights, moments, rate, random numbers
    assert [epoch(), evaluate()] == after


@needs("skorch", "sklearn")
def test_skorch(same, tmp_path: Path) -> None:
    import numpy as np
    import torch
    from sklearn.datasets import make_classification
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from skorch import NeuralNetClassifier

    torch.manual_seed(0)
    np.random.seed(0)
    x, y = make_classification(200, 10, n_informative=5, random_state=0)
    x, y = x.astype("float32"), y.astype("int64")

    class Net(torch.nn.Module):
        def __init__(self, hidden: int = 10) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(10, hidden), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(hidden, 2)
            )

        def forward(self, x):
            return torch.softmax(self.layers(x), -1)

    net = NeuralNetClassifier(Net, max_epochs=5, lr=0.1, iterator_train__shuffle=True, verbose=0)
    net.fit(x, y)
    same("losses", [float(loss) for loss in net.history[:, "train_loss"]])
    same("probabilities", net.predict_proba(x[:4]))
    net.save_params(f_params=str(tmp_path / "net.pt"))
    other = NeuralNetClassifier(Net).initialize()
    other.load_params(f_params=str(tmp_path / "net.pt"))
    assert np.allclose(other.predict_proba(x), net.predict_proba(x))
    pipeline = make_pipeline(StandardScaler(), NeuralNetClassifier(Net, max_epochs=2, verbose=0, train_split=None))
    search = GridSearchCV(pipeline, {"neuralnetclassifier__lr": [0.01, 0.3]}, cv=2, scoring="accuracy").fit(x, y)
    same("search", [search.best_params_["neuralnetclassifier__lr"], float(search.best_score_)])


@needs("higher")
def test_higher(same) -> None:
    import higher
    import torch

    torch.manual_seed(0)
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.arange(12.0).reshape(4, 3).cos()
    with higher.innerloop_ctx(net, optimizer) as (fast, steps):
        for _ in range(3):
            steps.step(fast(x).pow(2).mean())
        fast(x).sum().backward()
    same("through three steps", [net.weight.grad, net.bias.grad])


@needs("lion_pytorch", "torch_optimizer")
def test_optimizers_of_others(same) -> None:
    import torch
    import torch_optimizer as others
    from lion_pytorch import Lion

    makers = {
        "Lion": lambda p: Lion(p, lr=1e-2, weight_decay=0.1), "Lookahead": lambda p: others.Lookahead(others.Yogi(p, lr=0.01)),
        **{name: lambda p, name=name: getattr(others, name)(p, lr=0.01) for name in
           ("RAdam", "Lamb", "AdaBelief", "Yogi", "NovoGrad", "DiffGrad", "SWATS", "AdaBound", "QHAdam", "Ranger")},
    }  # fmt: skip
    for name, make in makers.items():
        net = torch.nn.Linear(4, 4)
        torch.nn.init.constant_(net.weight, 0.3)
        torch.nn.init.zeros_(net.bias)
        optimizer = make(net.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.arange(8.0).reshape(2, 4)).pow(2).mean().backward()
            optimizer.step()
        same(name, net.weight)


@needs("keras")
def test_keras(same, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    import keras
    import numpy as np

    assert keras.backend.backend() == "torch"
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 8, 8, 1)).astype("float32")
    y = (x.mean((1, 2, 3)) > 0).astype("int64")
    for optimizer in (
        keras.optimizers.Adadelta(1.0),
        keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
        keras.optimizers.Adam(0.01),
    ):
        keras.utils.set_random_seed(0)
        picture = keras.Input((8, 8, 1))
        rows = keras.layers.Conv2D(4, 3, padding="same", activation="gelu")(picture)
        rows = keras.layers.BatchNormalization()(keras.layers.MaxPooling2D()(rows))
        rows = keras.layers.Dropout(0.2)(keras.layers.LSTM(8)(keras.layers.Reshape((4, 16))(rows)))
        model = keras.Model(picture, keras.layers.Dense(2)(rows))
        model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        history = model.fit(x, y, batch_size=16, epochs=3, shuffle=False, verbose=0)
        same(
            f"history of {optimizer.name}", {key: [float(v) for v in values] for key, values in history.history.items()}
        )
        same(f"predictions of {optimizer.name}", model.predict(x[:4], verbose=0))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert np.array_equal(again.predict(x[:4], verbose=0), model.predict(x[:4], verbose=0))
