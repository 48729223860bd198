"""From a file to pixels: every mode with real content, files that cannot be used, and one way for training, search
and evaluation."""

import io

import numpy as np
import pytest
from PIL import Image, ImageCms

from smoothap_nb import ImageTransform, PhotoTransform
from smoothap_nb import images
from smoothap_nb.images import FORMATS, PhotoError, format_of, open_rgb, readable, to_rgb, unreadable, walk_pictures

RED, WHITE = (200, 30, 30), (255, 255, 255)


def modes() -> dict[str, tuple[Image.Image, str, dict, tuple]]:
    "name -> picture, format, keywords of save, and the colour that its first pixel must come out as."
    red = Image.new("RGB", (8, 6), RED)
    clear = Image.new("RGBA", (8, 6), (0, 0, 0, 0))
    half = Image.new("RGBA", (8, 6), (0, 0, 0, 128))
    palette = red.quantize(4)
    see_through = Image.new("P", (8, 6), 0)
    see_through.putpalette([10, 20, 30] + [0] * 765)
    deep = Image.fromarray(np.full((6, 8), 65535, dtype=np.uint16))
    middle = Image.fromarray(np.full((6, 8), 0x8080, dtype=np.uint16))
    return {
        "rgb png": (red, "PNG", {}, RED),
        "palette gif": (palette, "GIF", {}, RED),
        "palette png": (palette, "PNG", {}, RED),
        "bmp": (red, "BMP", {}, RED),
        "transparent png": (clear, "PNG", {}, WHITE),
        "half-transparent webp": (half, "WEBP", {"lossless": True}, (127, 127, 127)),
        "palette with transparency": (see_through, "PNG", {"transparency": 0}, WHITE),
        "transparent gif": (see_through, "GIF", {"transparency": 0}, WHITE),
        "grey": (Image.new("L", (8, 6), 77), "PNG", {}, (77, 77, 77)),
        "grey with alpha": (Image.new("LA", (8, 6), (0, 0)), "PNG", {}, WHITE),
        "one bit": (Image.new("1", (8, 6), 1), "PNG", {}, WHITE),
        "16 bit": (deep, "PNG", {}, WHITE),
        "16 bit middle": (middle, "TIFF", {}, (128, 128, 128)),
        "32 bit": (Image.new("I", (8, 6), 65535), "TIFF", {}, WHITE),
        "floating": (Image.new("F", (8, 6), 1.0), "TIFF", {}, WHITE),
        "cmyk tiff": (Image.new("CMYK", (8, 6), (0, 0, 0, 0)), "TIFF", {}, WHITE),
        "cmyk jpeg": (Image.new("CMYK", (8, 6), (0, 0, 0, 0)), "JPEG", {}, WHITE),
        "lab": (Image.new("LAB", (8, 6), (255, 128, 128)), "TIFF", {}, WHITE),
    }


@pytest.mark.parametrize("name", modes())
def test_every_mode_becomes_rgb(tmp_path, name):
    picture, form, keywords, colour = modes()[name]
    path = tmp_path / f"x.{form.lower()}"
    picture.save(path, form, **keywords)
    got = open_rgb(path)
    assert got.mode == "RGB" and got.size == (8, 6)
    assert np.abs(np.array(got.getpixel((0, 0))) - colour).max() <= 8, got.getpixel((0, 0))


@pytest.mark.parametrize("tag, corner", [(1, (0, 0)), (3, (7, 5)), (6, (5, 0)), (8, (0, 7)), (2, (7, 0)), (5, (0, 0))])
def test_orientation_is_obeyed(tmp_path, tag, corner):
    picture = Image.new("RGB", (8, 6), "white")
    picture.putpixel((0, 0), (0, 0, 0))
    exif = Image.Exif()
    exif[0x0112] = tag
    picture.save(tmp_path / "x.png", exif=exif)
    got = open_rgb(tmp_path / "x.png")
    assert got.size == ((6, 8) if tag > 4 else (8, 6)) and got.getpixel(corner) == (0, 0, 0)


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG", "TIFF"])
def test_an_animation_gives_its_first_frame(tmp_path, form):
    frames = [Image.new("RGB", (8, 6), colour) for colour in ((0, 0, 0), (255, 0, 0), (0, 0, 255))]
    path = tmp_path / f"x.{form.lower()}"
    frames[0].save(path, form, save_all=True, append_images=frames[1:])
    assert max(open_rgb(path).getpixel((0, 0))) <= 4


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5])
def test_truncated_files_are_named(tmp_path, form, share):
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    path = tmp_path / f"x.{form.lower()}"
    noise.save(path, form)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(PhotoError, match=rf"x\.{form.lower()}"):
        open_rgb(path)


