"Photographs: files good and bad, torchvision's geometry, draws that depend on nothing but (seed, image, draw)."

import errno
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms

from smoothap_nb.data import cache as decoded
from smoothap_nb.data import transforms as cuts
from smoothap_nb.data.cache import CacheError, DecodedCache, cut_boxes
from smoothap_nb.data.loading import Batch, Prefetcher, share_of
from smoothap_nb.data.photographs import ImageSet
from smoothap_nb.data.transforms import PhotoTransform, crop_boxes
from smoothap_nb.images import PhotoError, open_rgb


def noise(width, height, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.mark.parametrize(
    "width, height", [(500, 375), (375, 500), (256, 256), (257, 300), (30, 700), (100, 90), (1000, 333), (1, 1)]
)
@pytest.mark.parametrize("size, resize", [(224, 256), (32, 40), (48, 48), (33, 40)])
@pytest.mark.parametrize("squash", [False, True])
def test_evaluation_equals_torchvision(width, height, size, resize, squash):
    picture = noise(width, height)
    papers = transforms.Compose(
        [transforms.Resize((resize, resize) if squash else resize), transforms.CenterCrop(size), transforms.ToTensor()]
    )
    assert torch.equal(PhotoTransform(size, resize, squash)(picture), papers(picture))


@pytest.mark.parametrize("train_resize", [0, 40])
def test_training_equals_torchvision_for_the_same_box(train_resize):
    picture, transform = noise(61, 90), PhotoTransform(32, 40, train_resize=train_resize, seed=5)
    for draw in range(1, 8):
        resized, boxes, mirrored = transform.plan([picture.size], [3], draw)
        left, top, width, height = boxes[0].tolist()
        wanted = transforms.functional.resize(picture, train_resize) if train_resize else picture
        assert wanted.size == tuple(resized[0])
        wanted = transforms.functional.resized_crop(wanted, top, left, height, width, [32, 32])
        wanted = transforms.functional.to_tensor(transforms.functional.hflip(wanted) if mirrored[0] else wanted)
        assert torch.equal(transform(picture, 3, draw), wanted)


def test_boxes_stay_inside_and_keep_the_bounds():
    sizes = np.random.default_rng(0).integers(1, 400, (2000, 2))
    boxes, mirrored = crop_boxes(sizes, np.arange(2000), 1)
    assert (boxes[:, :2] >= 0).all() and (boxes[:, 2:] >= 1).all() and (boxes[:, :2] + boxes[:, 2:] <= sizes).all()
    assert 0.4 < mirrored.mean() < 0.6
    large = np.full((2000, 2), 1000)
    boxes, _ = crop_boxes(large, np.arange(2000), 2, scale=(0.2, 0.5), ratio=(0.5, 1.5))
    share, aspect = boxes[:, 2] * boxes[:, 3] / 1e6, boxes[:, 2] / boxes[:, 3]
    assert share.min() > 0.199 and share.max() < 0.501 and aspect.min() > 0.49 and aspect.max() < 1.51
    assert share.mean() == pytest.approx(0.35, abs=0.01)


def test_one_box_in_plain_numbers_is_the_same_box():
    sizes = np.random.default_rng(3).integers(1, 300, (400, 2))
    for scale, ratio in (((0.08, 1), (3 / 4, 4 / 3)), ((0.9, 1), (0.9, 1.1))):
        boxes, _ = crop_boxes(sizes, np.arange(400), 2, 5, scale, ratio)
        attempts = cuts._attempts(np.arange(400), 2, 5, scale, ratio)[:4]
        assert [
            cuts._first_box(tuple(size), [a[i].tolist() for a in attempts], ratio)
            for i, size in enumerate(sizes.tolist())
        ] == list(map(tuple, boxes.tolist()))


def test_where_no_attempt_fits_the_largest_box_is_taken():
    boxes, _ = crop_boxes([(1000, 10), (10, 1000)], [0, 1], 1, scale=(1, 1), ratio=(0.75, 1.25))
    assert boxes.tolist() == [[494, 0, 12, 10], [0, 493, 10, 13]]


def test_a_draw_depends_on_seed_image_and_draw_alone():
    sizes, identity = [(300, 200)] * 6, [4, 8, 15, 16, 23, 42]
    together = crop_boxes(sizes, identity, 3, seed=7)
    for i, one in enumerate(identity):
        alone = crop_boxes(sizes[:1], [one], 3, seed=7)
        assert (alone[0][0] == together[0][i]).all() and alone[1][0] == together[1][i]
    for other in (
        crop_boxes(sizes, identity, 4, seed=7),
        crop_boxes(sizes, identity, 3, seed=8),
        crop_boxes(sizes, identity[::-1], 3, seed=7),
    ):
        assert (other[0] != together[0]).any()


def test_transform_is_described_and_checked():
    transform = PhotoTransform(96, 110, True, 120, (0.2, 1), (0.5, 2), False, 3)
    assert PhotoTransform(**transform.to_dict()).to_dict() == transform.to_dict() and "train_resize=120" in repr(
        transform
    )
    for wrong, says in (
        ({"size": 300}, "resize must be at least size"),
        ({"crop_scale": (0, 1)}, "crop_scale"),
        ({"crop_scale": (0.5, 2)}, "crop_scale"),
        ({"crop_ratio": (2, 1)}, "crop_ratio"),
        ({"size": 0}, "size must be"),
        ({"train_resize": -1}, "train_resize"),
    ):
        with pytest.raises(ValueError, match=says):
            PhotoTransform(**wrong)
    with pytest.raises(ValueError, match="draw"):
        transform(noise(9, 9), 0, -1)


def test_from_config_takes_the_data_table():
    from smoothap_nb.data.settings import DataConfig

    config = DataConfig(size=64)
    transform = PhotoTransform.from_config(config, seed=9)
    assert transform.size == 64 and transform.seed == 9 and transform.resize == getattr(config, "resize", 256)


class Photos(ImageSet):
    "A data set of photographs, as small as can be, in which nothing takes a damaged picture's place."

    def __init__(self, root, count=30, transform=None, seed=0, write=True):
        rng, root, names = np.random.default_rng(seed), Path(root), [f"{i:03d}.png" for i in range(count)]
        root.mkdir(parents=True, exist_ok=True)
        super().__init__(
            root, names, torch.arange(count)[:, None] // 3, ("class",), transform=transform or PhotoTransform(32, 36)
        )
        self.identity = torch.arange(count) * 10 + 7
        for path in self.paths if write else ():
            coarse = Image.fromarray(rng.integers(0, 256, (5, 7, 3), dtype=np.uint8))
            coarse.resize(tuple(rng.integers(60, 160, 2).tolist()), Image.Resampling.BICUBIC).save(path)

    def photo(self, index):
        return open_rgb(self.relative[index], self.root)


@pytest.fixture
def photos(tmp_path):
    return Photos(tmp_path / "photos")


def test_raw_is_the_transform_of_each_file(photos):
    out = photos.raw([4, 2, -1], draw=3)
    assert out.dtype == torch.uint8
    for row, index in zip(out, (4, 2, 29)):
        assert torch.equal(row.float() / 255, photos.transform(open_rgb(photos.paths[index]), index * 10 + 7, 3))
    for wrong, kind in (([True, False], TypeError), ([0.5], TypeError), ([30], IndexError), ([-31], IndexError)):
        with pytest.raises(kind):
            photos.raw(wrong)
    assert photos.raw([]).shape == (0, 3, 32, 32)


# --- the decoded cache ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "transform",
    [
        PhotoTransform(32, 36),
        PhotoTransform(32, 32, squash=True),
        PhotoTransform(32, 36, train_resize=50, flip=False),
        PhotoTransform(32, 36, crop_scale=(0.16, 1), seed=4),
    ],
    ids=str,
)
def test_cache_cuts_what_pillow_cuts(tmp_path, transform):
    "Stated tolerance on smooth pictures: 1.5 grey levels of 255 on average over a picture, 1 over all."
    photos = Photos(tmp_path / "photos", transform=transform)
    cache = DecodedCache(photos, tmp_path / "cache", side=128, progress=False)
    for draw in (0, 1, 2):
        files, labels = photos.batch(range(30), draw)
        squares, same = cache.batch(range(30), draw)
        assert squares.shape == files.shape and squares.dtype == torch.float32 and torch.equal(labels, same)
        gap = 255 * (files - squares).abs().mean((1, 2, 3))
        assert gap.mean() < 1 and gap.max() < 1.5
        assert 0 <= squares.min() and squares.max() <= 1


