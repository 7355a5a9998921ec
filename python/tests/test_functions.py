"""Plain Python functions in a recipe: the same results in threads, helper processes and workers of a service."""

from __future__ import annotations

import json
import os
import pickle
import signal
import time
import traceback
from pathlib import Path
from typing import Any

import called
import forebay as fb
import made
import numpy as np
import pytest
import served

FIXED: dict[str, Any] = {"shape": (2, 3), "dtype": "f32"}


def column(function: Any, **declared: Any) -> fb.Column:
    return fb.npy("npy", shape=(2, 3), dtype="f32").map(function, **declared)


def contents(loader: Any) -> list[Any]:
    """Everything that an epoch holds."""
    return [
        (batch.ids.tolist(), {name: np.asarray(value).tolist() for name, value in batch.items()})
        for batch in loader
    ]


@pytest.mark.parametrize("declared", [{}, FIXED], ids=["found", "declared"])
@pytest.mark.parametrize("processes", [0, 2])
def test_a_function_makes_a_column_in_threads_and_in_processes(
    shards: str, declared: dict[str, Any], processes: int
) -> None:
    recipe = [column(called.double, **declared), fb.label("cls")]
    with fb.Loader(shards, recipe, batch_size=64, shuffle=True, processes=processes) as loader:
        for batch in loader:
            wanted = np.repeat(batch.ids.astype(np.float32) * 2, 6).reshape(-1, 2, 3)
            np.testing.assert_array_equal(batch["npy"], wanted)
            assert batch["npy"].dtype == np.float32
            assert batch["npy"].flags.writeable


@pytest.mark.parametrize(
    ("begun", "function", "wanted"),
    [
        (fb.text("txt"), str.upper, lambda n: f"SAMPLE {n} É"),
        (fb.text("txt"), lambda text: text.encode(), lambda n: f"sample {n} é".encode()),
        (fb.json("json"), lambda found: found["number"], lambda n: n),
        (fb.json("json"), lambda found: {"twice": [found["number"]] * 2}, lambda n: {"twice": [n, n]}),
        (fb.raw("txt"), len, lambda n: len(f"sample {n} é".encode())),
        (
            fb.label("cls"),
            lambda label: np.eye(10, dtype=np.float64)[label],
            lambda n: np.eye(10)[n % 10].tolist(),
        ),
        (fb.label("cls"), lambda label: label > 4, lambda n: n % 10 > 4),
        (fb.npy("npy"), lambda array: array.astype(">f4")[:, ::-1].T, lambda n: [[float(n)] * 2] * 3),
        (fb.npy("npy").map(called.double), called.double, lambda n: [[float(n) * 4] * 3] * 2),
    ],
)
def test_functions_get_and_give_what_python_has(
    shards: str, begun: fb.Column, function: Any, wanted: Any
) -> None:
    with fb.Loader(shards, [begun.map(function).named("x")], batch_size=100) as loader:
        for batch in loader:
            for sample_id, value in zip(batch.ids.tolist(), batch["x"], strict=True):
                found = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
                assert found == wanted(sample_id)


def test_arrays_of_different_shapes_are_a_list_and_kinds_do_not_mix(shards: str) -> None:
    ragged = fb.json("json").map(lambda found: np.arange(found["number"] % 3))
    with fb.Loader(shards, [ragged], batch_size=9) as loader:
        batch = next(iter(loader))
    assert [len(one) for one in batch["json"]] == [0, 1, 2] * 3
    mixed = fb.json("json").map(lambda found: found["number"] if found["number"] < 5 else "many")
    with (
        fb.Loader(shards, [mixed], batch_size=9) as loader,
        pytest.raises(fb.FunctionError, match="row 5 holds text"),
    ):
        next(iter(loader))


