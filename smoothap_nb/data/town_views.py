"""Photographs of Town: a camera in a street, what stands in its way, weather and light, and how much of a house shows.

Metres: x along the street, y up, z from the walls towards the camera. Planes are painted from back to front by the
homography of each; a plane that runs behind the camera is cut before it is projected, since its far side would
otherwise appear in the sky.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .town_houses import House, Layer, clouds, lettering, muted, shade, shop_name

OVER = 1.5  # pictures are painted so much larger, then reduced: against aliasing
NEAR = 0.4  # metres: what is closer to the camera is cut


@dataclass(frozen=True)
class Camera:
    "A pinhole camera."

    place: np.ndarray  # (3,) metres
    axes: np.ndarray  # (3, 3): rows right, down, forward
    focal: float  # pixels
    width: int
    height: int

    @classmethod
    def looking(cls, place, target, focal: float, width: int, height: int, roll: float = 0.0) -> Camera:
        "From a place to a point; `roll` in radians."
        place, target = np.asarray(place, float), np.asarray(target, float)
        forward = (target - place) / np.linalg.norm(target - place)
        right = np.cross(forward, [0.0, 1.0, 0.0])
        right /= np.linalg.norm(right)
        down = np.cross(forward, right)
        right, down = right * np.cos(roll) + down * np.sin(roll), down * np.cos(roll) - right * np.sin(roll)
        return cls(place, np.stack([right, down, forward]), focal, width, height)

    def seen(self, points: np.ndarray) -> np.ndarray:
        "(n, 3) in the world to (n, 3) in the camera's frame."
        return (points - self.place) @ self.axes.T

    def project(self, corners: np.ndarray) -> np.ndarray:
        "A convex polygon (n, 3), cut at `NEAR`, to (m, 2) pixels; empty where none of it lies in front."
        points = self.seen(np.asarray(corners, float))
        kept = []
        for a, b in zip(points, np.roll(points, -1, axis=0)):
            if a[2] >= NEAR:
                kept.append(a)
            if (a[2] >= NEAR) != (b[2] >= NEAR):
                kept.append(a + (b - a) * (NEAR - a[2]) / (b[2] - a[2]))
        if len(kept) < 3:
            return np.zeros((0, 2))
        kept = np.array(kept)
        polygon = kept[:, :2] / kept[:, 2:] * self.focal + [self.width / 2, self.height / 2]
        return clip(polygon, (-self.width, -self.height), (2 * self.width, 2 * self.height))

    def homography(self, layer: Layer) -> np.ndarray:
        "(3, 3) from the layer's pixels to the picture's."
        inner = np.array([[self.focal, 0, self.width / 2], [0, self.focal, self.height / 2], [0, 0, 1]])
        columns = [self.axes @ layer.right, self.axes @ layer.down, self.axes @ (np.array(layer.origin) - self.place)]
        return inner @ np.stack(columns, 1)


def clip(polygon: np.ndarray, low, high) -> np.ndarray:
    "The part of a convex polygon (n, 2) inside a rectangle: numbers that a rasteriser can hold."
    for axis in (0, 1):
        for limit, sign in ((low[axis], 1), (high[axis], -1)):
            kept, inside = [], (polygon[:, axis] - limit) * sign >= 0
            for a, b, in_a, in_b in zip(polygon, np.roll(polygon, -1, 0), inside, np.roll(inside, -1)):
                if in_a:
                    kept.append(a)
                if in_a != in_b:
                    kept.append(a + (b - a) * (limit - a[axis]) / (b[axis] - a[axis]))
            if len(kept) < 3:
                return np.zeros((0, 2))
            polygon = np.array(kept)
    return polygon


def area(polygon: np.ndarray) -> float:
    "Of a polygon (n, 2), in square pixels."
    x, y = polygon[:, 0], polygon[:, 1]
    return float(abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2) if len(polygon) > 2 else 0.0


def corners_of(layer: Layer) -> np.ndarray:
    "(4, 3) metres."
    h, w = layer.picture.shape[:2]
    o, r, d = (np.array(v, float) for v in (layer.origin, layer.right, layer.down))
    return np.stack([o, o + w * r, o + w * r + h * d, o + h * d])


class Painter:
    "A picture in the making, and which of its pixels show the house that it is of."

    def __init__(self, camera: Camera):
        self.camera = camera
        self.picture = np.zeros((camera.height, camera.width, 3), np.uint8)
        self.target = np.zeros((camera.height, camera.width), bool)
        self.solid = np.zeros((camera.height, camera.width), bool)  # not sky

    def _window(self, polygon: np.ndarray):
        "The rows and columns that a polygon touches, or None."
        if not len(polygon):
            return None
        x0, y0 = np.maximum(np.floor(polygon.min(0)), 0).astype(int)
        x1, y1 = np.minimum(np.ceil(polygon.max(0)) + 1, [self.camera.width, self.camera.height]).astype(int)
        return (x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None

    def layer(self, layer: Layer, is_target: bool = False, only_solid: bool = False) -> None:
        "Paint a layer over what is there."
        import cv2

        corners = corners_of(layer)
        polygon = self.camera.project(corners)
        window = self._window(polygon)
        if window is None:
            return
        x0, y0, x1, y1 = window
        whole = layer.picture.shape[0] * layer.picture.shape[1]
        level = int(np.clip(np.floor(np.log2(max(1.0, np.sqrt(whole / max(area(polygon), 1.0))))), 0, 4))
        picture = layer.at(level)
        shrink = np.diag([layer.picture.shape[1] / picture.shape[1], layer.picture.shape[0] / picture.shape[0], 1.0])
        move = np.array([[1, 0, -x0], [0, 1, -y0], [0, 0, 1.0]])
        matrix = move @ self.camera.homography(layer) @ shrink
        part = cv2.warpPerspective(picture, matrix, (x1 - x0, y1 - y0), flags=cv2.INTER_LINEAR)
        if (self.camera.seen(corners)[:, 2] < NEAR).any():  # the far side of the plane must not wrap into the picture
            mask = np.zeros(part.shape[:2], np.uint8)
            cv2.fillConvexPoly(mask, np.round(polygon - [x0, y0]).astype(np.int32), 1)
            part *= mask[..., None]
        if only_solid:
            part *= self.solid[y0:y1, x0:x1, None]
        self._lay(part, x0, y0, is_target, mark=not only_solid)

    def _lay(self, part: np.ndarray, x0: int, y0: int, is_target: bool, mark: bool = True) -> None:
        rows, columns = slice(y0, y0 + part.shape[0]), slice(x0, x0 + part.shape[1])
        below, cover = self.picture[rows, columns], part[..., 3]
        below[:] = part[..., :3] + (below * (255 - cover[..., None]).astype(np.uint16) // 255).astype(np.uint8)
        if mark:
            covered = cover > 127
            self.target[rows, columns][covered] = is_target
            self.solid[rows, columns][covered] = True

    def flat(self, corners, colour, is_target: bool = False) -> None:
        "A polygon of one colour in space."
        import cv2

        polygon = self.camera.project(np.asarray(corners, float))
        if self._window(polygon) is None:
            return
        mask = np.zeros(self.target.shape, np.uint8)
        cv2.fillConvexPoly(mask, np.round(polygon).astype(np.int32), 1)
        self.picture[mask > 0] = colour
        self.target[mask > 0], self.solid[mask > 0] = is_target, True


def paint_surroundings(painter: Painter, chance: np.random.Generator) -> None:
    "Sky with clouds, far hills, road, kerb and pavement."
    camera = painter.camera
    h, w = painter.target.shape
    top, bottom = np.array(muted(chance, 110, 190, 18)) + [-30, 0, 35], np.array([226, 226, 230])
    ramp = np.linspace(0, 1, h)[:, None, None]
    sky = top * (1 - ramp) + bottom * ramp + 18 * clouds(chance, h, w, 90)[..., None] + [0, 0, 4]
    painter.picture[:] = np.clip(sky, 0, 255)
    behind = [camera.place[0] + 900 * camera.axes[2, 0], camera.place[2] + 900 * camera.axes[2, 2]]
    level = camera.project(np.array([[behind[0] + d, 0.0, behind[1]] for d in (-1, 0, 1)]))
    ground = muted(chance, 85, 140, 14)
    if len(level):  # hills along the horizon
        y = level[1, 1] - np.abs(clouds(chance, 8, w, 60)[0]) * 9 - 5
        rows = np.arange(h)[:, None]
        painter.picture[rows >= y[None]] = shade(muted(chance, 80, 120, 20), 1.0)
        painter.solid |= rows >= y[None]
    size, reach = 512, 70.0
    road = np.zeros((size, size, 4), np.uint8)
    tone = 1 + 0.07 * clouds(chance, size, size, 24) + 0.06 * clouds(chance, size, size, 3)
    road[..., :3] = np.clip(np.array(ground) * tone[..., None], 0, 255)
    road[..., 3] = 255
    for z, wide, factor in ((0.0, 2.6, 1.22), (2.6, 0.2, 1.5), (6.3, 0.15, 1.7)):  # pavement, kerb, a painted line
        a, b = (int((v + 10) / (reach + 10) * size) for v in (z, z + wide))
        road[a : b + 1, :, :3] = np.clip(road[a : b + 1, :, :3] * factor, 0, 255)
    painter.flat([[-900, -0.02, -900], [900, -0.02, -900], [900, -0.02, 900], [-900, -0.02, 900]], ground)
    painter.layer(
        Layer(road, (-reach, 0.0, -10.0), (2 * reach / size, 0.0, 0.0), (0.0, 0.0, (reach + 10) / size))
    )


def paint_house(painter: Painter, house: House, is_target: bool) -> None:
    "Gable walls where they show, then the layers."
    x0, x1, h, z = house.left, house.left + house.width, house.height, house.depth
    for x, seen, factor in ((x0, painter.camera.place[0] < x0, 1.0), (x1, painter.camera.place[0] > x1, 0.85)):
        if seen:
            colour = shade(house.side, factor)
            painter.flat([[x, 0, z], [x, 0, z - 9], [x, h + 1.5, z - 9], [x, h + 1.5, z - 1.9], [x, h, z]], colour)
    for layer in house.layers:
        painter.layer(layer, is_target)


def tree(chance: np.random.Generator, x: float, z: float) -> Layer:
    "A trunk and a crown of leaves, upright and flat, facing the street."
    import cv2

    scale, tall, wide = 30, float(chance.uniform(4.5, 8.5)), float(chance.uniform(2.8, 5.5))
    h, w = int(tall * scale), int(wide * scale)
    sheet = np.zeros((h, w, 4), np.uint8)
    middle, bark = w // 2, (*muted(chance, 45, 80, 15), 255)
    crown = float(chance.uniform(0.5, 0.7)) * h
    trunk = [[middle - 5, h], [middle + 5, h], [middle + 3, int(crown * 0.5)], [middle - 3, int(crown * 0.5)]]
    cv2.fillPoly(sheet, [np.array(trunk)], bark)
    for _ in range(6):
        end = (int(chance.uniform(0.15, 0.85) * w), int(chance.uniform(0.1, 0.8) * crown))
        cv2.line(sheet, (middle, int(crown * 0.9)), end, bark, 3, cv2.LINE_AA)
    green = np.array([chance.integers(40, 110), chance.integers(85, 150), chance.integers(25, 70)])
    bare = chance.uniform(0.35, 1.0)
    for _ in range(int(bare * 300 * wide / 4)):
        angle, far = chance.uniform(0, 2 * np.pi), np.sqrt(chance.random()) * chance.uniform(0.75, 1)
        at = (int(middle + far * np.cos(angle) * w * 0.48), int(crown * 0.5 + far * np.sin(angle) * crown * 0.48))
        tone = 0.55 + 0.5 * (1 - at[1] / crown) + chance.normal(0, 0.12)
        size = (int(chance.integers(3, 9)), int(chance.integers(2, 6)))
        colour = (*shade(green, max(0.3, tone)), 255)
        cv2.ellipse(sheet, at, size, float(chance.uniform(0, 180)), 0, 360, colour, -1)
    return Layer(sheet, (x - wide / 2, tall, z), (1 / scale, 0.0, 0.0), (0.0, -1 / scale, 0.0))


def bus(chance: np.random.Generator, x: float, z: float) -> Layer:
    "A bus or a van with its owner's name."
    import cv2

    scale, long, tall = 36, float(chance.uniform(4.5, 10.0)), float(chance.uniform(2.3, 3.2))
    w, h = int(long * scale), int(tall * scale)
    sheet, paint = np.zeros((h, w, 4), np.uint8), muted(chance, 60, 200, 80)
    cv2.rectangle(sheet, (0, 6), (w, h - 14), (*paint, 255), -1)
    cv2.rectangle(sheet, (0, 0), (w, 6), (*shade(paint, 0.7), 255), -1)
    panes = int(chance.integers(3, 8))
    for i in range(panes):
        left, right = int((i + 0.12) * w / panes), int((i + 0.88) * w / panes)
        cv2.rectangle(sheet, (left, 16), (right, int(h * 0.48)), (40, 46, 54, 255), -1)
        cv2.line(sheet, (left + 3, 20), (right - 3, int(h * 0.46)), (86, 92, 100, 255), 2)
    text = lettering(shop_name(chance), int(h * 0.24), int(chance.integers(5)))[: h // 3, : w - 10]
    y, left = int(h * 0.56), int(chance.integers(3, max(4, w - text.shape[1] - 3)))
    under = sheet[y : y + text.shape[0], left : left + text.shape[1], :3]
    cover = text[: under.shape[0], : under.shape[1], None] / 255.0
    under[:] = (under * (1 - cover) + 240 * cover).astype(np.uint8)
    for share in (0.16, 0.82):
        cv2.circle(sheet, (int(w * share), h - 14), 13, (22, 22, 24, 255), -1, cv2.LINE_AA)
        cv2.circle(sheet, (int(w * share), h - 14), 6, (120, 120, 124, 255), -1, cv2.LINE_AA)
    sheet[..., :3][sheet[..., 3] == 0] = 0
    return Layer(sheet, (x - long / 2, tall, z), (1 / scale, 0.0, 0.0), (0.0, -1 / scale, 0.0))


def post(chance: np.random.Generator, x: float, z: float) -> Layer:
    "A lamp or a sign on a pole."
    import cv2

    scale, tall = 36, float(chance.uniform(3.2, 6.0))
    sheet = np.zeros((int(tall * scale), 50, 4), np.uint8)
    cv2.rectangle(sheet, (22, 8), (27, sheet.shape[0]), (*muted(chance, 35, 95, 8), 255), -1)
    if chance.random() < 0.5:
        cv2.circle(sheet, (25, 18), 14, (236, 230, 206, 255), -1, cv2.LINE_AA)
    else:
        cv2.rectangle(sheet, (2, 4), (47, 34), (*muted(chance, 60, 170, 90), 255), -1)
        cv2.rectangle(sheet, (5, 7), (44, 31), (235, 235, 235, 255), 2)
    sheet[..., :3][sheet[..., 3] == 0] = 0
    return Layer(sheet, (x - 25 / scale, tall, z), (1 / scale, 0.0, 0.0), (0.0, -1 / scale, 0.0))


def paint_shadow(painter: Painter, chance: np.random.Generator) -> None:
    "What a roof across the street throws on the facades: a dark part under a broken line; the sky stays bright."
    import cv2

    sheet = np.zeros((120, 320, 4), np.uint8)
    x, steps = 0, [[0, 120]]
    tall = int(chance.integers(20, 95))
    while x < 320:
        steps += [[x, 120 - tall], [x + int(chance.integers(30, 90)), 120 - tall + int(chance.integers(-14, 15))]]
        x, tall = steps[-1][0], int(np.clip(tall + chance.integers(-25, 26), 12, 105))
    cv2.fillPoly(sheet, [np.array([*steps, [x, 120]])], (0, 0, 0, int(chance.integers(90, 160))))
    # 20 m tall, 53 m wide, just before the walls
    painter.layer(Layer(sheet, (-22.0, 20.0, 0.3), (1 / 6, 0.0, 0.0), (0.0, -1 / 6, 0.0)), only_solid=True)


def develop(picture: np.ndarray, light: dict, size: tuple[int, int], chance: np.random.Generator) -> np.ndarray:
    """What lens, film and hour make of a painted picture.

    Args:
        picture: (h, w, 3) uint8.
        light: "level" (1 = day), "tint" (3,), "haze" (0 ... 1), "gamma", "blur" (pixels of the result), "noise"
            (levels of 255).
        size: (width, height) of the result.
        chance: for the noise.

    Returns:
        (height, width, 3) uint8.
    """
    import cv2

    small = cv2.resize(picture, size, interpolation=cv2.INTER_AREA).astype(np.float32) / 255
    if light["blur"] > 0.2:
        small = cv2.GaussianBlur(small, (0, 0), light["blur"])
    small = np.clip(small, 0, 1) ** light["gamma"]
    small = small * (1 - light["haze"]) + 0.85 * light["haze"]
    small = small * light["level"] * np.asarray(light["tint"], np.float32)
    small += chance.standard_normal(small.shape).astype(np.float32) * light["noise"] / 255
    return (np.clip(small, 0, 1) * 255).round().astype(np.uint8)
