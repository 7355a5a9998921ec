"""The training node: a loop whose steps take a given time, fed by the preparation nodes. Prints what it saw as JSON."""

from __future__ import annotations

import json
import sys
import time

import forebay as fb


def main() -> None:
    """`train.py SETTINGS`, a JSON object: manifest, via, batch_size, delay, step, warm, seconds."""
    how = json.loads(sys.argv[1])
    recipe = [fb.raw("bin").delay(how["delay"])]
    with fb.Loader(
        fb.open(how["manifest"]),
        recipe,
        batch_size=how["batch_size"],
        shuffle=True,
        via=how["via"],
        timeout=60,
    ) as loader:
        begun = counted = None
        samples, stepping = 0, 0.0
        # Queues fill before anything is counted.
        warm_until = time.perf_counter() + how["warm"]
        while True:
            for batch in loader:
                now = time.perf_counter()
                if begun is None and now >= warm_until:
                    begun = counted = now
                    samples, stepping = 0, 0.0
                    print("counting", flush=True)
                time.sleep(how["step"])
                stepping += how["step"]
                samples += len(batch.ids)
                counted = time.perf_counter()
                if begun is not None and counted - begun >= how["seconds"]:
                    seconds = counted - begun
                    print(
                        json.dumps(
                            {"samples": samples, "seconds": seconds, "step_share": stepping / seconds}
                        ),
                        flush=True,
                    )
                    return


if __name__ == "__main__":
    main()
