"""One rank of a job that reads through a service, as a process that may be killed at any moment.

Says what it received, and its state after that, in one line for each step: what a training loop would checkpoint.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import forebay as fb

RECIPE = [fb.raw("bin"), fb.label("cls")]


def main() -> None:
    told: dict[str, Any] = json.loads(sys.argv[1])
    said = os.open(told["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    loader = fb.Loader(
        fb.synthetic(told["samples"], bytes=64, shards=3), RECIPE, batch_size=10, shuffle=True, seed=told["seed"],
        epochs=1, rank=told["rank"], world_size=told["world_size"], via=told["via"],
    )  # fmt: skip
    with loader:
        if told["state"] is not None:
            loader.load_state_dict(told["state"])
        for batch in loader:
            ids = [int(i) for i, padding in zip(batch.ids, batch.padding, strict=True) if not padding]
            line = json.dumps({"ids": ids, "state": loader.state_dict()}) + "\n"
            os.write(said, line.encode())
            time.sleep(told["step_seconds"])


if __name__ == "__main__":
    main()
