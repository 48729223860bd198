"""Detection: VOC's measure against its public code, the loss against the blackbox rule, heads, pages, VOC on disk,
every bad input.
"""

import json
import math
from pathlib import Path

import pytest
import torch
from torchvision.models.detection.roi_heads import fastrcnn_loss
from torchvision.ops import box_iou

from smoothap_nb import (
    GlyphPages,
    MapLoss,
    RankedRoIHeads,
    VOCFolder,
    average_precision,
    blackbox_ranks,
    detection_ap,
    small_detector,
    train_detector,
    voc_detector,
)
from smoothap_nb.checks import ConfigError
from smoothap_nb.detection import study, voc
from smoothap_nb.detection.command import is_detection, load_detector, run_detection
from smoothap_nb.detection.loss import (
    best_boxes,
    box_regression_loss,
    class_targets,
    detection_class_loss,
    detection_hits,
    interpolated_ap,
    precision_recall,
)
from smoothap_nb.detection.pages import CLASSES, FACES, PageSettings, class_shares, draw_page, page_statistics
from smoothap_nb.detection.settings import detection_from_dict, detection_names, load_detection_experiment
from smoothap_nb.detection.training import batches, check_target, data_for, detector_for, measure_detector, predict

VECTOR = json.loads((Path(__file__).parents[1] / "vectors" / "voc_ap.json").read_text())


def random_detections(pictures=8, classes=3, seed=0, ties=False):
    "Objects and detections that partly find them."
    generator = torch.Generator().manual_seed(seed)
    predictions, targets = [], []
    for _ in range(pictures):
        number = int(torch.randint(0, 6, (), generator=generator))
        corner = 60 * torch.rand(number, 2, generator=generator)
        truth = torch.cat([corner, corner + 8 + 30 * torch.rand(number, 2, generator=generator)], 1)
        labels = torch.randint(1, classes + 1, (number,), generator=generator)
        twice = torch.arange(number).repeat(2)
        near = truth[twice] + 4 * torch.randn(len(twice), 4, generator=generator)
        near[:, 2:] = torch.maximum(near[:, 2:], near[:, :2] + 2)
        scores = torch.rand(len(near), generator=generator)
        scores = (4 * scores).round() / 4 if ties else scores
        predictions.append({"boxes": near, "scores": scores, "labels": labels[twice]})
        targets.append({"boxes": truth, "labels": labels})
    return predictions, targets


# --- the measure ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("points", ["all", "11"])
@pytest.mark.parametrize("iou", [0.5, 0.75])
def test_voc_ap_is_that_of_the_public_code(points, iou):
    tensor = lambda values, dtype: torch.tensor(values, dtype=dtype)  # noqa: E731
    predictions = [
        {
            "boxes": tensor(p["boxes"], torch.float32).reshape(-1, 4),
            "scores": tensor(p["scores"], torch.float64),
            "labels": tensor(p["predicted"], torch.int64),
        }
        for p in VECTOR["images"]
    ]
    targets = [
        {
            "boxes": tensor(p["truth"], torch.float32).reshape(-1, 4),
            "labels": tensor(p["labels"], torch.int64),
            "difficult": tensor(p["difficult"], torch.bool),
        }
        for p in VECTOR["images"]
    ]
    expected = torch.tensor(VECTOR["expected"][f"{points} at {iou:g}"], dtype=torch.float64)
    torch.testing.assert_close(detection_ap(predictions, targets, 3, iou, points), expected, rtol=0, atol=1e-12)


def test_ap50_is_cocos_up_to_its_hundred_and_one_points():
    pytest.importorskip("pycocotools")
    for seed in range(3):
        predictions, targets = random_detections(12, 3, seed)
        ours = detection_ap(predictions, targets, 3).nanmean().item()
        theirs = voc.coco_ap(predictions, targets)
        assert theirs["AP50"] == pytest.approx(ours, abs=0.03) and theirs["mAP"] <= theirs["AP50"]


