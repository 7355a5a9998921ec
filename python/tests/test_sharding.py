"""Sharding policies and size classes: who gets which sample how often, and states that belong to one order."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import forebay as fb
import made
import pytest

RAW = [fb.raw("bin"), fb.label("cls")]
POLICIES = ["off", "dynamic", "file", "data", "file_or_data", "hint:cls"]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> fb.Dataset:
    """600 samples with texts of 20, 300 or 4000 bytes in three shards."""
    sizes = [20, 300, 4000]
    samples = [{"txt": b"x" * sizes[number * 7 % 3], "cls": b"1"} for number in range(600)]
    return fb.open(made.write_shards(tmp_path_factory.mktemp("texts"), samples, 3))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("shuffle", [False, "full", "block"])
def test_p055_ranks_together_receive_what_the_policy_says(
    numbers: fb.Dataset, policy: str, shuffle: Any
) -> None:
    received: list[int] = []
    for rank in range(3):
        arguments: dict[str, Any] = {"batch_size": 16, "seed": 3, "rank": rank, "world_size": 3}
        with fb.Loader(numbers, RAW, sharding=policy, parts=4, shuffle=shuffle, **arguments) as loader:
            received += made.ids(loader)
    times = 4 if policy == "off" else 1
    assert sorted(received) == sorted(list(range(len(numbers))) * times)


def test_p055_too_few_files_is_an_error_that_says_both_numbers(numbers: fb.Dataset) -> None:
    with pytest.raises(fb.InvalidConfigError, match="4 objects hold samples, there are 5 parts") as caught:
        fb.Loader(numbers, RAW, sharding="file", parts=5)
    assert "file_or_data" in (caught.value.hint or "")
    with fb.Loader(numbers, RAW, sharding="file_or_data", parts=5) as loader:
        assert sorted(made.ids(loader)) == list(range(len(numbers)))


@pytest.mark.parametrize("policy", ["off", "file", "hint:cls"])
def test_p055_a_state_goes_on_and_belongs_to_its_policy_alone(numbers: fb.Dataset, policy: str) -> None:
    arguments: dict[str, Any] = {"batch_size": 10, "shuffle": "full", "seed": 1}
    arguments |= {"sharding": policy, "parts": 3}
    with fb.Loader(numbers, RAW, **arguments) as loader:
        expected = made.ids(loader)
    with fb.Loader(numbers, RAW, **arguments) as loader:
        iterator = iter(loader)
        seen = [int(i) for _ in range(17) for i in next(iterator).ids]
        state = json.loads(json.dumps(loader.state_dict()))
        assert f"sharding={policy}" in state["shuffle"]
        assert loader.show(0, 20).ids.tolist() == expected[200:210]
    with fb.Loader(numbers, RAW, **arguments) as loader:
        loader.load_state_dict(state)
        assert seen + made.ids(loader) == expected
    for other in ({"sharding": "data"}, {"parts": 2}, {"batch_size": 11}):
        with fb.Loader(numbers, RAW, **{**arguments, **other}) as loader, pytest.raises(fb.StaleError):
            loader.load_state_dict(state)


def test_p055_states_of_all_ranks_are_merged_where_samples_come_several_times(numbers: fb.Dataset) -> None:
    arguments: dict[str, Any] = {"batch_size": 10, "shuffle": "full", "sharding": "off", "parts": 2}
    arguments |= {"in_order": False, "window": 50, "world_size": 2}
    states, received = [], []
    for rank in range(2):
        with fb.Loader(numbers, RAW, rank=rank, **arguments) as loader:
            iterator = iter(loader)
            received += [int(i) for _ in range(80) for i in next(iterator).ids]
            states.append(loader.state_dict())
    with fb.Loader(numbers, RAW, **{**arguments, "rank": 0, "world_size": 1}) as loader:
        loader.load_state_dict(states)
        received += made.ids(loader)
    assert sorted(received) == sorted(list(range(len(numbers))) * 2)


def test_p060_all_ranks_have_one_size_at_every_step(texts: fb.Dataset) -> None:
    arguments: dict[str, Any] = {"batch_size": 8, "shuffle": True, "seed": 2, "world_size": 3}
    arguments |= {"size_classes": [100, "1KiB"], "size_field": "txt"}
    steps: list[list[list[int]]] = []
    received: list[int] = []
    for rank in range(3):
        with fb.Loader(texts, [fb.raw("txt")], rank=rank, **arguments) as loader:
            batches = list(loader)
            stats = loader.stats()
        received += [int(i) for batch in batches for i in batch.ids[~batch.padding]]
        steps.append([[len(payload) for payload in batch["txt"]] for batch in batches])
    assert sorted(received) == list(range(600))
    mixed = [step for step in zip(*steps, strict=True) if len({n for sizes in step for n in sizes}) > 1]
    assert len(mixed) == stats["mixed_rounds"] <= 2
    assert stats["rounds"] == len(steps[0]) == 25
    assert stats["padding_waste"] < 0.05
    assert stats["padding_waste_shuffled"] > 0.4


def test_p060_a_restarted_rank_rejoins_at_its_round(texts: fb.Dataset) -> None:
    arguments: dict[str, Any] = {"batch_size": 8, "shuffle": True, "world_size": 3, "size_classes": 3}
    with fb.Loader(texts, [fb.raw("txt")], rank=2, **arguments) as loader:
        straight = [batch.ids.tolist() for batch in loader]
    with fb.Loader(texts, [fb.raw("txt")], rank=0, **arguments) as loader:
        iterator = iter(loader)
        for _ in range(9):
            next(iterator)
        state = loader.state_dict()
    with fb.Loader(texts, [fb.raw("txt")], rank=2, **arguments) as loader:
        loader.load_state_dict(state)
        assert [batch.ids.tolist() for batch in loader] == straight[9:]
    other = {**arguments, "world_size": 4}
    with fb.Loader(texts, [fb.raw("txt")], rank=2, **other) as loader, pytest.raises(fb.StaleError) as caught:
        loader.load_state_dict(state)
    assert "world_size=3" in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sharding": "some", "parts": 2}, "sharding is 'some'"),
        ({"sharding": "hint:", "parts": 2}, "'hint:FIELD'"),
        ({"sharding": "file"}, "there is no parts"),
        ({"parts": 3}, "there is no sharding"),
        ({"parts": 0, "sharding": "data"}, "parts is 0"),
        ({"sharding": "hint:nothing", "parts": 2}, "no such field"),
        ({"sharding": "hint:bin", "parts": 2}, "holds payloads"),
        ({"size_field": "bin"}, "there is no size_classes"),
        ({"size_classes": 0}, "size_classes is 0"),
        ({"size_classes": [], "shuffle": True}, "that rise"),
        ({"size_classes": [5, 5], "shuffle": True}, "that rise"),
        ({"size_classes": 4}, "set shuffle to `full`"),
        ({"size_classes": 4, "shuffle": True, "size_field": "cls"}, "holds integers"),
        ({"size_classes": 4, "shuffle": True, "in_order": False}, "plan order"),
        ({"size_classes": 4, "shuffle": True, "sharding": "data", "parts": 2}, "give one of them"),
    ],
)
def test_orders_that_make_no_sense_are_refused(numbers: fb.Dataset, arguments: Any, words: str) -> None:
    with pytest.raises(fb.InvalidConfigError) as caught:
        fb.Loader(numbers, RAW, **arguments)
    assert words in str(caught.value)


def test_the_environment_can_say_it(numbers: fb.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_SHARDING", "data")
    monkeypatch.setenv("FOREBAY_PARTS", "3")
    with fb.Loader(numbers, RAW, batch_size=5) as loader:
        assert next(iter(loader)).ids.tolist() == [0, 3, 6, 9, 12]
    monkeypatch.delenv("FOREBAY_SHARDING")
    monkeypatch.delenv("FOREBAY_PARTS")
    monkeypatch.setenv("FOREBAY_SIZE_CLASSES", "50, 1KiB")
    with fb.Loader(numbers, RAW, shuffle="full") as loader:
        assert "size_classes=[50, 1024]" in loader.state_dict()["shuffle"]


def test_a_pipeline_file_has_the_same_words(tmp_path: Path) -> None:
    text = "[loader]\nshuffle = true\nsize_classes = ['1KiB', 4096]\nsize_field = 'txt'\n"
    (tmp_path / "p.toml").write_text(text)
    code = "import sys; from forebay._cli import main; sys.exit(main())"
    command = ["config", "show", "--pipeline", str(tmp_path / "p.toml")]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *command], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "size_classes = [1024,4096]" in done.stdout
