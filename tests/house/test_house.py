"The house itself: modules in sync, lessons run, the import is light, the wheel works alone."

import ast
import configparser
import json
import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import smoothap_nb
from smoothap_nb import extras

ROOT = Path(__file__).resolve().parents[2]
import notebooks
from clean import run_clean

LESSONS = notebooks.notebooks()


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
def test_lesson_runs_in_a_fresh_kernel(path):
    nb = notebooks.run(path, save=False, manager="warm_kernels.WarmKernelManager")
    for number, cell in enumerate(nb.cells):
        for output in cell.get("outputs", []):
            assert output.get("name") != "stderr", (
                f"cell {number} of {path.name} writes to stderr: {output['text'][:300]}"
            )


def test_modules_in_sync_and_notebooks_clean():
    assert notebooks.differences() == []


def test_every_public_name_exists_and_is_documented():
    for name in smoothap_nb.__all__:
        assert (getattr(smoothap_nb, name).__doc__ or "").strip(), f"{name} has no docstring"


NAMES_OF_0_1 = """
BlackboxAPLoss CNNSorter CSLLoss CalibrationLoss ClusterLoss CrossModalLoss DATASETS DecodedCache
EmbeddingMemory EmbeddingModel Experiment FastAPLoss GlyphCaptions GlyphPages Glyphs HAPLoss HAPPIERLoss
HierarchicalSampler ImageSet ImageTransform LSTMSorter MPerClassSampler MapLoss Objective
OfficialMPerClassSampler PNPLoss PhotoError PhotoTransform PictureSet Prefetcher Protocol ROADMAPLoss
RandomSuperPairSampler RankLab RankedRoIHeads RankingLoss RecallAtKLoss RecallLoss RetrievalDataset
RetrievalMetrics ScoreMemory SmoothAPLoss SmoothNDCGLoss SoDeepAPLoss SoDeepRanks SoftBinAPLoss StepSettings
SupAPLoss SupNDCGLoss SupRecallLoss SuperPairSampler TwoTowers VOCFolder annotator_vote ap_at_level
ap_from_ranks asi average_precision batch_picture batch_statistics blackbox_ap blackbox_ranks cached_backward
calibration_loss check_dataset contributing_samples convert_ground_truth cosine_scores
csl_loss detection_ap distractor_scores evaluate evaluate_cross_modal evaluate_neighbours evaluate_protocols
evaluate_revisited explore extract_descriptors fast_ap find_entry gather_rows gem_pool glyph_batch
glyph_statistics h_ap hardest_rank_loss learn_whitening levels_from_labels live_figures load_captions
load_dataset load_distractors load_experiment load_protocols load_revisited load_run load_towers
loss_from_config mac_pool make_miniature map_at_r mean_rank_loss ndcg nearest_neighbours nt_xent open_rgb
pairwise_differences paper_rows pnp precision_at_k precision_recall_curve query_expansion r_precision rank_lab
ranked_row ranks recall_at_k recall_at_k_surrogate recall_loss registry relevance_from_levels
relevance_from_weights reproduce reproduction_page rmac_pool score_lists search_words small_detector smooth_ap
smooth_ap_with_gradient smooth_h_ap smooth_ndcg soft_bin_ap spearman spearman_loss step_lower step_upper
sup_ap sup_ndcg sup_recall train_detector train_sorter voc_detector
""".split()


GONE = "claims claims_table glyph_grid".split()  # with the reason in CHANGELOG.md


@pytest.mark.filterwarnings("ignore:smoothap_nb.*is now called:DeprecationWarning")
def test_every_name_of_the_version_before_is_still_there():
    for name in NAMES_OF_0_1:
        assert getattr(smoothap_nb, name) is not None
    now = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1]
    assert not [name for name in GONE if name in smoothap_nb.__all__ or f"`{name}`" not in now]


def test_unknown_attribute_names_itself():
    with pytest.raises(AttributeError, match="no_such_thing"):
        smoothap_nb.no_such_thing