def test_cocos_hundred_and_one_points_from_our_curve():
    "Where no object is claimed twice by rule, COCO's number follows from our recall and precision, read at its points."
    pytest.importorskip("pycocotools")
    generator = torch.Generator().manual_seed(5)
    places = torch.cartesian_prod(torch.arange(4), torch.arange(4)) * 40.0
    truth = torch.cat([places, places + 30], 1)
    moved = truth + torch.randint(-9, 10, truth.shape, generator=generator)
    scores = torch.rand(16, generator=generator)
    ones = torch.ones(16, dtype=torch.int64)
    predictions, targets = [{"boxes": moved, "scores": scores, "labels": ones}], [{"boxes": truth, "labels": ones}]
    recall, precision = precision_recall(scores, detection_hits(moved, scores, truth), 16)
    best = torch.cat([precision.flip(0).cummax(0).values.flip(0), torch.zeros(1, dtype=torch.float64)])
    at = torch.searchsorted(recall, torch.linspace(0, 1, 101, dtype=torch.float64))
    assert voc.coco_ap(predictions, targets)["AP50"] == pytest.approx(best[at].mean().item(), abs=1e-6)


def test_hits_by_hand():
    truth = torch.tensor([[0.0, 0, 10, 10], [20, 0, 30, 10]])
    boxes = torch.tensor([[0.0, 0, 10, 9], [0, 0, 10, 10], [20, 0, 30, 4], [20, 0, 30, 5], [50, 50, 60, 60]])
    scores = torch.tensor([0.9, 0.8, 0.7, 0.6, 0.5])
    assert detection_hits(boxes, scores, truth).tolist() == [
        1,
        0,
        0,
        1,
        0,
    ]  # found, again, too small, just enough, nowhere
    hard = detection_hits(boxes, scores, truth, difficult=torch.tensor([True, False]))
    assert hard[:2].isnan().all() and hard[2:].tolist() == [0, 1, 0]
    assert detection_hits(boxes, scores, truth[:0]).tolist() == [0] * 5
    assert detection_hits(boxes[:0], scores[:0], truth).tolist() == []
    assert detection_hits(boxes.flip(0), scores.flip(0), truth).tolist() == [0, 1, 0, 0, 1]


def test_ap_without_interpolation_is_the_retrieval_metric():
    scores, hits = torch.rand(40), (torch.rand(40) < 0.4).float()
    hits[0] = 1
    recall, precision = precision_recall(scores, hits, int(hits.sum()))
    plain = (recall.diff(prepend=recall.new_zeros(1)) * precision).sum()
    assert plain.item() == pytest.approx(average_precision(scores[None].double(), hits[None].bool()).item(), abs=1e-9)
    assert interpolated_ap(recall, precision) >= plain.item() - 1e-12


@pytest.mark.parametrize("found", range(11))
def test_eleven_points_count_tenths_exactly(found):
    recall, precision = precision_recall(
        torch.linspace(1, 0, max(found, 1)), (torch.arange(max(found, 1)) < found).float(), 10
    )
    assert interpolated_ap(recall, precision, "11") == pytest.approx((found + 1) / 11 if found else 0)


def test_classes_that_no_picture_shows_have_no_ap():
    predictions, targets = random_detections(4, 2)
    found = detection_ap(predictions, targets, 5)
    assert found[:2].isfinite().all() and found[2:].isnan().all()
    nothing = [
        {"boxes": torch.zeros(0, 4), "scores": torch.zeros(0), "labels": torch.zeros(0, dtype=torch.int64)}
        for _ in targets
    ]
    assert detection_ap(nothing, targets, 2).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: detection_hits(torch.zeros(1, 4), torch.zeros(1), torch.zeros(1, 4), iou=0), "iou"),
        (lambda: precision_recall(torch.zeros(1), torch.zeros(1), 0), "without objects"),
        (lambda: interpolated_ap(torch.zeros(1), torch.zeros(1), "101"), "points"),
        (lambda: detection_ap([], [{"boxes": torch.zeros(1, 4), "labels": torch.ones(1)}], 2), "0 predictions for 1"),
    ],
)
def test_bad_input_of_the_measure(call, match):
    with pytest.raises(ValueError, match=match):
        call()