def test_what_functions_make_is_padded(shards: str) -> None:
    ragged = fb.json("json").map(lambda found: np.arange(found["number"] % 3)).pad_batch(-1, mask=True)
    with pytest.raises(fb.InvalidConfigError, match="it comes last"):
        fb.Recipe([ragged.filter(called.even)])
    with fb.Loader(shards, [ragged], batch_size=3) as loader:
        batch = next(iter(loader))
    assert batch["json"].tolist() == [[-1, -1], [0, -1], [0, 1]]
    assert batch["json_length"].tolist() == [0, 1, 2]
    assert batch["json_mask"].tolist() == [[False, False], [True, False], [True, True]]


@pytest.mark.parametrize("processes", [0, 2])
def test_chance_is_the_same_wherever_a_function_is_called(shards: str, processes: int) -> None:
    recipe = [column(called.noisy)]
    one: dict[str, Any] = {"batch_size": 50, "shuffle": True, "seed": 5, "epochs": 2}
    with fb.Loader(shards, recipe, num_workers=1, **one) as loader:
        wanted = [contents(loader) for _ in range(2)]
    with fb.Loader(shards, recipe, num_workers=4, processes=processes, **one) as loader:
        assert [contents(loader) for _ in range(2)] == wanted
    # Another epoch, seed, sample or place in the recipe is another draw.
    by_id = [
        dict(
            zip(np.concatenate([i for i, _ in e]).tolist(), [v for _, c in e for v in c["npy"]], strict=True)
        )
        for e in wanted
    ]
    first = {n: np.asarray(value) - n for n, value in by_id[0].items()}
    assert not np.array_equal(first[3], np.asarray(by_id[1][3]) - 3)
    assert not np.array_equal(first[3], first[4])
    ranks = []
    for rank in range(3):
        with fb.Loader(shards, recipe, rank=rank, world_size=3, **one) as loader:
            ranks += [
                (i, v) for ids, columns in contents(loader) for i, v in zip(ids, columns["npy"], strict=True)
            ]
    assert dict(ranks) == by_id[0]


@pytest.mark.parametrize("processes", [0, 2])
def test_functions_of_samples_replace_add_and_drop_columns(shards: str, processes: int) -> None:
    recipe = [
        fb.npy("npy", shape=(2, 3), dtype="f32"),
        fb.label("cls"),
        fb.text("txt"),
        fb.map(called.with_process, fields=["npy", "cls"], outputs=["npy", "pid"]),
    ]
    with fb.Loader(shards, recipe, batch_size=64, processes=processes) as loader:
        pids = set()
        for batch in loader:
            assert list(batch) == ["npy", "txt", "pid"]
            assert batch["npy"][:, 0, 0].tolist() == batch.ids.tolist()
            pids |= set(batch["pid"].tolist())
    assert (os.getpid() in pids) == (processes == 0)


def test_a_function_of_samples_that_gives_other_columns_is_named(shards: str) -> None:
    recipe = [fb.label("cls"), fb.map(lambda sample: {"other": 1}, fields="cls")]
    with (
        fb.Loader(shards, recipe) as loader,
        pytest.raises(fb.FunctionError, match="`other` is unknown") as caught,
    ):
        next(iter(loader))
    assert "outputs" in str(caught.value.hint)


# Filters.


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize("world_size", [1, 3])
def test_filters_leave_positions_steps_and_places_as_they_are(
    shards: str, world_size: int, processes: int
) -> None:
    recipe = [fb.label("cls").filter(called.even), fb.npy("npy", shape=(2, 3), dtype="f32")]
    whole: dict[str, Any] = {"batch_size": 32, "shuffle": True, "seed": 1, "world_size": world_size}
    seen, steps = [], set()
    for rank in range(world_size):
        with fb.Loader(shards, [fb.label("cls")], rank=rank, **whole) as plain:
            planned = [batch.ids.tolist() for batch in plain]
        with fb.Loader(shards, recipe, rank=rank, processes=processes, **whole) as loader:
            batches = [batch.ids.tolist() for batch in loader]
            assert len(batches) == len(loader) == len(planned)
            assert loader.stats()["filtered"] == sum(n % 2 for ids in planned for n in ids)
        assert batches == [[n for n in ids if n % 10 % 2 == 0] for ids in planned]
        seen += [n for ids in batches for n in ids]
        steps.add(len(batches))
    assert sorted(seen) == [n for n in range(1003) if n % 2 == 0]
    assert len(steps) == 1