def test_geometry_is_exact_on_a_ramp():
    "On a picture whose colour is the place, the colour found says where a pixel was taken from."
    side, size = 200, 20
    ramp = (
        torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="xy"))[None].float().add(0.5) / side
    )  # x, y in [0, 1]
    boxes = np.array([[0.2, 0.1, 0.5, 0.25], [0.2, 0.1, 0.5, 0.25]])
    out = cut_boxes(ramp.expand(2, -1, -1, -1), boxes, [False, True], size)
    centre = (torch.arange(size) + 0.5) / size
    torch.testing.assert_close(out[0, 0], (0.2 + 0.5 * centre)[None].expand(size, size), atol=1e-5, rtol=0)
    torch.testing.assert_close(out[0, 1], (0.1 + 0.25 * centre)[:, None].expand(size, size), atol=1e-5, rtol=0)
    torch.testing.assert_close(out[1, 0], out[0, 0].flip(1), atol=1e-5, rtol=0)


def test_cache_pictures_do_not_depend_on_their_batch(tmp_path, photos):
    cache = DecodedCache(photos, tmp_path / "cache", side=40, progress=False)
    together, _ = cache.batch(range(30), 5)
    for i in (0, 11, 29):
        assert torch.equal(cache.batch([i], 5)[0][0], together[i])
    part = cache.subset([11, 29])
    assert (
        len(part) == 2
        and torch.equal(part.batch([0, 1], 5)[0], together[[11, 29]])
        and part.labels[:, 0].tolist() == [3, 9]
    )
    assert torch.equal(cache[7][0], cache.batch([7])[0][0]) and torch.equal(
        cache.to("cpu").batch(range(30), 5)[0], together
    )
    assert part.identity.tolist() == [117, 297]


