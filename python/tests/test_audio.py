"""Columns of audio: from files to arrays, the same words everywhere, the same draws on any number of threads."""

from __future__ import annotations

import wave
from pathlib import Path

import forebay as fb
import numpy as np
import pytest
import served

RATE = 8000
FILES = Path(__file__).parents[2] / "crates/ops/tests/data/audio"


def write(path: Path, samples: np.ndarray, rate: int = RATE) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.astype("<i2").tobytes())


@pytest.fixture
def sounds(tmp_path: Path) -> Path:
    draws = np.random.default_rng(1)
    for word in ("no", "yes"):
        for number in range(6):
            samples = draws.integers(-9000, 9000, (4000 + 500 * number, 1 + number % 2))
            folder = tmp_path / "sounds" / word
            folder.mkdir(parents=True, exist_ok=True)
            write(folder / f"{number}.wav", samples)
    return tmp_path / "sounds"


def test_a_file_is_delivered_as_it_is(sounds: Path) -> None:
    data = fb.open(sounds, extensions=["wav"])
    with fb.Loader(data, [fb.audio("wav")], batch_size=1) as loader:
        batch = next(iter(loader))
        with wave.open(str(sounds / "no" / "0.wav")) as file:
            stored = np.frombuffer(file.readframes(file.getnframes()), "<i2") / np.float32(32768)
        assert batch["wav"].dtype == np.float32
        assert np.array_equal(batch["wav"][0, 0], stored)


def test_every_format_is_told_by_its_bytes(tmp_path: Path) -> None:
    wanted = {"voice.flac": 12_000, "voice.mp3": 8000, "voice.ogg": 12_000, "silk.opus": 12_004}
    for number, name in enumerate(wanted):
        (tmp_path / f"{number}_{name}").write_bytes((FILES / name).read_bytes())
    data = fb.open(tmp_path, extensions=["flac", "mp3", "ogg", "opus"])
    with fb.Loader(data, [fb.audio("flac;mp3;ogg;opus").named("audio")], batch_size=4) as loader:
        (batch,) = loader
    lengths = sorted(array.shape[1] for array in batch["audio"])
    assert lengths == sorted(wanted.values())
    for array in batch["audio"]:
        assert 0.2 < np.abs(array).max() <= 1


def test_shapes_that_the_recipe_decides_are_one_array(sounds: Path) -> None:
    data = fb.open(sounds, extensions=["wav"])
    column = fb.audio("wav").mono().resample(16_000)
    for ops, shape in (
        (column.random_crop(seconds=0.25), (1, 4000)),
        (column.center_crop(samples=800).stereo(), (2, 800)),
        (column.random_crop(seconds=0.25).log_mel(n_mels=40), (1, 40, 21)),
        (column.random_crop(seconds=0.25).mfcc(n_mfcc=13, n_mels=40), (1, 13, 21)),
        (column.random_crop(seconds=0.25).spectrogram(center=False), (1, 201, 19)),
    ):
        with fb.Loader(data, [ops], batch_size=4) as loader:
            for batch in loader:
                assert batch["wav"].shape == (4, *shape)


def test_lengths_that_differ_are_padded_and_bucketed(sounds: Path) -> None:
    data = fb.open(sounds, extensions=["wav"])
    recipe = [fb.audio("wav").mono().resample(RATE).log_mel(n_mels=20).pad_batch(mask=True), fb.label("cls")]
    with fb.Loader(data, recipe, batch_size=4) as loader:
        for batch in loader:
            longest = int(batch["wav_length"].max())
            assert batch["wav"].shape == (4, 1, 20, longest)
            assert batch["wav_mask"].sum(axis=1).tolist() == batch["wav_length"].tolist()
    with fb.Loader(data, [fb.audio("wav").mono()], batch_size=4) as loader:
        assert {array.ndim for array in next(iter(loader))["wav"]} == {2}


def test_random_ops_are_the_same_with_any_number_of_threads(sounds: Path) -> None:
    data = fb.open(sounds, extensions=["wav"])
    column = (
        fb.audio("wav").mono().resample(11_025, quality="good").speed((0.9, 1.1)).random_crop(samples=3000)
    )
    column = column.gain((-6, 6)).noise((5, 20)).mel(n_mels=30)
    column = column.spec_augment(time_mask_param=5, freq_mask_param=5, fill="zero")

    def epochs(workers: int) -> list[bytes]:
        with fb.Loader(data, [column], batch_size=4, seed=3, num_workers=workers) as loader:
            return [b"".join(batch["wav"].tobytes() for batch in loader) for _ in range(2)]

    first, second = epochs(1)
    assert first != second
    assert epochs(3) == [first, second]


