"The house itself: modules in sync, lessons run, the import is light, the wheel works alone."

import ast
import configparser
import subprocess
import sys
import venv
from pathlib import Path

import nbformat
import pytest

import smoothap_nb

ROOT = Path(__file__).resolve().parents[2]
import notebooks

LESSONS = notebooks.notebooks()


def run_python(code: str, **kwargs) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, **kwargs)


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
def test_lesson_runs_in_a_fresh_kernel(path):
    nb = notebooks.run(path, save=False)
    for number, cell in enumerate(nb.cells):
        for output in cell.get("outputs", []):
            assert output.get("name") != "stderr", f"cell {number} of {path.name} writes to stderr: {output['text'][:300]}"


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
def test_lesson_is_fit_to_commit(path):
    nb = nbformat.read(path, as_version=4)
    assert path.stat().st_size < 1_500_000, f"{path.name} is {path.stat().st_size} bytes: draw fewer or smaller frames"
    assert nb.cells[0].cell_type == "markdown" and nb.cells[0].source.startswith(f"# {path.stem.partition('_')[0]} ")
    assert "widgets" not in nb.metadata, f"{path.name} keeps widget state"
    for cell in nb.cells:
        for output in cell.get("outputs", []):
            assert output.output_type != "error", f"{path.name} was committed with an error: {output.evalue}"
            if "image/png" in output.get("data", {}):
                assert output.metadata.get("image/png", {}).get("alt"), f"a picture in {path.name} has no alt text: show it with figures.show"


def test_modules_in_sync_and_notebooks_clean():
    assert notebooks.differences() == []


def test_every_public_name_exists_and_is_documented():
    for name in smoothap_nb.__all__:
        assert (getattr(smoothap_nb, name).__doc__ or "").strip(), f"{name} has no docstring"


def test_unknown_attribute_names_itself():
    with pytest.raises(AttributeError, match="no_such_thing"):
        smoothap_nb.no_such_thing


def test_version_has_one_value():
    cfg = configparser.ConfigParser(interpolation=None)
    cfg.read(ROOT / "settings.ini")
    assert smoothap_nb.__version__ == cfg["DEFAULT"]["version"]


def test_import_is_light_and_needs_no_tools():
    code = """
import sys, importlib.abc
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
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert ast.literal_eval(done.stdout) == ["smoothap_nb"], "import smoothap_nb loads more than itself"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_wheel_works_in_a_clean_environment(tmp_path, monkeypatch):
    "The wheel holds what a user needs: modules, experiments, data. The environment sees torch and the runtime packages, not the tree."
    monkeypatch.delenv("PYTHONPATH", raising=False)
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(ROOT)],
                   check=True, capture_output=True, cwd=tmp_path)
    wheel, = (tmp_path / "dist").glob("*.whl")
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
    listed = subprocess.run([str(tmp_path / "env/bin/smoothap"), "experiments"], capture_output=True, text=True, cwd=tmp_path)
    assert listed.returncode == 0 and "demo" in listed.stdout, listed.stderr


def test_readme_numbers_come_from_results():
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "results.py"), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_readme_links_lead_somewhere():
    import re

    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", (ROOT / name).read_text(encoding="utf-8")):
            assert (ROOT / target).exists(), f"{name} links to {target}, which does not exist"


def test_site_lists_every_page_once():
    import re

    text = (ROOT / "_quarto.yml").read_text(encoding="utf-8")
    listed = re.findall(r"^\s+- ((?:nbs|docs)/[\w.]+\.(?:ipynb|md))$", text, re.M)
    there = [f"nbs/{p.name}" for p in LESSONS] + [f"docs/{p.name}" for p in sorted((ROOT / "docs").glob("*.md"))]
    assert sorted(listed) == sorted(there)