def test_settings_of_nbdev_and_of_the_package_say_the_same():
    cfg = configparser.ConfigParser(interpolation=None)
    cfg.read(ROOT / "settings.ini")
    nbdev, project = cfg["DEFAULT"], tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert smoothap_nb.__version__ == nbdev["version"] == project["version"]
    assert nbdev["lib_name"] == project["name"] and nbdev["description"] == project["description"]
    assert nbdev["keywords"].split() == project["keywords"] and f">={nbdev['min_python']}" == project["requires-python"]
    assert nbdev["license"].upper() == project["license"] and nbdev["git_url"] == project["urls"]["Repository"]
    assert [nbdev["author"], nbdev["author_email"]] == [project["authors"][0]["name"], project["authors"][0]["email"]]


def test_import_is_light_and_needs_no_tools():
    code = """
import sys, importlib.abc
import torchvision.ops  # it loads torch's compiler, which looks for every package that it knows: before they are refused
class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in {'ipywidgets', 'anywidget', 'nbdev', 'fastcore', 'pytorch_metric_learning', 'faiss', 'sklearn', 'IPython'}:
            raise ImportError(name + ' is refused here')
sys.meta_path.insert(0, Refuse())
import torch
before = set(sys.modules)
import smoothap_nb
loaded = {m.split('.')[0] for m in set(sys.modules) - before}
for name in smoothap_nb.__all__: getattr(smoothap_nb, name)
print(sorted(loaded))
"""  # noqa: E501
    done = run_clean(code)
    assert done.returncode == 0, done.stderr
    assert ast.literal_eval(done.stdout) == ["smoothap_nb"], "import smoothap_nb loads more than itself"


WITHOUT = """
import sys, importlib.abc
class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in {refused!r}: raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Refuse())
"""
EXTRAS = sorted(extras.EXTRAS)


def test_losses_and_metrics_need_torch_and_numpy_alone():
    "What `pip install smoothap_nb` without extras brings is enough for a loss, a metric and a sampler in somebody's own loop."  # noqa: E501
    done = run_clean(
        WITHOUT.format(refused=EXTRAS)
        + """
import torch, smoothap_nb as s
x, y = torch.randn(12, 8, requires_grad=True), torch.arange(12) // 3
for name in ("SmoothAPLoss", "FastAPLoss", "BlackboxAPLoss", "RecallLoss", "SupAPLoss", "SoftBinAPLoss", "ROADMAPLoss", "CalibrationLoss"):
    getattr(s, name)()(x, y).backward()
s.HAPLoss()(x, torch.stack([y // 2, y], 1)).backward()
s.EmbeddingMemory(s.SmoothAPLoss(), 24)(x, y)
long = torch.randn(1, 40_000, generator=torch.Generator().manual_seed(0), requires_grad=True)
s.blackbox_ap(long, torch.rand(1, 40_000) < .01).sum().backward()
s.MPerClassSampler
print(sorted(s.evaluate(x.detach(), y, metrics=("mAP", "R@1"), progress=False, normalize=True)))
"""  # noqa: E501
    )
    assert done.returncode == 0, done.stderr
    assert "mAP" in done.stdout


