"""Columns of audio: how files become waveforms or spectra, as plain data.

    fb.audio("wav;flac").mono().resample(16_000).random_crop(seconds=1.0).log_mel(n_mels=80)

Names and defaults are torchaudio's where it has the op. Nothing is computed here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from forebay.recipe import Column

if TYPE_CHECKING:
    from forebay.dataset import Dataset

__all__ = ["Audio", "audio"]

Quality: TypeAlias = Literal["fast", "good", "best"]
Window: TypeAlias = Literal["hann", "hamming", "blackman", "rectangular"]
PadMode: TypeAlias = Literal["reflect", "constant"]
MelScale: TypeAlias = Literal["htk", "slaney"]
MelNorm: TypeAlias = Literal["none", "slaney"]


class Audio(Column):
    """A column of audio: `f32` of the shape `[channels, samples]`, or `[channels, bands, frames]` after one of
    `spectrogram`, `mel`, `log_mel` and `mfcc`. Ops are carried out in the order in which they are written.

    When `mono` or `stereo` and a crop of a known length make all shapes one, values are written straight into the
    batch; otherwise they are a list, or one array with `pad_batch`. Random ops draw from a stream of their own, keyed
    by seed, epoch, sample and place in the recipe.
    """

    __slots__ = ()

    def mono(self) -> Self:
        """The mean of all channels as one."""
        return self._op("mono")

    def stereo(self) -> Self:
        """Two channels: one is repeated, and audio of more than two is a bad sample."""
        return self._op("stereo")

    def resample(self, rate: int, *, quality: Quality = "fast") -> Self:
        """Gives the waveform another rate by a windowed sinc: `fast` is torchaudio's default, `good` and `best` are its
        `kaiser_fast` and `kaiser_best`. Audio that has the rate stays as it is."""
        return self._op("resample", rate=rate, quality=quality)

    def random_crop(self, *, samples: int | None = None, seconds: float | None = None) -> Self:
        """Cuts a part of this length at random; what is shorter is followed by silence.

        With nothing but `mono`, `stereo` and one `resample` before it, only what it needs is decoded.
        """
        return self._op("random_crop", samples=samples, seconds=seconds)

    def center_crop(self, *, samples: int | None = None, seconds: float | None = None) -> Self:
        """Cuts the middle; what is shorter is followed by silence. Decodes as little as `random_crop` does."""
        return self._op("center_crop", samples=samples, seconds=seconds)

    def pad(self, *, samples: int | None = None, seconds: float | None = None) -> Self:
        """Silence behind up to this length; what is longer stays as it is."""
        return self._op("pad", samples=samples, seconds=seconds)

    def gain(self, db: float | tuple[float, float]) -> Self:
        """Makes it louder by `db` decibels, or by as many as are drawn from an interval."""
        low, high = (db, db) if isinstance(db, (int, float)) else db
        return self._op("gain", db=(low, high))

    def speed(self, factors: Sequence[float] = (0.9, 1.0, 1.1)) -> Self:
        """Plays it at one of these speeds, which moves its pitch too."""
        return self._op("speed", factors=list(factors))

    def noise(self, snr: float | tuple[float, float], *, p: float = 1.0) -> Self:
        """Adds white noise with probability `p`, `snr` decibels below the signal, or as many as are drawn."""
        low, high = (snr, snr) if isinstance(snr, (int, float)) else snr
        return self._op("noise", snr=(low, high), p=p)

    def mix_noise(
        self,
        dataset: Dataset,
        snr: float | tuple[float, float],
        *,
        p: float = 1.0,
        field: str = "wav",
        max_bytes: int = 256 << 20,
    ) -> Self:
        """Mixes in recordings of another dataset with probability `p`, `snr` decibels below the signal, or as many as
        are drawn: for every sample and epoch another recording, another place in it and another ratio.

        dataset: the recordings, as `open` gives them. The recipe holds how they are opened and their version, so
            processes of a service open them too; changed recordings are another recipe.
        field: the field of the recordings; alternatives are separated by `;`.
        max_bytes: recordings are kept in memory as they are stored, by every process that prepares samples; a dataset
            with more bytes of them is an error.

        Recordings are made mono and given the rate of the signal; one that is shorter is repeated.
        """
        low, high = (snr, snr) if isinstance(snr, (int, float)) else snr
        data = json.loads(dataset.native.spec_for_recipe())
        given: dict[str, Any] = {"version": dataset.version, "data": data, "field": field}
        return self._op("mix_noise", snr=(low, high), p=p, max_bytes=max_bytes, **given)

    def spectrogram(
        self,
        *,
        n_fft: int = 400,
        win_length: int | None = None,
        hop_length: int | None = None,
        window: Window = "hann",
        power: Literal[1, 2] = 2,
        center: bool = True,
        pad_mode: PadMode = "reflect",
    ) -> Self:
        """Magnitude (`power=1`) or power of short Fourier transforms: `n_fft // 2 + 1` frequencies a frame."""
        return self._op("spectrogram", **_given(locals()))

    def mel(
        self,
        *,
        n_fft: int = 400,
        win_length: int | None = None,
        hop_length: int | None = None,
        window: Window = "hann",
        power: Literal[1, 2] = 2,
        center: bool = True,
        pad_mode: PadMode = "reflect",
        n_mels: int = 128,
        f_min: float = 0.0,
        f_max: float | None = None,
        mel_scale: MelScale = "htk",
        norm: MelNorm = "none",
    ) -> Self:
        """A spectrogram in bands of a mel scale. The defaults are torchaudio's; librosa's are `mel_scale="slaney",
        norm="slaney"`. The rate must be known: `resample` comes before it."""
        return self._op("mel", **_given(locals()))

    def log_mel(
        self,
        *,
        n_fft: int = 400,
        win_length: int | None = None,
        hop_length: int | None = None,
        window: Window = "hann",
        power: Literal[1, 2] = 2,
        center: bool = True,
        pad_mode: PadMode = "reflect",
        n_mels: int = 128,
        f_min: float = 0.0,
        f_max: float | None = None,
        mel_scale: MelScale = "htk",
        norm: MelNorm = "none",
        log: Literal["ln", "log10", "db"] = "ln",
        floor: float = 1e-10,
        range: float | None = None,
    ) -> Self:
        """The logarithm of mel bands, of which none is taken as smaller than `floor`. With `range`, values are raised
        to the sample's largest less `range`: `log="db", range=80` is librosa's `power_to_db`."""
        return self._op("log_mel", **_given(locals()))

    def mfcc(
        self,
        *,
        n_mfcc: int = 40,
        n_fft: int = 400,
        win_length: int | None = None,
        hop_length: int | None = None,
        window: Window = "hann",
        power: Literal[1, 2] = 2,
        center: bool = True,
        pad_mode: PadMode = "reflect",
        n_mels: int = 128,
        f_min: float = 0.0,
        f_max: float | None = None,
        mel_scale: MelScale = "htk",
        norm: MelNorm = "none",
    ) -> Self:
        """Cepstral coefficients: the cosine transform of mel bands in decibels, up to 80 below the loudest."""
        return self._op("mfcc", **_given(locals()))

    def spec_augment(
        self,
        *,
        n_time_masks: int = 2,
        time_mask_param: int,
        n_freq_masks: int = 2,
        freq_mask_param: int,
        p: float = 1.0,
        fill: Literal["mean", "zero"] = "mean",
    ) -> Self:
        """Masks random spans of frames and of bands of a spectrum, each narrower than its parameter and no wider than
        the share `p` of them."""
        return self._op("spec_augment", **_given(locals()))


def audio(field: str = "wav", *, max_samples: int | None = None) -> Audio:
    """A column of audio: WAV, FLAC, MP3, Ogg Vorbis or Ogg Opus, told apart by their first bytes.

    field: field of the sample; alternatives are separated by `;`, as in `wav;flac`, and the first present is read.
    max_samples: files of which more would be decoded, all channels together, are refused; about 134 million when not
        given.
    """
    decode: dict[str, Any] = {"kind": "audio"}
    if max_samples is not None:
        decode["max_samples"] = max_samples
    return Audio({"field": field, "decode": decode})


def _given(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name != "self"}