# --- the loss ------------------------------------------------------------------------------------------------------


def test_gradient_is_that_of_the_blackbox_rule():
    "The loss's own gradient, by differentiating 1 - AP through `blackbox_ranks` list by list."
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(40, 5, generator=generator, dtype=torch.float64).requires_grad_()
    labels = torch.randint(0, 5, (40,), generator=generator)
    (gradient,) = torch.autograd.grad(detection_class_loss(logits, labels, MapLoss(0.5, 0.0, 0.25)), logits)

    def ap_loss(scores, wanted, weight):
        "One list: its weight arrives with the gradient from above, and the rule moves the scores by it."
        leaf = scores.detach().clone().requires_grad_()
        ranked = blackbox_ranks(leaf[None], 0.5)[0]
        among = ((leaf.detach()[wanted][None] >= leaf.detach()[wanted][:, None]).sum(1)).double() / len(leaf)
        (slope,) = torch.autograd.grad(weight * (1 - (among / ranked[wanted]).mean()), leaf)
        return slope

    wanted = class_targets(labels, 4)
    present = wanted.any(0)
    expected = torch.zeros(40, 5, dtype=torch.float64)
    for c in present.nonzero()[:, 0].tolist():
        expected[:, c + 1] += ap_loss(logits[:, c + 1], wanted[:, c], 0.75 / int(present.sum()))
    expected[:, 1:] += ap_loss(logits[:, 1:].reshape(-1), wanted.reshape(-1), 0.25).view(40, 4)
    assert gradient[:, 0].abs().max() == 0, "the background's logit is in no list"
    assert gradient.abs().sum() > 0
    torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-12)


def test_one_list_has_exactly_the_rules_gradient():
    "One class, no second term: nothing scales the incoming gradient, so both must agree to the last digit."
    scores = torch.randn(30, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64).requires_grad_()
    labels = (torch.arange(30) % 4 == 0).long()
    (gradient,) = torch.autograd.grad(detection_class_loss(scores, labels, MapLoss(0.5, 0.0, 0.0)), scores)
    leaf = scores[:, 1].detach().clone().requires_grad_()
    wanted = labels.bool()
    among = (leaf.detach()[wanted][None] >= leaf.detach()[wanted][:, None]).sum(1).double() / 30
    (expected,) = torch.autograd.grad(1 - (among / blackbox_ranks(leaf[None], 0.5)[0][wanted]).mean(), leaf)
    torch.testing.assert_close(gradient[:, 1], expected, rtol=1e-9, atol=1e-12)


def test_cross_entropy_alone_is_torchvisions_loss():
    generator = torch.Generator().manual_seed(1)
    logits, moves = torch.randn(20, 4, generator=generator), torch.randn(20, 16, generator=generator)
    labels, wanted = torch.randint(0, 4, (20,), generator=generator), torch.randn(20, 4, generator=generator)
    theirs = fastrcnn_loss(logits, moves, [labels], [wanted])
    ours = detection_class_loss(logits, labels, cross_entropy=1.0), box_regression_loss(moves, labels, wanted)
    torch.testing.assert_close(ours, theirs)


def test_losses_without_boxes_or_objects_are_zero_with_a_graph():
    for labels in (torch.zeros(0, dtype=torch.int64), torch.zeros(6, dtype=torch.int64)):
        logits = torch.randn(len(labels), 4, requires_grad=True)
        loss = detection_class_loss(logits, labels, MapLoss(0.5, 0.0))
        loss.backward()
        assert loss.item() == 0 and logits.grad.abs().sum() == 0
        moves = torch.randn(len(labels), 16, requires_grad=True)
        box_regression_loss(moves, labels, torch.zeros(len(labels), 4)).backward()
        assert moves.grad.abs().sum() == 0


