"Search by local features, as a function and as a command."

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from smoothap_nb.data.town_houses import catalogue
from smoothap_nb.data.town_streets import make_street, photograph
from smoothap_nb.retrieval.by_features import LocalHit, search_local
from smoothap_nb.retrieval.sheets import draw_sheet


@pytest.fixture(scope="module")
def album(tmp_path_factory):
    "Two views of each of four houses, a blank sheet and a file that is no picture."
    folder = tmp_path_factory.mktemp("album")
    for house in range(4):
        street = make_street(11, 0, house, catalogue(11))
        for view in range(2):
            picture = photograph(street, np.random.default_rng([house, view]), 0.0)[0]
            Image.fromarray(picture).save(folder / f"{house}-{view}.png")
    Image.new("RGB", (90, 90), "white").save(folder / "blank.png")
    (folder / "broken.jpg").write_bytes(b"no picture")
    return folder


def test_the_other_view_comes_second(album, tmp_path):
    told = []
    for house in range(4):
        hits = search_local(album / f"{house}-0.png", album, k=3, cache=tmp_path, progress=False, notify=told.append)
        assert [h.path.name for h in hits[:2]] == [f"{house}-0.png", f"{house}-1.png"]
        assert hits[0].inliers >= hits[1].inliers > hits[2].inliers
    assert any("broken.jpg" in line for line in told)
    assert len(list(tmp_path.glob("*.safetensors"))) == 9


def test_what_cannot_be_searched(album, tmp_path):
    with pytest.raises(ValueError, match="no local features"):
        search_local(album / "blank.png", album, progress=False)
    Image.new("RGB", (50, 50)).save(tmp_path / "only.png")
    with pytest.raises(ValueError, match="no picture in"):
        search_local(album / "0-0.png", tmp_path, progress=False)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no picture in .*empty"):
        search_local(album / "0-0.png", tmp_path / "empty", progress=False)
    with pytest.raises(FileNotFoundError):
        search_local(album / "missing.png", album, progress=False)


def test_a_sheet_says_what_the_order_is_by(album):
    hits = [LocalHit(album / "0-0.png", 31, 0.011), LocalHit(album / "0-1.png", 12, 0.018)]
    titles = [ax.get_title() for ax in draw_sheet(album / "0-0.png", hits).axes]
    assert titles == ["query", "1:  31 points", "2:  12 points"]


def test_the_command(album, tmp_path):
    run = lambda *a: subprocess.run(  # noqa: E731
        [sys.executable, "-m", "smoothap_nb.cli", "search", *a], capture_output=True, text=True,
        env={**__import__("os").environ, "SMOOTHAP_DATA": str(tmp_path)},
    )
    sheet = tmp_path / "sheet.png"
    done = run(str(album / "2-0.png"), "--gallery", str(album), "--local", "--quiet", "--sheet", str(sheet))
    assert done.returncode == 0 and sheet.is_file(), done.stderr
    lines = done.stdout.splitlines()
    assert "2-0.png" in lines[0] and "2-1.png" in lines[1] and "points agree" in lines[0]
    wrong = run(str(album / "2-0.png"), "--gallery", str(album), "--local", "--run", "x")
    assert wrong.returncode == 2 and "leave out --run" in wrong.stderr
    neither = run(str(album / "2-0.png"), "--gallery", str(album))
    assert neither.returncode == 2 and "--local" in neither.stderr
