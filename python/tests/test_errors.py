"""Exceptions: one class per kind, picklable with everything they know."""

from __future__ import annotations

import copy
import pickle
import traceback

import forebay as fb
import pytest
from forebay import errors

CLASSES = [getattr(errors, name) for name in errors.__all__ if name != "ForebayError"]


@pytest.mark.parametrize("cls", CLASSES)
def test_an_exception_survives_pickling_with_its_facts(cls: type[fb.ForebayError]) -> None:
    facts = {
        "hint": "do this",
        "sample_id": 7,
        "key": "a/b",
        "object": "s.tar",
        "offset": 512,
        "op": "resize",
        "field": "jpg",
        "epoch": 3,
    }
    error = cls("prepare sample 7: it is bad", **facts)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is cls
        assert str(again) == "prepare sample 7: it is bad"
        assert {name: getattr(again, name) for name in facts} == facts
        assert again.__notes__ == ["hint: do this"]
    assert isinstance(error, fb.ForebayError)


def test_each_kind_has_its_class_and_its_builtin() -> None:
    builtins = {
        "invalid_config": ValueError,
        "not_found": FileNotFoundError,
        "denied": PermissionError,
        "unavailable": ConnectionError,
        "unsupported": NotImplementedError,
        "internal": RuntimeError,
    }
    kinds = {cls.kind: cls for cls in CLASSES}
    assert len(kinds) == 11
    for kind, builtin in builtins.items():
        assert issubclass(kinds[kind], builtin)


def test_native_errors_arrive_with_class_hint_and_note() -> None:
    with pytest.raises(FileNotFoundError, match="no-such-folder") as caught:
        fb.open("no-such-folder/x-{0..3}.tar")
    assert isinstance(caught.value, fb.NotFoundError)
    with pytest.raises(fb.InvalidConfigError) as caught:
        fb.Loader(fb.synthetic(4), [fb.image("jpg")])
    assert "`jpg`" in str(caught.value)
    assert caught.value.hint is not None
    assert "`bin`" in caught.value.hint
    assert "hint: " in "".join(traceback.format_exception(caught.value))