def test_a_class_without_a_positive_is_left_out():
    logits = torch.randn(20, 4, dtype=torch.float64)
    labels = torch.tensor([0, 1] * 10)
    with_empty = detection_class_loss(logits, labels, MapLoss(0.5, 0.0, 0.0))
    alone = detection_class_loss(logits[:, :2], labels, MapLoss(0.5, 0.0, 0.0))
    torch.testing.assert_close(with_empty, alone)


def test_nan_logits_are_named():
    with pytest.raises(ValueError, match="lower the learning rate"):
        detection_class_loss(torch.full((3, 4), torch.nan), torch.zeros(3, dtype=torch.int64), cross_entropy=1.0)


# --- heads and detectors -------------------------------------------------------------------------------------------


def test_heads_take_over_layers_and_give_torchvisions_losses():
    torch.manual_seed(0)
    model = small_detector(8).train()
    images, targets = zip(*(GlyphPages("train", 2)[k] for k in range(2)))
    torch.manual_seed(1)
    ours = model(list(images), list(targets))
    plain = small_detector(8)
    plain.load_state_dict(model.state_dict())
    heads = plain.roi_heads
    theirs_class = type(heads).__mro__[1]
    torch.manual_seed(1)
    heads.__class__ = theirs_class  # torchvision's own forward on the same layers
    theirs = plain.train()(list(images), list(targets))
    assert set(ours) == set(theirs)
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name])


def test_best_boxes_rank_by_the_classes_own_logit():
    boxes = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 11], [30, 30, 40, 40]])[:, None].repeat(1, 3, 1)
    logits = torch.tensor([[9.0, 2, -3], [0, 3, -3], [0, -1, 1]])
    found, scores, labels = best_boxes(boxes, logits, (50, 50), nms=0.5, most=3)
    assert labels.tolist() == [1, 2, 1] and scores.tolist() == pytest.approx(
        [1 / (1 + math.exp(-v)) for v in (3, 1, -1)]
    )
    assert found[0].tolist() == [0, 0, 10, 11], "of two boxes on one object the better stays"
    empty = best_boxes(boxes[:0], logits[:0], (50, 50))
    assert [len(part) for part in empty] == [0, 0, 0]


def test_scores_follow_what_was_trained():
    assert small_detector(3).roi_heads.scores == "softmax"
    assert small_detector(3, MapLoss()).roi_heads.scores == "sigmoid"
    assert small_detector(3, MapLoss(), cross_entropy=1.0).roi_heads.scores == "softmax"
    assert small_detector(3, MapLoss(), scores="softmax").roi_heads.scores == "softmax"


@pytest.mark.parametrize("loss", ["cross_entropy", "rambo", "both"])
def test_pages_without_objects_and_pictures_without_proposals(loss):
    empty = GlyphPages("train", 2, settings=PageSettings(objects=(0, 0)))
    model = detector_for(detection_from_dict({"loss": loss}), 8)
    images, targets = zip(*(empty[k] for k in range(2)))
    losses = model.train()(list(images), list(targets))
    sum(losses.values()).backward()
    assert all(torch.isfinite(value) for value in losses.values()) and losses["loss_box_reg"].item() == 0
    model.rpn._post_nms_top_n = {"training": 0, "testing": 0}  # no proposals at all
    losses = model(list(images), list(targets))
    assert losses["loss_classifier"].item() == 0
    with torch.no_grad():
        found = model.eval()(list(images))
    assert [len(each["boxes"]) for each in found] == [0, 0]


def test_heads_refuse_what_they_cannot_do():
    heads = small_detector(3).roi_heads
    for call, match in ((lambda: RankedRoIHeads(torch.nn.Linear(2, 2)), "RoIHeads"),):
        with pytest.raises(TypeError, match=match):
            call()
    for settings, match in (
        ({"cross_entropy": 0.0}, "no ranking loss"),
        ({"cross_entropy": -1.0}, "0 or above"),
        ({"scores": "rank"}, "scores"),
        ({"candidates": 0}, "candidates"),
    ):
        with pytest.raises(ValueError, match=match):
            RankedRoIHeads(heads, **settings)
    with pytest.raises(ValueError, match="ranking_weight"):
        RankedRoIHeads(heads, MapLoss(), ranking_weight=0.0)
    with pytest.raises(ValueError, match="backbone"):
        voc_detector(backbone="vgg16")


