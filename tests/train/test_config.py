"Experiment files: each one loads, round trips, and a wrong key or value is named."

import tomllib

import pytest
import torch

from smoothap_nb.checks import ConfigError
from smoothap_nb.data.interface import DatasetError
from smoothap_nb.train.config import (
    Experiment, experiment_from_dict, experiment_names, load_experiment, parse_setting, to_toml,
)
from smoothap_nb.train.setup import dataset_for


@pytest.mark.parametrize("name", experiment_names())
def test_every_experiment_loads_and_round_trips(name):
    experiment = load_experiment(name)
    assert experiment.description, f"{name} does not say what it is"
    assert experiment_from_dict(tomllib.loads(to_toml(experiment))) == experiment
    if experiment.on_cuda != "none":
        assert experiment.on_cuda in experiment_names()


def test_a_file_loads_too(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("seed = 7\n[optim]\nlr = 1\n")
    experiment = load_experiment(
        str(path), ["optim.steps=12", "model.backbone=resnet18", "evaluate.metrics=['mAP']", "loss.tau=0.02"]
    )
    assert (experiment.name, experiment.seed, experiment.optim.lr, experiment.optim.steps) == ("mine", 7, 1.0, 12)
    assert (
        experiment.model.backbone == "resnet18"
        and experiment.evaluate.metrics == ["mAP"]
        and experiment.loss["tau"] == 0.02
    )


@pytest.mark.parametrize("values, says", [
    ({"optim": {"stepps": 3}}, "unknown setting 'optim.stepps': did you mean 'steps'"),
    ({"optm": {}}, "did you mean 'optim'"),
    ({"optim": 3}, "group of settings"),
    ({"optim": {"lr": "fast"}}, "optim.lr must be a number"),
    ({"optim": {"steps": 2.5}}, "optim.steps must be int"),
    ({"optim": {"steps": True}}, "optim.steps must be int"),
    ({"optim": {"steps": 0}}, "at least 1"),
    ({"optim": {"lr": 0}}, "above 0"),
    ({"optim": {"lr": float("nan")}}, "optim.lr must be a finite number, got nan"),
    ({"optim": {"schedule": "cosin"}}, "did you mean 'cosine'"),
    ({"model": {"stem": "tiny"}}, "model.stem"),
    ({"batch": {"classes": 1}}, "at least 2"),
])
def test_a_wrong_setting_is_named(values, says):
    with pytest.raises(ConfigError, match=says.replace("'", ".")):
        experiment_from_dict(values)


@pytest.mark.parametrize("name, says", [("dmo", "did you mean 'demo'"), ("no/such.toml", "no file")])
def test_an_unknown_experiment_is_named(name, says):
    with pytest.raises(ConfigError, match=says):
        load_experiment(name)


def test_broken_files_are_named(tmp_path):
    (tmp_path / "a.toml").write_text("x = [1,")
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "c.toml").mkdir()
    for name, says in (("a", "not valid TOML"), ("b", "not valid TOML"), ("c", "is a folder")):
        with pytest.raises(ConfigError, match=says):
            load_experiment(str(tmp_path / f"{name}.toml"))


def test_settings_on_the_command_line():
    assert parse_setting("a.b=3e-4") == (["a", "b"], 3e-4)
    assert parse_setting("a=word") == (["a"], "word")
    with pytest.raises(ConfigError, match="key=value"):
        parse_setting("optim.lr")
    with pytest.raises(ConfigError, match="single setting"):
        load_experiment("demo", ["name.x=3"])


def test_defaults_are_a_valid_experiment():
    assert experiment_from_dict({}) == Experiment()
    assert Experiment().model.backbone == "resnet50"


def test_the_data_set_says_which_settings_fit():
    with pytest.raises(DatasetError, match="did you mean 'glyphs'"):
        experiment_from_dict({"data": {"name": "glyfs"}})
    with pytest.raises(ConfigError, match="data.resize"):
        experiment_from_dict({"data": {"name": "cub", "size": 224, "resize": 200}})
    small = {"size": 96, "resize": 32}  # glyphs are drawn in their size, and never cropped
    assert experiment_from_dict({"data": {"name": "glyphs"} | small}).data.size == 96


def test_glyphs_are_the_same_pictures_for_every_seed_and_need_no_decoded_cache(tmp_path):
    pictures = experiment_from_dict({"data": {"size": 16, "cache": str(tmp_path / "cache")}}).data
    one, two = (dataset_for(pictures, "train", seed) for seed in (0, 7))
    assert torch.equal(one.batch(range(8), 3)[0], two.batch(range(8), 3)[0])
    assert not (tmp_path / "cache").exists() and one.classes_called == "characters"
