"Pictures read by processes: the same as by threads, damage counted here, and no child outlives its parent."

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from test_loading import Photos, noise, plan

from benchmarks.pretend import pretended_cuda
from smoothap_nb.data.cache import DecodedCache
from smoothap_nb.data.loading import Prefetcher
from smoothap_nb.data.photographs import DamagedImages, ImageSet
from smoothap_nb.data.processes import CAN_FORK, ReadingProcesses
from smoothap_nb.images import PhotoError

pytestmark = pytest.mark.skipif(not CAN_FORK, reason="threads read here")


@pytest.fixture
def photos(tmp_path):
    return Photos(tmp_path / "photos")


STANDING: list = []  # processes that other tests keep


def children():
    "Processes that a test has started; what multiprocessing keeps for itself (a tracker) is none."
    found = [child for child in psutil.Process().children() if child not in STANDING]
    return [child for child in found if "from multiprocessing." not in " ".join(child.cmdline())]


@pytest.fixture(autouse=True)
def nothing_stays():
    STANDING[:] = psutil.Process().children()
    yield
    assert not children()
    assert not [t for t in threading.enumerate() if t.name.startswith(("reader", "joiner"))]


def first_six(step):
    "Batches that grow: the last ones do not fit into the memory that was shared for the first."
    return plan(step)[0][: 6 + step % 3], step // 3


@pytest.mark.parametrize("which", [plan, first_six])
@pytest.mark.parametrize("workers, ahead", [(1, 1), (2, 2), (5, 3), (16, 1)])
def test_processes_change_nothing(photos, which, workers, ahead):
    batches = list(Prefetcher(photos, which, 7, start=2, workers=workers, ahead=ahead, processes=True))
    threads = list(Prefetcher(photos, which, 7, start=2, workers=2))
    assert len(batches) == len(threads) == 5
    for one, other in zip(batches, threads):
        assert torch.equal(one.images, other.images) and torch.equal(one.labels, other.labels)
        assert one.indices.tolist() == other.indices.tolist() and one.epoch == other.epoch


def test_ranks_caches_and_other_transforms(tmp_path, photos):
    parts = [list(Prefetcher(photos, plan, 2, rank=rank, world=3, processes=True)) for rank in range(3)]
    assert torch.equal(torch.cat([part[1].images for part in parts]), photos.batch(plan(1)[0], 1)[0])
    cache = DecodedCache(photos, tmp_path / "cache", side=40, progress=False)
    photos.transform = lambda photo, identity, draw: torch.full((1, 2, 2), float(identity))
    for data in (cache, photos):
        with Prefetcher(data, plan, 1, processes=True) as batches:
            assert torch.equal(next(iter(batches)).images, data.batch(plan(0)[0], 1)[0])


def test_a_card_asks_for_processes_where_files_are_read(tmp_path, photos, monkeypatch):
    seen, fork = [], os.fork
    monkeypatch.setattr(os, "fork", lambda: seen.append(1) or fork())
    cache, wanted = DecodedCache(photos, tmp_path / "cache", side=40, progress=False), photos.batch(plan(0)[0], 1)[0]
    for data, device, asked, count in ((photos, "cuda", None, 2), (photos, "cuda", False, 0), (photos, None, None, 0)):
        del seen[:]
        with pretended_cuda():
            batch = next(iter(ahead := Prefetcher(data, plan, 2, workers=2, device=device, processes=asked)))
            ahead.close()
            assert batch.images.is_cuda == batch.labels.is_cuda == (device == "cuda") and len(seen) == count
            assert torch.equal(batch.images.cpu(), wanted)
    with pretended_cuda():
        squares = [batch.images.cpu() for batch in Prefetcher(cache, plan, 3, workers=4, device="cuda")]
        assert not seen
        forced = [batch.images.cpu() for batch in Prefetcher(cache, plan, 3, device="cuda", processes=True)]
    for step, (one, other) in enumerate(zip(squares, forced)):
        wanted = cache.batch(plan(step)[0], plan(step)[1] + 1)[0]
        assert torch.equal(one, wanted) and torch.equal(other, wanted)


def spoilt(folder, share, which=(4, 10, 11)):
    good = Photos(folder)
    for i in which:
        good.paths[i].write_bytes(b"no picture")
    return ImageSet(folder, good.relative, good.labels, ["class"], transform=good.transform, damaged_share=share)


def test_damage_is_counted_here_once_each(tmp_path):
    data, apart = spoilt(tmp_path, 0.5), spoilt(tmp_path, 0.5)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        batches = list(Prefetcher(data, plan, 9, workers=3, processes=True))
    found = sorted(str(w.message) for w in said if "takes its place" in str(w.message))
    assert len(found) == 3 and all(name in text for name, text in zip(("004", "010", "011"), found))
    assert sum("(3 of 30 so far)" in text for text in found) == 1
    with pytest.warns(UserWarning):
        threads = list(Prefetcher(apart, plan, 9, workers=3))
    assert data.damaged == apart.damaged and len(data.damaged) == 3
    assert all(torch.equal(one.images, other.images) for one, other in zip(batches, threads))