def test_voc_detector_trains_a_step_in_small():
    model = voc_detector(4, MapLoss(0.5, 0.0), pretrained=False, min_size=96, max_size=128).train()
    image = torch.rand(3, 96, 120)
    target = {"boxes": torch.tensor([[10.0, 10, 60, 60]]), "labels": torch.tensor([2])}
    losses = model([image], [target])
    sum(losses.values()).backward()
    assert all(torch.isfinite(value) for value in losses.values())
    assert model.roi_heads.box_predictor.cls_score.weight.grad[1:].abs().sum() > 0


# --- pages ---------------------------------------------------------------------------------------------------------


def test_pages_are_the_same_each_time_and_fit_the_detector():
    first, second = GlyphPages("test", 5), GlyphPages("test", 5)
    for number in range(5):
        image, target = first[number]
        torch.testing.assert_close(image, second[number][0], rtol=0, atol=0)
        assert torch.equal(target["boxes"], second[number][1]["boxes"])
        check_target(image, target, len(CLASSES), "page")
        assert image.shape == (3, 128, 128) and 0 <= image.min() and image.max() <= 1
    assert not torch.equal(first[0][0], first[1][0]) and not torch.equal(
        first[0][0], GlyphPages("test", 5, seed=1)[0][0]
    )
    one, other = first[0][1]["boxes"], first[0][1]["boxes"]
    assert one.data_ptr() != other.data_ptr(), "a caller may change what it got"


def test_splits_share_no_typeface():
    faces = [set(faces) for faces in FACES.values()]
    assert sum(map(len, faces)) == len(set.union(*faces)) == 16


def test_boxes_hold_their_ink():
    image, target = draw_page("train", 3, settings=PageSettings(noise=0.0, clutter=(0, 0), objects=(4, 4)))
    paper = image[0]
    for x1, y1, x2, y2 in target["boxes"].int().tolist():
        inside = paper[y1:y2, x1:x2]
        assert inside.amin() < inside.amax() - 0.15
        for edge in (inside[0], inside[-1], inside[:, 0], inside[:, -1]):
            assert edge.amin() < edge.amax() - 0.02, "ink touches each edge"


def test_classes_have_unequal_shares_and_boxes_little_overlap():
    pages = GlyphPages("train", 150)
    told = page_statistics(pages)
    counts = [told[name] for name in CLASSES]
    assert counts[0] > 3 * counts[-1] and told["objects"] == sum(counts) and class_shares().sum() == pytest.approx(1)
    for number in range(30):
        overlaps = box_iou(pages[number][1]["boxes"], pages[number][1]["boxes"]).fill_diagonal_(0)
        assert not len(overlaps) or overlaps.max() < 0.3


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"side": 8}, "side"),
        ({"objects": (3, 1)}, "objects"),
        ({"clutter": (-1, 2)}, "clutter"),
        ({"heights": (2, 20)}, "heights"),
        ({"heights": (20, 100)}, "heights"),
        ({"noise": 2.0}, "noise"),
    ],
)
def test_bad_settings_of_pages(settings, match):
    with pytest.raises(ValueError, match=match):
        PageSettings(**settings)


def test_bad_pages():
    for call in (lambda: GlyphPages("dev"), lambda: draw_page("dev")):
        with pytest.raises(ValueError, match="split"):
            call()
    with pytest.raises(ValueError, match="number of pages"):
        GlyphPages("train", 0)
    with pytest.raises(IndexError):
        GlyphPages("train", 2)[2]


# --- VOC and COCO on disk ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def devkit(tmp_path_factory):
    return voc.make_voc_miniature(tmp_path_factory.mktemp("VOCdevkit"), 4, 3)


