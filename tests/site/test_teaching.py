"""What the teacher's guide says about timings and slides."""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
import teaching


def test_every_figure_of_the_lessons_becomes_a_slide(tmp_path):
    count = teaching.slides(tmp_path / "slides")
    pictures = list((tmp_path / "slides").glob("*.png"))
    index = (tmp_path / "slides" / "index.md").read_text(encoding="utf-8")
    assert count == len(pictures) > 50 and all(p.name in index for p in pictures)
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in pictures)


def test_timings_cover_every_set_and_keep_the_promise():
    found = json.loads(teaching.RESULT.read_text(encoding="utf-8"))
    times = {name: seconds for name, seconds in found["cpu_seconds"].items() if name.startswith("set")}
    assert set(times) == {name for name in teaching.notebooks() if name.startswith("set")}
    assert max(times.values()) < 60, "a set runs top to bottom in less than a minute"
    assert found["environment"]["hardware"] and found["date"] and found["command"]
