"""Words of one second told apart: audio files of two rates, log-mel spectra, a small network.

The recordings are made here: each word is a melody of its own, in a voice of its own pitch, over noise.
"""

from __future__ import annotations

import tempfile
import wave
from pathlib import Path

import forebay as fb
import numpy as np

WORDS = {"go": (1.0, 1.5, 2.0), "no": (2.0, 1.5, 1.0), "stop": (1.0, 2.0, 1.0), "yes": (2.0, 1.0, 2.0)}
EACH = 24


def record(path: Path, melody: tuple[float, ...], draws: np.random.Generator) -> None:
    """One word, at 8 or 16 kHz."""
    rate = int(draws.choice([8000, 16_000]))
    pitch = np.repeat(melody, rate // 3) * draws.uniform(180, 300)
    tone = np.sin(2 * np.pi * np.cumsum(pitch) / rate) + 0.05 * draws.standard_normal(len(pitch))
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((tone * draws.uniform(2000, 9000)).astype("<i2").tobytes())


def features(spectra: np.ndarray) -> np.ndarray:
    """How loud each band is in each sixth of the time, whatever the voice's volume."""
    frames = spectra.shape[-1] // 6 * 6
    means = spectra[:, 0, :, :frames].reshape(len(spectra), spectra.shape[2], 6, -1).mean(-1)
    means = means - means.mean(axis=(1, 2), keepdims=True)
    return (means / means.std(axis=(1, 2), keepdims=True)).reshape(len(spectra), -1)


def main() -> None:
    draws = np.random.default_rng(3)
    with tempfile.TemporaryDirectory() as folder:
        for word, melody in WORDS.items():
            (Path(folder) / word).mkdir()
            for number in range(EACH):
                record(Path(folder) / word / f"{number}.wav", melody, draws)
        column = fb.audio("wav").mono().resample(16_000)
        mel = {"n_fft": 400, "hop_length": 160, "n_mels": 40, "floor": 1e-6}
        train = column.random_crop(seconds=0.95).gain((-6, 6)).noise((15, 30), p=0.5).log_mel(**mel)
        train = train.spec_augment(time_mask_param=10, freq_mask_param=5)
        data = fb.open(folder, extensions=["wav"])
        weights = np.zeros((40 * 6, len(WORDS)), np.float32)
        with fb.Loader(
            data, [train.named("x"), fb.label("cls")], batch_size=16, shuffle=True, seed=1
        ) as loader:
            for batch in (batch for _ in range(12) for batch in loader):
                x, wanted = features(batch["x"]), np.eye(len(WORDS))[batch["cls"]]
                scores = np.exp(x @ weights - (x @ weights).max(axis=1, keepdims=True))
                weights -= 0.02 * x.T @ (scores / scores.sum(axis=1, keepdims=True) - wanted) / len(x)
        # Looked at as a whole: the middle, and nothing by chance.
        heard = 0
        recipe = [column.center_crop(seconds=0.95).log_mel(**mel).named("x"), fb.label("cls")]
        with fb.Loader(data, recipe, batch_size=16) as loader:
            for batch in loader:
                heard += int(((features(batch["x"]) @ weights).argmax(axis=1) == batch["cls"]).sum())
        assert heard > 0.9 * EACH * len(WORDS), heard
        print(f"the words are told apart: {heard} of {EACH * len(WORDS)}")


if __name__ == "__main__":
    main()
