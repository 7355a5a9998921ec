"""Who gets into a service: certificates on both sides, for commands and for batches."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import forebay as fb
import pytest
import served
from forebay.errors import ForebayError

RECIPE = [fb.raw("bin"), fb.label("cls")]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority with a member, and a stranger whom another one vouches for."""
    if shutil.which("openssl") is None:
        pytest.skip("needs `openssl` to make certificates")
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)

    for authority, member in (("ca", "member"), ("other", "stranger")):
        openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-subj", f"/CN={authority}", "-keyout", f"{authority}.key", "-out", f"{authority}.pem",
        )  # fmt: skip
        openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={member}",
            "-keyout", f"{member}.key", "-out", f"{member}.csr",
        )  # fmt: skip
        (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        openssl(
            "x509", "-req", "-in", f"{member}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
            "-CAcreateserial", "-days", "2", "-extfile", "names", "-out", f"{member}.pem",
        )  # fmt: skip
    return folder


def _tls(files: Path, member: str) -> dict[str, str]:
    return {
        "tls_ca": str(files / "ca.pem"),
        "tls_cert": str(files / f"{member}.pem"),
        "tls_key": str(files / f"{member}.key"),
    }


def test_commands_and_batches_cross_with_certificates_of_both_sides(tmp_path: Path, files: Path) -> None:
    mutual = _tls(files, "member")
    data = fb.synthetic(200, bytes=1000)
    arguments: dict[str, Any] = {"batch_size": 10, "shuffle": True, "epochs": 1}
    head = served.dispatcher(tmp_path / "state", **mutual)
    url = str(head.said["url"])
    with head, served.worker(url, same_host="tcp", **mutual):
        with fb.Loader(data, RECIPE, via={"url": url, **mutual}, **arguments) as loader:
            assert sorted(i for batch in loader for i in batch.ids.tolist()) == list(range(200))
            assert loader.stats()["wire_bytes"] > 200 * 1000
        for bad in ({"url": url}, {"url": url, **_tls(files, "stranger")}):
            with (
                fb.Loader(data, RECIPE, via=bad, timeout=30, **arguments) as loader,
                pytest.raises(ForebayError),
            ):
                next(iter(loader))