def test_a_state_in_the_middle_of_a_filtered_epoch_goes_on_exactly_on_other_ranks(shards: str) -> None:
    recipe = [fb.json("json").filter(lambda found: found["number"] % 3 == 0), fb.label("cls")]
    arguments: dict[str, Any] = {"shuffle": True, "seed": 9}
    with fb.Loader(shards, recipe, batch_size=16, **arguments) as loader:
        iterator = iter(loader)
        before = [n for _ in range(20) for n in next(iterator).ids.tolist()]
        state = loader.state_dict()
    after = []
    for rank in range(4):
        with fb.Loader(shards, recipe, batch_size=8, rank=rank, world_size=4, **arguments) as loader:
            loader.load_state_dict(state)
            after += made.ids(loader)
    assert sorted(before + after) == list(range(0, 1003, 3))


def test_a_batch_of_which_nothing_is_left_is_empty_and_single_samples_are_passed_over(shards: str) -> None:
    recipe = [
        fb.npy("npy", shape=(2, 3), dtype="f32"),
        fb.label("cls"),
        fb.filter(lambda s: s["npy"][0, 0] > 99, fields=["npy"]),
    ]
    with fb.Loader(shards, recipe, batch_size=50) as loader:
        sizes = [(len(batch.ids), batch["npy"].shape) for batch in loader]
    assert sizes[0] == (0, (0, 2, 3))
    assert sizes[2] == (50, (50, 2, 3))
    with fb.Loader(shards, recipe, batch_size=None) as loader:
        assert [int(sample["npy"][0, 0]) for sample in loader] == list(range(100, 1003))


def test_columns_after_a_filter_are_not_made_for_what_it_leaves_out(shards: str) -> None:
    made_for = []
    recipe = [
        fb.json("json").filter(lambda found: found["number"] < 10),
        fb.text("txt").map(lambda text: made_for.append(text) or text),
    ]
    with fb.Loader(shards, recipe, batch_size=100, epochs=1) as loader:
        assert made.ids(loader) == list(range(10))
    assert len(made_for) == 10


def test_a_filter_that_keeps_its_array_does_not_see_it_change(shards: str) -> None:
    kept = []
    recipe = [fb.npy("npy", shape=(2, 3), dtype="f32").filter(lambda array: kept.append(array) or True)]
    with fb.Loader(shards, recipe, batch_size=100, epochs=1) as loader:
        ids = made.ids(loader)
    assert sorted(int(array[1, 2]) for array in kept) == sorted(ids)
    assert not kept[0].flags.writeable


# Batches.


@pytest.mark.parametrize("processes", [0, 2])
def test_functions_of_batches_run_before_the_loop(shards: str, processes: int) -> None:
    recipe = [fb.npy("npy", shape=(2, 3), dtype="f32"), fb.text("txt"), fb.map_batch(called.mirrored)]
    with fb.Loader(shards, recipe, batch_size=64, processes=processes) as loader:
        for batch in loader:
            assert list(batch) == ["npy", "txt", "words"]
            assert batch["npy"].shape[1:] == (2, 6)
            assert batch["words"] == batch["txt"] == [f"sample {n} é" for n in batch.ids]


def test_a_function_of_batches_is_not_called_with_an_empty_one(shards: str) -> None:
    recipe = [
        fb.json("json").filter(lambda found: found["number"] >= 60).map(lambda found: found["number"]),
        fb.map_batch(lambda batch: {"json": batch["json"] / 2}),
    ]
    with fb.Loader(shards, recipe, batch_size=50) as loader:
        batches = list(loader)
    assert [len(batch.ids) for batch in batches[:3]] == [0, 40, 50]
    assert batches[1]["json"][0] == 30