def test_python_toml_and_json_say_the_same() -> None:
    column = fb.audio("wav;flac").mono().resample(16_000).random_crop(seconds=1.0).log_mel(n_mels=80)
    recipe = fb.Recipe([column])
    toml = """
    [[recipe]]
    field = "wav;flac"
    decode = "audio"
    ops = ["mono", { op = "resample", rate = 16000 }, { op = "random_crop", seconds = 1.0 },
           { op = "log_mel", n_mels = 80, n_fft = 400, win_length = 400, hop_length = 200 }]
    """
    assert fb.Recipe(toml).fingerprint == recipe.fingerprint
    assert fb.Recipe(recipe.to_toml()) == recipe
    assert fb.Recipe(recipe.to_json()) == recipe
    assert "audio('wav;flac')" in repr(column)
    assert ".log_mel(" in repr(column)


def test_faults_name_the_parameter() -> None:
    for column, said in (
        (fb.audio().random_crop(), "recipe[0].ops[0].samples: give one of"),
        (fb.audio().log_mel(), "bands need a known rate"),
        (fb.audio().spectrogram().mono(), "`mono` works on a waveform"),
        (fb.audio().resample(16_000, quality="ideal"), "recipe[0].ops[0].quality"),  # type: ignore[arg-type]
    ):
        with pytest.raises(fb.InvalidConfigError) as raised:
            fb.Recipe([column])
        assert said in str(raised.value)


def test_a_named_recipe_is_a_plain_one() -> None:
    train = fb.recipes.speech_logmel()
    middle = fb.recipes.speech_logmel(train=False, labels=None)
    assert fb.Recipe(train.to_toml()) == train
    assert [entry["name"] for entry in middle.entries()] == ["audio"]


def test_the_named_recipe_of_speech_makes_batches(sounds: Path) -> None:
    data = fb.open(sounds, extensions=["wav"])
    for train in (True, False):
        recipe = fb.recipes.speech_logmel(0.25, rate=RATE, n_mels=20, train=train)
        with fb.Loader(data, recipe, batch_size=4, shuffle=train, seed=2) as loader:
            batches = list(loader)
        assert len(batches) == 3
        for batch in batches:
            # A window begins every 10 ms, and one more is centred on the end.
            assert batch["audio"].shape == (4, 1, 20, 26)
            assert np.isfinite(batch["audio"]).all()
            assert batch["audio"].std() > 0.1
        assert sorted(int(label) for batch in batches for label in batch["cls"]) == [0] * 6 + [1] * 6


def test_a_damaged_file_is_a_bad_sample(sounds: Path) -> None:
    (sounds / "no" / "0.wav").write_bytes(b"RIFF\0\0\0\0WAVE")
    data = fb.open(sounds, extensions=["wav"])
    with (
        fb.Loader(data, [fb.audio("wav").mono()], batch_size=4) as loader,
        pytest.raises(fb.CorruptError, match="wav"),
    ):
        next(iter(loader))


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    """Noise of another folder: some shorter and some longer than the sounds, of several rates and channels."""
    draws = np.random.default_rng(9)
    (tmp_path / "noise").mkdir()
    for number, (length, rate) in enumerate([(700, RATE), (9000, RATE), (20_000, 16_000), (3000, 11_025)]):
        samples = draws.integers(-8000, 8000, (length, 1 + number % 2))
        write(tmp_path / "noise" / f"{number}.wav", samples, rate)
    return tmp_path / "noise"


def ratios(plain: np.ndarray, mixed: np.ndarray) -> np.ndarray:
    """Decibels of every signal above what was added to it."""
    signal = (plain.astype(np.float64) ** 2).sum(axis=(1, 2))
    noise = ((mixed - plain).astype(np.float64) ** 2).sum(axis=(1, 2))
    with np.errstate(divide="ignore"):
        return 10 * np.log10(signal / noise)


