"""The bench of modalities: that it measures what it says, and that the others do the same work."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forebay as fb
import numpy as np
import pytest
from forebay import bench
from forebay.bench import _modalities_subjects as subjects
from forebay.bench._modalities_data import write_clips, write_corpus
from forebay.bench.modalities import ModalitiesBench


def test_bars_compare_with_the_fastest_of_those_whom_the_goal_is_about() -> None:
    here = ModalitiesBench(rounds=1)
    assert here.bars({}) == []
    rate = {"audio_forebay": 300.0, "audio_librosa": 50.0, "audio_scipy": 110.0, "windows_forebay": 9.0}
    rate |= {"packing_forebay": 30.0, "packing_python": 10.0}

    def bars() -> list[tuple[str, bool]]:
        medians = {subject: {"samples_per_second": value} for subject, value in rate.items()}
        return [(bar["name"], bar["holds"]) for bar in here.bars(medians)]

    packing = ("packing against python", True)
    assert bars() == [("audio against librosa", True), packing]
    rate["audio_torchaudio"] = 120.0
    assert bars() == [("audio against torchaudio", False), packing]
    # SciPy stands in only where neither of the two could be measured.
    del rate["audio_torchaudio"], rate["audio_librosa"]
    assert bars() == [("audio against scipy", False), packing]


@pytest.mark.timeout(300)
def test_every_case_is_measured_with_its_cost(capsys: pytest.CaptureFixture[str]) -> None:
    only = ["windows", "packing_forebay", "audio_forebay", "augment_forebay"]
    asked = [word for subject in only for word in ("--only", subject)]
    assert bench.main(["modalities", "--rounds", "1", "--samples", "8", "--json", *asked]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    others = {"windows_memmap"} & set(results)
    assert set(results) == {"windows_forebay", *only[1:], *others}
    for figures in results.values():
        assert figures["samples_per_second"]["median"] > 0
        assert figures["cpu_seconds_per_sample"]["median"] > 0
        assert figures["peak_rss_bytes"]["median"] > 0


def test_the_packer_of_python_packs_what_ours_packs(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", 50)
    lengths = np.load(tmp_path / "corpus/lengths.npy")
    tokens = np.fromfile(tmp_path / "corpus/corpus.bin", np.uint16)
    ends = np.cumsum(lengths)
    documents: Iterator[Any] = (tokens[end - length : end] for end, length in zip(ends, lengths, strict=True))
    theirs = list(subjects.pack(documents, 2048))
    data = fb.open(tmp_path / "corpus/corpus.bin")
    column = fb.tokens().named("x").pack(2048, labels=True)
    with fb.Loader(data, [column], batch_size=1) as loader:
        ours = [batch.copy() if isinstance(batch, dict) else batch for batch in loader]
        for batch, row in zip(ours, theirs, strict=True):
            for name, mine in (("x", "x"), ("labels", "x_labels"), ("segment", "x_segment")):
                assert np.array_equal(batch[mine][0], row[name]), name
            real = row["segment"] > 0
            assert np.array_equal(batch["x_position"][0][real], row["position"][real])


@pytest.mark.filterwarnings("ignore")  # Those of other libraries.
@pytest.mark.parametrize("who", ["audio_librosa", "audio_torchaudio", "audio_scipy"])
def test_spectra_of_the_others_have_the_shape_of_ours(tmp_path: Path, who: str) -> None:
    pytest.importorskip("torch")
    settings = ModalitiesBench(rounds=1, samples=2).settings(tmp_path)
    settings |= {"workers": 0, "epochs": 1, "path_manifests": None}
    write_clips(tmp_path / "clips", 2)
    made: list[Any] = []

    def keep(_: Any, data: Any, __: int) -> Iterator[int]:
        made.append(np.asarray(data[0]))
        yield 1

    patch = pytest.MonkeyPatch()
    patch.setattr(subjects, "_dataloader", keep)
    try:
        subject: Callable[[Any], Any] = subjects.SUBJECTS[who]
        assert sum(subject(settings)()) == 1
    except (ImportError, RuntimeError) as missing:
        pytest.skip(f"{who}: {missing}")
    finally:
        patch.undo()
    column = fb.audio("wav").mono().resample(16_000).center_crop(seconds=3.0)
    spectra = column.log_mel(n_fft=400, hop_length=160, n_mels=80)
    with fb.Loader(fb.open(tmp_path / "clips", extensions=["wav"]), [spectra], batch_size=1) as loader:
        ours = next(iter(loader))["wav"][0]
    assert made[0].shape == ours.shape
    if who != "audio_librosa":
        # Filters differ; what is loud is loud in both.
        assert np.corrcoef(made[0].ravel(), ours.ravel())[0, 1] > 0.98
