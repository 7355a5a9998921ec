"""Makes the binary seeds: small JPEGs, EXIF blocks, arrays, tars, records and messages. Needs numpy and Pillow."""

import io
import json
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).parent
y, x = np.mgrid[0:19, 0:21]
rgb = np.stack([(x * 11 + y * 7 * k) % 256 for k in (1, 2, 3)], -1).astype("u1")


def jpeg(name, image, **options):
    image.save(ROOT / "jpeg" / name, "JPEG", quality=50, **options)


def disk_cache():
    """A cache of one payload. The target sets checksums itself; 102 of 255 parts are the index."""
    unit = lambda data: data.ljust(64, b"\0")
    number = lambda value, size: value.to_bytes(size, "little")
    index = unit(b"FBCINDX\n" + number(1, 4) + number(2, 4))
    line = number(7, 16) + number(3, 8) + number(4, 8) + number(5, 8) + number(20, 4)
    index += unit(line + number(1, 4) + number(1, 4) + number(6, 4))
    segment = unit(b"FBCSEGM\n" + number(1, 4) + number(1, 4))
    segment += unit(b"FBCR" + number(20, 4) + number(7, 16) + number(3, 8)) + unit(b"payload of 20 bytes.")
    (ROOT / "disk_cache/both").write_bytes(bytes([102]) + index + segment)
    (ROOT / "disk_cache/segment").write_bytes(bytes([0]) + segment)


def message(name, kind, fields):
    (ROOT / "wire" / name).write_bytes(bytes([kind]) + struct.pack("<Q", 7) + fields)


def messages():
    payload = bytes(range(16)) + struct.pack("<QQQ", 5, 100, 1)
    near = b"\0\1\1\2\2" + struct.pack("<I", 9)
    message("look", 1, struct.pack("<I", 2) + payload * 2)
    message("read", 2, struct.pack("<I", 1) + payload)
    message("keep", 3, payload + b"\3")
    message("give_up", 4, payload)
    message("held", 5, struct.pack("<Q", 1))
    message("forget", 6, struct.pack("<I", 1) + bytes(16))
    message("resize", 7, struct.pack("<QQ", 1, 2))
    message("view", 8, b"")
    message("answers", 10, struct.pack("<QI", 3, 4) + near + b"\3" + struct.pack("<IQ", 1, 64))
    message("bytes", 11, struct.pack("<IBQ", 0, 0, 100))
    message("done", 13, bytes(80))
    message("refused", 14, b"\2no")
    message("names", 15, b"\1" + struct.pack("<I", 1) + bytes(16))
    message("slab_list", 16, struct.pack("<QII", 3, 1, 0))


def records():
    """One record of each format behind the byte that names it; an example alone is framed by the target."""
    field = lambda number, data: bytes([number << 3 | 2, len(data)]) + data
    feature = lambda name, kind, values: field(1, field(1, name) + field(2, field(kind, field(1, values))))
    example = field(
        1, feature(b"a", 1, b"bytes") + feature(b"b", 3, b"\1\2") + feature(b"label", 2, struct.pack("<f", 2))
    )
    (ROOT / "records/example").write_bytes(bytes([0]) + example)
    (ROOT / "records/json_line").write_bytes(bytes([1]) + b'{"a": "text", "b": [1, 2.5], "label": 3}')
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        member = zipfile.ZipInfo("a.txt", (2020, 1, 1, 0, 0, 0))
        member.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(member, b"text " * 9)
    (ROOT / "records/zip_member").write_bytes(
        bytes([2]) + packed.getvalue()[: packed.getvalue().index(b"PK\1\2")]
    )
    body = struct.pack("<IfQQ", 0, 3, 9, 0) + b"image"
    frame = struct.pack("<II", 0xCED7230A, len(body)) + body + b"\0\0\0"
    (ROOT / "records/recordio").write_bytes(bytes([3]) + frame)
    pixels = struct.pack("<III", 1, 2, 1) + b"L" + b"\1\2"
    array = bytes([16, 1 << 2, 2]) + b"\1\0\2\0"
    values = [array, array[1:], bytes(12), pixels, b'{"a": [1]}', bytes(8), b"-7", b"2.5"]
    sizes = struct.pack("<8I", *map(len, values))
    (ROOT / "records/mds").write_bytes(bytes([4]) + sizes + b"".join(values))
    matrix = lambda order, dtype, data: struct.pack(f"{order}IIII", dtype, 2, 1, 2) + data
    values = [matrix("<", 4, b"\1\2"), matrix(">", 11, b"\1\2"), bytes(8), bytes(4), pixels, b"\1", b"[1]", bytes(8)]
    sizes = struct.pack("<8I", *map(len, values))
    (ROOT / "records/litdata").write_bytes(bytes([5]) + sizes + b"".join(values))


