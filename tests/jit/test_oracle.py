"""Archives that are written here run in PyTorch, and those that PyTorch writes run here; the code is PyTorch's."""

import io
from typing import Any

import pytest

import rushlight

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore:Converting a tensor")]


def build(space: Any) -> Any:
    """One model, in PyTorch or here."""
    nn = space.nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(2, 2, 3, padding=1)
            self.norm = nn.BatchNorm2d(2)
            self.steps = 2

        def forward(self, x):
            for i in range(self.steps):
                if bool(x.mean() > 0):
                    x = space.relu(self.norm(self.conv(x))) + i
                else:
                    x = x * 0.5
            return x

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([Block() for _ in range(2)])
            self.lstm = nn.LSTM(4, 3, batch_first=True)
            self.head = nn.Linear(3, 2)

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            out, (h, _c) = self.lstm(x.mean(1))
            return self.head(out), h

    return Net().eval()


def same_weights(ours: Any, theirs: Any) -> None:
    state = {k: rushlight.tensor(v.numpy()) for k, v in theirs.state_dict().items()}
    ours.load_state_dict(state)


@pytest.mark.parametrize("traced", [False, True])
def test_archives_cross_over(traced: bool, tmp_path: Any) -> None:
    theirs, ours = build(torch), build(rushlight)
    same_weights(ours, theirs)
    x = torch.randn(2, 2, 4, 4)
    mine = rushlight.tensor(x.numpy())
    wanted = [t.detach().numpy() for t in theirs(x)]
    make = (lambda s, m, i: s.jit.trace(m, i)) if traced else (lambda s, m, i: s.jit.script(m))
    make(rushlight, ours, mine).save(str(tmp_path / "ours.pt"))
    found = torch.jit.load(str(tmp_path / "ours.pt"))(x)
    assert all(abs(f.detach().numpy() - w).max() < 1e-5 for f, w in zip(found, wanted, strict=True))
    make(torch, theirs, x).save(str(tmp_path / "theirs.pt"))
    back = rushlight.jit.load(str(tmp_path / "theirs.pt"))(mine)
    assert all(abs(f.detach().numpy() - w).max() < 1e-5 for f, w in zip(back, wanted, strict=True))


def test_code_is_that_of_pytorch() -> None:
    theirs, ours = torch.jit.script(build(torch)), rushlight.jit.script(build(rushlight))
    assert ours.blocks[0].code == getattr(theirs.blocks, "0").code


def test_silero_vad_hears_a_tone_as_in_pytorch() -> None:
    silero = pytest.importorskip("silero_vad")
    path = f"{silero.__path__[0]}/data/silero_vad.jit"
    there, here = torch.jit.load(path), rushlight.jit.load(path)
    n = 512 * 12
    sound = torch.sin(torch.arange(n).float() * 0.05) * torch.linspace(0, 1, n)
    there.reset_states()
    here.reset_states()
    for at in range(0, n, 512):
        wanted = there(sound[at : at + 512], 16000).item()
        found = here(rushlight.tensor(sound[at : at + 512].numpy()), 16000).item()
        assert abs(wanted - found) < 1e-5


def test_packages_cross_over() -> None:
    out = io.BytesIO()
    with rushlight.package.PackageExporter(out) as exporter:
        exporter.save_text("notes", "a.txt", "hello")
        exporter.save_pickle("data", "d.pkl", {"w": rushlight.arange(3), "n": [1]})
    importer = torch.package.PackageImporter(io.BytesIO(out.getvalue()))
    assert importer.load_text("notes", "a.txt") == "hello" and importer.load_pickle("data", "d.pkl")["w"].tolist() == [
        0,
        1,
        2,
    ]
