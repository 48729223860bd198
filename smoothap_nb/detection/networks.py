"""Faster R-CNN with a ranking loss where cross entropy was, small for pages and full-sized for VOC (lesson 31).

Plain file: what the loss computes is derived in the lesson (`loss.py`); here it is hung into torchvision.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor
from torchvision.models.detection.roi_heads import RoIHeads
from torchvision.ops import MultiScaleRoIAlign

from ..checks import check_choice, check_count, check_positive
from .loss import best_boxes, box_regression_loss, detection_class_loss

BOX_SCORES = ("softmax", "sigmoid")
"""What detections are ranked by: softmax over all logits, or the sigmoid of the class's own."""

BACKBONES = ("resnet50", "resnet101", "resnext101_32x8d")
"""Backbones for VOC that torchvision has weights for; the paper's ResNeXt-101 32x4d is not among them."""


class RankedRoIHeads(RoIHeads):
    """The second stage of torchvision's Faster R-CNN with a ranking loss in the place of cross entropy, or beside it
    (RaMBO, section 5.2).

    ``model.roi_heads = RankedRoIHeads(model.roi_heads, MapLoss(0.5, 0.0))`` is all that an existing detector needs:
    layers and settings stay.

    Args:
        heads: the second stage to take over.
        ranking_loss: called as `loss(logits (N, C), targets (N, C) bool)`, background left out, e.g. `MapLoss`; None
            for cross entropy alone.
        ranking_weight: what multiplies the ranking loss, above 0.
        cross_entropy: weight of cross entropy, 0 or above. Left out: 1 without a ranking loss, else 0.
        scores: "softmax" or "sigmoid"; see `BOX_SCORES`. Left out, softmax with cross entropy, sigmoid without:
            nobody trains the background then.
        candidates: boxes of a picture that take part in non-maximum suppression, for "sigmoid", which has no threshold.

    Raises:
        TypeError: `heads` that are no RoIHeads, or that have masks or keypoints.
        ValueError: weights or scores that do not fit.
    """

    def __init__(
        self,
        heads: RoIHeads,
        ranking_loss: nn.Module | None = None,
        *,
        ranking_weight: float = 1.0,
        cross_entropy: float | None = None,
        scores: str | None = None,
        candidates: int = 1000,
    ):
        if not isinstance(heads, RoIHeads) or heads.has_mask() or heads.has_keypoint():
            raise TypeError(
                f"heads must be torchvision's RoIHeads for boxes alone, got {type(heads).__name__}: "
                "pass model.roi_heads of a Faster R-CNN"
            )
        weight = float(ranking_loss is None) if cross_entropy is None else float(cross_entropy)
        if not weight >= 0 or (ranking_loss is None and weight == 0):
            raise ValueError(
                f"cross_entropy is {cross_entropy!r}: its weight must be 0 or above, "
                "and above 0 where there is no ranking loss"
            )
        nn.Module.__init__(self)
        self.__dict__.update(
            {name: value for name, value in vars(heads).items() if not name.startswith("_") and name != "training"}
        )
        for name, part in heads.named_children():
            self.add_module(name, part)
        self.ranking_loss, self.ranking_weight, self.cross_entropy = (
            ranking_loss,
            check_positive("ranking_weight", ranking_weight),
            weight,
        )
        self.scores = check_choice("scores", scores or ("softmax" if weight else "sigmoid"), BOX_SCORES)
        self.candidates = check_count("candidates", candidates)
        self.train(heads.training)

    def forward(self, features, proposals, image_shapes, targets=None):
        "As in torchvision, with `detection_class_loss` where that calls cross entropy."
        if not self.training:
            return super().forward(features, proposals, image_shapes, targets)
        proposals, _, labels, wanted = self.select_training_samples(proposals, targets)
        logits, moves = self.box_predictor(self.box_head(self.box_roi_pool(features, proposals, image_shapes)))
        labels = torch.cat(labels)
        of_class = detection_class_loss(logits, labels, self.ranking_loss, self.ranking_weight, self.cross_entropy)
        return [], {"loss_classifier": of_class, "loss_box_reg": box_regression_loss(moves, labels, torch.cat(wanted))}

    def postprocess_detections(self, class_logits, box_regression, proposals, image_shapes):
        "As in torchvision for softmax; for sigmoid see `best_boxes`."
        if self.scores == "softmax":
            return super().postprocess_detections(class_logits, box_regression, proposals, image_shapes)
        counts = [len(boxes) for boxes in proposals]
        moved = self.box_coder.decode(box_regression, proposals).split(counts)
        found = [
            best_boxes(boxes, logits, shape, self.nms_thresh, self.detections_per_img, self.candidates)
            for boxes, logits, shape in zip(moved, class_logits.split(counts), image_shapes)
        ]
        return tuple(map(list, zip(*found)))