def test_what_is_no_picture_is_named(tmp_path):
    (tmp_path / "note.jpg").write_text("buy milk")
    with pytest.raises(PhotoError, match="note.jpg cannot be read: no picture in a known format"):
        open_rgb(tmp_path / "note.jpg")
    with pytest.raises(PhotoError, match="it is a folder"):
        open_rgb(tmp_path)
    with pytest.raises(PhotoError, match="nowhere.jpg is missing"):
        open_rgb(tmp_path / "nowhere.jpg")


def test_an_image_in_memory_is_made_plain_too():
    assert to_rgb(Image.new("RGBA", (3, 3), (0, 0, 0, 0))).getpixel((0, 0)) == WHITE


def noise(width, height, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def test_files_that_cannot_be_used_are_named(tmp_path):
    good = io.BytesIO()
    noise(64, 64).save(good, "JPEG")
    for name, data, says in (
        ("empty.jpg", b"", "is empty"),
        ("text.png", b"hello " * 50, "no picture"),
        ("cut.jpg", good.getvalue()[:-900], "damaged"),
        ("run.eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "no picture"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(PhotoError, match=f"{name} cannot be read: .*{says}"):
            open_rgb(name, tmp_path)
    with pytest.raises(PhotoError, match="gone.jpg is missing"):
        open_rgb("gone.jpg", tmp_path)
    (tmp_path / "folder.jpg").mkdir()
    with pytest.raises(PhotoError, match="it is a folder"):
        open_rgb("folder.jpg", tmp_path)


def test_files_outside_of_the_root_are_refused(tmp_path):
    (tmp_path / "set").mkdir()
    noise(8, 8).save(tmp_path / "private.png")
    (tmp_path / "set" / "link.png").symlink_to(tmp_path / "private.png")
    noise(8, 8).save(tmp_path / "set" / "in.png")
    for name in ("../private.png", str(tmp_path / "private.png"), "link.png"):
        with pytest.raises(PhotoError, match="outside of the folder"):
            open_rgb(name, tmp_path / "set")
    (tmp_path / "shortcut").symlink_to(tmp_path / "set")  # the root itself may be a link
    assert open_rgb("in.png", tmp_path / "shortcut").size == (8, 8)


# ---------------------------------------------------------------- real content in every mode

GREY = noise(23, 17).convert("L")
COLOUR = Image.fromarray(
    np.kron(np.random.default_rng(1).integers(0, 256, (4, 6, 3)), np.ones((4, 4, 1))).astype(np.uint8)
)


def lab(picture):
    profiles = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
    return ImageCms.applyTransform(picture, ImageCms.buildTransform(*profiles, "RGB", "LAB"))


def sixteen(order):
    values = (np.asarray(GREY).astype(np.uint16) * 257).astype(order)
    return Image.frombytes({"<u2": "I;16", ">u2": "I;16B"}[order], GREY.size, values.tobytes())


IN_MODES = {  # mode -> the same picture in it, what must come back, grey levels that may be lost
    "L": (GREY, GREY, 0),
    "I": (GREY.convert("I"), GREY, 0),
    "F": (GREY.convert("F"), GREY, 0),
    "I;16": (sixteen("<u2"), GREY, 0),
    "I;16B": (sixteen(">u2"), GREY, 0),
    "F from 0 to 1": (Image.fromarray(np.asarray(GREY, np.float32) / 255), GREY, 0),
    "I of 16 bits": (Image.fromarray(np.asarray(GREY).astype(np.int32) * 257), GREY, 0),
    "F of 16 bits": (Image.fromarray(np.asarray(GREY).astype(np.float32) * 257), GREY, 0),
    "LA": (GREY.convert("LA"), GREY, 0),
    "La": (GREY.convert("LA").convert("La"), GREY, 0),
    "1": (GREY.convert("1"), GREY.convert("1"), 0),
    "RGB": (COLOUR, COLOUR, 0),
    "RGBA": (COLOUR.convert("RGBA"), COLOUR, 0),
    "RGBa": (COLOUR.convert("RGBA").convert("RGBa"), COLOUR, 0),
    "RGBX": (COLOUR.convert("RGBX"), COLOUR, 0),
    "P": (COLOUR.quantize(64), COLOUR, 0),
    "PA": (COLOUR.quantize(64).convert("PA"), COLOUR, 0),
    "CMYK": (COLOUR.convert("CMYK"), COLOUR, 0),
    "YCbCr": (COLOUR.convert("YCbCr"), COLOUR, 3),
    "HSV": (COLOUR.convert("HSV"), COLOUR, 8),
    "LAB": (lab(COLOUR), COLOUR, 20),
}


@pytest.mark.parametrize("mode", IN_MODES)
def test_content_survives_every_mode(mode):
    picture, wanted, room = IN_MODES[mode]
    got = to_rgb(picture)
    assert got.mode == "RGB" and got.size == wanted.size
    assert np.abs(np.asarray(got, int) - np.asarray(wanted.convert("RGB"), int)).max() <= room


@pytest.mark.parametrize("mode", ["LA", "RGBA", "RGBa", "La"])
def test_half_transparent_pixels_lie_on_white(mode):
    whole = (GREY if mode[0] == "L" else COLOUR).convert(mode[:-1] + "A")
    alpha = Image.fromarray(np.random.default_rng(2).integers(0, 256, whole.size[::-1], dtype=np.uint8))
    whole.putalpha(alpha)
    share = np.asarray(alpha, float)[..., None] / 255
    wanted = np.asarray((GREY if mode[0] == "L" else COLOUR).convert("RGB"), float) * share + 255 * (1 - share)
    assert np.abs(np.asarray(to_rgb(whole.convert(mode)), float) - wanted).max() <= 2


def test_one_declared_transparent_value_lies_on_white(tmp_path):
    values = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000
    Image.fromarray(values).save(tmp_path / "deep.png", transparency=5000)
    got = np.asarray(open_rgb(tmp_path / "deep.png"))[..., 0]
    wanted = np.rint(values / 257)
    wanted[0, 5] = 255
    assert (got == wanted).all()


def test_greys_without_a_range():
    values = np.array([[-5.0, 0.0, 5.0], [np.nan, np.inf, -np.inf]], np.float32)
    assert np.asarray(to_rgb(Image.fromarray(values)))[..., 0].tolist() == [[0, 5, 10], [0, 10, 0]]
    assert np.asarray(to_rgb(Image.fromarray(np.full((2, 2), np.nan, np.float32)))).max() == 0
    assert np.asarray(to_rgb(Image.fromarray(np.array([[0, 10**6]], np.int32))))[..., 0].tolist() == [[0, 255]]
    dark = Image.frombytes(
        "I;16", (2, 1), np.array([[0, 200]], np.uint16).tobytes()
    )  # dark, and not 8 bits in disguise
    assert np.asarray(to_rgb(dark))[..., 0].tolist() == [[0, 1]]


@pytest.mark.parametrize("mode", IN_MODES)
def test_search_training_and_evaluation_see_the_same_pixels(tmp_path, mode):
    import torch

    from smoothap_nb import ImageSet
    from smoothap_nb.retrieval.folders import open_picture

    picture = IN_MODES[mode][0]
    for suffix in ("png", "tif"):
        try:
            picture.save(tmp_path / f"x.{suffix}")
            break
        except (OSError, KeyError, ValueError):
            (tmp_path / f"x.{suffix}").unlink(missing_ok=True)
    else:
        pytest.skip(f"no file format keeps mode {mode}")
    path = next(tmp_path.iterdir())
    searched, transform = open_picture(path), PhotoTransform(16, 16, squash=True)
    trained = ImageSet(tmp_path, [path.name], torch.zeros(1, 1, dtype=torch.int64), ("class",), transform=transform)
    assert np.array_equal(searched, trained.photo(0))
    assert torch.equal(transform(searched), trained.batch([0])[0][0])
    with Image.open(path) as file:  # a transform given the file as Pillow opens it
        assert torch.equal(ImageTransform(16)(file), ImageTransform(16)(searched))


# ---------------------------------------------------------------- which files


def test_formats_are_listed_once_and_known_by_their_endings():
    endings = [ending for known in FORMATS.values() for ending in known]
    assert len(set(endings)) == len(endings) and all(
        ending == ending.lower() and ending[0] == "." for ending in endings
    )
    assert format_of("A.JPG") == "JPEG" and format_of("b.heic") == "HEIF" and format_of("c.txt") is None
    assert {"JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP"} <= set(readable())


def test_walk_is_sorted_relative_and_leaves_hidden_files_out(tmp_path):
    for path in ("b/2.png", "b/10.PNG", "a.jpg", ".hidden/x.png", "b/.x.png", "b/notes.txt", "b/c/d.heic"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    assert list(walk_pictures(tmp_path)) == ["a.jpg", "b/10.PNG", "b/2.png", "b/c/d.heic"]


def test_what_cannot_be_read_is_counted_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "readable", lambda: ("JPEG", "PNG"))
    said = unreadable(["a.heic", "b.jpg", "c.HEIC", "d.avif", "e.txt"])
    assert (
        "2 pictures in the format HEIF (a.heic, ...)" in said
        and "pip install pillow-heif" in said
        and "1 picture in the format AVIF (d.avif)" in said
    )
    assert unreadable(["b.jpg", "e.txt"]) == ""
    (tmp_path / "a.heic").write_bytes(b"\0\0\0 ftypheic" + b"\0" * 64)
    with pytest.raises(PhotoError, match="a.heic cannot be read: .*pillow-heif"):
        open_rgb(tmp_path / "a.heic")


def test_a_pillow_without_a_decoder_is_not_believed(tmp_path, monkeypatch):
    "A Pillow built without libavif lists AVIF among what it opens, and opens none: such pictures are counted, too."
    from PIL import features

    Image.new("RGB", (8, 8), "navy").save(tmp_path / "a.png")
    (tmp_path / "b.avif").write_bytes(b"\0\0\0 ftypavif" + b"\0" * 64)
    monkeypatch.setattr(features, "check", lambda part: part != "avif")
    readable.cache_clear()
    try:
        assert "AVIF" not in readable() and "WEBP" in readable() and "AVIF" in Image.OPEN
        assert "1 picture in the format AVIF (b.avif): pip install --upgrade 'pillow>=11.3'" in unreadable(
            walk_pictures(tmp_path)
        )
        with pytest.raises(PhotoError, match=r"b.avif cannot be read: this installation.*pillow>=11.3"):
            open_rgb(tmp_path / "b.avif")
    finally:
        readable.cache_clear()


def test_avif_is_read_where_pillow_can(tmp_path):
    if "AVIF" not in readable():
        pytest.skip("this Pillow has no AVIF decoder")
    Image.new("RGB", (8, 8), (200, 30, 30)).save(tmp_path / "a.avif")
    assert np.abs(np.array(open_rgb(tmp_path / "a.avif")).astype(int) - (200, 30, 30)).max() < 12


# Pictures of more than 89 million pixels, as phones take them: Pillow warns, without a name

def test_large_pictures_are_read_in_silence_and_too_large_ones_are_named(tmp_path, recwarn):
    readable.cache_clear()  # pytest has its own filters of warnings
    Image.new("1", (12_000, 9_000)).save(tmp_path / "phone.png")  # 108 million, 14 kB
    Image.new("1", (20_000, 9_000)).save(tmp_path / "poster.png")
    assert open_rgb(tmp_path / "phone.png").size == (12_000, 9_000)
    with pytest.raises(PhotoError, match="poster.png cannot be read: it has more than 178 million pixels.*shrink it"):
        open_rgb(tmp_path / "poster.png")
    assert not recwarn.list


@pytest.mark.parametrize("transform", [PhotoTransform(8), ImageTransform(8), ImageTransform(8, gray=True)])
def test_a_transform_of_nothing_is_refused(transform):
    for nothing, error in ((None, TypeError), (np.zeros((4, 4, 3)), TypeError), (Image.new("RGB", (0, 5)), ValueError)):
        with pytest.raises(error, match="^image (must be a PIL picture|has no pixels)"):
            transform(nothing)
