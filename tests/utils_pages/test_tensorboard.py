"""Files for TensorBoard, read back by TensorBoard; their contents beside PyTorch's.  Skipped without the extra `tensorboard`."""

from __future__ import annotations

import glob
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight import nn
from rushlight._base.errors import MissingExtraError

HERE = True
try:
    import tensorboard  # noqa: F401
except ImportError:
    HERE = False
needs = pytest.mark.skipif(not HERE, reason="tensorboard is not installed: pip install -e '.[tensorboard]'")


@pytest.mark.skipif(HERE, reason="tensorboard is installed")
def test_without_tensorboard_the_import_says_which_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "rushlight.utils.tensorboard", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[tensorboard\]"):
        _ = torch.utils.tensorboard


def writer(folder: Path, **options: Any) -> Any:
    return torch.utils.tensorboard.SummaryWriter(str(folder), **options)


def events(folder: Path | str) -> list[Any]:
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    files = sorted(glob.glob(f"{folder}/events*"))
    return [event for file in files for event in LegacyEventFileLoader(file).Load()]


def read(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(
        str(folder), size_guidance=dict.fromkeys(("scalars", "histograms", "images", "tensors", "audio"), 0)
    )
    found.Reload()
    return found


@needs
def test_scalars_histograms_texts(tmp_path: Path) -> None:
    with writer(tmp_path) as w:
        for step in range(3):
            w.add_scalar("loss", torch.tensor(2.0) / (step + 1), step)
        w.add_scalar("new", np.float32(1.5), 7, new_style=True, double_precision=True)
        w.add_histogram("weights", torch.arange(10.0), 1)
        w.add_text("note", "# head", 2)
        with pytest.raises(AssertionError, match="should contain one element"):
            w.add_scalar("bad", torch.ones(2))
    found = read(tmp_path)
    assert [(e.step, e.value) for e in found.Scalars("loss")] == [(0, 2.0), (1, 1.0), (2, pytest.approx(2 / 3))]
    (histogram,) = found.Tensors("weights") if "weights" in found.Tags()["tensors"] else found.Histograms("weights")
    assert histogram.step == 1
    assert found.Tensors("note/text_summary")[0].tensor_proto.string_val == [b"# head"]


@needs
def test_writers_for_several_scalars_and_purging(tmp_path: Path) -> None:
    with writer(tmp_path, purge_step=4) as w:
        w.add_scalars("run/loss", {"train": 1.0, "test": 2.0}, 3)
        assert w.get_logdir() == str(tmp_path)
    assert {p.name for p in tmp_path.iterdir() if p.is_dir()} == {"run_loss_train", "run_loss_test"}
    assert read(tmp_path / "run_loss_test").Scalars("run/loss")[0].value == 2.0
    assert any(e.session_log.status == 1 and e.step == 4 for e in events(tmp_path))
    w.add_scalar("again", 1.0)  # opens a new file
    w.close()


@needs
def test_images(tmp_path: Path) -> None:
    image_module = pytest.importorskip("PIL.Image")
    pixels = torch.zeros(3, 4, 6)
    pixels[0, :, :3] = 1.0
    with writer(tmp_path) as w:
        w.add_image("picture", pixels)
        w.add_image("bytes", (pixels.permute(1, 2, 0) * 255).to(torch.uint8), dataformats="HWC")
        w.add_images("several", torch.rand(3, 1, 4, 5))
        w.add_image_with_boxes("boxed", torch.zeros(3, 20, 20), torch.tensor([[2.0, 3.0, 10.0, 12.0]]), labels="x")
        with pytest.raises(AssertionError, match="same dimension shorthand"):
            w.add_image("bad", pixels, dataformats="CCW")
        with pytest.raises(AssertionError, match="input format are different"):
            w.add_image("bad", pixels, dataformats="HW")
    values = {v.tag: v.image for e in events(tmp_path) for v in e.summary.value}
    decoded = np.asarray(image_module.open(io.BytesIO(values["picture"].encoded_image_string)))
    assert np.array_equal(decoded, (pixels.permute(1, 2, 0) * 255).numpy().astype("u1"))
    assert values["bytes"].encoded_image_string == values["picture"].encoded_image_string
    assert (values["several"].height, values["several"].width) == (4, 15)
    boxed = np.asarray(image_module.open(io.BytesIO(values["boxed"].encoded_image_string)))
    assert tuple(boxed[3, 5]) == (255, 0, 0) and tuple(boxed[15, 15]) == (0, 0, 0)


@needs
def test_figures(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(2, 1), dpi=50)
    with writer(tmp_path) as w:
        w.add_figure("plot", figure, close=False)
        w.add_figure("plots", [figure, figure])
    assert not pyplot.fignum_exists(figure.number)
    values = {v.tag: v.image for e in events(tmp_path) for v in e.summary.value}
    assert (values["plot"].height, values["plot"].width, values["plots"].width) == (50, 100, 200)


@needs
def test_a_graph_has_the_boxes_of_its_modules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout())
    with writer(tmp_path) as w:
        w.add_graph(model, torch.ones(2, 4), verbose=True)
    assert model.training and "aten::linear(" in capsys.readouterr().out
    nodes = {node.name: node for node in read(tmp_path).Graph().node}
    linear = nodes["Sequential/Linear[0]/linear"]
    assert linear.op == "aten::linear"
    assert list(linear.input) == ["input/input", "Sequential/Linear[0]/weight", "Sequential/Linear[0]/bias"]
    assert [d.size for d in linear.attr["_output_shapes"].list.shape[0].dim] == [2, 8]
    assert list(nodes["Sequential/ReLU[1]/relu"].input) == ["Sequential/Linear[0]/linear"]
    assert list(nodes["output/output.1"].input) == ["Sequential/ReLU[1]/relu"]


