"""Clips of video: files of Motion JPEG, and frames in fields of their own, beside Pillow's decoder."""

from __future__ import annotations

import io
from pathlib import Path

import forebay as fb
import made
import numpy as np
import pytest
from PIL import Image

DATA = Path(__file__).resolve().parents[2] / "crates" / "ops" / "tests" / "data" / "video"
FRAMES = [10, 12, 9, 11]


def frame(video: int, number: int) -> bytes:
    return made.encoded(made.picture(100 * video + number, 64, 48), quality=92)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    samples = []
    for video, count in enumerate(FRAMES * 3):
        # Members stand in the order in which their names sort, which is not that of their numbers.
        numbers = sorted(range(count), key=str)
        fields = {f"frame{number}.jpg": frame(video, number) for number in numbers}
        samples.append({**fields, "cls": str(video).encode()})
    return made.write_shards(tmp_path_factory.mktemp("video"), samples, 3)


def pixels(payload: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(payload)))


def test_frames_in_fields_come_in_the_order_of_their_numbers(shards: str) -> None:
    column = fb.video("frame*.jpg").named("clip").clip(3, stride=4, place="start").layout("hwc")
    with fb.Loader(shards, [column, fb.label("cls")], batch_size=5, shuffle=True, seed=3) as loader:
        for batch in loader:
            for clip, video in zip(batch["clip"], batch["cls"], strict=True):
                for row, number in zip(clip, (0, 4, 8), strict=True):
                    error = np.abs(row.astype(int) - pixels(frame(int(video), number)))
                    assert error.max() <= 3


def test_all_frames_of_a_sample_come_without_a_clip(shards: str) -> None:
    column = fb.video("frame*.jpg").named("video").resize((12, 16))
    padded = column.pad_batch(mask=True)
    with fb.Loader(shards, [padded, fb.label("cls")], batch_size=4) as loader:
        batch = next(iter(loader))
    assert batch["video"].shape == (4, 12, 3, 12, 16)
    assert batch["video_length"].tolist() == FRAMES
    assert batch["video_mask"].sum(1).tolist() == FRAMES
    with fb.Loader(shards, [column.ragged()], batch_size=4) as loader:
        ragged = next(iter(loader))["video"]
    assert ragged.values.shape == (sum(FRAMES), 3, 12, 16)


def test_random_clips_are_the_same_on_any_number_of_threads_and_others_in_other_epochs(shards: str) -> None:
    column = fb.video("frame*.jpg").named("clip").clip(3).random_crop(32).flip()

    def epochs(threads: int) -> list[bytes]:
        with fb.Loader(shards, [column], batch_size=4, seed=5, num_workers=threads) as loader:
            return [b"".join(batch["clip"].tobytes() for batch in loader) for _ in range(2)]

    first, second = epochs(1)
    assert first != second
    assert epochs(4) == [first, second]


def test_a_run_resumes_on_other_ranks_within_an_epoch_of_clips(shards: str) -> None:
    column = fb.video("frame*.jpg").named("clip").clip(2).random_crop(16)
    with fb.Loader(shards, [column], batch_size=2, shuffle=True, seed=1) as loader:
        whole = {tuple(batch.ids): batch["clip"].tobytes() for batch in loader}
    with fb.Loader(shards, [column], batch_size=2, shuffle=True, seed=1) as loader:
        batches = iter(loader)
        got = {tuple(batch.ids): batch["clip"].tobytes() for batch in (next(batches), next(batches))}
        state = loader.state_dict()
    for rank in range(2):
        with fb.Loader(
            shards, [column], batch_size=2, shuffle=True, seed=1, rank=rank, world_size=2
        ) as loader:
            loader.load_state_dict(state)
            got |= {tuple(batch.ids): batch["clip"].tobytes() for batch in loader}
    assert got == whole


@pytest.mark.parametrize("writer", ["ffmpeg", "opencv"])
def test_files_of_other_programs_give_their_frames(writer: str, tmp_path: Path) -> None:
    (tmp_path / "a.avi").write_bytes((DATA / f"{writer}.avi").read_bytes())
    data = fb.open(tmp_path, extensions=["avi"])
    with fb.Loader(data, [fb.video("avi").layout("hwc")], batch_size=1) as loader:
        clip = np.asarray(next(iter(loader))["avi"])[0]
    assert clip.shape == (10, 32, 48, 3)
    levels = clip.mean(axis=(1, 2, 3))
    # Both wrote frames of one gray, each 20 levels of the luma brighter; ffmpeg's luma has a smaller range.
    expected = [10 + 20 * n if writer == "opencv" else 20 * n * 255 / 219 for n in range(10)]
    assert np.abs(levels - expected).max() < 4


def test_other_codecs_are_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "a.avi").write_bytes((DATA / "h264.avi").read_bytes())
    with (
        fb.Loader(fb.open(tmp_path, extensions=["avi"]), [fb.video("avi").clip(2)], batch_size=1) as loader,
        pytest.raises(fb.UnsupportedError, match="H264") as raised,
    ):
        next(iter(loader))
    assert "ffmpeg -i" in str(raised.value.hint)


def test_a_video_with_a_broken_frame_is_a_bad_sample(tmp_path: Path) -> None:
    samples = [
        {f"{number}.png": made.encoded(made.picture(number), "PNG") for number in range(4)} for _ in range(4)
    ]
    samples[2]["3.png"] = b"no picture"
    spec = made.write_shards(tmp_path, samples, 1)
    column = fb.video("*.png").named("clip")
    with fb.Loader(spec, [column], batch_size=2, on_error="skip", max_errors=1) as loader:
        assert [len(batch.ids) for batch in loader] == [2, 1]
        assert "frame 3" in str(loader.errors()[0].error)


def test_recipes_of_videos_are_plain_data() -> None:
    column = fb.video("frame*.jpg;avi", mode="gray").clip(8, stride=2, place="center", short="loop").resize(8)
    recipe = fb.Recipe([column.named("clip")])
    assert fb.Recipe(str(recipe)) == recipe
    assert repr(column).startswith("video('frame*.jpg;avi', mode='gray').clip(frames=8")
    with pytest.raises(fb.InvalidConfigError, match="comes first"):
        fb.Recipe([fb.video("avi").resize((8, 8)).clip(2)])