@pytest.mark.parametrize(
    ("code", "package", "extra"),
    [
        ("import smoothap_nb; smoothap_nb.Glyphs", "safetensors", "train"),
        ("from smoothap_nb import explore", "matplotlib", "train"),
        ("from smoothap_nb import load_run", "safetensors", "train"),
        ("from smoothap_nb.cli import main; main()", "typer", "cli"),
        ("from smoothap_nb.data.town import *; draw_town('nowhere', SIZES['mini'])", "cv2", "local"),
        ("import numpy, smoothap_nb; smoothap_nb.local_features(numpy.eye(32).astype('uint8'))", "cv2", "local"),
        ("import numpy, smoothap_nb; smoothap_nb.Codebook.learn(numpy.eye(128), 2)", "faiss", "local"),
    ],
)
def test_a_missing_extra_is_named_in_one_line(code, package, extra):
    done = run_clean(WITHOUT.format(refused=[package]) + code)
    assert (
        done.returncode
        and f"needs {package}: pip install 'smoothap_nb[{extra}]'" in done.stderr.strip().splitlines()[-1]
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sdist_gives_a_wheel_that_works_in_a_clean_environment(tmp_path, monkeypatch):
    "Source distribution -> wheel -> install -> import: the environment sees torch and the runtime packages, not the tree."  # noqa: E501
    monkeypatch.delenv("PYTHONPATH", raising=False)
    build = lambda *words: subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path / "dist"), *map(str, words)],
        check=True,
        capture_output=True,
        cwd=tmp_path,
    )
    build("--sdist", ROOT)
    sdist, = (tmp_path / "dist").glob("*.tar.gz")
    subprocess.run(["tar", "-xf", str(sdist), "-C", str(tmp_path)], check=True)
    build("--wheel", tmp_path / sdist.name.removesuffix(".tar.gz"))
    wheel, = (tmp_path / "dist").glob("*.whl")
    held = zipfile.ZipFile(wheel).namelist()
    assert {"smoothap_nb/py.typed", "smoothap_nb/__init__.pyi", "smoothap_nb/experiments/demo.toml",
            "smoothap_nb/train/glyph_stages.safetensors"} <= set(held)
    assert not [
        name
        for name in held
        if name.startswith("tests/") or name.endswith(("_modidx.py", ".ipynb", "hyperparameters.csv"))
    ]
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    # torch and its companions are several GB: lend this environment's own copies behind the clean one's packages
    site = next((tmp_path / "env").glob("lib/python*/site-packages"))
    lent = next(p for p in map(Path, sys.path) if (p / "torch").is_dir())
    (site / "lent.pth").write_text(f"import sys; sys.path.append({str(lent)!r})\n")
    code = """
import pathlib, smoothap_nb, sys
home = pathlib.Path(smoothap_nb.__file__).parent
assert 'env' in home.parts, home
for name in smoothap_nb.__all__: getattr(smoothap_nb, name)
print(home)
"""
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    listed = subprocess.run(
        [str(tmp_path / "env/bin/smoothap"), "experiments"], capture_output=True, text=True, cwd=tmp_path
    )
    assert listed.returncode == 0 and "demo" in listed.stdout, listed.stderr


# --- what editors and type checkers see ------------------------------------------------------------------------------------------  # noqa: E501

def test_the_stub_is_what_the_package_gives():
    import stubs

    assert (ROOT / "smoothap_nb" / "__init__.pyi").read_text(encoding="utf-8") == stubs.stub(), "run make export"


def test_an_editor_completes_a_loss_with_its_signature():
    import jedi

    script = jedi.Script(
        "from smoothap_nb import SmoothAPLoss\nSmoothAPLoss(", path=ROOT / "example.py", project=jedi.Project(ROOT)
    )
    signature, = script.get_signatures(2, 13)
    assert signature.name == "SmoothAPLoss" and "tau" in [p.name for p in signature.params]


@pytest.mark.slow
def test_a_type_checker_has_nothing_to_say():
    "What [tool.pyright] of pyproject.toml includes: no error, no warning."
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] > 40, "pyright did not see the losses and the metrics"
    said = [f"{f['file']}:{f['range']['start']['line'] + 1}: {f['message']}" for f in found["generalDiagnostics"]]
    assert not said, "\n".join(said)


@pytest.mark.slow
def test_a_type_checker_knows_every_public_name(tmp_path):
    names = smoothap_nb.__all__
    (tmp_path / "uses.py").write_text(
        "import smoothap_nb\n" + "".join(f"from smoothap_nb import {n}\nreveal_type({n})\n" for n in names)
    )
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", str(tmp_path / "uses.py")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    assert not [f["message"] for f in found if f["severity"] == "error"]
    unknown = [f["message"] for f in found if f["severity"] == "information" and f["message"].endswith('is "Unknown"')]
    assert not unknown