def _block(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


class SmallBackbone(nn.Module):
    """Five convolutions and one step of a feature pyramid: (B, 3, H, W) to "fine" (B, channels, H / 4, W / 4) and
    "coarse", half as large.

    Args:
        width: channels of the first convolution.
        channels: of both outputs.
    """

    def __init__(self, width: int = 24, channels: int = 48):
        super().__init__()
        self.fine = nn.Sequential(_block(3, width, 2), _block(width, 2 * width, 2), _block(2 * width, 2 * width, 1))
        self.coarse = nn.Sequential(_block(2 * width, 4 * width, 2), _block(4 * width, 4 * width, 1))
        self.from_fine, self.from_coarse = nn.Conv2d(2 * width, channels, 1), nn.Conv2d(4 * width, channels, 1)
        self.out_channels = channels

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        fine = self.fine(images)
        coarse = self.coarse(fine)
        down = self.from_coarse(coarse)
        return {"fine": self.from_fine(fine) + F.interpolate(down, size=fine.shape[-2:]), "coarse": down}


def small_detector(
    classes: int = 8,
    ranking_loss: nn.Module | None = None,
    *,
    side: int = 128,
    width: int = 24,
    channels: int = 48,
    hidden: int = 192,
    **heads,
) -> FasterRCNN:
    """A two-stage detector for glyph pages that trains from nothing in half a minute on a CPU.

    Args:
        classes: number of classes, without the background.
        ranking_loss: see `RankedRoIHeads`; None for cross entropy.
        side: of the pages in pixels; others are resized to it.
        width, channels: see `SmallBackbone`.
        hidden: width of the second stage's layer.
        **heads: further settings of `RankedRoIHeads`.

    Returns:
        torchvision's model: with targets, in training mode, it gives a dict of losses; otherwise a list of dicts of
        boxes, labels and scores.

    Raises:
        ValueError: fewer than one class.
    """
    backbone, pool = SmallBackbone(width, channels), 5
    model = FasterRCNN(
        backbone,
        min_size=side,
        max_size=side,
        image_mean=[0.5] * 3,
        image_std=[0.25] * 3,
        rpn_anchor_generator=AnchorGenerator(((15,), (26,)), ((0.7, 1.2),) * 2),
        rpn_pre_nms_top_n_train=150,
        rpn_post_nms_top_n_train=80,
        rpn_pre_nms_top_n_test=150,
        rpn_post_nms_top_n_test=60,
        rpn_batch_size_per_image=64,
        box_batch_size_per_image=48,
        box_score_thresh=0.001,
        box_detections_per_img=40,
        box_roi_pool=MultiScaleRoIAlign(["fine"], pool, sampling_ratio=1),
        box_head=nn.Sequential(nn.Flatten(), nn.Linear(channels * pool**2, hidden), nn.ReLU(inplace=True)),
        box_predictor=FastRCNNPredictor(hidden, check_count("classes", classes) + 1),
    )
    model.roi_heads = RankedRoIHeads(model.roi_heads, ranking_loss, **heads)
    return model


def voc_detector(
    classes: int = 20,
    ranking_loss: nn.Module | None = None,
    *,
    backbone: str = "resnet50",
    pretrained: bool = True,
    min_size: int = 600,
    max_size: int = 1000,
    trainable_layers: int = 3,
    blank: bool = False,
    **heads,
) -> FasterRCNN:
    """Faster R-CNN on a residual network with a feature pyramid, in the size that mmdetection takes for VOC.

    Args:
        classes: number of classes, without the background.
        ranking_loss: see `RankedRoIHeads`; None for cross entropy.
        backbone: one of `BACKBONES`.
        pretrained: start the backbone from ImageNet (torchvision downloads the weights once); otherwise from nothing,
            with all layers trained.
        min_size, max_size: the shorter side becomes `min_size` pixels unless the longer one would exceed `max_size`.
        trainable_layers: of the backbone's five, from the top, that are trained when it is pretrained.
        blank: leave the weights of ImageNet out: others are about to be loaded.
        **heads: further settings of `RankedRoIHeads`.

    Returns:
        torchvision's model, as of `small_detector`.

    Raises:
        ValueError: an unknown backbone, fewer than one class.
    """
    check_choice("backbone", backbone, BACKBONES)
    weights = "IMAGENET1K_V1" if pretrained and not blank else None
    norm = {} if pretrained else {"norm_layer": nn.BatchNorm2d}
    trunk = resnet_fpn_backbone(
        backbone_name=backbone, weights=weights, trainable_layers=trainable_layers if pretrained else 5, **norm
    )
    model = FasterRCNN(trunk, num_classes=check_count("classes", classes) + 1, min_size=min_size, max_size=max_size)
    model.roi_heads = RankedRoIHeads(model.roi_heads, ranking_loss, **heads)
    return model
