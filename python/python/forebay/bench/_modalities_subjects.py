"""What ``forebay bench modalities`` measures, one subject a process: ``python -m ... SUBJECT SETTINGS``.

Prints one JSON object. Imports are not timed; opening the data, starting threads or processes and the first batch are.
Samples are clips, windows, rows and images.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ._subjects import MEAN, STD, _cpu_seconds

Settings = dict[str, Any]
Run = Callable[[], Iterator[int]]


def audio_forebay(settings: Settings) -> Run:
    """WAV files to log-mel spectra, on native threads."""
    import forebay as fb

    column = fb.audio("wav").mono().resample(settings["clip_rate"])
    column = column.center_crop(seconds=settings["clip_seconds"])
    spectra = column.log_mel(**{key: settings[key] for key in ("n_fft", "hop_length", "n_mels")})

    def run() -> Iterator[int]:
        data = fb.open(settings["path_clips"], extensions=["wav"], manifest_dir=settings["path_manifests"])
        yield from _forebay(settings, data, [spectra.named("x")], "clip_batch")

    return run


def _clips(settings: Settings, spectrum: Callable[[str], Any]) -> Run:
    """A DataLoader whose processes make the spectra of files."""
    import torch
    from torch.utils.data import Dataset

    paths = [str(path) for path in sorted(Path(settings["path_clips"]).glob("*.wav"))]

    class Clips(Dataset):  # type: ignore[type-arg, misc, unused-ignore]
        def __len__(self) -> int:
            return len(paths)

        def __getitem__(self, index: int) -> Any:
            torch.set_num_threads(1)
            return spectrum(paths[index])

    return lambda: _dataloader(settings, Clips(), settings["clip_batch"])


def audio_torchaudio(settings: Settings) -> Run:
    """soundfile to decode, torchaudio for the rest: its transforms with the same parameters."""
    import soundfile
    import torch
    import torchaudio.transforms as T

    resample = T.Resample(44_100, settings["clip_rate"])
    mel = T.MelSpectrogram(
        settings["clip_rate"],
        settings["n_fft"],
        hop_length=settings["hop_length"],
        n_mels=settings["n_mels"],
    )

    def spectrum(path: str) -> Any:
        wave, _rate = soundfile.read(path, dtype="float32", always_2d=True)
        return mel(resample(torch.from_numpy(wave.T).mean(0, keepdim=True))).clamp(min=1e-10).log()

    return _clips(settings, spectrum)


def audio_librosa(settings: Settings) -> Run:
    """``librosa.load`` and ``librosa.feature.melspectrogram``, as in its tutorial."""
    import librosa

    def spectrum(path: str) -> Any:
        wave, rate = librosa.load(path, sr=settings["clip_rate"], mono=True)
        given = {key: settings[key] for key in ("n_fft", "hop_length", "n_mels")}
        return np.log(np.maximum(librosa.feature.melspectrogram(y=wave, sr=rate, **given), 1e-10))[None]

    # Much of it is imported with the first use, and imports are not timed.
    spectrum(str(next(Path(settings["path_clips"]).glob("*.wav"))))
    return _clips(settings, spectrum)


def audio_scipy(settings: Settings) -> Run:
    """SciPy to decode and resample, PyTorch for the transform: what needs no library for audio."""
    import torch
    from scipy.io import wavfile
    from scipy.signal import resample_poly

    rate, n_fft = settings["clip_rate"], settings["n_fft"]
    window, filters = (
        torch.hann_window(n_fft),
        torch.from_numpy(_mel_filters(rate, n_fft, settings["n_mels"])),
    )

    def spectrum(path: str) -> Any:
        found, stored = wavfile.read(path)
        wave = stored.astype(np.float32).mean(axis=1) / 32768
        divisor = int(np.gcd(found, rate))
        made = torch.from_numpy(resample_poly(wave, rate // divisor, found // divisor).astype(np.float32))
        frames = torch.stft(made, n_fft, settings["hop_length"], window=window, return_complex=True)
        return (filters @ frames.abs().square()).clamp(min=1e-10).log()[None]

    return _clips(settings, spectrum)


def _mel_filters(rate: int, n_fft: int, n_mels: int) -> Any:
    """Triangles on the scale of HTK."""
    most = 2595 * np.log10(1 + rate / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, most, n_mels + 2) / 2595) - 1)
    slopes = edges[:, None] - np.linspace(0, rate / 2, n_fft // 2 + 1)[None]
    steps = np.diff(edges)[:, None]
    return np.maximum(0, np.minimum(-slopes[:-2] / steps[:-1], slopes[2:] / steps[1:])).astype(np.float32)


def windows_forebay(settings: Settings) -> Run:
    """Windows of a file of tokens, in full shuffle."""
    import forebay as fb

    def run() -> Iterator[int]:
        options: Any = {"window": settings["window"], "documents": "cross"}
        corpus = f"{settings['path_corpus']}/corpus.bin"
        data = fb.open(corpus, tokens=options, manifest_dir=settings["path_manifests"])
        column = fb.tokens(length=settings["window"] + 1).named("x")
        yield from _forebay(settings, data, [column], "window_batch")

    return run


def windows_memmap(settings: Settings) -> Run:
    """The same windows of a NumPy memmap through a DataLoader, as small trainers do it."""
    import torch
    from torch.utils.data import Dataset

    window = settings["window"]
    tokens = np.memmap(f"{settings['path_corpus']}/corpus.bin", np.uint16, "r")

    class Windows(Dataset):  # type: ignore[type-arg, misc, unused-ignore]
        def __len__(self) -> int:
            return int((len(tokens) - 1) // window)

        def __getitem__(self, index: int) -> Any:
            part = tokens[index * window : (index + 1) * window + 1]
            return torch.from_numpy(part.astype(np.int64))

    return lambda: _dataloader(settings, Windows(), settings["window_batch"])


def packing_forebay(settings: Settings) -> Run:
    """Documents packed into rows, with labels, positions and segments."""
    import forebay as fb

    def run() -> Iterator[int]:
        data = fb.open(f"{settings['path_corpus']}/corpus.bin", manifest_dir=settings["path_manifests"])
        column = fb.tokens().named("x").pack(settings["row"], labels=True)
        yield from _forebay(settings, data, [column], "row_batch")

    return run


def packing_python(settings: Settings) -> Run:
    """A greedy packer of Python over the same documents, its rows through a DataLoader."""
    from torch.utils.data import IterableDataset, get_worker_info

    class Rows(IterableDataset):  # type: ignore[type-arg, misc, unused-ignore]
        def __iter__(self) -> Iterator[Any]:
            info = get_worker_info()
            number, workers = (info.id, info.num_workers) if info else (0, 1)
            lengths = np.load(f"{settings['path_corpus']}/lengths.npy")
            places = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
            tokens = np.memmap(f"{settings['path_corpus']}/corpus.bin", np.uint16, "r")
            order = np.random.default_rng(0).permutation(len(lengths))[number::workers]
            yield from pack(((tokens[places[at] : places[at + 1]]) for at in order), settings["row"])

    return lambda: _dataloader(settings, Rows(), settings["row_batch"])


def pack(documents: Iterator[Any], length: int) -> Iterator[dict[str, Any]]:
    """Rows of whole documents, in the order in which they come; what does not fit begins a new row."""

    def empty() -> dict[str, Any]:
        columns = ("x", "labels", "position", "segment")
        return {name: np.full(length, -100 if name == "labels" else 0, np.int64) for name in columns}

    row, used, segment = empty(), 0, 0
    for stored in documents:
        document = stored[:length].astype(np.int64)
        if used + len(document) > length:
            yield row
            row, used, segment = empty(), 0, 0
        segment += 1
        place = slice(used, used + len(document))
        row["x"][place] = document
        row["labels"][used : used + len(document) - 1] = document[1:]
        row["position"][place] = np.arange(len(document))
        row["segment"][place] = segment
        used += len(document)
    if used:
        yield row


def augment_forebay(settings: Settings) -> Run:
    """Photographs in shards: random crop, flip, RandAugment, normalised."""
    import forebay as fb

    column = fb.image("jpg").random_resized_crop(settings["size"]).flip().rand_augment()

    def run() -> Iterator[int]:
        data = fb.open(f"{settings['path_shards']}/*.tar", manifest_dir=settings["path_manifests"])
        columns = [column.normalize(mean=MEAN, std=STD).named("x")]
        yield from _forebay(settings, data, columns, "image_batch")

    return run


def augment_torchvision(settings: Settings) -> Run:
    """The same photographs as files, through Pillow and torchvision's v2 transforms."""
    import torch
    from torchvision import datasets
    from torchvision.transforms import v2

    transform = v2.Compose(
        [
            v2.PILToTensor(),
            v2.RandomResizedCrop(settings["size"], antialias=True),
            v2.RandomHorizontalFlip(),
            v2.RandAugment(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )
    data = datasets.ImageFolder(settings["path_tree"], transform)
    return lambda: _dataloader(settings, data, settings["image_batch"])


def _forebay(settings: Settings, data: Any, recipe: list[Any], batch: str) -> Iterator[int]:
    import forebay as fb

    size, threads = settings[batch], settings["workers"]
    with fb.Loader(data, recipe, batch_size=size, shuffle=True, num_workers=threads) as loader:
        for _ in range(settings["epochs"]):
            for made in loader:
                yield len(made["x"])


def _dataloader(settings: Settings, data: Any, size: int) -> Iterator[int]:
    from torch.utils.data import DataLoader, IterableDataset

    order: dict[str, Any] = {} if isinstance(data, IterableDataset) else {"shuffle": True}
    loader = DataLoader(
        data, batch_size=size, num_workers=settings["workers"], persistent_workers=True, **order
    )
    for _ in range(settings["epochs"]):
        for made in loader:
            first = made["x"] if isinstance(made, dict) else made[0] if isinstance(made, list) else made
            yield len(first)


SUBJECTS: dict[str, Callable[[Settings], Run]] = {
    subject.__name__: subject
    for subject in (
        *(audio_forebay, audio_torchaudio, audio_librosa, audio_scipy),
        *(windows_forebay, windows_memmap, packing_forebay, packing_python),
        *(augment_forebay, augment_torchvision),
    )
}


def main() -> None:
    """Runs one subject and prints its figures."""
    run = SUBJECTS[sys.argv[1]](json.loads(sys.argv[2]))
    cpu, began = _cpu_seconds(), time.perf_counter()
    total, first = 0, 0.0
    for amount in run():
        first = first or time.perf_counter() - began
        total += amount
    seconds, cpu = time.perf_counter() - began, _cpu_seconds() - cpu
    figures = {
        "samples_per_second": total / seconds,
        "cpu_seconds_per_sample": cpu / total,
        "first_batch_seconds": first,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