@needs
def test_embeddings(tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image")
    points = torch.arange(6.0).reshape(3, 2)
    with writer(tmp_path) as w:
        w.add_embedding(points, metadata=["a", "b", "c"], label_img=torch.rand(3, 1, 5, 5), global_step=2, tag="x/y")
        w.add_embedding(points, metadata=[("a", 1), ("b", 2), ("c", 3)], metadata_header=["name", "number"])
        with pytest.raises(AssertionError, match="2D"):
            w.add_embedding(torch.ones(3))
        with pytest.raises(AssertionError, match="#labels"):
            w.add_embedding(points, metadata=["a"])
    assert (tmp_path / "00002" / "x%2fy" / "tensors.tsv").read_text() == "0.0\t1.0\n2.0\t3.0\n4.0\t5.0\n"
    assert (tmp_path / "00000" / "default" / "metadata.tsv").read_text() == "name\tnumber\na\t1\nb\t2\nc\t3\n"
    assert (tmp_path / "projector_config.pbtxt").read_text().count("embeddings {") == 2


@needs
def test_what_cannot_be_written(tmp_path: Path) -> None:
    with writer(tmp_path) as w:
        with pytest.raises(NotImplementedError, match="numpy array or torch tensor"):
            w.add_scalar("x", "text is a scalar to NumPy".split())
        with pytest.raises(ValueError, match="no element"):
            w.add_histogram("x", torch.ones(0))
        with pytest.raises(ValueError, match="len\\(bucket_limits\\)"):
            w.add_histogram_raw("x", 0, 1, 2, 1, 1, [1, 2], [1])
        with pytest.raises(TypeError, match="should be dictionary"):
            w.add_hparams([], {})
        with pytest.raises(TypeError, match="same type"):
            w.add_hparams({"lr": 0.1}, {}, {"lr": ["a"]})
        with pytest.raises(AssertionError, match="Expected 3 tags"):
            w.add_custom_scalars_marginchart(["a"])
        try:
            import moviepy  # noqa: F401
        except ImportError:
            with pytest.raises(MissingExtraError, match=r"pip install .*\[video\]"):
                w.add_video("x", torch.rand(1, 2, 3, 4, 4))


# ***** beside PyTorch *****

STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "scalar": lambda w, t: w.add_scalar("a", t.tensor(1.25), 3),
    "new scalar": lambda w, t: w.add_scalar("a", 2, 3, new_style=True),
    "double scalar": lambda w, t: w.add_scalar("a", 0.1, new_style=True, double_precision=True),
    "float tensor": lambda w, t: w.add_tensor("a", t.arange(6.0).reshape(2, 3), 1),
    "int tensor": lambda w, t: w.add_tensor("a", t.arange(3), 1),
    "bool tensor": lambda w, t: w.add_tensor("a", t.tensor([True, False])),
    "complex tensor": lambda w, t: w.add_tensor("a", t.tensor([1 + 2j, 3j])),
    "histogram": lambda w, t: w.add_histogram("a", t.tensor([1.0, 1.5, -2.0, 0.0, 30.0]), 1),
    "histogram of a constant": lambda w, t: w.add_histogram("a", t.zeros(4)),
    "histogram in few bins": lambda w, t: w.add_histogram("a", t.arange(50.0), bins=20, max_bins=7),
    "histogram by rule": lambda w, t: w.add_histogram("a", np.linspace(0, 1, 50) ** 2, bins="auto"),
    "raw histogram": lambda w, t: w.add_histogram_raw("a", 0, 3, 4, 6.0, 14.0, [1, 2, 3], [1, 1, 2]),
    "text": lambda w, t: w.add_text("a", "words ä"),
    "pr curve": lambda w, t: w.add_pr_curve(
        "a", t.tensor([0, 1, 1, 0, 1]), t.tensor([0.1, 0.9, 0.4, 0.6, 1.0]), 2, num_thresholds=11
    ),
    "weighted pr curve": lambda w, t: w.add_pr_curve("a", np.array([0, 1, 1]), np.array([0.2, 0.3, 0.9]), weights=2.0),
    "raw pr curve": lambda w, t: w.add_pr_curve_raw(
        "a", [3.0, 2.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.75, 1.0], [1.0, 0.67], num_thresholds=2
    ),
    "audio": lambda w, t: w.add_audio("a", t.linspace(-1, 1, 100), 0, 8000),
    "image": lambda w, t: w.add_image("a", t.linspace(0, 1, 60).reshape(3, 4, 5), 1),
    "images": lambda w, t: w.add_images("a", (t.arange(2 * 3 * 4 * 5) % 256).reshape(2, 3, 4, 5).to(t.uint8)),
    "grey image": lambda w, t: w.add_image("a", t.linspace(0, 1, 20).reshape(4, 5), dataformats="HW"),
    "boxes": lambda w, t: w.add_image_with_boxes(
        "a", t.zeros(3, 20, 20), t.tensor([[2.0, 3.0, 10.0, 12.0]]), rescale=2
    ),
    "mesh": lambda w, t: w.add_mesh(
        "a", t.arange(12.0).reshape(1, 4, 3), t.ones(1, 4, 3), t.tensor([[[0, 1, 2]]]), {"x": 1}, 3
    ),
    "charts": lambda w, t: w.add_custom_scalars(
        {"c": {"t": ["Multiline", ["a", "b"]], "u": ["Margin", ["a", "b", "c"]]}}
    ),
    "margin chart": lambda w, t: w.add_custom_scalars_marginchart(["a", "b", "c"]),
}