def test_cache_opens_again_without_reading_a_file(tmp_path, photos, monkeypatch):
    first = DecodedCache(photos, tmp_path / "cache", side=40, progress=False).batch([1, 2])[0]
    photos.photo = lambda index: pytest.fail("a file was read")
    assert torch.equal(DecodedCache(photos, tmp_path / "cache", side=40, progress=False).batch([1, 2])[0], first)


def test_cache_of_other_data_is_refused_with_the_reason(tmp_path, photos):
    DecodedCache(photos, tmp_path / "cache", side=40, progress=False)
    for other, side, says in (
        (photos, 48, "squares of side 40, not 48"),
        (Photos(photos.root, 29, write=False), 40, "30 pictures, the data set has 29"),
        (Photos(tmp_path / "elsewhere", 30), 40, None),
        (photos.subset(list(range(30))[::-1]), 40, "another list of files"),
    ):
        if says:
            with pytest.raises(CacheError, match=says):
                DecodedCache(other, tmp_path / "cache", side=side, progress=False)
    photos.paths[0].write_bytes(photos.paths[0].read_bytes() + b"x")
    with pytest.raises(CacheError, match="made before 000.png was changed"):
        DecodedCache(photos, tmp_path / "cache", side=40, progress=False)
    (tmp_path / "cache" / "state.json").write_text("{")
    with pytest.raises(CacheError, match="damaged state file"):
        DecodedCache(photos, tmp_path / "cache", side=40, progress=False)


