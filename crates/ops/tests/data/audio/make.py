"""Makes the files of this folder: short recordings in each format, and what other libraries make of one of them.

    python make.py            needs ffmpeg with libmp3lame, libvorbis and libopus, torch, torchaudio and librosa; the files
                              here were made with ffmpeg 5.1, torchaudio 2.11 and librosa 0.11 on a CPU

`NAME.f32` is what is to be expected, in little endian: of a recording what ffmpeg decodes, of `signal.f32` what
`CASES` in `audio_path/tests.rs` names. `NAME.i16` is the same in 16 bits, of long ones only each `STEP`-th sample.
"""

import subprocess
from pathlib import Path

import librosa
import numpy as np
import torch

# Nothing here runs on a GPU, so it does not matter which one the two were built for.
torch.version.cuda = None
import torchaudio.functional as F  # noqa: E402
import torchaudio.transforms as T  # noqa: E402

ROOT = Path(__file__).parent
RATE = 8000
# No multiple of it is a frame of any codec.
STEP = 31


def write(name, values):
    (ROOT / f"{name}.f32").write_bytes(np.asarray(values, "<f4").tobytes())


def ffmpeg(*arguments, given=b""):
    command = ["ffmpeg", "-v", "error", "-y", "-bitexact", *arguments]
    return subprocess.run(command, input=given, capture_output=True, check=True).stdout


def recording(seconds, channels, rate=RATE, harmonics=8):
    """A voice of sorts: harmonics that glide, in syllables, over a little noise."""
    draws = np.random.default_rng(7)
    time = np.arange(int(seconds * rate)) / rate
    pitch = 140 + 50 * np.sin(2 * np.pi * 1.5 * time)
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    voice = sum(np.sin(k * phase + k) / k for k in range(1, harmonics + 1)) * (0.5 + 0.5 * np.sin(2 * np.pi * 3 * time))
    sides = [0.25 * voice + 0.01 * draws.standard_normal(len(time)) for _ in range(channels)]
    return np.clip(np.stack(sides, axis=1) * [1.0, 0.6][:channels], -1, 1)


def files():
    for name, seconds, channels, options in (
        ("voice.flac", 1.5, 1, []),
        ("stereo.flac", 0.25, 2, ["-sample_fmt", "s32", "-bits_per_raw_sample", "24"]),
        ("voice.mp3", 1.0, 1, ["-b:a", "24k"]),
        ("voice.ogg", 1.5, 1, ["-q:a", "0"]),
        ("stereo.ogg", 0.6, 2, ["-q:a", "0"]),
        ("voice.opus", 0.1, 1, ["-b:a", "12k"]),
    ):
        path = str(ROOT / name)
        wave = (recording(seconds, channels) * 32767).astype("<i2").tobytes()
        raw = ["-f", "s16le", "-ar", str(RATE), "-ac", str(channels)]
        ffmpeg(*raw, "-i", "-", *options, path, given=wave)
        if name in ("stereo.flac", "voice.mp3", "voice.ogg"):
            decoded = ffmpeg("-i", path, "-f", "f32le", "-")
            # Half as large, and still finer than what the test asks for.
            (ROOT / f"{name}.i16").write_bytes((np.frombuffer(decoded, "<f4") * 32767).round().astype("<i2").tobytes())
        if name == "stereo.ogg":
            compare(name, channels, "vorbis")


def encoded(name, wave, rate, options, decoder):
    """A recording at full width, and each `STEP`-th sample that ffmpeg decodes."""
    path, channels = str(ROOT / name), wave.shape[1]
    raw = ["-f", "s16le", "-ar", str(rate), "-ac", str(channels), "-i", "-"]
    ffmpeg(*raw, *options, path, given=(wave * 32767).astype("<i2").tobytes())
    compare(name, channels, decoder)


def compare(name, channels, decoder):
    decoded = ffmpeg("-c:a", decoder, "-i", str(ROOT / name), "-f", "s16le", "-")
    samples = np.frombuffer(decoded, "<i2").reshape(-1, channels)
    print(f"{name}: {(ROOT / name).stat().st_size} bytes, {len(samples)} samples of {channels}")
    (ROOT / f"{name}.i16").write_bytes(samples[::STEP].tobytes())


def mp3():
    """MPEG-1: both channels as their sum and difference, and frames of many rates."""
    wave = recording(0.3, 2, 44_100, 30)
    encoded("joint.mp3", wave, 44_100, ["-b:a", "96k", "-joint_stereo", "1"], "mp3float")
    encoded("vbr.mp3", wave[:, :1], 44_100, ["-q:a", "4"], "mp3float")


