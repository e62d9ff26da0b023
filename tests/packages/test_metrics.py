"""Packages that judge models: torchmetrics, pytorch-metric-learning, captum."""

from __future__ import annotations

import pickle

from tests.packages.environment import needs


@needs("torchmetrics")
def test_torchmetrics_classification(same) -> None:
    import torch
    import torchmetrics as tm

    scores = torch.softmax(torch.arange(30.0).reshape(10, 3).sin(), -1)
    classes = torch.arange(10) % 3
    several = {"task": "multiclass", "num_classes": 3}
    metrics = tm.MetricCollection([
        tm.Accuracy(**several), tm.F1Score(**several, average="macro"), tm.AUROC(**several), tm.ConfusionMatrix(**several), tm.CalibrationError(**several),
    ])  # fmt: skip
    for start in (0, 5):
        metrics.update(scores[start : start + 5], classes[start : start + 5])
    same("values", metrics.compute())
    metrics.reset()
    assert metrics["MulticlassConfusionMatrix"].confmat.sum() == 0


@needs("torchmetrics")
def test_torchmetrics_numbers_images_and_texts(same) -> None:
    import torch
    import torchmetrics as tm
    from torchmetrics.clustering import AdjustedRandScore
    from torchmetrics.image import PeakSignalNoiseRatio, StructuralSimilarityIndexMeasure
    from torchmetrics.retrieval import RetrievalMAP
    from torchmetrics.text import BLEUScore

    torch.manual_seed(0)
    p = torch.softmax(torch.arange(30.0).reshape(10, 3).sin(), -1)
    for kind in (tm.MeanSquaredError, tm.R2Score, tm.PearsonCorrCoef, tm.SpearmanCorrCoef):
        same(kind.__name__, kind()(p[:, 0], p[:, 1]))
    same("cosines", tm.functional.pairwise_cosine_similarity(p[:3]))
    a = torch.rand(2, 1, 32, 32)
    b = a + 0.1 * torch.rand(2, 1, 32, 32)
    same("images", [StructuralSimilarityIndexMeasure(data_range=1.0)(a, b), PeakSignalNoiseRatio(data_range=1.0)(a, b)])
    same("BLEU", BLEUScore()(["the cat is on the mat"], [["there is a cat on the mat", "a cat is on the mat"]]))
    classes = torch.arange(10) % 3
    same("clusters", AdjustedRandScore()(classes, (classes + 1) % 2))
    same("retrieval", RetrievalMAP()(p[:, 0], classes == 0, indexes=torch.tensor([0] * 5 + [1] * 5)))
    mean = tm.MeanMetric()
    mean.update(torch.tensor([1.0, 2.0]), weight=torch.tensor([1.0, 5.0]))
    assert pickle.loads(pickle.dumps(mean)).compute() == mean.compute() == torch.tensor(11 / 6)


@needs("pytorch_metric_learning")
def test_pytorch_metric_learning(same) -> None:
    import torch
    from pytorch_metric_learning import losses, miners

    torch.manual_seed(0)
    vectors = torch.nn.functional.normalize(torch.arange(64.0).reshape(8, 8).sin(), dim=1).requires_grad_()
    classes = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    for loss in (
        losses.TripletMarginLoss(), losses.NTXentLoss(), losses.ContrastiveLoss(), losses.SupConLoss(), losses.CircleLoss(),
        losses.MultiSimilarityLoss(), losses.ArcFaceLoss(4, 8), losses.ProxyAnchorLoss(4, 8),
    ):  # fmt: skip
        vectors.grad = None
        value = loss(vectors, classes)
        value.backward()
        same(type(loss).__name__, [value, vectors.grad.abs().sum()])
    same("pairs", list(miners.MultiSimilarityMiner()(vectors, classes)))


@needs("captum")
def test_captum(same) -> None:
    import numpy as np
    import torch
    from captum import attr

    torch.manual_seed(0)
    np.random.seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 3)
    ).eval()
    x = torch.arange(64.0).reshape(1, 1, 8, 8).sin().requires_grad_()
    parts, delta = attr.IntegratedGradients(net).attribute(x, target=1, return_convergence_delta=True)
    same("IntegratedGradients", [parts.sum(), parts.abs().sum()])
    assert delta.abs() < 1e-2
    for kind in (attr.Saliency, attr.DeepLift, attr.InputXGradient, attr.GuidedBackprop, attr.FeatureAblation):
        same(kind.__name__, kind(net).attribute(x, target=1))
    same("Occlusion", attr.Occlusion(net).attribute(x, target=0, sliding_window_shapes=(1, 3, 3)).abs().sum())
    same("LayerGradCam", attr.LayerGradCam(net, net[0]).attribute(x, target=0))
    same("LayerConductance", attr.LayerConductance(net, net[1]).attribute(x, target=0).sum())
    same("NoiseTunnel", attr.NoiseTunnel(attr.Saliency(net)).attribute(x, nt_samples=3, target=0).sum())
    same("GradientShap", attr.GradientShap(net).attribute(x, baselines=torch.zeros(2, 1, 8, 8), target=0).sum())
