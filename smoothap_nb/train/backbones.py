"""Backbones and weights from elsewhere: timm's networks without pooling, ImageNet weights from their servers, and clear
refusals.
"""

from __future__ import annotations

import difflib
import urllib.error

from torch import Tensor, nn

from ..checks import ConfigError, reason
from .config import ModelConfig
from .weights import fitted, glyph_stages, read_state

__all__ = ["imagenet_weights", "timm_create", "TimmFeatures", "timm_backbone"]


def imagenet_weights(name: str) -> dict:
    "torchvision's ImageNet weights (version 1, as the papers used), from its server."
    import torchvision

    if name == "se_resnet50":  # torchvision has none; timm's network of the same shape has the same names
        return timm_create("seresnet50", pretrained=True, classes=1000).state_dict()
    entry = torchvision.models.get_model_weights(name)["IMAGENET1K_V1"]
    try:
        return entry.get_state_dict(progress=True, check_hash=True, weights_only=True)
    except (urllib.error.URLError, OSError) as error:
        raise ConfigError(
            f"the ImageNet weights of {name} could not be fetched ({error}). Download {entry.url} elsewhere "
            f"and pass its path as model.weights, or train from scratch with model.weights = \"none\""
        ) from None


def timm_create(name: str, pretrained: bool = False, classes: int = 0) -> nn.Module:
    "A model of timm without pooling (and without classifier), or a clear refusal."
    try:
        import timm
    except ImportError:
        raise ConfigError(f"timm/{name} needs the package timm, which is not installed: pip install timm") from None
    if not timm.is_model(name.partition(".")[0]):
        raise ConfigError(f"timm has no model {name!r}: {_near_timm(name, timm.list_models())}")
    settings = {"pretrained": pretrained, "num_classes": classes, "global_pool": ""}
    try:
        try:
            # transformers that can then take pictures of any size
            return timm.create_model(name, **settings, dynamic_img_size=True)
        except TypeError:
            return timm.create_model(name, **settings)
    except TypeError as error:
        raise ConfigError(
            f"timm/{name} cannot be used without its own pooling ({reason(error)}); choose another backbone"
        ) from None
    # an unknown tag; or the hub's client, which raises its own kinds when it has no connection
    except Exception as error:
        if pretrained and "tag" not in str(error):
            raise ConfigError(
                f"the weights of timm/{name} could not be fetched ({reason(error)}). Download them elsewhere and pass "
                f"their path as "
                "model.weights, or train from scratch with model.weights = \"none\""
            ) from None
        raise ConfigError(f"timm/{name}: {reason(error)}") from None


def _near_timm(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else "timm.list_models() lists them"


class TimmFeatures(nn.Module):
    "A timm network as (N, 3, H, W) -> (N, C, h, w)."

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        x = self.net.forward_features(x)
        if x.ndim == 3:  # tokens: the pictures' own, without class tokens and registers
            return x[:, getattr(self.net, "num_prefix_tokens", 0):].transpose(1, 2)[..., None]
        last = getattr(self.net, "output_fmt", "NCHW") == "NHWC"
        return x.permute(0, 3, 1, 2) if last else x


def timm_backbone(config: ModelConfig) -> tuple[nn.Module, int]:
    "A timm network without its classifier, with the weights that are asked for, and the number of its features."
    if config.stem != "imagenet":
        raise ConfigError(
            f"model.stem = {config.stem!r} changes torchvision's ResNets; {config.backbone} keeps its own: set "
            f"model.stem = \"imagenet\""
        )
    net = timm_create(config.backbone.removeprefix("timm/"), config.weights == "imagenet")
    if config.weights not in ("none", "imagenet"):
        net.load_state_dict(
            fitted(
                glyph_stages(config) if config.weights == "glyphs" else read_state(config.weights),
                net.state_dict(), config.weights, config.backbone,
            ),
            strict=False,
        )
    return TimmFeatures(net), net.num_features
