"""Streets of Town: one house to look for between its neighbours, views of it, and what each view shows of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from .town_houses import House, make_house
from .town_views import (
    OVER,
    Camera,
    Painter,
    area,
    bus,
    corners_of,
    develop,
    paint_house,
    paint_shadow,
    paint_surroundings,
    post,
    tree,
)

WIDE = (400, 300)  # pixels, width and height; one view in three stands upright


@dataclass(frozen=True)
class Shown:
    "What a picture shows of its house; the labels follow from these numbers alone."

    visible: float  # share of the facade that is in the frame and not hidden, 0 ... 1
    share: float  # share of the picture that it fills
    angle: float  # degrees between the line of sight to its middle and the straight look at it
    density: float  # pixels per metre, the geometric mean of both directions
    contrast: float  # standard deviation of its grey levels, 0 ... 255: light, haze and night
    blur: float  # pixels

    def to_dict(self) -> dict[str, float]:
        "For a JSON file."
        return {k: round(v, 4) for k, v in asdict(self).items()}


EASY = {"visible": 0.6, "share": 0.12, "angle": 40.0, "density": 9.0, "contrast": 22.0, "blur": 1.2}
HARD = {"visible": 0.2, "share": 0.03, "angle": 72.0, "density": 4.0, "contrast": 6.0, "blur": 2.6}


def judge(shown: Shown) -> str:
    "\"easy\", \"hard\" or \"junk\": every number must reach the limits of `EASY`, or of `HARD`."
    for name, limits in (("easy", EASY), ("hard", HARD)):
        enough = all(getattr(shown, k) >= limits[k] for k in ("visible", "share", "density", "contrast"))
        if enough and all(getattr(shown, k) <= limits[k] for k in ("angle", "blur")):
            return name
    return "junk"


def make_street(seed: int, kind: int, number: int, parts: dict) -> list[House]:
    "Seven houses from left to right; the one in the middle (index 3) is looked for and starts at x = 0."
    chance = np.random.default_rng([seed, 10 + kind, number])
    middle = make_house(chance, parts, 0.0)
    houses, left, right = [middle], 0.0, middle.width
    for _ in range(2):
        house = make_house(chance, parts, right, float(chance.choice([0.0, -0.5, -1.2, 0.4])))
        houses.append(house)
        right += house.width
        house = make_house(chance, parts, 0.0, float(chance.choice([0.0, -0.5, -1.2, 0.4])))
        left -= house.width
        houses.insert(0, move_house(house, left))
    return houses


def move_house(house: House, left: float) -> House:
    "The same house with its left wall at another x."
    for layer in house.layers:
        layer.origin = (layer.origin[0] + left - house.left, *layer.origin[1:])
    house.left = left
    return house


def _camera(chance: np.random.Generator, house: House, effort: float, size: tuple[int, int]) -> Camera:
    "A place in the street; the higher `effort` (0 ... 1), the more slanting, distant and careless."
    w, h = (int(v * OVER) for v in size)
    focal = float(chance.uniform(0.85, 1.3)) * max(w, h)
    centre = np.array([house.left + house.width / 2, house.height * 0.5, house.depth])
    angle = np.radians(chance.normal(0, 12 + 40 * effort))
    angle = float(np.clip(angle, -1.3, 1.3))
    # the distance at which the house would fill the frame
    fills = focal * max(house.width / w, house.height / h)
    away = max(5.0, fills * float(chance.uniform(0.95 - 0.3 * effort, 1.35 + 1.7 * effort)) * np.cos(angle) ** 0.4)
    place = centre + [away * np.sin(angle), 0, away * np.cos(angle)]
    place[1] = float(chance.uniform(1.5, 2.0 if effort < 0.9 else 5.0))
    wander = np.array([house.width, house.height]) * (0.1 + 0.3 * effort)
    aim = centre + [*(chance.normal(0, 0.5, 2) * wander), 0]
    return Camera.looking(place, aim, focal, w, h, roll=float(chance.normal(0, 0.015 + 0.05 * effort)))


def _obstacles(chance: np.random.Generator, house: House, camera: Camera, effort: float) -> list:
    "Trees, posts and vehicles between the camera and the house, farthest first."
    found, reach = [], camera.place[2] - house.depth
    for make, mean in ((tree, 0.05 + 2.3 * effort), (post, 0.1 + 0.8 * effort), (bus, 1.0 * effort)):
        for _ in range(int(chance.poisson(mean))):
            z = house.depth + float(chance.uniform(2.0, max(2.5, min(11.0, 0.72 * reach))))
            # stands on a line from the camera to some point of the facade
            share = (z - house.depth) / reach
            x = house.left + house.width * float(chance.uniform(-0.3, 1.3))
            found.append(make(chance, x + (camera.place[0] - x) * share, z))
    return sorted(found, key=lambda layer: layer.origin[2])


def _light(chance: np.random.Generator, effort: float) -> dict:
    "Hour, weather, lens."
    night = chance.random() < 0.02 + 0.3 * effort
    level = float(chance.uniform(0.2, 0.45) if night else chance.uniform(0.75, 1.1))
    tint = chance.normal(1, 0.04 + 0.06 * effort, 3) * ([0.85, 0.9, 1.15] if night else [1, 1, 1])
    return {
        "level": level,
        "tint": tint,
        "haze": float(chance.beta(1, 9 - 5 * effort)) * 0.7,
        "gamma": float(np.exp(chance.normal(0, 0.1 + 0.15 * effort))),
        "blur": float(abs(chance.normal(0, 0.25 + 0.8 * effort))),
        "noise": float(chance.uniform(1, 3 + 6 * effort)) + (3 if night else 0),
    }


def photograph(houses: list[House], chance: np.random.Generator, effort: float):
    """One view of the street's middle house.

    Args:
        houses: what `make_street` gives.
        chance: all that is random about the view.
        effort: 0: straight, near, unhidden, by day; 1: what a hurried passer-by brings home.

    Returns:
        the picture (h, w, 3) uint8, `Shown`, and the box (left, top, right, bottom) of the facade in it, cut to the
        frame.
    """
    size = WIDE if chance.random() < 0.67 else WIDE[::-1]
    house = houses[len(houses) // 2]
    camera = _camera(chance, house, effort, size)
    painter = Painter(camera)
    paint_surroundings(painter, chance)
    for other in sorted(houses, key=lambda h: -abs(h.left + h.width / 2 - camera.place[0])):
        paint_house(painter, other, other is house)
    if chance.random() < 0.25 + 0.25 * effort:
        paint_shadow(painter, chance)
    for layer in _obstacles(chance, house, camera, effort):
        painter.layer(layer)
    light = _light(chance, effort)
    picture = develop(painter.picture, light, size, chance)
    shown, box = _measure(house, painter, picture, light["blur"])
    return picture, shown, box


def _measure(house: House, painter: Painter, picture: np.ndarray, blur: float):
    "`Shown` and the box of a painted view."
    import cv2

    camera, facade = painter.camera, house.layers[1:3]  # wall and ground floor
    polygons = [camera.project(corners_of(layer)) for layer in facade]
    whole = sum(area(p) for p in polygons) or 1.0
    metres = house.width * house.height
    centre = np.array([house.left + house.width / 2, house.height / 2, house.depth])
    sight = camera.place - centre
    seen = cv2.resize(painter.target.astype(np.uint8), picture.shape[1::-1], interpolation=cv2.INTER_NEAREST) > 0
    grey = picture.mean(2)[seen]
    inside = painter.target.sum()
    shown = Shown(
        visible=float(min(1.0, inside / whole)),
        share=float(seen.mean()),
        angle=float(np.degrees(np.arctan2(abs(sight[0]), sight[2]))),
        density=float(np.sqrt(whole / metres) / OVER),
        contrast=float(grey.std()) if len(grey) else 0.0,
        blur=blur,
    )
    points = np.concatenate([p for p in polygons if len(p)] or [np.zeros((1, 2))]) / OVER
    low, high = points.min(0).clip(0), np.minimum(points.max(0), picture.shape[1::-1])
    return shown, [float(v) for v in (*low, *high)]