def test_the_chance_of_a_batch_is_that_of_its_samples(shards: str) -> None:
    recipe = [fb.npy("npy", shape=(2, 3), dtype="f32"), fb.map_batch(called.swapped)]
    with fb.Loader(shards, recipe, batch_size=17, shuffle=True, num_workers=3) as loader:
        wanted = {tuple(ids): columns for ids, columns in contents(loader)}
    assert any(columns["npy"] != columns["other"] for columns in wanted.values())
    for rank in range(2):
        with fb.Loader(
            shards, recipe, batch_size=17, shuffle=True, rank=rank, world_size=2, drop_last=True
        ) as loader:
            for ids, columns in contents(loader):
                assert wanted[tuple(ids)] == columns


def test_a_function_of_batches_keeps_one_row_per_sample(shards: str) -> None:
    recipe = [fb.label("cls"), fb.map_batch(lambda batch: {"cls": batch["cls"][:3]})]
    with (
        fb.Loader(shards, recipe, batch_size=8) as loader,
        pytest.raises(fb.FunctionError, match="has 3 rows, the batch 8"),
    ):
        next(iter(loader))


# Collating.


def test_collate_makes_anything_of_a_list_of_samples(shards: str) -> None:
    def longest(samples: list[dict[str, Any]]) -> tuple[int, list[str]]:
        return sum(int(sample["npy"][0, 0]) for sample in samples), [sample["txt"] for sample in samples]

    recipe = [fb.npy("npy", shape=(2, 3), dtype="f32"), fb.text("txt")]
    with fb.Loader(shards, recipe, batch_size=100, collate=longest) as loader:
        found = list(loader)
        state = loader.state_dict()
    assert found[0] == (sum(range(100)), [f"sample {n} é" for n in range(100)])
    assert sum(total for total, _ in found) == sum(range(1003))
    assert json.loads(state["cursor"])["epoch"] == 1 or len(found) == 11


def test_collate_gets_tensors_of_torch(shards: str) -> None:
    torch = pytest.importorskip("torch")
    recipe = [fb.npy("npy", shape=(2, 3), dtype="f32"), fb.label("cls")]
    stacked = torch.utils.data.default_collate
    with fb.Loader(shards, recipe, batch_size=10, output="torch", collate_fn=stacked) as loader:
        batch = next(iter(loader))
    assert torch.is_tensor(batch["npy"])
    assert batch["npy"].shape == (10, 2, 3)
    assert batch["cls"].tolist() == list(range(10))


def test_what_collate_raises_is_the_cause(shards: str) -> None:
    def broken(samples: list[dict[str, Any]]) -> Any:
        raise KeyError("nothing there")

    with (
        fb.Loader(shards, [fb.label("cls")], batch_size=10, collate=broken) as loader,
        pytest.raises(fb.FunctionError) as caught,
    ):
        next(iter(loader))
    assert isinstance(caught.value.__cause__, KeyError)
    assert "batch 0 of epoch 0" in str(caught.value)


# What goes wrong.


@pytest.mark.parametrize("processes", [0, 2])
def test_p035_an_exception_carries_sample_op_and_the_users_traceback(shards: str, processes: int) -> None:
    recipe = [column(called.raises_for_13), fb.label("cls")]
    with (
        fb.Loader(shards, recipe, batch_size=10, processes=processes) as loader,
        pytest.raises(fb.FunctionError) as caught,
    ):
        made.ids(loader)
    error = caught.value
    assert error.sample_id == 13
    assert error.key == "000013"
    assert error.op == "map(called:raises_for_13)"
    assert error.field == "npy"
    for words in (
        "sample 13",
        "map(called:raises_for_13)",
        "ValueError: thirteen is bad luck",
        "raises_for_13",
    ):
        assert words in str(error)
    assert isinstance(error.__cause__, ValueError)
    for told in (error, pickle.loads(pickle.dumps(error))):
        text = "".join(traceback.format_exception(told))
        assert 'raise ValueError("thirteen is bad luck")' in text
        assert "called.py" in text
        assert told.sample_id == 13
        assert told.op == error.op


