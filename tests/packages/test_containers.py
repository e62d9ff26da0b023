"""Packages with data and tensors of their own kinds: torch-geometric, MONAI; and loops around models: ignite, opacus."""

from __future__ import annotations

from tests.packages.environment import needs


@needs("torch_geometric", "xxhash", "pyparsing")
def test_torch_geometric(same) -> None:
    import torch
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv, TransformerConv, global_mean_pool
    from torch_geometric.utils import degree, softmax, to_dense_adj, to_undirected

    torch.manual_seed(0)
    edges = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])
    graphs = [Data(x=torch.randn(4, 3), edge_index=edges, y=torch.tensor([i % 2])) for i in range(4)]
    batch = next(iter(DataLoader(graphs, batch_size=4)))
    for kind in (GCNConv, GATConv, SAGEConv, TransformerConv):
        layer = kind(3, 4)
        pooled = global_mean_pool(layer(batch.x, batch.edge_index), batch.batch)
        pooled.pow(2).sum().backward()
        same(kind.__name__, [pooled, sum(p.grad.abs().sum() for p in layer.parameters() if p.grad is not None)])
    same(
        "utilities",
        [to_undirected(edges), degree(edges[0], 4), to_dense_adj(edges), softmax(torch.arange(5.0), edges[0])],
    )


@needs("monai")
def test_monai(same) -> None:
    import torch
    from monai.inferers import sliding_window_inference
    from monai.losses import DiceCELoss
    from monai.networks.nets import UNet
    from monai.transforms import Compose, RandFlip, Resize, ScaleIntensity

    torch.manual_seed(0)
    x = torch.randn(1, 1, 32, 32)
    model = UNet(2, 1, 2, (4, 8), (2,))
    loss = DiceCELoss(to_onehot_y=True, softmax=True)(model(x), (x > 0).float())
    loss.backward()
    same("network", [loss, sum(p.grad.abs().sum() for p in model.parameters())])
    turned = Compose([ScaleIntensity(), RandFlip(prob=1.0, spatial_axis=0), Resize((6, 6))])(
        torch.arange(64.0).view(1, 8, 8).sin()
    )
    assert type(turned).__name__ == "MetaTensor" and turned.affine.shape == (4, 4)
    same("image", turned.as_tensor())
    same("windows", sliding_window_inference(x[..., :10, :10], (4, 4), 2, lambda part: part * 2))


@needs("ignite")
def test_ignite(same) -> None:
    import torch
    from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
    from ignite.metrics import Accuracy, Loss

    torch.manual_seed(0)
    model, loss = torch.nn.Linear(3, 2), torch.nn.CrossEntropyLoss()
    rows = torch.utils.data.TensorDataset(torch.randn(8, 3), torch.arange(8) % 2)
    loader, losses = torch.utils.data.DataLoader(rows, batch_size=4), []
    trainer = create_supervised_trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), loss)
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda engine: losses.append(engine.state.output))
    trainer.run(loader, max_epochs=3)
    same("losses", losses)
    same(
        "metrics",
        dict(
            create_supervised_evaluator(model, metrics={"accuracy": Accuracy(), "loss": Loss(loss)}).run(loader).metrics
        ),
    )


@needs("opacus", "opt_einsum", "scipy")
def test_opacus(same) -> None:
    import torch
    from opacus.grad_sample import GradSampleModule

    torch.manual_seed(0)
    nn = torch.nn
    model = GradSampleModule(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2)))
    torch.nn.functional.cross_entropy(model(torch.randn(4, 1, 6, 6)), torch.tensor([0, 1, 0, 1])).backward()
    same("a gradient for each sample", [p.grad_sample for p in model.parameters()], atol=1e-5)