def test_voc_miniature_is_read_as_it_was_drawn(devkit):
    folder = VOCFolder(devkit, ["2007_trainval"])
    drawn = GlyphPages("train", 4, 10)
    assert len(folder) == 4 and len(VOCFolder(devkit, ["2007_trainval", "2012_trainval"])) == 8
    for number in range(4):
        image, target = folder[number]
        torch.testing.assert_close(target["boxes"], drawn[number][1]["boxes"])
        assert torch.equal(target["labels"], drawn[number][1]["labels"]) and not target["difficult"].any()
        assert (image - drawn[number][0]).abs().mean() < 0.03


def annotation(folder, text):
    path = folder / "a.xml"
    path.write_text(text)
    return path


OBJECT = "<annotation><object><name>{}</name><difficult>{}</difficult><bndbox>{}</bndbox></object></annotation>"
SIDES = "<xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax>"


def test_pixels_are_counted_from_one_on_disk(tmp_path):
    target = voc.read_annotation(
        annotation(tmp_path, OBJECT.format("cat", 1, SIDES.format(1, 1, 5, 7))), voc.VOC_CLASSES, (7, 5)
    )
    assert (
        target["boxes"].tolist() == [[0, 0, 5, 7]]
        and target["labels"].tolist() == [8]
        and target["difficult"].tolist() == [True]
    )


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (OBJECT.format("catt", 0, SIDES.format(1, 1, 5, 5)), "did you mean 'cat'"),
        (OBJECT.format("cat", 0, SIDES.format(5, 1, 4, 5)), "without area"),
        (OBJECT.format("cat", 0, SIDES.format(1, 1, 50, 5)), "leaves its picture of 20 x 10"),
        (OBJECT.format("cat", 0, SIDES.format(0, 1, 5, 5)), "leaves"),
        (OBJECT.format("cat", 0, SIDES.format("x", 1, 5, 5)), "four numbers"),
        (OBJECT.format("cat", 0, ""), "four numbers"),
        ("<annotation>", "no XML"),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><annotation/>", "entities"),
    ],
)
def test_bad_annotations(tmp_path, text, match):
    with pytest.raises(ValueError, match=match):
        voc.read_annotation(annotation(tmp_path, text), voc.VOC_CLASSES, (10, 20))


def test_missing_files_are_named(devkit, tmp_path):
    with pytest.raises(FileNotFoundError, match="VOCdevkit that holds VOC2009"):
        VOCFolder(devkit, ["2009_trainval"])
    for name in ("Annotations/test000000.xml", "JPEGImages/test000000.jpg"):
        with pytest.raises(FileNotFoundError, match="listed"):
            copy = voc.make_voc_miniature(tmp_path / name.split("/")[0], 1, 1)
            (copy / "VOC2007" / name).unlink()
            VOCFolder(copy, ["2007_test"])[0]
    (copy / "VOC2007" / "ImageSets" / "Main" / "test.txt").write_text("\n")
    with pytest.raises(ValueError, match="empty"):
        VOCFolder(copy, ["2007_test"])


def test_coco_file_is_read_by_pycocotools(tmp_path):
    coco = pytest.importorskip("pycocotools.coco")
    pages = GlyphPages("test", 3)
    voc.write_coco(tmp_path / "boxes.json", pages)
    read = coco.COCO(str(tmp_path / "boxes.json"))
    assert [c["name"] for c in read.loadCats(read.getCatIds())] == list(CLASSES)
    for number in range(3):
        x, y, w, h = torch.tensor([a["bbox"] for a in read.loadAnns(read.getAnnIds([number]))]).T
        torch.testing.assert_close(torch.stack([x, y, x + w, y + h], 1), pages[number][1]["boxes"])


# --- training, settings, command, study ------------------------------------------------------------------------------

TINY = {"steps": 4, "pages": 12, "test_pages": 4, "batch": 4, "width": 4, "warmup": 1}