@pytest.mark.parametrize("policy", ["skip", "substitute"])
@pytest.mark.parametrize("processes", [0, 1])
def test_a_function_that_raises_makes_its_sample_bad(shards: str, policy: Any, processes: int) -> None:
    recipe = [column(called.raises_for_13)]
    with fb.Loader(shards, recipe, batch_size=100, on_error=policy, processes=processes) as loader:
        ids = made.ids(loader)
        (bad,) = loader.errors()
    assert bad.sample_id == 13
    assert isinstance(bad.error.__cause__, ValueError)
    assert 13 not in ids
    assert len(ids) == (1002 if policy == "skip" else 1003)


def test_another_shape_than_declared_names_sample_and_op(shards: str) -> None:
    def cut(array: Any) -> Any:
        return array[:, :2] if array[0, 0] == 7 else array

    with (
        fb.Loader(shards, [column(cut, **FIXED)], batch_size=5) as loader,
        pytest.raises(fb.FunctionError) as caught,
    ):
        made.ids(loader)
    assert caught.value.sample_id == 7
    assert "f32[2, 2], the recipe says f32[2, 3]" in str(caught.value)
    assert "cut" in str(caught.value.op)


def test_native_ops_after_a_function_are_refused() -> None:
    with pytest.raises(fb.InvalidConfigError, match="comes after a function"):
        fb.Recipe([fb.image("jpg").map(called.double).resize(8)])


# Helper processes.


def gone(pid: int) -> bool:
    return served.state_of(pid) in ("Z", "")


