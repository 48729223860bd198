"Files that are old or new, never half; and paths that stay inside."

import os
import threading

import pytest

from smoothap_nb.files import OutsideError, inside, replacing, write_atomic


def test_a_file_is_old_or_new(tmp_path):
    path = tmp_path / "x.txt"
    write_atomic(path, "old")
    write_atomic(path, "neu äöü")
    assert path.read_text(encoding="utf-8") == "neu äöü"
    write_atomic(path, b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff" and list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "x.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), replacing(path) as unfinished:
        unfinished.write_text("half")
        raise RuntimeError
    monkeypatch.setattr(os, "replace", lambda *a: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_atomic(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mask, mode", [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_mode_follows_the_umask_whoever_writes(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        write_atomic(tmp_path / "x", "text")
        with replacing(tmp_path / "y") as unfinished:  # a writer that makes its own file, as safetensors does
            other = tmp_path / "other"
            os.close(os.open(other, os.O_CREAT | os.O_WRONLY, 0o600))
            os.replace(other, unfinished)
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in "xy"] == [mode, mode]


def test_weights_follow_the_umask(tmp_path):
    import torch

    from smoothap_nb.train.checkpoints import save_model

    before = os.umask(0o022)
    try:
        save_model(torch.nn.Linear(2, 2), tmp_path)
    finally:
        os.umask(before)
    assert (tmp_path / "model.safetensors").stat().st_mode & 0o777 == 0o644


def test_many_writers_of_one_file(tmp_path):
    path, failures = tmp_path / "x", []

    def write(word):
        try:
            for _ in range(20):
                write_atomic(path, word * 5000, durable=False)
                assert len(set(path.read_text())) == 1
        except BaseException as error:
            failures.append(error)

    writers = [threading.Thread(target=write, args=(word,)) for word in "abc"]
    [w.start() for w in writers], [w.join() for w in writers]
    assert not failures and list(tmp_path.iterdir()) == [path]


def test_inside_follows_links(tmp_path):
    home = tmp_path / "home"
    (home / "in").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    (home / "way").symlink_to(tmp_path / "out")
    (home / "round").symlink_to(home / "in")
    assert (
        inside("in/x", home) == home.resolve() / "in" / "x" == inside(home / "round" / "x", home)
        and inside(".", home) == home.resolve()
    )
    for path in ("../out", "way/x", "/etc/passwd", "in/../../out", str(tmp_path / "homestead")):
        with pytest.raises(OutsideError, match="lies outside of the folder"):
            inside(path, home)