def test_recordings_are_mixed_in_at_the_ratio_that_was_drawn(sounds: Path, recordings: Path) -> None:
    data, noise = fb.open(sounds, extensions=["wav"]), fb.open(recordings, extensions=["wav"])
    column = fb.audio("wav").mono().resample(RATE).center_crop(samples=2000)

    def epoch(column: fb.Audio) -> np.ndarray:
        with fb.Loader(data, [column], batch_size=12) as loader:
            return next(iter(loader))["wav"].copy()

    plain = epoch(column)
    for snr in (-6.0, 0.0, 12.0, 30.0):
        assert np.allclose(ratios(plain, epoch(column.mix_noise(noise, snr))), snr, atol=0.01)
    drawn = ratios(plain, epoch(column.mix_noise(noise, (5, 20))))
    assert ((drawn > 4.99) & (drawn < 20.01)).all()
    assert len(set(drawn.round(3))) == 12
    spared = ratios(plain, epoch(column.mix_noise(noise, 10, p=0.5)))
    assert 0 < np.isinf(spared).sum() < 12
    assert np.array_equal(plain, epoch(column.mix_noise(noise, 10, p=0.0)))


def test_mixed_noise_is_the_same_with_any_number_of_threads_and_after_a_resume(
    sounds: Path, recordings: Path
) -> None:
    data, noise = fb.open(sounds, extensions=["wav"]), fb.open(recordings, extensions=["wav"])
    column = fb.audio("wav").mono().resample(RATE).random_crop(samples=1500).mix_noise(noise, (0, 20), p=0.8)

    def run(workers: int, state: object = None, epochs: int = 2) -> list[tuple[bytes, object]]:
        made = []
        with fb.Loader(data, [column], batch_size=4, shuffle=True, seed=6, num_workers=workers) as loader:
            if state is not None:
                loader.load_state_dict(state)  # type: ignore[arg-type]
            for _ in range(epochs):
                made += [(batch["wav"].tobytes(), loader.state_dict()) for batch in loader]
        return made

    whole = run(1)
    assert [batch for batch, _ in whole] == [batch for batch, _ in run(3)]
    assert whole[0][0] != whole[3][0], "another epoch draws anew"
    assert [batch for batch, _ in run(2, whole[1][1])] == [batch for batch, _ in whole[2:]]


def test_recordings_that_changed_or_are_too_many_are_refused(sounds: Path, recordings: Path) -> None:
    data, noise = fb.open(sounds, extensions=["wav"]), fb.open(recordings, extensions=["wav"])
    column = fb.audio("wav").mono().resample(RATE).center_crop(samples=500)

    def first(recipe: fb.Recipe) -> None:
        with fb.Loader(data, recipe, batch_size=2) as loader:
            next(iter(loader))

    with pytest.raises(fb.ExhaustedError, match="`max_bytes` is 9999"):
        first(fb.Recipe([column.mix_noise(noise, 10, max_bytes=9999)]))
    with pytest.raises(fb.InvalidConfigError, match="flac"):
        first(fb.Recipe([column.mix_noise(noise, 10, field="flac")]))
    recipe = fb.Recipe([column.mix_noise(noise, 10)])
    assert fb.Recipe(recipe.to_toml()).fingerprint == recipe.fingerprint
    first(recipe)
    write(recordings / "4.wav", np.ones((50, 1)))
    other = fb.Recipe([column.mix_noise(fb.open(recordings, extensions=["wav"]), 10)])
    assert other.fingerprint != recipe.fingerprint
    with pytest.raises(fb.StaleError, match="the recipe means"):
        first(recipe)
    (recordings / "4.wav").write_bytes(b"no sound")
    with pytest.raises(fb.CorruptError, match="4"):
        first(fb.Recipe([column.mix_noise(fb.open(recordings, extensions=["wav"]), 10)]))
    with pytest.raises(fb.UnsupportedError, match="not opened from a spec"):
        column.mix_noise(fb.synthetic(4, field="wav"), 10)


@pytest.mark.timeout(180)
def test_a_worker_opens_the_recordings_by_itself(sounds: Path, recordings: Path, tmp_path: Path) -> None:
    data, noise = fb.open(sounds, extensions=["wav"]), fb.open(recordings, extensions=["wav"])
    column = fb.audio("wav").mono().resample(RATE).random_crop(samples=1500).mix_noise(noise, (0, 20))
    arguments = {"batch_size": 4, "shuffle": True, "seed": 3, "epochs": 2}
    with fb.Loader(data, [column], **arguments) as here:  # type: ignore[arg-type]
        wanted = [batch["wav"].tobytes() for _ in range(2) for batch in here]
    with (
        served.service(tmp_path, workers=1) as (url, _, _),
        fb.Loader(data, [column], via=url, **arguments) as there,  # type: ignore[arg-type]
    ):
        assert [batch["wav"].tobytes() for _ in range(2) for batch in there] == wanted
