"""Training scripts as users of other libraries write them, with the lines changed that the guide names and no other.

Each script is written in our own words after the shape that the library's documentation teaches. A changed line carries
the comment `was:`, with what stood there.
"""

import math
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DIM, CLASSES = 12, 6


def pictures(per_class: int = 12, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    "Made-up pictures whose class is there to be learnt: a few informative numbers among noise."
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(CLASSES).repeat(per_class)
    centres = torch.randn(CLASSES, 4, generator=torch.Generator().manual_seed(99))
    signal = centres[labels] + 0.4 * torch.randn(len(labels), 4, generator=generator)
    return torch.cat([signal, 1.5 * torch.randn(len(labels), DIM - 4, generator=generator)], 1), labels


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def test_pytorch_metric_learning_loop_with_its_accuracy_calculator():
    pytest.importorskip("pytorch_metric_learning")
    from pytorch_metric_learning import distances, reducers
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    # was: from pytorch_metric_learning import losses, samplers
    from smoothap_nb import MPerClassSampler, SmoothAPLoss, evaluate
    from smoothap_nb.losses.pml import PMLLoss

    train, test = TensorDataset(*pictures()), pictures(seed=1)
    # was: MPerClassSampler(labels, m=4, batch_size=24); DataLoader(train, sampler=sampler, batch_size=24)
    loader = DataLoader(train, batch_sampler=MPerClassSampler(train.tensors[1], classes=6, images=4))
    model = nn.Linear(DIM, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    reducer = reducers.ThresholdReducer(low=0)
    # was: losses.SmoothAPLoss(temperature=0.05, reducer=reducer)
    loss_func = PMLLoss(SmoothAPLoss(tau=0.05), reducer=reducer)
    calculator = AccuracyCalculator(
        include=("precision_at_1", "r_precision", "mean_average_precision", "mean_average_precision_at_r"), k=None
    )

    def measure():
        rows = model(test[0]).detach()
        return rows, calculator.get_accuracy(rows, test[1])

    before = measure()[1]["mean_average_precision"]
    for epoch in range(15):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = loss_func(model(images), labels)
            loss.backward()
            optimizer.step()
    rows, theirs = measure()
    assert theirs["mean_average_precision"] > before + 0.1
    # was: calculator.get_accuracy(rows, labels)
    ours = evaluate(rows, test[1], metrics=("P@1", "R-precision", "mAP", "mAP@R"), distance="euclidean")
    names = {"precision_at_1": "P@1", "r_precision": "R-precision", "mean_average_precision": "mAP",
             "mean_average_precision_at_r": "mAP@R"}
    for name, value in theirs.items():
        assert math.isclose(ours[names[name]], value, abs_tol=1e-6), name
    cosine = AccuracyCalculator(include=("mean_average_precision",), k=None,
                                knn_func=_by_cosine(distances.CosineSimilarity())).get_accuracy(rows, test[1])
    with pytest.warns(UserWarning, match="not of length 1"):
        by_cosine = evaluate(rows, test[1], metrics="mAP")["mAP"]
    assert math.isclose(by_cosine, cosine["mean_average_precision"], abs_tol=1e-6)


def _by_cosine(distance):
    "A neighbour search of pytorch-metric-learning by another distance."
    from pytorch_metric_learning.utils.inference import CustomKNN

    return CustomKNN(distance)


def test_pytorch_metric_learning_memory_and_distributed_wrapper():
    pytest.importorskip("pytorch_metric_learning")
    from pytorch_metric_learning.utils.distributed import DistributedLossWrapper

    # was: from pytorch_metric_learning.losses import CrossBatchMemory, NTXentLoss
    from smoothap_nb import SmoothAPLoss
    from smoothap_nb.losses.pml import CrossBatchMemory

    images, labels = pictures()
    model = nn.Linear(DIM, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    # was: CrossBatchMemory(NTXentLoss(temperature=0.05), ...)
    loss_fn = CrossBatchMemory(SmoothAPLoss(tau=0.05), embedding_size=8, memory_size=48)
    with pytest.warns(UserWarning, match="non-distributed"):
        DistributedLossWrapper(loss_fn.loss)(model(images), labels)
    values = []
    for epoch in range(12):
        for part in torch.randperm(len(images)).split(24):
            optimizer.zero_grad()
            loss = loss_fn(model(images[part]), labels[part])
            loss.backward()
            optimizer.step()
            values.append(loss.item())
    assert sum(values[-6:]) < 0.8 * sum(values[:6]) and loss_fn.has_been_filled


def test_pytorch_metric_learning_trainer_and_tester():
    pytest.importorskip("pytorch_metric_learning")
    from pytorch_metric_learning import testers, trainers
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    # was: from pytorch_metric_learning import losses, samplers
    from smoothap_nb import FastAPLoss, MPerClassSampler
    from smoothap_nb.losses.pml import PMLLoss

    train, test = TensorDataset(*pictures()), TensorDataset(*pictures(seed=1))
    trunk, embedder = nn.Linear(DIM, 16), nn.Linear(16, 8)
    # was: MPerClassSampler(labels, m=4, length_before_new_iter=...)
    sampler = MPerClassSampler(train.tensors[1], classes=6, images=4).single()
    trainer = trainers.MetricLossOnly(
        models={"trunk": trunk, "embedder": embedder},
        optimizers={
            "trunk_optimizer": torch.optim.Adam(trunk.parameters(), lr=0.02),
            "embedder_optimizer": torch.optim.Adam(embedder.parameters(), lr=0.02),
        },
        batch_size=24,
        loss_funcs={"metric_loss": PMLLoss(FastAPLoss(bins=10))},  # was: losses.FastAPLoss(num_bins=10)
        dataset=train,
        sampler=sampler,
        dataloader_num_workers=0,
        data_device=torch.device("cpu"),
        loss_weights={"metric_loss": 1},
        mining_funcs={},
    )
    tester = testers.GlobalEmbeddingSpaceTester(
        accuracy_calculator=AccuracyCalculator(include=("mean_average_precision_at_r",), k="max_bin_count"),
        dataloader_num_workers=0,
        data_device=torch.device("cpu"),
    )

    def found():
        tester.test({"val": test}, 0, trunk, embedder)
        return tester.all_accuracies["val"]["mean_average_precision_at_r_level0"]

    before = found()
    trainer.train(num_epochs=8)
    assert found() > before + 0.05


def test_torchmetrics_loop_in_a_collection():
    torchmetrics = pytest.importorskip("torchmetrics")
    from smoothap_nb import RetrievalMetrics, SmoothAPLoss  # was: from torchmetrics.retrieval import RetrievalMAP

    train, (images, labels) = pictures(), pictures(seed=1)
    model = nn.Linear(DIM, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    # was: RetrievalMAP(), RetrievalHitRate(top_k=1), fed with scores of all pairs and indexes=query
    meter = torchmetrics.MetricCollection({"test": RetrievalMetrics(("mAP", "R@1"))}, compute_groups=False)
    history = []
    for epoch in range(3):
        for _ in range(10):
            optimizer.zero_grad()
            SmoothAPLoss(tau=0.05)(model(train[0]), train[1]).backward()
            optimizer.step()
        with torch.no_grad():
            for part in torch.arange(len(images)).split(20):
                meter.update(nn.functional.normalize(model(images[part])), labels[part])
        history.append(meter.compute())
        meter.reset()
    rows = nn.functional.normalize(model(images)).detach()
    scores, off = rows @ rows.T + 2, ~torch.eye(len(rows), dtype=torch.bool)  # torchmetrics: only above 0
    query = torch.arange(len(rows))[:, None].expand_as(scores)
    theirs = torchmetrics.retrieval.RetrievalMAP()(scores[off], (labels[:, None] == labels)[off], indexes=query[off])
    assert math.isclose(history[-1]["mAP"], theirs, abs_tol=1e-5) and history[-1]["mAP"] > history[0]["mAP"]


def test_lightning_module_with_a_sanity_check(tmp_path):
    lightning = pytest.importorskip("lightning")
    from smoothap_nb import MPerClassSampler, RetrievalMetrics, SmoothAPLoss

    class Retrieval(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = nn.Linear(DIM, 8)
            self.loss = SmoothAPLoss(tau=0.05)  # was: nn.CrossEntropyLoss(), on the outputs of a classifier
            self.meter = RetrievalMetrics(("mAP", "R@1"), normalize=True)  # was: torchmetrics.Accuracy(...)

        def training_step(self, batch, index):
            images, labels = batch
            loss = self.loss(self.network(images), labels)
            self.log("train/loss", loss)
            return loss

        def validation_step(self, batch, index):
            self.meter.update(self.network(batch[0]), batch[1])

        def on_validation_epoch_end(self):
            self.log_dict({f"val/{name}": value for name, value in self.meter.compute().items()})
            self.meter.reset()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.02)

    train, test = (TensorDataset(*pictures(seed=seed)) for seed in (0, 1))
    sampler = MPerClassSampler(train.tensors[1], classes=6, images=4)
    module, passes = Retrieval(), []

    class Keep(lightning.Callback):
        def on_validation_end(self, trainer, module):
            passes.append(dict(trainer.callback_metrics))

    trainer = lightning.Trainer(max_epochs=6, num_sanity_val_steps=1, callbacks=[Keep()], default_root_dir=tmp_path,
                                logger=False, accelerator="cpu", enable_checkpointing=False, enable_progress_bar=False,
                                enable_model_summary=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # five pictures of five classes: the sanity check has nothing to find
        trainer.fit(module, DataLoader(train, batch_sampler=sampler), DataLoader(test, batch_size=5))
    assert [w for w in caught if "of this pass is NaN" in str(w.message)]
    assert math.isnan(passes[0]["val/mAP"]) and passes[-1]["val/mAP"] > passes[1]["val/mAP"]
    assert 0 <= passes[-1]["train/loss"] < 1


def test_trainer_of_hugging_face(tmp_path):
    transformers = pytest.importorskip("transformers")
    from smoothap_nb import MPerClassSampler, SmoothAPLoss, evaluate

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.network, self.loss = nn.Linear(DIM, 8), SmoothAPLoss(tau=0.05)  # was: nn.CrossEntropyLoss()

        def forward(self, pixel_values, labels=None):
            rows = self.network(pixel_values)
            return {"loss": self.loss(rows, labels), "embeddings": rows}

    class RankingTrainer(transformers.Trainer):
        def get_train_dataloader(self):
            sampler = MPerClassSampler([row["labels"] for row in self.train_dataset], classes=6, images=4)
            return DataLoader(self.train_dataset, batch_sampler=sampler, collate_fn=self.data_collator)

    def compute_metrics(found):  # was: accuracy of found.predictions.argmax(-1)
        numbers = evaluate(found.predictions, found.label_ids, metrics=("mAP", "R@1"), normalize=True)
        return {name: numbers[name] for name in ("mAP", "R@1")}

    def rows(seed):
        return [{"pixel_values": x, "labels": int(y)} for x, y in zip(*pictures(seed=seed))]

    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), num_train_epochs=8, learning_rate=0.02, per_device_eval_batch_size=20,
        report_to="none", save_strategy="no", logging_steps=1000, disable_tqdm=True, use_cpu=True,
        remove_unused_columns=False)
    trainer = RankingTrainer(model=Network(), args=arguments, train_dataset=rows(0), eval_dataset=rows(1),
                             compute_metrics=compute_metrics)
    before = trainer.evaluate()["eval_mAP"]
    trainer.train()
    after = trainer.evaluate()
    assert after["eval_mAP"] > before + 0.05 and 0 <= after["eval_R@1"] <= 1
