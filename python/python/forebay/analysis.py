"""Where a training loop's time would go, measured in parts: `fb.analyze(loader, step)`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from forebay import _native
from forebay.batch import Batch
from forebay.errors import InvalidConfigError
from forebay.loader import Loader

__all__ = ["Analysis", "analyze"]

_LEAST_STEPS = 6
_HELD_BATCHES = 2


class Analysis(dict[str, Any]):
    """What was measured and what follows from it; `print` shows a summary.

    `rates` has `ingest`, `prep` and `fetch`, each with `per_second` and the ends of a 95 % interval. `prediction` has
    the `first` epoch, which finds an empty cache, and `later` ones: `rate`, `bottleneck`, and the seconds of step and
    stalls. `remedies` are single changes, the one that brings most first. `cache_needed_bytes` is the cache from which
    fetching is no longer the bottleneck. `what_if` is the prediction with what was asked for changed.
    """

    def __repr__(self) -> str:
        lines = []
        for name in ("ingest", "prep", "fetch"):
            rate = self["rates"][name]
            if rate is None:
                lines.append(f"{name + ' rate':<14} without limit: no payload is read")
                continue
            low, high = rate["low"], rate["high"]
            doubt = "" if high is None else f" ± {(high - low) / 2:,.1f}"
            lines.append(f"{name + ' rate':<14} {rate['per_second']:,.1f}{doubt} samples/s")
        lines += ["", f"{'bottleneck':<14} {self['prediction']['later']['bottleneck']}"]
        lines += _epochs(self["prediction"])
        needed = self["cache_needed_bytes"]
        if needed:
            lines.append(f"{'cache':<14} {needed:,.0f} bytes make fetching no longer the bottleneck")
        if self["remedies"]:
            lines += ["", "what would help, one at a time:"]
            lines += [f"  +{100 * r['gain']:>5.0f} %  {r['change']} = {r['to']:,}" for r in self["remedies"]]
        if self["what_if"]:
            lines += ["", f"with {self['what_if']['change']}:", *_epochs(self["what_if"]["prediction"])]
        return "\n".join(lines)

    __str__ = __repr__


def _epochs(prediction: dict[str, Any]) -> list[str]:
    lines = []
    for name in ("first", "later"):
        epoch = prediction[name]
        parts = ("step", "prep_stall", "fetch_stall")
        shares = ", ".join(
            f"{part.replace('_', ' ')} {epoch[f'{part}_seconds'] / epoch['seconds']:.0%}" for part in parts
        )
        label = "first epoch" if name == "first" else "later epochs"
        lines.append(f"{label:<14} {epoch['rate']:,.1f} samples/s: {shares}")
    return lines


def analyze(
    loader: Loader, step: Callable[[Batch], object], *, seconds: float = 5.0, what_if: str | None = None
) -> Analysis:
    """Measures what the training step takes, what is prepared and what is fetched, and says what holds the run back.

    loader: whose dataset, recipe and settings are measured. Its place and its cache are not touched.
    step: your training step: a function of a batch. It is called again and again with the same batches; let it wait for
        the device, or it looks faster than it is. It changes your model: give it a copy.
    seconds: for how long each rate is measured.
    what_if: predicts the run with something changed: `"cache=50%,cores=x2"`. Known are `cache` (a size or a share),
        `cores`, `bandwidth` (of the store, bytes a second), `rtt` and `step` (seconds), each a value or a factor.
    """
    if not seconds > 0:
        raise InvalidConfigError(f"measure a pipeline: seconds is {seconds}, give more than 0")
    count = min(_HELD_BATCHES, len(loader))
    if count == 0:
        raise InvalidConfigError("measure a pipeline: an epoch has no batch")
    batches = [loader.show(loader.epoch, number) for number in range(count)]
    stretches = _steps(step, batches, seconds)
    alone = {"window": None, "epochs": None, "via": None, "metrics": None}
    settings = {**loader._told(), **alone, "ranks_folder": None, "ranks_store": None}
    text = _native.analyze(
        loader.dataset.native, loader.recipe.to_json(), settings, float(seconds), stretches, what_if
    )
    return Analysis(json.loads(text))


def _steps(
    step: Callable[[Batch], object], batches: list[Batch], seconds: float
) -> list[tuple[float, float]]:
    """Seconds and samples of stretches of the loop, after each batch was seen once."""
    for batch in batches:
        step(batch)
    times: list[tuple[float, float]] = []
    until = time.perf_counter() + seconds
    while len(times) < _LEAST_STEPS or time.perf_counter() < until:
        batch = batches[len(times) % len(batches)]
        since = time.perf_counter()
        step(batch)
        times.append((time.perf_counter() - since, float(len(batch.ids))))
    size = -(-len(times) // 10)
    cut = [times[at : at + size] for at in range(0, len(times), size)]
    return [(sum(t for t, _ in part), sum(n for _, n in part)) for part in cut]