@needs
@pytest.mark.oracle
@pytest.mark.parametrize("name", STEPS)
def test_contents_are_those_of_pytorch(tmp_path: Path, name: str) -> None:
    reference: Any = pytest.importorskip("torch")
    theirs: Any = pytest.importorskip("torch.utils.tensorboard")
    written = []
    for library, module, place in ((torch, torch.utils.tensorboard, "ours"), (reference, theirs, "theirs")):
        with module.SummaryWriter(str(tmp_path / place)) as w:
            STEPS[name](w, library)
        written.append([(event.step, event.summary) for event in events(tmp_path / place) if event.HasField("summary")])
    for (step, ours), (other_step, other) in zip(*written, strict=True):
        assert step == other_step and len(ours.value) == len(other.value)
        for a, b in zip(ours.value, other.value, strict=True):
            assert a.SerializeToString() == b.SerializeToString() or str(a) == str(b)


@needs
@pytest.mark.oracle
def test_hyperparameters_are_those_of_pytorch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    theirs: Any = pytest.importorskip("torch.utils.tensorboard")
    values = {"lr": 0.1, "name": "adam", "layers": 3, "flag": True, "nothing": None}
    written = []
    for module, place in ((torch.utils.tensorboard, "ours"), (theirs, "theirs")):
        with module.SummaryWriter(str(tmp_path / place)) as w:
            w.add_hparams(
                values, {"accuracy": 0.5}, {"lr": [0.1, 0.2], "name": ["adam", "sgd"]}, run_name="run", global_step=2
            )
        written.append([(e.step, str(e.summary)) for e in events(tmp_path / place / "run") if e.HasField("summary")])
    assert len(written[0]) == 4 and written[0] == written[1]