def test_training_repeats_and_learns_to_the_seed():
    def run(seed):
        experiment = detection_from_dict({**TINY, "seed": seed})
        train, test = data_for(experiment)
        model = detector_for(experiment, 8)
        told = []
        facts = train_detector(model, train, experiment, lambda step, losses: told.append(sum(losses.values())))
        assert facts["steps"] == len(told) == 4
        return told

    assert run(0) == run(0) != run(1)


def test_epochs_milestones_and_flips():
    experiment = detection_from_dict(
        {**TINY, "epochs": 2, "flip": True, "schedule": "step", "milestones": [1], "optimizer": "sgd", "lr": 0.01}
    )
    train, _ = data_for(experiment)
    plain = {tuple(train[k][1]["boxes"].flatten().tolist()) for k in range(12)}
    drawn = [b for images, targets in batches(train, experiment, 6) for b in targets]
    mirrored = [tuple(b["boxes"].flatten().tolist()) not in plain for b in drawn]
    assert len(drawn) == 24 and 4 < sum(mirrored) < 20
    rates = []
    model = detector_for(experiment, 8)
    original = torch.optim.SGD.step
    torch.optim.SGD.step = lambda self, *a: (rates.append(self.param_groups[0]["lr"]), original(self, *a))[1]
    try:
        train_detector(model, train, experiment)
    finally:
        torch.optim.SGD.step = original
    assert rates == pytest.approx([0.01] * 3 + [0.001] * 3)


@pytest.mark.parametrize(
    ("box", "label", "match"),
    [
        ([5, 5, 5, 9], 1, "no area"),
        ([5, 5, 4, 9], 1, "no area"),
        ([-1, 5, 4, 9], 1, "leaves"),
        ([5, 5, 14, 11], 1, "leaves"),
        ([1, 1, 4, 4], 0, "1 ... 8"),
        ([1, 1, 4, 4], 9, "1 ... 8"),
    ],
)
def test_targets_that_cannot_be_trained_on(box, label, match):
    target = {"boxes": torch.tensor([box], dtype=torch.float32), "labels": torch.tensor([label])}
    with pytest.raises(ValueError, match=f"page 3.*{match}"):
        check_target(torch.zeros(3, 10, 20), target, 8, "page 3")
    with pytest.raises(ValueError, match="2 boxes, 1 labels"):
        check_target(torch.zeros(3, 10, 20), {"boxes": torch.zeros(2, 4), "labels": torch.ones(1)}, 8, "p")


def test_measures_of_a_perfect_detector():
    pages = GlyphPages("test", 4)

    class Perfect(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.next = torch.nn.Parameter(torch.zeros(1)), 0

        def forward(self, images):
            found = [
                pages[self.next + k][1] | {"scores": torch.ones(len(pages[self.next + k][1]["labels"]))}
                for k in range(len(images))
            ]
            self.next += len(images)
            return found

    measured = measure_detector(Perfect(), pages, batch=3)
    assert measured["AP50"] == measured["AP75"] == measured["AP50 (11 points)"] == pytest.approx(1)
    assert set(measured["per class"]) == set(CLASSES)
    with pytest.raises(ValueError, match="no picture"):
        measure_detector(small_detector(8, width=4), GlyphPages("test", 1, settings=PageSettings(objects=(0, 0))))


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"lr": 0}, "lr"),
        ({"lr": "fast"}, "lr"),
        ({"lr": math.inf}, "finite"),
        ({"loss": "rampo"}, "did you mean 'rambo'"),
        ({"epoch": 3}, "did you mean 'epochs'"),
        ({"interclass": 2.0}, "interclass"),
        ({"margin": -1.0}, "margin"),
        ({"data": "voc"}, "needs train and test"),
        ({"test_split": "dev"}, "test_split"),
        ({"noise": 1}, "noise"),
        ({"batch": 0}, "batch"),
    ],
)
def test_bad_settings(values, match):
    with pytest.raises(ConfigError, match=match):
        detection_from_dict(values)