def test_cache_folders_that_cannot_serve(tmp_path, photos):
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("x")
    for folder, says in (
        ("file", "is a file"),
        ("file/in", "is a file, or lies inside one"),
        ("full", "holds other things"),
    ):
        with pytest.raises(CacheError, match=says):
            DecodedCache(photos, tmp_path / folder, side=40, progress=False)
    with pytest.raises(ValueError, match="side must be at least"):
        DecodedCache(photos, tmp_path / "cache", side=31)
    with pytest.raises(ValueError, match="empty"):
        DecodedCache(photos.subset([]), tmp_path / "cache", side=40)
    DecodedCache(photos, tmp_path / "cache", side=40, progress=False)
    (tmp_path / "cache" / "pixels.u8").write_bytes(b"")
    with pytest.raises(CacheError, match="incomplete"):
        DecodedCache(photos, tmp_path / "cache", side=40, progress=False)


def test_full_disk_is_told_before_and_during(tmp_path, photos, monkeypatch):
    monkeypatch.setattr(decoded.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(CacheError, match="needs 0.00 GiB .* make room"):
        DecodedCache(photos, tmp_path / "cache", side=40, progress=False)
    monkeypatch.undo()

    def full(path, value):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(decoded, "write_atomic", full)
    with pytest.raises(CacheError, match="No space left on device.*stays .*make room"):
        DecodedCache(photos, tmp_path / "cache", side=40, progress=False)
    monkeypatch.undo()
    assert len(DecodedCache(photos, tmp_path / "cache", side=40, progress=False)) == 30


def test_damaged_pictures_are_named_and_counted(tmp_path, photos):
    photos.paths[4].write_bytes(b"no picture")
    with pytest.raises(PhotoError, match="1 of 30 pictures cannot be read, more than the allowed share 0: .*004.png"):
        DecodedCache(photos, tmp_path / "cache", side=40, progress=False)
    cache = DecodedCache(photos, tmp_path / "cache", side=40, progress=False, damaged_share=0.05)
    assert list(cache.damaged) == ["004.png"] and "no picture" in cache.damaged["004.png"]
    assert (cache.batch([4], 1)[0] * 255 - 128).abs().max() < 1e-3  # grey
    assert list(DecodedCache(photos, tmp_path / "cache", side=40, progress=False).damaged) == ["004.png"]


def test_cache_of_an_image_set_takes_its_substitutes(tmp_path, photos):
    "A damaged picture of an ImageSet is another one of its class, in the cache as in the files; it stays named."
    photos.paths[4].write_bytes(b"no picture")
    data = ImageSet(
        photos.root,
        [p.name for p in photos.paths],
        photos.labels,
        ["class"],
        transform=photos.transform,
        damaged_share=0.1,
    )
    with pytest.warns(UserWarning, match="004.png"):
        cache = DecodedCache(data, tmp_path / "cache", side=128, progress=False, damaged_share=0.1)
    assert list(cache.damaged) == ["004.png"] and len(cache) == 30 and cache.level_names == ("class",)
    files, squares = data.batch([4, 5], 2)[0], cache.batch([4, 5], 2)[0]
    assert 255 * (files - squares).abs().mean() < 2
    room = torch.zeros(3, 3, 128, 128, dtype=torch.uint8)
    assert cache.raw([5, 4], out=room[1:]).data_ptr() == room[1].data_ptr()
    assert torch.equal(room[1:], cache.raw([5, 4])) and not room[0].any()
    assert len(cache.subset([4, 5])) == 2 and torch.equal(cache.subset([4, 5]).batch([1], 2)[0][0], squares[1])
    again = DecodedCache(
        ImageSet(photos.root, [p.name for p in photos.paths], photos.labels, ["class"], transform=photos.transform),
        tmp_path / "cache",
        side=128,
    )
    assert list(again.damaged) == ["004.png"]


def test_two_builders_share_the_work(tmp_path, photos):
    "The second one waits for the first and reads no file."
    reads, caches = [], []
    photos.photo = lambda i: reads.append(i) or time.sleep(0.002) or open_rgb(photos.paths[i])
    builders = [
        threading.Thread(
            target=lambda: caches.append(DecodedCache(photos, tmp_path / "cache", side=40, progress=False))
        )
        for _ in range(2)
    ]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join()
    assert sorted(reads) == list(range(30)) and torch.equal(caches[0].raw([5]), caches[1].raw([5]))


def test_any_other_trouble_with_the_disk_is_a_cache_error(tmp_path, photos, monkeypatch):
    def refuse(*args):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(decoded, "_reserve", refuse)
    with pytest.raises(CacheError, match="Read-only file system. Make room"):
        DecodedCache(photos, tmp_path / "cache", side=40, progress=False)


BUILD = """
import sys, time
sys.path.insert(0, sys.argv[1])
from test_loading import Photos
from smoothap_nb.data import cache
cache._BLOCK = 8 * 3 * 40**2  # eight pictures
class Slow(Photos):
    def photo(self, index):
        time.sleep(0.02)
        return super().photo(index)
cache.DecodedCache(Slow(sys.argv[2], 60, write=False), sys.argv[3], side=40, progress=False, workers=1)
"""


def test_build_survives_kill_nine(tmp_path):
    "Killed in the middle, the build goes on from the last block and ends with the same bytes."
    photos = Photos(tmp_path / "photos", 60)
    whole = DecodedCache(photos, tmp_path / "whole", side=40, progress=False)
    state = tmp_path / "cut" / "state.json"
    process = subprocess.Popen(
        [sys.executable, "-c", BUILD, str(Path(__file__).parent), str(photos.root), str(tmp_path / "cut")]
    )
    while process.poll() is None and not state.exists():
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = json.loads(state.read_text())["done"]
    assert 0 < done < 60
    reads = []
    photos.photo = lambda i: reads.append(i) or open_rgb(photos.paths[i])
    again = DecodedCache(photos, tmp_path / "cut", side=40, progress=False)
    assert sorted(reads) == list(range(done, 60))
    for name in ("pixels.u8", "sizes.i32"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert torch.equal(again.batch(range(60), 1)[0], whole.batch(range(60), 1)[0])


# --- batches ahead of time --------------------------------------------------------------------------------------------


def plan(step):
    return np.random.default_rng(step).permutation(30)[:10], step // 3


@pytest.mark.parametrize("workers, ahead", [(1, 1), (2, 2), (5, 3), (16, 1)])
def test_workers_change_nothing(photos, workers, ahead):
    batches = list(Prefetcher(photos, plan, 7, start=2, workers=workers, ahead=ahead))
    assert len(batches) == len(Prefetcher(photos, plan, 7, start=2)) == 5
    for step, batch in zip(range(2, 7), batches):
        indices, epoch = plan(step)
        images, labels = photos.batch(indices, epoch + 1)
        assert (
            isinstance(batch, Batch) and batch.epoch == epoch and (batch.indices == indices).all() and batch.waited >= 0
        )
        assert torch.equal(batch.images, images) and torch.equal(batch.labels, labels)


def test_glyphs_and_caches_come_the_same_way(tmp_path, photos):
    from smoothap_nb import Glyphs

    for data in (Glyphs("val", size=16), DecodedCache(photos, tmp_path / "cache", side=40, progress=False)):
        for step, batch in enumerate(Prefetcher(data, plan, 2, workers=3)):
            indices, epoch = plan(step)
            assert torch.equal(batch.images, data.batch(indices, epoch + 1)[0])


def test_ranks_share_the_global_batch(photos):
    parts = [list(Prefetcher(photos, plan, 2, rank=rank, world=3)) for rank in range(3)]
    for step in range(2):
        assert np.concatenate([part[step].indices for part in parts]).tolist() == plan(step)[0].tolist()
        assert torch.equal(torch.cat([part[step].images for part in parts]), photos.batch(plan(step)[0], 1)[0])
    assert [len(share_of(range(10), rank, 4)) for rank in range(4)] == [3, 3, 2, 2]


def readers():
    return [t for t in threading.enumerate() if t.name.startswith(("reader", "joiner"))]


def test_an_error_in_a_worker_arrives_as_it_was(photos):
    photos.paths[3].unlink()
    with pytest.raises(PhotoError, match="003.png is missing"):
        for _ in Prefetcher(photos, lambda step: (np.arange(30), 0), 5, workers=3):
            pass
    assert not readers()
    with pytest.raises(ZeroDivisionError):
        list(Prefetcher(photos, lambda step: 1 / 0, 5))
    assert not readers()


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_leaving_the_loop_ends_the_threads(photos, error):
    with pytest.raises(error):
        with Prefetcher(photos, plan, 1000) as batches:
            for number, _ in enumerate(batches):
                if number == 1:
                    raise error
    assert not readers()
    for _ in (ahead := Prefetcher(photos, plan, 1000)):
        break
    ahead.close()
    assert not readers()
    assert len(list(Prefetcher(photos, plan, 3, start=3))) == 0


LOOP = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is started with Ctrl-C ignored
sys.path.insert(0, sys.argv[1])
from test_loading import Photos, plan
from smoothap_nb.data.loading import Prefetcher
for batch in Prefetcher(Photos(sys.argv[2], write=False), plan, 10**9, workers=3):
    print("running", flush=True)
"""


def test_control_c_ends_the_process(photos):
    process = subprocess.Popen(
        [sys.executable, "-c", LOOP, str(Path(__file__).parent), str(photos.root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0 and errors.rstrip().endswith("KeyboardInterrupt")


def test_the_wait_is_measured(photos):
    slow = photos.batch
    photos.batch = lambda indices, draw: time.sleep(0.05) or slow(indices, draw)
    batches = Prefetcher(photos, plan, 3, workers=1)
    waits = [batch.waited for batch in batches]
    assert waits[0] > 0.04 and batches.waited == pytest.approx(sum(waits))


def test_counts_that_do_not_fit(photos):
    for wrong in ({"workers": 0}, {"ahead": 0}, {"rank": 2, "world": 2}, {"rank": -1}):
        with pytest.raises(ValueError, match="must be"):
            Prefetcher(photos, plan, 3, **wrong)


def test_photographs_can_travel_as_bytes(photos):
    "What the prefetcher does on CUDA, done here: bytes first, floats on the device, the same pictures to the bit."
    raw = photos.raw([3, 1], 2)
    assert raw.dtype == torch.uint8 and torch.equal(photos.finish(raw, [3, 1], 2), photos.batch([3, 1], 2)[0])
    photos.transform = lambda photo, identity, draw: torch.full((1, 2, 2), 0.25)
    assert torch.equal(photos.finish(photos.raw([3, 1], 2), [3, 1], 2), torch.full((2, 1, 2, 2), 0.25))


@pytest.mark.cuda
def test_on_a_gpu_bytes_travel_and_the_pictures_agree(tmp_path, photos):
    cache = DecodedCache(photos, tmp_path / "cache", side=40, progress=False)
    for data in (cache, cache.subset(list(range(30))).to("cuda"), photos):
        for step, batch in enumerate(Prefetcher(data, plan, 3, workers=2, device="cuda")):
            indices, epoch = plan(step)
            assert (
                batch.images.is_cuda and batch.labels.is_cuda and batch.labels[:, 0].tolist() == (indices // 3).tolist()
            )
            wanted = (photos if data is photos else cache).batch(indices, epoch + 1)[0]
            torch.testing.assert_close(batch.images.cpu(), wanted, atol=2e-3, rtol=0)
