"""The houses of Town: facades put together from a catalogue of windows, doors, arches and railings that they share.

Repetition is the point. A facade shows one window style many times over, and two houses of one town may have the same
windows; what tells houses apart is how the parts are put together, the shop's sign, curtains, stains. Everything is
drawn flat, `SCALE` pixels per metre, in layers that stand at different depths: wall, ground floor, balconies, roof.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

SCALE = 40  # pixels per metre of a facade's drawing
FLOOR = 3.0  # metres from one upper floor to the next
_FACES = ("DejaVuSans-Bold", "DejaVuSerif-Bold", "DejaVuSans-BoldOblique", "DejaVuSerif-BoldItalic", "STIXGeneralBol")
_SYLLABLES = "ba co da fe gi ho ju ka li mo na pe qua ri so tu ve wo xi yo za bel cor din fal gor mar nel ras".split()


@dataclass
class Layer:
    "A drawing in space: RGBA with colours multiplied by alpha, its top left corner and its two directions in metres."

    picture: np.ndarray  # (h, w, 4) uint8
    origin: tuple[float, float, float]  # x along the street, y up, z towards the street
    right: tuple[float, float, float] = (1 / SCALE, 0.0, 0.0)  # of one pixel
    down: tuple[float, float, float] = (0.0, -1 / SCALE, 0.0)
    smaller: list[np.ndarray] = field(default_factory=list)  # halved, quartered, ...: against aliasing

    def at(self, level: int) -> np.ndarray:
        "The drawing, halved `level` times."
        import cv2

        while len(self.smaller) < level:
            last = self.smaller[-1] if self.smaller else self.picture
            size = (max(1, last.shape[1] // 2), max(1, last.shape[0] // 2))
            self.smaller.append(cv2.resize(last, size, interpolation=cv2.INTER_AREA))
        return self.smaller[level - 1] if level else self.picture


@dataclass
class House:
    "What stands between `left` and `left + width`: its layers from back to front, its size in metres."

    left: float
    width: float
    height: float
    depth: float  # z of the wall
    side: tuple[int, int, int]  # colour of the walls that no drawing covers
    layers: list[Layer]


def catalogue(seed: int) -> dict[str, list[dict]]:
    "The parts that the houses of a town share: windows, doors and arches, railings."
    chance = np.random.default_rng([seed, 1])
    pick = lambda *choices: choices[int(chance.integers(len(choices)))]  # noqa: E731
    windows = [
        {
            "width": float(chance.uniform(0.8, 1.5)), "height": float(chance.uniform(1.4, 2.1)),
            "top": pick("flat", "flat", "arch", "segment"), "panes": (pick(1, 2, 2, 3), pick(1, 2, 3, 4)),
            "frame": float(chance.uniform(0.05, 0.11)), "above": pick("none", "lintel", "gable", "key", "hood"),
            "surround": pick(0.0, 0.12, 0.2), "shutters": bool(chance.random() < 0.25),
        }
        for _ in range(12)
    ]
    doors = [
        {
            "width": float(chance.uniform(1.1, 2.2)), "top": pick("flat", "arch", "arch", "segment"),
            "panels": (pick(1, 2, 2), pick(2, 3, 4)), "light": bool(chance.random() < 0.6),
        }
        for _ in range(8)
    ]
    railings = [
        {"kind": pick("bars", "crosses", "rings", "solid"), "pitch": float(chance.uniform(0.12, 0.3))} for _ in range(5)
    ]
    return {"windows": windows, "doors": doors, "railings": railings}


def shop_name(chance: np.random.Generator) -> str:
    "A word that no other shop is likely to bear."
    word = "".join(chance.choice(_SYLLABLES, int(chance.integers(2, 4)))).capitalize()
    tail = str(chance.choice(["& Co", "Café", "Bazar", "Hotel", "1897"]))
    return f"{word} {tail}" if chance.random() < 0.3 else word


@lru_cache(maxsize=64)
def _face(name: str, size: int):
    from matplotlib import get_data_path
    from PIL import ImageFont

    return ImageFont.truetype(f"{get_data_path()}/fonts/ttf/{name}.ttf", size)


def lettering(text: str, height: int, face: int) -> np.ndarray:
    "(h, w) uint8: how much of each pixel the letters cover."
    from PIL import Image, ImageDraw

    font = _face(_FACES[face % len(_FACES)], height)
    left, top, right, bottom = font.getbbox(text)
    sheet = Image.new("L", (right - left + 4, bottom - top + 4))
    ImageDraw.Draw(sheet).text((2 - left, 2 - top), text, fill=255, font=font)
    return np.asarray(sheet)


def muted(chance: np.random.Generator, low: int = 90, high: int = 230, tint: int = 40) -> tuple[int, int, int]:
    "A muted colour."
    return tuple(int(v) for v in np.clip(chance.integers(low, high) + chance.integers(-tint, tint + 1, 3), 10, 250))


def shade(colour, factor: float) -> tuple[int, int, int]:
    "Darker below 1, brighter above."
    return tuple(int(min(255, max(0, c * factor))) for c in colour)


def clouds(chance: np.random.Generator, height: int, width: int, cell: int) -> np.ndarray:
    "(height, width) float32 in about -1 ... 1: noise that is smooth over `cell` pixels."
    import cv2

    coarse = chance.standard_normal((height // cell + 3, width // cell + 3)).astype(np.float32)
    grown = cv2.resize(coarse, None, fx=cell, fy=cell, interpolation=cv2.INTER_CUBIC)
    return grown[cell // 2 : cell // 2 + height, cell // 2 : cell // 2 + width]


def _opening(width: int, height: int, top: str) -> np.ndarray:
    "Outline of a window or door (points, 2) in pixels from its top left corner."
    if top == "flat":
        return np.array([[0, 0], [width, 0], [width, height], [0, height]], np.int32)
    rise = width / 2 if top == "arch" else width / 6
    angle = np.linspace(np.pi, 0, 17)
    curve = np.stack([width / 2 + width / 2 * np.cos(angle), rise - rise * np.sin(angle)], 1)
    return np.concatenate([curve, [[width, height], [0, height]]]).round().astype(np.int32)


def _window(style: dict, paint: dict, curtain: int) -> np.ndarray:
    "(h, w, 4) with a margin of half a metre all round; `curtain` 0 to 3 says what hangs behind the glass."
    import cv2

    w, h, margin = int(style["width"] * SCALE), int(style["height"] * SCALE), SCALE // 2
    out = np.zeros((h + 2 * margin, w + 2 * margin, 4), np.uint8)
    ink = lambda c: (*c, 255)  # noqa: E731
    outline = _opening(w, h, style["top"]) + margin
    if style["surround"]:
        middle = outline.mean(0)
        grown = ((outline - middle) * (1 + 2 * style["surround"] * SCALE / np.array([w, h])) + middle).astype(np.int32)
        cv2.fillPoly(out, [grown], ink(paint["trim"]), cv2.LINE_AA)
    cv2.fillPoly(out, [outline], ink(paint["glass"]), cv2.LINE_AA)
    inside = np.zeros(out.shape[:2], np.uint8)
    cv2.fillPoly(inside, [outline], 255)
    hung = np.zeros_like(inside)
    if curtain == 1:  # drawn to the sides
        hung[:, margin : margin + w // 4] = hung[:, margin + w - w // 4 : margin + w] = 255
    elif curtain == 2:  # a blind
        hung[: margin + h // 2] = 255
    elif curtain == 3:  # a lamp is on
        hung[margin + h // 3 :] = 255
    out[(hung & inside) > 0] = ink(paint["curtain"] if curtain < 3 else paint["lamp"])
    thick, (nx, ny) = max(2, int(style["frame"] * SCALE)), style["panes"]
    bars = np.zeros_like(inside)
    for i in range(1, nx):
        cv2.line(bars, (margin + w * i // nx, 0), (margin + w * i // nx, out.shape[0]), 255, max(1, thick // 2 + 1))
    for j in range(1, ny):
        cv2.line(bars, (0, margin + h * j // ny), (out.shape[1], margin + h * j // ny), 255, max(1, thick // 2 + 1))
    out[(bars & inside) > 0] = ink(paint["frame"])
    cv2.polylines(out, [outline], True, ink(paint["frame"]), thick, cv2.LINE_AA)
    _crown(out, style, paint, margin, w, h)
    return out


def _crown(out: np.ndarray, style: dict, paint: dict, margin: int, w: int, h: int) -> None:
    "Sill, shutters, and what stands above a window."
    import cv2

    ink, dark = (*paint["trim"], 255), (*shade(paint["trim"], 0.6), 255)
    cv2.rectangle(out, (margin - 6, margin + h), (margin + w + 6, margin + h + 5), ink, -1)
    cv2.line(out, (margin - 6, margin + h + 6), (margin + w + 6, margin + h + 6), dark, 1)
    if style["shutters"]:
        side = (*paint["shutter"], 255)
        for left in (1, margin + w + 1):
            cv2.rectangle(out, (left, margin), (left + margin - 3, margin + h), side, -1)
            for y in range(margin + 4, margin + h, 5):
                cv2.line(out, (left + 2, y), (left + margin - 5, y), (*shade(paint["shutter"], 0.6), 255), 1)
    above, top = style["above"], margin - 3
    if above in ("lintel", "hood"):
        cv2.rectangle(out, (margin - 5, top - 8), (margin + w + 5, top), ink, -1)
        cv2.line(out, (margin - 5, top + 1), (margin + w + 5, top + 1), dark, 2)
    if above == "hood":
        cv2.rectangle(out, (margin - 9, top - 12), (margin + w + 9, top - 8), dark, -1)
    if above == "gable":
        points = np.array([[margin - 7, top], [margin + w // 2, top - margin + 5], [margin + w + 7, top]], np.int32)
        cv2.fillPoly(out, [points], ink, cv2.LINE_AA)
        cv2.polylines(out, [points], True, dark, 2, cv2.LINE_AA)
    if above == "key":
        x = margin + w // 2
        points = np.array([[x - 6, top - 10], [x + 6, top - 10], [x + 4, top + 6], [x - 4, top + 6]], np.int32)
        cv2.fillPoly(out, [points], ink, cv2.LINE_AA)


def paste(sheet: np.ndarray, part: np.ndarray, left: int, top: int) -> None:
    "Lay an RGBA drawing over another, cut to its edges."
    y0, x0 = max(0, top), max(0, left)
    y1, x1 = min(sheet.shape[0], top + part.shape[0]), min(sheet.shape[1], left + part.shape[1])
    if y0 < y1 and x0 < x1:
        part = part[y0 - top : y1 - top, x0 - left : x1 - left]
        below = sheet[y0:y1, x0:x1]
        cover = part[..., 3:].astype(np.uint16)
        below[:] = (part * (cover / 255.0) + below * (1 - cover / 255.0)).round().astype(np.uint8)


def _masonry(sheet: np.ndarray, wall: tuple, kind: str, chance: np.random.Generator) -> None:
    "Brick, dressed stone or plaster, with stains that belong to this house alone."
    import cv2

    h, w = sheet.shape[:2]
    sheet[:] = (*wall, 255)
    if kind != "plaster":
        course, length = (5, 14) if kind == "brick" else (int(chance.integers(16, 26)), int(chance.integers(28, 50)))
        joint = (*shade(wall, 0.72 if kind == "brick" else 0.8), 255)
        tone = chance.normal(1, 0.07, (h // course + 1, w // length + 2))
        for row, y in enumerate(range(0, h, course)):
            shift = (row % 2) * length // 2
            for column, x in enumerate(range(-shift, w, length)):
                cv2.rectangle(sheet, (x, y), (x + length, y + course), (*shade(wall, tone[row, column]), 255), -1)
            cv2.line(sheet, (0, y), (w, y), joint, 1)
            if kind == "stone":
                for x in range(length - shift, w, length):
                    cv2.line(sheet, (x, y), (x, y + course), joint, 1)
    stain = 1 + 0.05 * clouds(chance, h, w, 48) + 0.04 * clouds(chance, h, w, 7)
    for _ in range(int(chance.integers(3, 9))):  # where rain ran down
        x, y, width = int(chance.integers(w)), int(chance.integers(h)), int(chance.integers(4, 18))
        stain[y : y + int(chance.integers(30, 160)), x : x + width] *= 0.88
    sheet[..., :3] = np.clip(sheet[..., :3] * stain[..., None], 0, 255).astype(np.uint8)


def _quoins(sheet: np.ndarray, colour: tuple, step: int) -> None:
    "Dressed stones at both corners."
    import cv2

    h, w = sheet.shape[:2]
    for i, y in enumerate(range(0, h, step)):
        wide = 22 if i % 2 else 14
        for left in (0, w - wide):
            cv2.rectangle(sheet, (left, y + 1), (left + wide, y + step - 1), (*colour, 255), -1)
            cv2.rectangle(sheet, (left, y + 1), (left + wide, y + step - 1), (*shade(colour, 0.65), 255), 1)


def _cornice(sheet: np.ndarray, y: int, colour: tuple, teeth: int) -> None:
    "A ledge with its shadow, on small brackets where `teeth` is above 0."
    import cv2

    w = sheet.shape[1]
    cv2.rectangle(sheet, (0, y), (w, y + 9), (*colour, 255), -1)
    cv2.line(sheet, (0, y + 10), (w, y + 10), (*shade(colour, 0.45), 255), 3)
    for x in range(teeth // 2, w, teeth) if teeth else ():
        cv2.rectangle(sheet, (x, y + 10), (x + teeth // 2, y + 18), (*shade(colour, 0.85), 255), -1)


def _door(style: dict, height: int, paint: dict) -> np.ndarray:
    "(height, w, 4): a door, or the mouth of a passage."
    import cv2

    w = int(style["width"] * SCALE)
    out = np.zeros((height, w + 12, 4), np.uint8)
    outline = _opening(w, height, style["top"]) + [6, 0]
    cv2.fillPoly(out, [outline], (*paint["door"], 255), cv2.LINE_AA)
    nx, ny = style["panels"]
    start = height // 3 if style["light"] else height // 6
    for i in range(nx):
        for j in range(ny):
            a = (6 + w * i // nx + 5, start + (height - start) * j // ny + 4)
            b = (6 + w * (i + 1) // nx - 5, start + (height - start) * (j + 1) // ny - 4)
            cv2.rectangle(out, a, b, (*shade(paint["door"], 1.35), 255), 2)
    if style["light"]:
        inside = np.zeros(out.shape[:2], np.uint8)
        cv2.fillPoly(inside, [outline], 255)
        inside[start - 4 :] = 0
        out[inside > 0] = (*paint["glass"], 255)
    cv2.polylines(out, [outline], True, (*paint["trim"], 255), 5, cv2.LINE_AA)
    return out


def _shop(sheet: np.ndarray, parts: dict, paint: dict, chance: np.random.Generator) -> None:
    "The ground floor: a band with the shop's name, an awning, doors and shop windows or a row of arches."
    import cv2

    h, w = sheet.shape[:2]
    _masonry(sheet, paint["base"], str(chance.choice(["stone", "plaster"])), chance)
    band = int(0.7 * SCALE)
    named = chance.random() < 0.75
    if named:
        cv2.rectangle(sheet, (0, 0), (w, band), (*paint["sign"], 255), -1)
        text = lettering(shop_name(chance), int(band * 0.78), int(chance.integers(len(_FACES))))[:, : w - 8]
        y, x = (band - text.shape[0]) // 2, int(chance.integers(4, max(5, w - text.shape[1] - 3)))
        cover = np.zeros((h, w), np.uint8)
        cover[max(0, y) : max(0, y) + text.shape[0], x : x + text.shape[1]] = text[: h - max(0, y)]
        sheet[..., :3] = (
            sheet[..., :3] * (1 - cover[..., None] / 255.0) + np.array(paint["letters"]) * (cover[..., None] / 255.0)
        ).astype(np.uint8)
    door = parts["doors"][int(chance.integers(len(parts["doors"])))]
    tall = h - band - 14
    mouth = _door(door, tall, paint)
    bays = max(2, int(w / (mouth.shape[1] + SCALE * float(chance.uniform(0.4, 1.2)))))
    doors = set(chance.choice(bays, max(1, bays // 3), replace=False).tolist())
    arcade = chance.random() < 0.4
    for i in range(bays):
        centre = int((i + 0.5) * w / bays)
        if i in doors or arcade:
            paste(sheet, mouth, centre - mouth.shape[1] // 2, h - tall)
            continue
        half = int(0.4 * w / bays)
        pane = ((centre - half, band + 20), (centre + half, h - 22))
        cv2.rectangle(sheet, *pane, (*paint["glass"], 255), -1)
        for _ in range(int(chance.integers(2, 9))):  # what the shop sells
            x, y = int(chance.integers(pane[0][0], pane[1][0])), int(chance.integers(h - 60, h - 24))
            cv2.circle(sheet, (x, y), int(chance.integers(2, 8)), (*muted(chance, 60, 230, 60), 255), -1, cv2.LINE_AA)
        cv2.rectangle(sheet, *pane, (*paint["frame"], 255), 4)
    if named and chance.random() < 0.5:
        stripe = int(chance.integers(10, 20))
        for i, x in enumerate(range(0, w, stripe)):
            colour = paint["sign"] if i % 2 else (238, 236, 228)
            cv2.rectangle(sheet, (x, band), (x + stripe, band + 18), (*colour, 255), -1)
            cv2.circle(sheet, (x + stripe // 2, band + 18), stripe // 2, (*colour, 255), -1, cv2.LINE_AA)


def _balcony(width: int, railing: dict, paint: dict) -> np.ndarray:
    "(h, width, 4): a slab with a railing."
    import cv2

    tall = int(0.95 * SCALE)
    out, iron = np.zeros((tall + 8, width, 4), np.uint8), (*paint["iron"], 255)
    pitch = max(4, int(railing["pitch"] * SCALE))
    if railing["kind"] == "solid":
        out[4:tall] = (*paint["trim"], 255)
        for x in range(pitch, width - pitch, 2 * pitch):
            cv2.rectangle(out, (x, 12), (x + pitch, tall - 8), (*shade(paint["trim"], 0.7), 255), -1)
    for x in range(2, width, pitch):
        if railing["kind"] == "bars":
            cv2.line(out, (x, 4), (x, tall), iron, 2)
        elif railing["kind"] == "crosses":
            cv2.line(out, (x, 4), (x + 2 * pitch, tall), iron, 2, cv2.LINE_AA)
            cv2.line(out, (x + 2 * pitch, 4), (x, tall), iron, 2, cv2.LINE_AA)
        elif railing["kind"] == "rings":
            cv2.circle(out, (x, tall // 2), pitch // 2 + 1, iron, 2, cv2.LINE_AA)
    cv2.rectangle(out, (0, 1), (width, 5), iron, -1)
    cv2.rectangle(out, (0, tall), (width, tall + 8), (*shade(paint["trim"], 0.8), 255), -1)
    return out


def _premultiplied(sheet: np.ndarray) -> np.ndarray:
    out = sheet.copy()
    out[..., :3] = (sheet[..., :3] * (sheet[..., 3:] / 255.0)).astype(np.uint8)
    return out


def _paint(chance: np.random.Generator) -> dict:
    "The colours of one house."
    wall = muted(chance, 105, 225, 32)
    return {
        "wall": wall, "base": shade(muted(chance, 90, 200, 25), 0.95),
        "trim": shade(wall, 1.3) if chance.random() < 0.6 else (228, 224, 214), "glass": muted(chance, 28, 62, 10),
        "frame": (236, 234, 228) if chance.random() < 0.6 else muted(chance, 30, 90, 25), "lamp": (236, 206, 140),
        "curtain": muted(chance, 150, 235, 25), "shutter": muted(chance, 50, 130, 45),
        "door": muted(chance, 40, 110, 40), "sign": muted(chance, 40, 140, 60),
        "letters": (242, 238, 224) if chance.random() < 0.75 else (24, 22, 28), "iron": (30, 32, 34),
    }


def _upper_floors(chance, parts: dict, paint: dict, width: float, floors: int) -> tuple[np.ndarray, list[Layer]]:
    "The wall above the ground floor, and its balconies as layers of their own (x and y still from the wall's corner)."
    w, h = int(width * SCALE), int(floors * FLOOR * SCALE)
    wall = np.zeros((h, w, 4), np.uint8)
    _masonry(wall, paint["wall"], str(chance.choice(["brick", "stone", "plaster"])), chance)
    if chance.random() < 0.5:
        _quoins(wall, paint["trim"], int(chance.integers(14, 24)))
    styles = [parts["windows"][i] for i in chance.choice(len(parts["windows"]), 2, replace=False)]
    same, bays = chance.random() < 0.6, max(2, int(width / (styles[0]["width"] + float(chance.uniform(0.9, 1.9)))))
    made = {(s, c): _window(styles[s], paint, c) for s in (0, 1) for c in range(4)}
    balconies = []
    railing = parts["railings"][int(chance.integers(len(parts["railings"])))]
    with_balcony = {f for f in range(floors) if chance.random() < 0.3}
    ledge = int(chance.integers(2))
    for f in range(floors):
        top = int((floors - 1 - f) * FLOOR * SCALE)
        s = 0 if same else f % 2
        if ledge and f:
            _cornice(wall, top + int(FLOOR * SCALE) - 6, paint["trim"], 0)
        for b in range(bays):
            part = made[s, int(chance.choice(4, p=[0.45, 0.25, 0.2, 0.1]))]
            left, y = int((b + 0.5) * w / bays) - part.shape[1] // 2, top + int(0.12 * SCALE)
            paste(wall, part, left, y)
            if f in with_balcony and chance.random() < 0.85:
                rail = _balcony(int((styles[s]["width"] + 0.7) * SCALE), railing, paint)
                x = (int((b + 0.5) * w / bays) - rail.shape[1] // 2) / SCALE
                balconies.append(Layer(_premultiplied(rail), (x, -(top / SCALE + 1.75), 0.75)))
    _cornice(wall, 0, paint["trim"], int(chance.choice([0, 12, 18, 26])))
    return wall, balconies


def make_house(chance: np.random.Generator, parts: dict, left: float, depth: float = 0.0) -> House:
    """One house of a town.

    Args:
        chance: all that is random about it.
        parts: what `catalogue` gives.
        left: x of its left wall, metres.
        depth: z of its wall, metres; the street lies at higher z.

    Returns:
        `House`, its layers from back to front: roof, wall, ground floor, balconies.
    """
    width, floors = float(chance.uniform(6.5, 12.5)), int(chance.integers(2, 5))
    ground = float(chance.uniform(3.3, 4.2))
    paint = _paint(chance)
    wall, balconies = _upper_floors(chance, parts, paint, width, floors)
    base = np.zeros((int(ground * SCALE), int(width * SCALE), 4), np.uint8)
    _shop(base, parts, paint, chance)
    height = ground + floors * FLOOR
    tiles = np.zeros((int(2.4 * SCALE), int(width * SCALE), 4), np.uint8)
    _masonry(tiles, muted(chance, 60, 120, 30), "brick", chance)
    layers = [
        # one pixel of the roof goes down by less than it comes forward
        Layer(tiles, (left, height + 1.5, depth - 1.9), down=(0.0, -1.5 / 2.4 / SCALE, 1.9 / 2.4 / SCALE)),
        Layer(wall, (left, height, depth)),
        Layer(base, (left, ground, depth + 0.25)),
    ]
    for balcony in balconies:
        x, y, z = balcony.origin
        layers.append(Layer(balcony.picture, (left + x, height + y, depth + z)))
    return House(left, width, height, depth, shade(paint["wall"], 0.6), layers)
