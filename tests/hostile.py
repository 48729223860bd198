"""Hostile arguments for every public callable: what each is called with when all is well, and what stands in the place
of one argument at a time."""

from __future__ import annotations

import contextlib
import inspect
import math
import signal
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

import smoothap_nb as s
from smoothap_nb.train.checkpoints import RunError
from smoothap_nb.train.text import TowersError

with contextlib.suppress(Exception):  # torch imports a good deal at the first such call; that is no time of ours
    torch.ones(2, device="meta").nonzero()

LIMIT = 1.0  # seconds of processor time that a refusal or an answer may take

# Good arguments ------------------------------------------------------------------------------------------------------

_rng = torch.Generator().manual_seed(0)
ROWS = nn.functional.normalize(torch.randn(12, 4, generator=_rng), dim=1)
LABELS = torch.arange(12) // 3
TREE = torch.stack([torch.arange(12) // 6, LABELS], 1)
SCORES = ROWS[:5] @ ROWS[5:].T
RELEVANCE = LABELS[:5, None] == torch.tensor([0, 1, 2, 0, 1, 0, 1])
LEVELS = RELEVANCE.long() * 2 + (~RELEVANCE & (torch.arange(7) > 4))
MAPS = torch.rand(2, 3, 8, 8, generator=_rng)
MANY = torch.arange(24) // 4

COMMON = {
    "scores": SCORES,
    "relevance": RELEVANCE,
    "levels": LEVELS,
    "relevance_values": LEVELS / 2.0,
    "embeddings": ROWS,
    "labels": LABELS,
    "t": SCORES - 0.1,
    "maps": MAPS,
    "lam": 4.0,
    "k": 2,
    "level": 1,
    "guessed": SCORES.abs() + 1,
    "margins": (0.1, 0.2),
    "weights": (0.5, 0.5),
    "ranker": lambda x: (-x).argsort(1).argsort(1) + 1.0 + 0 * x,
    "first": SCORES,
    "second": SCORES.flip(1),
    "wanted": SCORES.flip(1),
}
FUNCTIONS: dict[str, dict] = {
    name: {}
    for name in (
        "ap_at_level ap_from_ranks asi average_precision blackbox_ap blackbox_ranks calibration_loss csl_loss "
        "fast_ap gem_pool h_ap hardest_rank_loss mac_pool map_at_r mean_rank_loss ndcg nt_xent "
        "pairwise_differences pnp precision_at_k precision_recall_curve r_precision ranks recall_at_k "
        "recall_at_k_surrogate recall_loss relevance_from_levels relevance_from_weights rmac_pool smooth_ap "
        "smooth_ap_with_gradient smooth_h_ap smooth_ndcg soft_bin_ap spearman spearman_loss step_lower "
        "step_upper sup_ap sup_ndcg sup_recall contributing_samples cosine_scores levels_from_labels evaluate "
        "evaluate_cross_modal evaluate_neighbours nearest_neighbours query_expansion learn_whitening "
        "score_lists detection_ap loss_from_config load_experiment find_entry check_dataset load_dataset "
        "load_protocols load_run load_towers open_rgb load_captions load_distractors load_revisited "
        "convert_ground_truth annotator_vote "
    ).split()
}
FUNCTIONS |= {
    "learn_whitening": {"descriptors": torch.randn(40, 4, generator=_rng)},
    "query_expansion": {"queries": ROWS[:3], "gallery": ROWS[3:], "top": 3},
    "evaluate_cross_modal": {"images": ROWS, "texts": ROWS.flip(0), "relevance": torch.eye(12).bool()},
    "evaluate_neighbours": {"neighbours": (np.arange(12)[:, None] + np.array([[1, 2, 3]])) % 12, "metrics": ("R@1",)},
    "nearest_neighbours": {"embeddings": ROWS, "k": 2, "progress": False},
    "evaluate": {"embeddings": ROWS, "metrics": ("mAP", "R@1")},
    "score_lists": {"count": 3, "length": 5},
    "detection_ap": {
        "predictions": [
            {"boxes": torch.tensor([[0.0, 0, 1, 1]]), "labels": torch.tensor([1]), "scores": torch.tensor([0.5])}
        ],
        "targets": [{"boxes": torch.tensor([[0.0, 0, 1, 1]]), "labels": torch.tensor([1])}],
        "classes": 2,
    },
    "loss_from_config": {"settings": {"name": "smooth_ap"}},
    "load_experiment": {"name": "demo"},
    "find_entry": {"name": "sop/smooth-ap-bs384"},
    "check_dataset": {"name": "nowhere"},
    "load_dataset": {"name": "sop", "root": "/nowhere"},
    "load_protocols": {"name": "sop", "root": "/nowhere"},
    "load_run": {"path": "/nowhere"},
    "load_towers": {"folder": "/nowhere"},
    "open_rgb": {"path": "/nowhere"},
    "load_captions": {"name": "coco", "root": "/nowhere"},
    "load_distractors": {"root": "/nowhere"},
    "load_revisited": {"root": "/nowhere"},
    "convert_ground_truth": {"source": "/nowhere"},
    "annotator_vote": {"answers": ["good"] * 3},
}
CLASSES: dict[str, dict] = {
    name: {}
    for name in (
        "SmoothAPLoss FastAPLoss RecallLoss BlackboxAPLoss SupAPLoss SoftBinAPLoss CalibrationLoss "
        "ROADMAPLoss HAPLoss RecallAtKLoss SupRecallLoss SmoothNDCGLoss SupNDCGLoss PNPLoss SoDeepAPLoss "
        "MapLoss CrossModalLoss StepSettings ImageTransform PhotoTransform LSTMSorter CNNSorter SoDeepRanks "
        "RetrievalMetrics RankingLoss "
    ).split()
}
CLASSES |= {
    "ClusterLoss": {"num_classes": 4, "dim": 4},
    "HAPPIERLoss": {"num_classes": 4, "dim": 4},
    "CSLLoss": {"class_labels": torch.stack([torch.arange(4) // 2, torch.arange(4)], 1), "dim": 4},
    "EmbeddingMemory": {"loss": s.SmoothAPLoss(), "size": 8},
    "ScoreMemory": {"length": 8},
    "Objective": {"settings": {"name": "smooth_ap"}},
    "MPerClassSampler": {"labels": MANY, "classes": 2, "images": 2},
    "OfficialMPerClassSampler": {"labels": MANY, "classes": 2, "images": 2},
    "HierarchicalSampler": {"labels": torch.stack([MANY // 3, MANY], 1), "classes": 2, "images": 2, "super_classes": 2},
    "SuperPairSampler": {"labels": torch.stack([MANY // 2, MANY], 1), "batch": 8},
    "RandomSuperPairSampler": {
        "labels": torch.stack([MANY // 2, MANY], 1),
        "classes": 2,
        "images": 2,
        "super_classes": 2,
    },
}
FORWARD = {  # modules that are called with (embeddings, labels)
    name: {}
    for name in CLASSES
    if name.endswith("Loss") and name not in ("MapLoss", "CrossModalLoss", "RankingLoss", "StepSettings")
} | {"EmbeddingMemory": {}, "Objective": {}}
OTHERWISE = {  # why -> what is not called here
    "lesson 19's own tests hold them": (
        "ASMKIndex Codebook load_town local_features vlad verify hamming_query_expansion diffuse spoc_pool crow_pool "
        "NetVLAD "
    ),
    "they take data sets and folders; tests/data holds them": (
        "DecodedCache ImageSet Prefetcher Protocol evaluate_protocols PictureSet RetrievalDataset "
    ),
    "settings of the configuration, which is checked as a whole (tests/train/test_config.py)": (
        "EmbeddingModel TwoTowers Experiment GlyphCaptions GlyphPages VOCFolder "
    ),
    "they draw": ("RankLab rank_lab explore live_figures ranked_row batch_picture "),
    "they train or run networks": (
        "RankedRoIHeads small_detector voc_detector train_detector train_sorter cached_backward extract_descriptors "
    ),
    "reports of our own making, and their inputs": (
        "registry paper_rows reproduce reproduction_page glyph_batch "
        "glyph_statistics distractor_scores evaluate_revisited search_words batch_statistics "
    ),
    "they draw the embedded pictures, or write files (tests/data)": ("Glyphs make_miniature "),
    "alone it hands its rows back; with others see tests/train/test_loop.py": ("gather_rows "),
    "no function": ("DATASETS PhotoError "),
}


# Hostile values ------------------------------------------------------------------------------------------------------

BARE = {
    "dtype",
    "device",
    "generator",
    "say",
    "transform",
}  # kinds of torch and functions of the caller, which are handed on

NUMBERS = [math.nan, math.inf, -math.inf, -1, 0, 2.0, 0.5, True, 2**62, 10**20, 1e300, 1e-300, 1e12, np.float64("nan")]
PAIR = torch.tensor([1.0, math.nan])
THINGS = ["x", b"x", object(), [], {}, (), 3 + 4j, None, [1, "a"], lambda: None]


def tensors(like: Tensor) -> list:
    "What may come in the place of a tensor."
    real = like.detach().float().clone()
    out = [
        like[:0],
        like[:, :0] if like.ndim > 1 else like[:1],
        like[None],
        like.flatten(),
        like[0],
        torch.tensor(1.0),
        real * math.nan,
        real + math.inf,
        real * 1e30,
        real.half(),
        real.double(),
        real.to(torch.complex64),
        real > 0,
        like.to(torch.uint8) if not like.is_floating_point() else real.int(),
        real.long() - 5,
        real.long() + 2**62,
        real.abs().long().to(torch.uint64),
        like.to("meta"),
        real.clone().requires_grad_(),
        like.numpy(),
        like.tolist(),
        real.to_sparse(),
    ]
    return out


def hostile(value, default) -> list:
    "Values for one argument, by what is good for it."
    if isinstance(value, Tensor):
        return tensors(value) + THINGS + [1.0]
    return NUMBERS + THINGS + [PAIR]


def rightly(key: str, bad) -> bool:
    "What looks hostile and is none: a function of the caller fails in its own words; an absent item's gap is infinite."
    if key in ("ranker", "whitening"):
        return callable(bad)
    plain = isinstance(bad, Tensor) and bad.layout == torch.strided and bad.device.type == "cpu"
    return key == "t" and plain and bool(bad.isinf().any())


# Calls ---------------------------------------------------------------------------------------------------------------


class TooLong(BaseException):
    "A call took longer than LIMIT."


def _late(*_):
    raise TooLong


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    before = signal.signal(signal.SIGPROF, _late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


REFUSALS = (TypeError, ValueError, OSError, RunError, TowersError)


def numbers_in(value) -> Iterator[Tensor]:
    "All floating-point numbers in a result."
    if isinstance(value, Tensor) and value.is_floating_point():
        yield value.detach()
    elif isinstance(value, np.ndarray) and value.dtype.kind == "f":
        yield torch.from_numpy(value)
    elif isinstance(value, float):
        yield torch.tensor(value)
    elif isinstance(value, dict):
        for one in value.values():
            yield from numbers_in(one)
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from numbers_in(one)


def verdict(call: Callable, what: str, may_be_nan: bool, names: tuple[str, ...]) -> str | None:
    "What is wrong with how a call ends, or None."
    try:
        with within(LIMIT), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = call()
    except TooLong:
        return f"longer than {LIMIT} s"
    except REFUSALS as error:
        text = str(error)
        if len(text.strip().splitlines()) != 1:
            return f"{type(error).__name__} of {len(text.splitlines())} lines: {text[:80]!r}"
        if not any(name in text for name in names) and "/nowhere" not in text:
            return f"{type(error).__name__} does not name {what}: {text[:110]}"
        return None
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:110]}"
    for value in numbers_in(result):
        if value.device.type == "meta" or value.layout != torch.strided:
            return f"a result that holds no numbers: {value.device.type}, {value.layout}"
        if not (torch.isfinite(value) | (may_be_nan & value.isnan())).all():
            return f"a result that is not finite: {value.flatten()[:4].tolist()}"
    return None


ALIASES = {  # words by which a refusal may call an argument
    "metrics": ("metric",),
    "embeddings": ("embedding", "rows"),
    "path": ("path", "run"),
    "root": ("root", "folder"),
    "memory": ("length", "size"),
    "labels": ("labels", "classes"),
    "images": ("images", "relevance"),
    "texts": ("texts", "ref_emb"),
    "settings": ("settings", "loss"),
    "guessed": ("guessed", "scores"),
    "per_pair": ("per_pair", "batches"),
    "scores": ("scores", "wanted"),
    "first": ("first", "second"),
}


def cases(which: str | None = None) -> Iterator[tuple[str, str, int, Callable, bool, tuple[str, ...]]]:
    "(callable, argument, number of the hostile value, call, whether NaN is in its contract, names for the argument)."
    for name, own in (FUNCTIONS | CLASSES).items():
        if which and name != which:
            continue
        target = getattr(s, name)
        good = {}
        parameters = {
            k: p
            for k, p in inspect.signature(target).parameters.items()
            if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        }
        for key in parameters:
            if key in own:
                good[key] = own[key]
            elif parameters[key].default is inspect.Parameter.empty:
                good[key] = COMMON[key]
        if name == "csl_loss":
            good["levels"] = LEVELS
        for key, parameter in parameters.items():
            if key in BARE or isinstance(parameter.default, bool):  # a switch is on for all that Python takes for true
                continue
            for number, bad in enumerate(hostile(good.get(key, parameter.default), parameter.default)):
                if bad is parameter.default or (bad is None and parameter.default is None) or rightly(key, bad):
                    continue
                call = lambda target=target, good=good, key=key, bad=bad: target(**{**good, key: bad})
                yield (
                    name,
                    key,
                    number,
                    call,
                    name in FUNCTIONS,
                    (
                        key,
                        *ALIASES.get(key, ()),
                        f"{bad!r}" if not isinstance(bad, (Tensor, np.ndarray)) or bad is PAIR else key,
                        bad if isinstance(bad, str) else key,
                    ),
                )
    for name, own in FORWARD.items():
        if which and name != which:
            continue
        tree = name in ("HAPLoss", "HAPPIERLoss", "CSLLoss", "SmoothNDCGLoss", "SupNDCGLoss")
        given = {"embeddings": ROWS, "labels": TREE if tree else LABELS if name != "Objective" else TREE}
        if name not in ("Objective", "CalibrationLoss", "ClusterLoss", "CSLLoss", "EmbeddingMemory"):
            given |= {"ref_emb": ROWS.flip(0), "ref_labels": given["labels"].flip(0)}
        for key in given:
            for number, bad in enumerate(tensors(given[key]) + THINGS):
                if bad is None and key.startswith("ref"):
                    continue

                def call(name=name, key=key, bad=bad, given=given):
                    return getattr(s, name)(**CLASSES[name])(**{**given, key: bad})

                yield name + ".forward", key, number, call, False, (key, *ALIASES.get(key, ()))