def test_p035_a_helper_that_dies_is_replaced_and_nothing_is_lost(
    shards: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLED_MARK", str(tmp_path / "mark"))
    with fb.Loader(shards, [column(called.dies_once)], batch_size=50, processes=2) as loader:
        assert made.ids(loader) == list(range(1003))
    assert (tmp_path / "mark").exists()


def test_helpers_killed_again_and_again_cost_time_alone(shards: str) -> None:
    with fb.Loader(shards, [column(called.double)], batch_size=50, processes=2) as loader:
        seen: list[int] = []
        for number, batch in enumerate(loader):
            seen += batch.ids.tolist()
            np.testing.assert_array_equal(batch["npy"][:, 0, 0], batch.ids * 2)
            if number % 5 == 0:
                for pid in loader._calls.pids():
                    os.kill(pid, signal.SIGKILL)
    assert seen == list(range(1003))


def test_a_sample_that_ends_every_helper_is_an_error_that_names_it(shards: str) -> None:
    with (
        fb.Loader(shards, [column(called.dies)], batch_size=10, processes=1) as loader,
        pytest.raises(fb.FunctionError) as caught,
    ):
        made.ids(loader)
    assert caught.value.sample_id == 13
    assert "with code 7" in str(caught.value)


def test_closing_ends_helpers_even_inside_of_a_function(shards: str) -> None:
    loader = fb.Loader(shards, [column(called.slow)], batch_size=4, processes=2, timeout=10)
    with pytest.raises(fb.UnavailableError):
        next(iter(loader))
    pids = loader._calls.pids()
    assert pids
    loader.close()
    assert all(gone(pid) for pid in pids)
    assert loader._calls.pids() == []


@pytest.mark.parametrize("how", ["os._exit(1)", "os.kill(os.getpid(), 9)", "pass"])
def test_no_helper_outlives_its_program(shards: str, tmp_path: Path, how: str) -> None:
    done = made.run_python(
        f"""
        import os, called, forebay as fb
        loader = fb.Loader({shards!r}, [fb.npy("npy").map(called.double)], batch_size=10, processes=2, num_workers=2)
        iterator = iter(loader)
        next(iterator), next(iterator)
        print(*loader._calls.pids(), flush=True)
        {how}
        """,
        PYTHONPATH=made.path_with(Path(__file__).parent),
    )
    pids = [int(word) for word in done.stdout.split()]
    assert pids, done.stderr
    deadline = time.monotonic() + served.DEADLINE
    while not all(gone(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_main_program_is_not_run_again(tmp_path: Path, shards: str) -> None:
    script = f"""
        import forebay as fb

        def mine(array):
            return array

        print("begun", flush=True)
        try:
            fb.Loader({shards!r}, [fb.npy("npy").map(mine)], processes=2)
        except fb.InvalidConfigError as error:
            print(error, "|", error.hint)
        with fb.Loader({shards!r}, [fb.npy("npy").map(mine)], batch_size=10) as loader:
            print(len(next(iter(loader))["npy"]))
        """
    done = made.run_python(script)
    lines = done.stdout.splitlines()
    assert lines[0] == "begun", done.stderr
    assert "__main__:mine" in lines[1]
    assert "module of its own" in lines[1]
    assert lines[2:] == ["10"]


def test_what_cannot_be_imported_is_refused_when_the_loader_is_made(shards: str) -> None:
    captured = 3
    for function in (lambda value: value, lambda value: value * captured):
        with pytest.raises(fb.InvalidConfigError, match="helper processes") as caught:
            fb.Loader(shards, [fb.label("cls").map(function)], processes=1)
        assert "module" in str(caught.value.hint)


# Elsewhere.


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", made.path_with(Path(__file__).parent))


def test_p035_a_plain_function_is_a_stage_in_workers_of_a_service(
    shards: str, tmp_path: Path, importable: None
) -> None:
    recipe = [
        fb.label("cls").filter(called.even),
        column(called.noisy),
        fb.text("txt"),
        fb.map(called.with_process, fields=["npy"], outputs=["npy", "pid"]),
    ]
    arguments: dict[str, Any] = {"batch_size": 32, "shuffle": True, "seed": 3}
    with fb.Loader(shards, recipe, **arguments) as here:
        wanted = [(batch.ids.tolist(), batch["npy"].tobytes(), batch["txt"]) for batch in here]
    names = "called:even,called:noisy,called:with_process,called:raises_for_13"
    with served.service(tmp_path, workers=2, functions=names) as (url, _, workers):
        with fb.Loader(shards, recipe, via=url, **arguments) as loader:
            batches = list(loader)
        assert [(b.ids.tolist(), b["npy"].tobytes(), b["txt"]) for b in batches] == wanted
        pids = {int(pid) for batch in batches for pid in batch["pid"]}
        assert pids <= {worker.pid for worker in workers}
        raising = [column(called.raises_for_13), fb.label("cls")]
        with (
            fb.Loader(shards, raising, via=url, batch_size=10) as loader,
            pytest.raises(fb.FunctionError) as caught,
        ):
            made.ids(loader)
    assert caught.value.sample_id == 13
    assert caught.value.op == "map(called:raises_for_13)"
    assert "ValueError: thirteen is bad luck (raised in `raises_for_13`" in str(caught.value)


def test_a_worker_says_what_it_cannot_import_or_has_in_another_form(
    shards: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(fb.InvalidConfigError, match="cannot be imported by that name") as caught:
        fb.Loader(shards, [fb.label("cls").map(lambda value: value)], via="forebay://127.0.0.1:1")
    assert "module" in str(caught.value.hint)
    with (
        served.service(tmp_path / "a", workers=1, functions="called:double") as (url, _, _),
        fb.Loader(shards, [column(called.double)], via=url, batch_size=10) as loader,
        pytest.raises(fb.NotFoundError, match="called:double") as missing,
    ):
        next(iter(loader))
    assert "PYTHONPATH" in str(missing.value.hint)
    other = tmp_path / "other"
    other.mkdir()
    source = Path(called.__file__).read_text().replace("SCALE = 2.0", "SCALE = 3.0")
    (other / "called.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", made.path_with(other))
    with (
        served.service(tmp_path / "b", workers=1, functions="called:double") as (url, _, _),
        fb.Loader(shards, [column(called.double)], via=url, batch_size=10) as loader,
        pytest.raises(fb.StaleError, match="called:double"),
    ):
        next(iter(loader))


def test_p035_a_worker_calls_nothing_that_it_was_not_told_to(
    shards: str, tmp_path: Path, importable: None
) -> None:
    for number, allowed in enumerate([None, "called:even"]):
        with (
            served.service(tmp_path / str(number), workers=1, functions=allowed) as (url, _, _),
            fb.Loader(shards, [column(called.double)], via=url, batch_size=10) as loader,
            pytest.raises(fb.DeniedError, match="called:double") as refused,
        ):
            next(iter(loader))
        assert "--functions called:double" in str(refused.value.hint)


def test_a_shared_process_calls_functions_too(shards: str, importable: None) -> None:
    with fb.Loader(shards, [column(called.double)], via="auto", batch_size=10) as loader:
        assert next(iter(loader))["npy"][3, 0, 0] == 6


# Recipes.


def test_a_changed_function_is_a_changed_recipe_and_resuming_says_so(shards: str) -> None:
    def factor(by: float) -> Any:
        return lambda value: value * by

    one, same, other = (fb.Recipe([column(factor(by))]) for by in (2.0, 2.0, 3.0))
    assert one.fingerprint == same.fingerprint != other.fingerprint
    with fb.Loader(shards, one, batch_size=10) as loader:
        state = loader.state_dict()
    with (
        fb.Loader(shards, other, batch_size=10) as loader,
        pytest.raises(fb.StaleError, match="recipe fingerprint"),
    ):
        loader.load_state_dict(state)
    with fb.Loader(shards, same, batch_size=10) as loader:
        loader.load_state_dict(state)


def test_a_fingerprint_covers_defaults_captured_values_constants_and_helpers(tmp_path: Path) -> None:
    from forebay._source import fingerprint

    text = """
    import numpy as np
    LIMIT = 5
    TABLE = np.arange(3)
    def helper(x):
        return x + 1
    def used(x, by=2):
        return helper(x) * by + LIMIT + TABLE
    class Op:
        def __init__(self, p): self.p = p
        def __call__(self, x): return x * self.p
    """
    found = {}
    changes = {
        "": "",
        "by=2": "by=3",
        "x + 1": "x + 2",
        "LIMIT = 5": "LIMIT = 6",
        "arange(3)": "arange(4)",
        "helper(x) * by": "by * helper(x)",
    }
    for number, (old, new) in enumerate(changes.items()):
        done = made.run_python(
            f"""
            import sys, pathlib, textwrap
            folder = pathlib.Path({str(tmp_path)!r}) / "{number}"
            folder.mkdir()
            text = textwrap.dedent({text!r})
            (folder / "module.py").write_text(text.replace({old!r}, {new!r}) if {old!r} else text)
            sys.path.insert(0, str(folder))
            import module
            from forebay._source import fingerprint
            print(fingerprint(module.used), fingerprint(module.Op(1)), fingerprint(module.Op(2)))
            """
        )
        found[old] = done.stdout.split()
        assert len(found[old]) == 3, done.stderr
    assert len({of_used for of_used, _, _ in found.values()}) == len(changes)
    assert len({tuple(of_ops) for _, *of_ops in found.values()}) == 1
    assert found[""][1] != found[""][2]
    assert fingerprint(called.double) == fingerprint(called.double)


def test_recipes_with_functions_are_plain_data_by_name(shards: str) -> None:
    recipe = fb.Recipe(
        [
            column(called.noisy, **FIXED),
            fb.label("cls").filter(called.even),
            fb.map(called.with_process, fields="npy", outputs=["npy", "pid"]),
        ]
    )
    functions = [called.noisy, called.even, called.with_process]
    ways = [
        fb.Recipe(recipe.to_json(), functions=functions),
        fb.Recipe(recipe.to_toml(), functions=functions),
        fb.Recipe(json.loads(recipe.to_json()), functions=functions),
        fb.Recipe(recipe),
        pickle.loads(pickle.dumps(recipe)),
    ]
    for again in ways:
        assert again == recipe
        assert again.fingerprint == recipe.fingerprint
        assert again.functions == (called.noisy, called.even, called.with_process)
    short = '[{"field": "npy", "decode": "npy", "ops": [{"op": "map", "function": "called:noisy"}]}]'
    assert (
        fb.Recipe(short, functions=[called.noisy])
        == fb.Recipe([fb.npy("npy").map("called:noisy")])
        == fb.Recipe([fb.npy("npy").map(called.noisy)])
    )
    assert eval(repr(fb.npy("npy").map(called.noisy)), {"npy": fb.npy}) == fb.npy("npy").map(called.noisy)
    wrong = recipe.to_json().replace(
        json.loads(recipe.to_json())[0]["ops"][0]["function"]["source"], "0" * 32
    )
    with pytest.raises(fb.StaleError, match="called:noisy"):
        fb.Recipe(wrong, functions=functions)
    with pytest.raises(fb.NotFoundError, match="no_such_module:f"):
        fb.label("cls").map("no_such_module:f")


def test_p035_a_text_calls_nothing_that_was_not_given_with_it(tmp_path: Path) -> None:
    (tmp_path / "trap.py").write_text(
        f"open({str(tmp_path / 'sprung')!r}, 'w').close()\ndef f(value): return value\n"
    )
    script = f"""
        import pickle, sys, forebay as fb
        sys.path.insert(0, {str(tmp_path)!r})
        text = '[{{"field": "txt", "decode": "text", "ops": [{{"op": "map", "function": "trap:f"}}]}}]'
        import json
        for recipe in (text, json.loads(text), [fb.Column(json.loads(text)[0])]):
            try:
                fb.Recipe(recipe)
            except fb.InvalidConfigError as error:
                print(error, "|", error.hint)
        print("trap" in sys.modules)
        """
    done = made.run_python(script)
    lines = done.stdout.splitlines()
    assert len(lines) == 4, done.stderr
    assert all("`trap:f`, which was not given" in line and "functions=" in line for line in lines[:3])
    assert lines[3] == "False"
    assert not (tmp_path / "sprung").exists()


def test_a_loader_with_functions_goes_to_other_processes_of_a_dataloader(shards: str) -> None:
    torch = pytest.importorskip("torch")
    import warnings

    warnings.simplefilter("ignore")
    with fb.Loader(shards, [column(called.double)], batch_size=50, output="torch") as loader:
        batches = torch.utils.data.DataLoader(
            fb.torch.dataset(loader), batch_size=None, num_workers=2, multiprocessing_context="spawn"
        )
        found = [value for batch in batches for value in batch["npy"][:, 0, 0].tolist()]
    assert found == [2.0 * n for n in range(1003)]


def test_materialized_functions_are_called_once(shards: str, tmp_path: Path) -> None:
    done = fb.materialize(
        shards, [column(called.double, **FIXED), fb.label("cls").filter(called.even)], tmp_path, batch_size=50
    )
    with fb.Loader(str(tmp_path / "*.tar"), done["recipe"], batch_size=50) as loader:
        found = np.concatenate([batch["npy"][:, 0, 0] for batch in loader])
    assert sorted(found.tolist()) == [2.0 * n for n in range(0, 1003, 2)]