def opus():
    """Opus in each of its modes and lengths of frames. The length is no multiple of any."""
    for name, channels, options in (
        ("silk.opus", 1, ["-application", "voip", "-b:a", "10k"]),
        ("silk_60ms.opus", 1, ["-application", "voip", "-b:a", "10k", "-frame_duration", "60"]),
        ("silk_stereo_40ms.opus", 2, ["-application", "voip", "-b:a", "24k", "-frame_duration", "40", "-cutoff", "8000"]),
        ("hybrid.opus", 1, ["-application", "voip", "-b:a", "28k"]),
        ("hybrid_stereo_10ms.opus", 2, ["-application", "voip", "-b:a", "44k", "-frame_duration", "10"]),
        ("celt_stereo.opus", 2, ["-application", "audio", "-b:a", "96k"]),
        ("celt_5ms_cbr.opus", 1, ["-application", "lowdelay", "-b:a", "48k", "-frame_duration", "5", "-vbr", "off"]),
        ("celt_2.5ms.opus", 1, ["-application", "lowdelay", "-b:a", "48k", "-frame_duration", "2.5"]),
        ("packets_of_120ms.opus", 1, ["-application", "voip", "-b:a", "24k", "-frame_duration", "120"]),
    ):
        # ffmpeg's own decoder of Opus resamples SILK in a way of its own.
        encoded(name, recording(0.2501, channels, 48_000, 30), 48_000, ["-c:a", "libopus", *options], "libopus")
    louder("silk.opus", "gain.opus", 3.0)


def louder(name, other, decibels):
    """The same file with a gain in its header."""
    data = bytearray((ROOT / name).read_bytes())
    data[28 + 16 : 28 + 18] = round(decibels * 256).to_bytes(2, "little", signed=True)
    data[22:26] = bytes(4)
    rest = 0
    for byte in data[: 28 + 19]:
        rest ^= byte << 24
        for _ in range(8):
            rest = (rest << 1 ^ (0x04C11DB7 if rest >> 31 else 0)) & 0xFFFFFFFF
    data[22:26] = rest.to_bytes(4, "little")
    (ROOT / other).write_bytes(data)
    compare(other, 1, "libopus")


def parity():
    signal = torch.from_numpy(recording(0.2, 1)[:, 0].astype("f4"))
    write("signal", signal)
    # Powers of voices span many decades: they are compared as they are and as logarithms.
    for rate in (16000, 5512, 11025):
        write(f"resample_fast_{rate}", F.resample(signal, RATE, rate))
    kaiser = {"resampling_method": "sinc_interp_kaiser"}
    good = {"lowpass_filter_width": 16, "rolloff": 0.85, "beta": 8.555504641634386, **kaiser}
    best = {"lowpass_filter_width": 64, "rolloff": 0.9475937167399596, "beta": 14.769656459379492, **kaiser}
    write("resample_good_11025", F.resample(signal, RATE, 11025, **good))
    write("resample_best_5512", F.resample(signal, RATE, 5512, **best))
    write("speed_0.9", T.Speed(RATE, 0.9)(signal)[0])
    write("spectrogram", T.Spectrogram(n_fft=400, hop_length=160)(signal))
    write("spectrogram_magnitude", T.Spectrogram(n_fft=256, win_length=200, hop_length=160, power=1)(signal))
    open_ended = {"center": False, "window_fn": torch.hamming_window}
    write("spectrogram_open", T.Spectrogram(n_fft=225, hop_length=160, **open_ended)(signal))
    write("mel_htk", T.MelSpectrogram(RATE, n_fft=400, hop_length=160, n_mels=40)(signal))
    numbers = signal.numpy()
    slaney = {"sr": RATE, "n_fft": 512, "hop_length": 160, "n_mels": 40, "pad_mode": "reflect", "fmin": 60, "fmax": 3800}
    write("mel_slaney", librosa.feature.melspectrogram(y=numbers, **slaney))
    decibels = librosa.power_to_db(librosa.feature.melspectrogram(y=numbers, **slaney), top_db=80.0)
    write("log_mel_db", decibels)
    mel = {"n_fft": 400, "hop_length": 160, "n_mels": 40}
    write("mfcc_htk", T.MFCC(RATE, n_mfcc=13, melkwargs=mel)(signal))
    write("mfcc_slaney", librosa.feature.mfcc(y=numbers, n_mfcc=13, **slaney))


files()
mp3()
opus()
parity()