@pytest.mark.filterwarnings("ignore:.*takes its place")
def test_too_much_damage_stops_here_though_each_child_found_less(tmp_path):
    data = spoilt(tmp_path, 2 / 30)
    ones = lambda step: (np.array([0, [4, 10, 11][step % 3]]), 0)
    with pytest.raises(DamagedImages, match=r"3 of 30 pictures of images are missing or damaged, .*data.damaged_share"):
        list(Prefetcher(data, ones, 60, workers=2, processes=True))
    none = spoilt(tmp_path, 0, ())
    none.paths[7].unlink()
    with pytest.raises(DamagedImages, match=r"1 of 30 .* 007.png"):
        list(Prefetcher(none, plan, 9, workers=2, processes=True))


class Odd(Exception):
    "Does not travel: it wants two words and keeps one."

    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


def test_errors_arrive_as_they_were(photos):
    everything = lambda step: (np.arange(30), 0)
    photos.paths[3].unlink()
    with pytest.raises(PhotoError, match="003.png is missing") as raised:
        list(Prefetcher(photos, everything, 5, workers=3, processes=True))
    assert raised.value.__cause__ is None and "in a process that reads pictures" in raised.value.__notes__[0]
    photos.photo = lambda i: (_ for _ in ()).throw(Odd("a", "b")) if i else noise(50, 50)
    with pytest.raises(RuntimeError, match="^Odd: a b$"):
        list(Prefetcher(photos, everything, 5, workers=3, processes=True))
    with pytest.raises(ZeroDivisionError):
        list(Prefetcher(photos, lambda step: 1 / 0, 5, processes=True))


def test_a_killed_child_is_said(photos):
    with pytest.raises(RuntimeError, match="which read pictures, was killed"):
        for _ in Prefetcher(photos, plan, 1000, workers=2, processes=True):
            for child in children():
                child.kill()


def test_signals_at_the_whole_group_leave_the_children_reading(photos):
    with Prefetcher(photos, plan, 20, workers=2, processes=True) as batches:
        for number, _ in enumerate(batches):
            for child in children() if number == 3 else ():
                for asked in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    child.send_signal(asked)
    assert number == 19


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_leaving_the_loop_ends_the_children(photos, error):
    with pytest.raises(error), Prefetcher(photos, plan, 1000, processes=True) as batches:
        for number, _ in enumerate(batches):
            assert len(children()) == 4
            if number == 1:
                raise error
    assert not children()
    for _ in (ahead := Prefetcher(photos, plan, 1000, processes=True)):
        break
    ahead.close()
    assert not list(Prefetcher(photos, plan, 3, start=3, processes=True))


def test_two_loops_at_once_end_in_any_order(photos):
    loops = [Prefetcher(photos, plan, 9, workers=2, processes=True) for _ in range(2)]
    first, second = (next(iter(loop)) for loop in loops)
    loops[0].close()
    assert torch.equal(first.images, second.images) and len(children()) == 2
    loops[1].close()


def test_threads_read_where_the_system_refuses(photos, monkeypatch):
    done, fork = [], os.fork

    def refuse():
        if done:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        done.append(1)
        return fork()

    monkeypatch.setattr(os, "fork", refuse)
    with pytest.warns(UserWarning, match="read by threads, which is slower: .*Resource temporarily unavailable"):
        batches = list(Prefetcher(photos, plan, 3, processes=True))
    assert done and torch.equal(batches[2].images, photos.batch(plan(2)[0], 1)[0])


def gone(children):
    end = time.monotonic() + 10
    while (left := [n for n in children if psutil.pid_exists(n)]) and time.monotonic() < end:
        time.sleep(0.01)
    return not left


def test_kill_nine_of_the_parent_ends_the_children(photos):
    "Of two loops, one within the other, whose children hold each other's pipes."
    told, tell = os.pipe()
    parent = os.fork()
    if parent == 0:
        loops = [Prefetcher(photos, plan, 10**9, workers=2, processes=True) for _ in range(2)]
        batches = [next(iter(loop)) for loop in loops]
        os.write(tell, " ".join(str(child.pid) for child in psutil.Process().children()).encode() + b"\n")
        time.sleep(60)
        os._exit(len(batches))
    children = [int(number) for number in os.read(told, 1000).split()]
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    os.close(told)
    os.close(tell)
    assert len(children) == 4 and gone(children)


LEFT = """
import sys
sys.path.insert(0, sys.argv[1])
from test_loading import Photos, plan
from smoothap_nb.data.loading import Prefetcher
import psutil
for batch in (ahead := Prefetcher(Photos(sys.argv[2], write=False), plan, 10**9, workers=2, processes=True)):
    print(*(child.pid for child in psutil.Process().children()))
    break
"""


@pytest.mark.slow
def test_a_loop_left_open_ends_with_its_script(photos):
    script = [sys.executable, "-c", LEFT, str(Path(__file__).parent), str(photos.root)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=60)
    children = [int(number) for number in done.stdout.split()]
    assert done.returncode == 0 and not done.stderr and len(children) == 2 and gone(children)


def test_what_is_refused_leaves_no_child(photos):
    like = photos.raw([0])
    with pytest.raises((OSError, ValueError, OverflowError)):
        ReadingProcesses(photos, 2, like, 2**20, 2**40)