def token_index():
    """Three sequences of two documents, read two sequences at a time."""
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 3, 3)
    body = struct.pack("<3i", 3, 4, 5) + struct.pack("<3q", 0, 6, 14) + struct.pack("<3q", 0, 2, 3)
    (ROOT / "token_index").mkdir(exist_ok=True)
    (ROOT / "token_index/two").write_bytes(bytes([1]) + head + body)


def tokenizer():
    """A text, a zero, and a file whose tokens are words."""
    made = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "decoder": None}
    made |= {
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
    }
    made["model"] = {
        "type": "WordLevel",
        "unk_token": "?",
        "vocab": {"?": 0, "the": 1, "basin": 2, "above": 3},
    }
    (ROOT / "tokenizer").mkdir(exist_ok=True)
    (ROOT / "tokenizer/words").write_bytes(b"\1The basin, above\0" + json.dumps(made).encode())
    pairs = {
        "type": "BPE",
        "vocab": {"a": 0, "b": 1, "ab": 2},
        "merges": [["a", "b"]],
        "byte_fallback": False,
    }
    made |= {
        "model": pairs,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    }
    made["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    padding = {
        "strategy": {"Fixed": 5},
        "direction": "Right",
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "a",
    }
    made["padding"] = padding | {"pad_to_multiple_of": None}
    (ROOT / "tokenizer/pairs").write_bytes(b"\0abba\0" + json.dumps(made).encode())


def main():
    disk_cache()
    tokenizer()
    token_index()
    records()
    messages()
    color, exif = Image.fromarray(rgb), Image.Exif()
    exif[0x112] = 6
    jpeg("420.jpg", color, subsampling="4:2:0")
    jpeg("422.jpg", color, subsampling="4:2:2")
    jpeg("444.jpg", color, subsampling="4:4:4")
    jpeg("progressive.jpg", color, progressive=True)
    jpeg("gray.jpg", color.convert("L"))
    jpeg("cmyk.jpg", color.convert("CMYK"))
    jpeg("restarts.jpg", color, restart_marker_blocks=1)
    jpeg("exif.jpg", color, exif=exif)
    tiff = exif.tobytes().removeprefix(b"Exif\0\0")
    (ROOT / "exif/native").write_bytes(tiff)
    (ROOT / "exif/big").write_bytes(b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x08\0\0\0\0\0\0")
    for dtype in ("?", "u1", "<i4", "<f2", "<f8", ">f4"):
        np.save(ROOT / "npy" / f"{np.dtype(dtype).name}.npy", np.zeros((2, 3), dtype))
    np.save(ROOT / "npy/scalar.npy", np.float32(3))
    np.save(ROOT / "npy/fortran.npy", np.zeros((2, 3), "f4", order="F"))
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        path = ROOT / "tar_index" / f"{form}.tar"
        with tarfile.open(path, "w", format=form) as tar:
            for name in ("a/0001.jpg", "a/0001.cls", "a/0002.seg.png") + (
                ("x" * 120 + ".txt",) if form else ()
            ):
                info = tarfile.TarInfo(name)
                info.size = 3
                tar.addfile(info, io.BytesIO(b"abc"))
        # Python pads to a record of 10 KB; two blocks of zeros are enough.
        path.write_bytes(path.read_bytes().rstrip(b"\0").ljust(1, b"\0"))
        data = path.read_bytes()
        path.write_bytes(data + b"\0" * (-len(data) % 512 + 1024))


if __name__ == "__main__":
    main()
