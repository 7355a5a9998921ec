"""Makes the files of this folder: what torchvision's transforms v2 make of the pixels in `../color/source.raw`.

    python make.py            needs torch and torchvision; the files here were made with torchvision 0.29 on a CPU
"""

import json
from pathlib import Path

import numpy as np
import torch
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

ROOT = Path(__file__).parent
WIDTH, HEIGHT = 17, 16
SOURCE = np.frombuffer((ROOT.parent / "color" / "source.raw").read_bytes(), "u1").reshape(HEIGHT, WIDTH, 3)
IMAGE = torch.from_numpy(SOURCE.copy()).permute(2, 0, 1).contiguous()
# Half of the range, so that stretching and equalizing have something to do.
DULL = (IMAGE // 2 + 40).to(torch.uint8)
# Angle, translate, scale, shear, center.
BENT = {
    "rotated": (30.0, [0, 0], 1.0, [0.0, 0.0], None),
    "moved": (0.0, [3, -2], 1.0, [0.0, 0.0], None),
    "all": (-17.5, [2, 1], 1.3, [11.0, -7.0], None),
    "small": (100.0, [0, 0], 0.6, [0.0, 20.0], None),
    "corner": (0.0, [0, 0], 1.0, [16.7, 0.0], [0, 0]),
}
# Where the corners of the image are seen.
SEEN = {
    "left": [[3, 1], [16, 0], [15, 15], [1, 12]],
    "far": [[5, 4], [12, 6], [14, 13], [2, 11]],
}
# Chains of `AugMix`: an op, one of ten strengths, and whether it works the other way.
CHAINS = [
    [("Rotate", 5, True), ("Solarize", 4, False)],
    [("ShearX", 8, False), ("Posterize", 3, False)],
    [("Equalize", None, False), ("TranslateY", 7, True)],
]
SHARES = [[0.4, 0.6], [0.2, 0.5, 0.3]]


def write(name, image):
    (ROOT / f"{name}.raw").write_bytes(image.permute(1, 2, 0).contiguous().numpy().tobytes())


write("dull", DULL)
for kernel, sigma in ((3, 0.5), (5, 1.3), (9, 2.0), (23, 0.1)):
    write(f"blur_{kernel}_{sigma}", F.gaussian_blur(IMAGE, [kernel, kernel], [sigma, sigma]))
for threshold in (0.0, 99.5, 128.0, 255.0):
    write(f"solarize_{threshold}", F.solarize(IMAGE, threshold))
for bits in (0, 1, 4, 7, 8):
    write(f"posterize_{bits}", F.posterize(IMAGE, bits))
write("equalize", F.equalize(DULL.repeat(1, 3, 3)))
write("autocontrast", F.autocontrast(DULL))
for factor in (0.0, 0.5, 1.0, 1.9, 7.3):
    write(f"sharpness_{factor}", F.adjust_sharpness(IMAGE, factor))
for name, (angle, translate, scale, shear, center) in BENT.items():
    for interpolation in ("nearest", "bilinear"):
        options = dict(interpolation=interpolation, fill=[90.0], center=center)
        write(f"affine_{name}_{interpolation}", F.affine(IMAGE, angle, translate, scale, shear, **options))

write("invert", F.invert(IMAGE))
for name, seen in SEEN.items():
    corners = [[0, 0], [WIDTH - 1, 0], [WIDTH - 1, HEIGHT - 1], [0, HEIGHT - 1]]
    for interpolation in ("nearest", "bilinear"):
        options = dict(interpolation=interpolation, fill=[90.0])
        write(f"perspective_{name}_{interpolation}", F.perspective(IMAGE, corners, seen, **options))


class Scripted(v2.AugMix):
    """Draws what the chains above say."""

    def __init__(self):
        super().__init__(severity=10, mixture_width=3, chain_depth=2, interpolation="nearest", fill=90)
        self.shares = iter(SHARES)
        self.steps = iter([step for chain in CHAINS for step in chain])

    def _sample_dirichlet(self, params):
        return torch.tensor([next(self.shares)])

    def _get_random_item(self, dct):
        name, at, other = next(self.steps)
        torch.randint = lambda *_: at
        torch.rand = lambda *_: 0.0 if other else 1.0
        return name, dct[name]


kept = torch.randint, torch.rand
write("aug_mix", Scripted()(IMAGE))
torch.randint, torch.rand = kept

policies = {}
for policy in v2.AutoAugmentPolicy:
    policies[policy.value] = v2.AutoAugment(policy)._policies
strengths = {}
for kind in (v2.AutoAugment, v2.AugMix):
    of = {name: make(10, 500, 331) for name, (make, _) in kind._AUGMENTATION_SPACE.items()}
    strengths[kind.__name__] = {
        name: [0.0] * 10 if made is None else [float(value) for value in made] for name, made in of.items()
    }
(ROOT / "policies.json").write_text(json.dumps({"policies": policies, "strengths": strengths}))

# Boxes in an image of 40 x 30, and where they are afterwards.
BOXES = [[2.0, 3.0, 20.0, 10.5], [0.0, 0.0, 40.0, 30.0], [30.0, 20.0, 39.0, 29.5], [12.0, 14.0, 13.0, 15.0]]
COEFFICIENTS = F._geometry._get_perspective_coeffs(
    [[0, 0], [39, 0], [39, 29], [0, 29]], [[4, 1], [37, 3], [33, 27], [2, 22]]
)
moved = {
    "flip": F.horizontal_flip,
    "turned": lambda boxes: F.affine(boxes, 25.0, [3, -2], 0.8, [5.0, -3.0]),
    "tilted": lambda boxes: F.perspective(boxes, None, None, coefficients=COEFFICIENTS),
    "resized": lambda boxes: F.resize(boxes, [45, 80]),
    "cropped": lambda boxes: F.crop(boxes, 5, 10, 20, 25),
    "padded": lambda boxes: F.pad(boxes, [3, 1, 2, 4]),
}
found = {"boxes": BOXES, "coefficients": COEFFICIENTS, "moved": {}}
for name, move in moved.items():
    boxes = tv_tensors.BoundingBoxes(torch.tensor(BOXES), format="XYXY", canvas_size=(30, 40))
    found["moved"][name] = F.clamp_bounding_boxes(move(boxes)).tolist()
(ROOT / "boxes.json").write_text(json.dumps(found))

spaces = {}
for kind in (v2.RandAugment, v2.TrivialAugmentWide):
    of = {name: make(31, 500, 331) for name, (make, _) in kind._AUGMENTATION_SPACE.items()}
    values = {name: [0.0] * 31 if made is None else [float(value) for value in made] for name, made in of.items()}
    spaces[kind.__name__] = values
(ROOT / "strengths.json").write_text(json.dumps(spaces))
