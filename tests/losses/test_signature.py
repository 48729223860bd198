"Settings of all losses: another library's names are refused with ours, and the repr shows what was set."

import copy
import pickle

import pytest
import torch

import smoothap_nb
from smoothap_nb import RankingLoss
from smoothap_nb.losses.signature import LossModule, settings_of

LOSSES = sorted(
    name
    for name, home in sorted(smoothap_nb._HOME.items())
    if home.startswith("losses.")  # other packages need extras
    and isinstance(getattr(smoothap_nb, name), type)
    and issubclass(getattr(smoothap_nb, name), LossModule)
)
NEEDED = {
    "ClusterLoss": {"num_classes": 5, "dim": 3},
    "HAPPIERLoss": {"num_classes": 5, "dim": 3},
    "CSLLoss": {"class_labels": torch.tensor([[0, 0], [0, 1]]), "dim": 3},
    "EmbeddingMemory": {"loss": smoothap_nb.SmoothAPLoss(), "size": 3},
}
OTHER = {  # a value that is nobody's default
    "ks": (1, 7), "temperature": 0.625, "tau": 0.0625, "rho": 7.0, "delta": 0.125, "offset": 1.44, "start": 0.25,
    "ties": ("max", "min"), "variant": "Ds", "b": 3.5, "alpha": 1.75, "lam": 3.25, "margin": 0.375,
    "weight": ("log", 0.3), "reduction": "positives", "scale": ("rows", 3.0), "memory": 3,
    "noise": True, "eps": 0.125, "interclass": 0.75,
    "pos_margin": 0.8125, "neg_margin": 0.4375, "sup_ap_weight": 0.75, "calibration_weight": 0.6875, "bins": 13,
    "centres": 17, "weights": (1.0, 3.0), "leak": 9.5, "slope": 24.5, "intercept": 0.875, "smooth_hrank": False,
    "cluster_weight": 0.25, "margins": (0.5, 0.25), "include_query": True, "normalize": False, "validate": True,
    "standardize": False, "loss": "nt_xent", "size": 9, "num_classes": 7, "dim": 9,
}
SHOWN_BY_A_PART = {"memory": "length"}
CASES = [
    (name, setting)
    for name in LOSSES
    if name != "RankingLoss"
    for setting, parameter in settings_of(getattr(smoothap_nb, name)).items()
    if setting not in ("path", "class_labels") and not (name == "EmbeddingMemory" and setting == "loss")
]


@pytest.mark.parametrize("name, setting", CASES, ids=lambda x: x)
def test_repr_shows_every_setting_that_was_set(name, setting):
    kind, needed = getattr(smoothap_nb, name), NEEDED.get(name, {})
    if name == "CrossModalLoss":
        needed = {"loss": "nt_xent" if setting == "tau" else "triplet"} if setting in ("tau", "margin") else {}
    values = OTHER[setting] if setting in ("ties", "weight", "scale") else (OTHER[setting],)
    values = [value for value in values if value != settings_of(kind)[setting].default]
    for value in values:
        try:
            loss = kind(**{**needed, setting: value})
            break
        except (ValueError, TypeError):
            continue
    else:
        pytest.fail(f"{name} takes none of {values} as {setting}")
    text = repr(loss)
    shown = repr(value) if setting == "loss" else f"{SHOWN_BY_A_PART.get(setting, setting)}={value!r}"
    assert shown in text, text
    assert text != repr(kind(**needed))


def test_repr_leaves_defaults_out_and_follows_a_change():
    loss = smoothap_nb.SupAPLoss(offset=1.44)
    assert repr(loss) == "SupAPLoss(tau=0.01, offset=1.44)" and repr(smoothap_nb.SupAPLoss()) == "SupAPLoss(tau=0.01)"
    smooth = smoothap_nb.SmoothAPLoss()
    smooth.tau = 0.5
    assert repr(smooth) == "SmoothAPLoss(tau=0.5)" and repr(copy.deepcopy(smooth)) == repr(smooth)
    assert repr(pickle.loads(pickle.dumps(smooth))) == repr(smooth)
    assert "classes=2, dim=3" in repr(smoothap_nb.CSLLoss(**NEEDED["CSLLoss"]))


def test_a_subclass_that_passes_keywords_on_shows_both_kinds():
    class Mine(RankingLoss):
        def __init__(self, power: float = 2, **shared):
            super().__init__(**shared)
            self.power = power

    assert repr(Mine(3, normalize=False)) == "Mine(power=3, normalize=False)"
    with pytest.raises(TypeError, match="unexpected keyword"):
        Mine(tau=3)


@pytest.mark.parametrize(
    "name, theirs, ours",
    [
        ("SmoothAPLoss", "temperature", "tau"),
        ("SmoothAPLoss", "anneal", "tau"),
        ("FastAPLoss", "num_bins", "bins"),
        ("SoftBinAPLoss", "nq", "centres"),
        ("PNPLoss", "anneal", "tau"),
        ("RecallLoss", "lambda_val", "lam"),
        ("RecallLoss", "weight_fn", "weight"),
        ("BlackboxAPLoss", "lambda_val", "lam"),
        ("MapLoss", "interclass_coef", "interclass"),
        ("MapLoss", "batch_memory", "memory"),
        ("HAPLoss", "beta", "slope"),
        ("HAPLoss", "gamma", "intercept"),
        ("ClusterLoss", "embedding_size", "dim"),
        ("RecallAtKLoss", "k_vals", "ks"),
        ("EmbeddingMemory", "memory_size", "size"),
        ("CrossModalLoss", "temperature", "tau"),
    ],
)
def test_another_name_is_refused_with_ours(name, theirs, ours):
    with pytest.raises(TypeError, match=f"{name} has no '{theirs}': it is called '{ours}' here"):
        getattr(smoothap_nb, name)(**NEEDED.get(name, {}), **{theirs: 1})


@pytest.mark.parametrize(
    "theirs, reason",
    [
        ("reducer", "PMLLoss"),
        ("distance", "cosine"),
        ("batch_size", "from the batch"),
        ("embedding_size", "from the batch"),
    ],
)
def test_what_is_not_there_is_refused_with_the_reason(theirs, reason):
    with pytest.raises(TypeError, match=reason):
        smoothap_nb.SmoothAPLoss(**{theirs: None})
    with pytest.raises(TypeError, match="unexpected keyword argument 'temprature'"):
        smoothap_nb.SmoothAPLoss(temprature=1)