def test_every_experiment_loads_and_says_where_it_comes_from():
    for name in detection_names():
        experiment = load_detection_experiment(name)
        assert experiment.name == name and experiment.description
    assert load_detection_experiment("voc-07-rambo", ["lr=0.02"]).lr == 0.02
    with pytest.raises(ConfigError, match="did you mean 'voc-07"):
        load_detection_experiment("voc-7")


def test_the_command_trains_measures_and_stores(tmp_path, devkit):
    settings = [f"{key}={value}" for key, value in TINY.items()]
    said = []
    record = run_detection("pages", settings, tmp_path / "run", record_to=tmp_path / "record.json", say=said.append)
    assert json.loads((tmp_path / "record.json").read_text()) == json.loads(json.dumps(record))
    model, experiment, classes = load_detector(tmp_path / "run")
    assert classes == CLASSES and experiment.steps == 4
    assert measure_detector(model, data_for(experiment)[1])["AP50"] == record["measured"]["AP50"]
    with pytest.raises(ConfigError, match="not empty"):
        run_detection("pages", settings, tmp_path / "run")
    run_detection("pages", settings, tmp_path / "run", fresh=True, say=said.append)
    with pytest.raises(FileNotFoundError, match="no finished detection run"):
        load_detector(tmp_path)
    assert is_detection("voc-07") and not is_detection("demo") and not is_detection("nothing.toml")


def test_voc_runs_in_small(tmp_path, devkit):
    settings = [
        f"root={devkit}",
        "backbone=small",
        "side=128",
        "width=4",
        "epochs=1",
        "milestones=[]",
        "batch=2",
        "workers=0",
        "warmup=1",
        "lr=0.01",
    ]
    record = run_detection("voc-07-rambo", settings, tmp_path / "run", say=lambda text: None)
    assert record["steps"] == 2 and 0 <= record["measured"]["AP50"] <= 1
    assert record["config"]["memory"] == 7 and record["measured"]["per class"]["person"] is None


def test_study_goes_on_where_it_was(tmp_path):
    path = tmp_path / "study.json"
    stored = study.run_study(path, seeds=1, only="rambo, memory", extra=TINY)
    assert set(stored["rows"]) == {
        *(f"tune/{loss}/lr={rate:g}" for loss in ("cross_entropy", "rambo") for rate in study.RATES),
        "rambo, memory 7/seed 0",
    }
    again = study.run_study(path, seeds=1, only="rambo, memory", extra=TINY)
    assert again == json.loads(path.read_text())
    row = stored["rows"]["rambo, memory 7/seed 0"]
    assert (
        row["config"]["memory"] == 7
        and row["environment"]["sources"] == study.source_digest()
        and row["config"]["lr"] == study.chosen_rates(stored["rows"])["rambo"]
    )


def test_paired_differences_and_their_intervals():
    rows = {
        f"{name}/seed {seed}": {"measured": {"AP50": value}}
        for name, values in {"a": (0.5, 0.6, 0.7), "b": (0.4, 0.55, 0.6), "c": (0.1,)}.items()
        for seed, value in enumerate(values)
    }
    n, mean, half = study.paired(rows, "a", "b")
    gains = torch.tensor([10.0, 5.0, 10.0])
    assert (
        n == 3
        and mean == pytest.approx(gains.mean().item())
        and half == pytest.approx(4.303 * gains.std().item() / 3**0.5, rel=1e-3)
    )
    assert study.paired(rows, "a", "c")[2] == math.inf
    with pytest.raises(ValueError, match="no seed"):
        study.paired(rows, "a", "d")
    stats = pytest.importorskip("scipy.stats")
    for freedom in (1, 5, 19, 25, 60):
        assert study.student_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=2e-3)


def test_predictions_come_with_their_targets():
    pages = GlyphPages("test", 5)
    predictions, targets = predict(small_detector(8, width=4), pages, batch=2)
    assert len(predictions) == len(targets) == 5 and all(
        torch.equal(t["boxes"], pages[k][1]["boxes"]) for k, t in enumerate(targets)
    )
