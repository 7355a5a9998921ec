"""The build backend that pip calls: maturin, after a look at the tools that the native parts need.

Without nasm the JPEG decoder would lose its SIMD code, so its build stops, but with some two hundred lines of
cmake output. Whoever types `pip install .` should read one sentence instead.
"""

from __future__ import annotations

import os
import platform
import shutil
from typing import Any

import maturin
from maturin import (
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def build_wheel(*args: Any, **kwargs: Any) -> Any:
    _need_tools()
    return maturin.build_wheel(*args, **kwargs)


def build_editable(*args: Any, **kwargs: Any) -> Any:
    _need_tools()
    return maturin.build_editable(*args, **kwargs)


def missing_tools() -> list[str]:
    """Names of build tools that are not on this machine, as Debian calls their packages."""
    wanted = {"cargo": shutil.which("cargo"), "gcc": shutil.which("cc"), "cmake": shutil.which("cmake")}
    if platform.machine().lower() in ("x86_64", "amd64", "i386", "i686"):
        wanted["nasm"] = shutil.which("nasm") or os.environ.get("ASM_NASM")
    return [name for name, found in wanted.items() if not found]


def _need_tools() -> None:
    missing = missing_tools()
    if missing:
        names = " ".join(missing)
        raise SystemExit(
            f"build forebay: not installed here: {', '.join(missing)} "
            "(the JPEG decoder is built from source with its SIMD code, never without)\n\n"
            f"hint: apt-get install {names}, or the like on other systems, then install forebay again"
        )
