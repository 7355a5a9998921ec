"""Makes the files of this folder: small images of every kind with the pixels Pillow gives for them, color changes by
torchvision's formulas, and payloads that attack a decoder.

    python make.py            needs numpy and Pillow; the files here were made with Pillow 13.0
"""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).parent
SIGNATURE = b"\x89PNG\r\n\x1a\n"
WIDTH, HEIGHT = 7, 5
rng = np.random.default_rng(1)


def chunk(kind, body, checksum=None):
    checksum = zlib.crc32(kind + body) if checksum is None else checksum
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", checksum)


def png(width, height, depth, color, data, *, before=b"", interlace=0, end=True):
    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace)
    tail = chunk(b"IDAT", zlib.compress(data, 9)) + (chunk(b"IEND", b"") if end else b"")
    return SIGNATURE + chunk(b"IHDR", head) + before + tail


def samples(depth, count):
    return rng.integers(0, 1 << depth, WIDTH * HEIGHT * count)


def packed(depth, values):
    """Scan lines without filter, as PNG packs them."""
    lines = b""
    for line in values.reshape(HEIGHT, -1):
        if depth >= 8:
            body = line.astype(">u2" if depth == 16 else "u1").tobytes()
        else:
            bits = "".join(format(int(value), f"0{depth}b") for value in line)
            bits += "0" * (-len(bits) % 8)
            body = bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8))
        lines += b"\0" + body
    return lines


def interlaced(pixels, color):
    data = b""
    for x, y, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
        part = pixels[y::dy, x::dx]
        if part.size:
            data += b"".join(b"\0" + line.tobytes() for line in part)
    return png(pixels.shape[1], pixels.shape[0], 8, color, data, interlace=1)


def gradient(channels, width=WIDTH, height=HEIGHT):
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([(x * 31 + y * 17 * (k + 1) + k * 40) % 256 for k in range(channels)], -1).astype("u1")


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def pngs():
    plte, trns = lambda body: chunk(b"PLTE", body), lambda body: chunk(b"tRNS", body)
    gray_alpha = Image.merge("LA", [Image.fromarray(gradient(2)[..., k]) for k in (0, 1)])
    few = Image.fromarray(gradient(3)).quantize(13)
    exif = Image.Exif()
    exif[0x112] = 6
    yield "gray8", saved(Image.fromarray(gradient(1)[..., 0]), "PNG")
    yield "graya8", saved(gray_alpha, "PNG")
    yield "rgb8", saved(Image.fromarray(gradient(3)), "PNG")
    yield "rgba8", saved(Image.fromarray(gradient(4)), "PNG")
    yield "exif", saved(Image.fromarray(gradient(3)), "PNG", exif=exif)
    yield "palette4", saved(few, "PNG", bits=4)
    yield "palette8_trns", saved(few, "PNG", bits=8, transparency=bytes([0, 128, 7, 255, 90]))
    for depth in (1, 2, 4):
        yield f"gray{depth}", png(WIDTH, HEIGHT, depth, 0, packed(depth, samples(depth, 1)))
        colors = plte(rng.integers(0, 256, 3 << depth, dtype="u1").tobytes())
        yield f"palette{depth}_raw", png(WIDTH, HEIGHT, depth, 3, packed(depth, samples(depth, 1)), before=colors)
    yield "rgb16", png(WIDTH, HEIGHT, 16, 2, packed(16, samples(16, 3)))
    yield "rgba16", png(WIDTH, HEIGHT, 16, 6, packed(16, samples(16, 4)))
    yield "graya16", png(WIDTH, HEIGHT, 16, 4, packed(16, samples(16, 2)))
    yield "gray8_trns", png(WIDTH, HEIGHT, 8, 0, packed(8, samples(2, 1)), before=trns(b"\0\2"))
    yield "rgb8_trns", png(WIDTH, HEIGHT, 8, 2, packed(8, samples(1, 3)), before=trns(struct.pack(">HHH", 1, 0, 1)))
    yield "palette8_short", png(WIDTH, HEIGHT, 8, 3, packed(8, samples(3, 1)), before=plte(bytes(range(15))))
    yield "rgb8_interlaced", interlaced(gradient(3), 2)
    yield "gray8_interlaced", interlaced(gradient(1), 0)


def webps():
    size = (21, 18)
    rgb, rgba = gradient(3, *size), gradient(4, *size)
    noisy = np.clip(rgba.astype(int) + rng.integers(-20, 20, rgba.shape), 0, 255).astype("u1")
    second = lambda pixels: [Image.fromarray(pixels[::-1].copy())]
    exif = Image.Exif()
    exif[0x112] = 6
    yield "lossy", saved(Image.fromarray(noisy[..., :3].copy()), "WEBP", quality=70)
    yield "lossy_alpha", saved(Image.fromarray(noisy), "WEBP", quality=70)
    yield "lossless", saved(Image.fromarray(rgb), "WEBP", lossless=True)
    yield "lossless_alpha", saved(Image.fromarray(rgba), "WEBP", lossless=True)
    yield "exif", saved(Image.fromarray(rgb), "WEBP", lossless=True, exif=exif)
    options = dict(save_all=True, duration=100)
    yield "animated", saved(Image.fromarray(rgba), "WEBP", append_images=second(rgba), lossless=True, **options)
    yield "animated_opaque", saved(Image.fromarray(rgb), "WEBP", append_images=second(rgb), quality=60, **options)


def write_images(kind, files):
    for name, payload in files:
        image = Image.open(io.BytesIO(payload))
        image.load()
        pixels = b"".join(image.convert(mode).tobytes() for mode in ("RGB", "L", "RGBA"))
        (ROOT / kind / f"{name}.{kind}").write_bytes(payload)
        (ROOT / kind / f"{name}.raw").write_bytes(pixels)


def write_gray16():
    """Our own rule: the high byte. Pillow clips at 255."""
    values = samples(16, 1)
    high = (values >> 8).astype("u1")
    opaque = np.stack([high, high, high, np.full_like(high, 255)], -1)
    (ROOT / "png/gray16.png").write_bytes(png(WIDTH, HEIGHT, 16, 0, packed(16, values)))
    (ROOT / "png/gray16.raw").write_bytes(np.repeat(high, 3).tobytes() + high.tobytes() + opaque.tobytes())


# torchvision.transforms.v2.functional on uint8 tensors, step by step in float32.
f32 = np.float32


def gray(image):
    image = image.astype(f32)
    return np.floor(image[..., 0] * f32(0.2989) + image[..., 1] * f32(0.587) + image[..., 2] * f32(0.114))


def levels(values):
    return np.clip(values, 0, 255).astype("u1")


def blend(image, other, factor):
    return levels(image.astype(f32) * f32(factor) + other * f32(1.0 - factor))


def brightness(image, factor):
    return levels(image.astype(f32) * f32(factor))


def contrast(image, factor):
    return blend(image, f32(gray(image).mean(dtype="f8")), factor)


def saturation(image, factor):
    return blend(image, gray(image)[..., None], factor)


def hue(image, turn):
    image = image.astype(f32) * f32(1 / 255)
    r, g, b = (image[..., k] for k in range(3))
    most, least = image.max(-1), image.min(-1)
    flat = most == least
    s = (most - least) / np.where(flat, f32(1), most)
    divisor = np.where(flat, f32(1), most - least)
    rc, gc, bc = (most - r) / divisor, (most - g) / divisor, (most - b) / divisor
    not_r, is_g = most != r, most == g
    h = (bc - gc) * ~not_r + (rc + f32(2) - bc) * (is_g & not_r) + (gc + f32(4) - rc) * (not_r & ~is_g)
    h = np.fmod(h * f32(1 / 6) + f32(1), f32(1))
    h = np.remainder(h + f32(turn), f32(1)) * f32(6)
    whole = np.floor(h)
    part, whole = h - whole, whole.astype("i4") % 6
    q = np.clip((f32(1) - s * part) * most, 0, 1)
    t = np.clip((s * part + (f32(1) - s)) * most, 0, 1)
    p = np.clip((f32(1) - s) * most, 0, 1)
    v = most
    channels = [v, q, p, p, t, v], [t, v, v, q, p, p], [p, p, t, v, v, q]
    made = np.stack([np.choose(whole, channel) for channel in channels], -1)
    return (made.astype(f32) * f32(255.999)).astype("u1")


def write_colors():
    source = rng.integers(0, 256, (16, 17, 3), dtype="u1")
    source[0] = np.arange(17)[:, None] * 15
    source[1, :5] = [[255, 255, 255], [0, 0, 0], [255, 0, 0], [0, 255, 0], [0, 0, 255]]
    (ROOT / "color/source.raw").write_bytes(source.tobytes())
    changes = {
        brightness: (0.0, 0.4, 1.0, 1.7),
        contrast: (0.0, 0.5, 1.3),
        saturation: (0.0, 0.6, 1.8),
        hue: (-0.5, -0.1, 0.03, 0.25, 0.5),
    }
    for change, factors in changes.items():
        for factor in factors:
            (ROOT / f"color/{change.__name__}_{factor}.raw").write_bytes(change(source, factor).tobytes())


def riff(*chunks):
    body = b"WEBP" + b"".join(k + struct.pack("<I", len(b)) + b + b"\0" * (len(b) % 2) for k, b in chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def le24(value):
    return struct.pack("<I", value)[:3]


def vp8x(width, height, flags=0):
    return b"VP8X", bytes([flags, 0, 0, 0]) + le24(width - 1) + le24(height - 1)


def vp8(width, height):
    return b"VP8 ", b"\x10\x00\x00\x9d\x01\x2a" + struct.pack("<HH", width, height) + b"\0" * 24


def vp8l(width, height):
    return b"VP8L", b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14) + b"\0" * 16


def npy(header, data=b"", length=None):
    text = header.encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) if length is None else length) + text + data


def ogg_page(flags, packets, number):
    head = b"OggS\0" + bytes([flags]) + struct.pack("<qIII", 0, 1, number, 0) + bytes([len(packets)])
    page = head + bytes(map(len, packets)) + b"".join(packets)
    rest = 0
    for byte in page:
        rest ^= byte << 24
        for _ in range(8):
            rest = (rest << 1 ^ (0x04C11DB7 if rest >> 31 else 0)) & 0xFFFFFFFF
    return page[:22] + struct.pack("<I", rest) + page[26:]


def opus_head(channels, family=0):
    return b"OpusHead" + struct.pack("<BBHIhB", 1, channels, 312, 48000, 0, family)


def audio_attacks():
    part = lambda name, body: name + struct.pack("<I", len(body)) + body
    form = lambda channels, bits, frame, rate=8000: struct.pack("<HHIIHH", 1, channels, rate, rate * frame, frame, bits)
    riff = lambda *parts: b"RIFF" + struct.pack("<I", 4 + sum(map(len, parts))) + b"WAVE" + b"".join(parts)
    data = part(b"data", bytes(64))
    yield "empty.wav", b""
    yield "no_data.wav", riff(part(b"fmt ", form(1, 16, 2)))
    yield "data_before_format.wav", riff(data, part(b"fmt ", form(1, 16, 2)))
    yield "short_format.wav", riff(part(b"fmt ", bytes(14)), data)
    yield "no_channels.wav", riff(part(b"fmt ", form(0, 16, 0)), data)
    yield "most_channels.wav", riff(part(b"fmt ", form(0xFFFF, 8, 0xFFFF)), data)
    yield "frames_of_another_size.wav", riff(part(b"fmt ", form(2, 16, 3)), data)
    yield "no_rate.wav", riff(part(b"fmt ", form(1, 16, 2, 0)), data)
    yield "largest_chunk.wav", b"RIFF\xff\xff\xff\xffWAVELIST\xff\xff\xff\xff"
    # 2^36 - 1 samples at 655350 Hz, of which there are none.
    stream = struct.pack(">HH", 16, 65535) + bytes(6) + struct.pack(">Q", 655350 << 44 | 15 << 36 | 0xFFFFFFFFF) + bytes(16)
    yield "more_samples_than_frames.flac", b"fLaC\x80\0\0\x22" + stream
    yield "no_stream_info.flac", b"fLaC\x81\0\0\0"
    yield "largest_block.flac", b"fLaC\x84\xff\xff\xff"
    yield "tag_longer_than_file.mp3", b"ID3\x04\0\0\x7f\x7f\x7f\x7f"
    yield "no_frame.mp3", b"\xff\xfb" + bytes(100)
    yield "page_alone.ogg", b"OggS\0\2" + bytes(20) + b"\1\7\1vorbis"
    yield "no_such_codec.ogg", b"OggS\0\2" + bytes(20) + b"\1\x08Speex   "
    for name, head, packet in (
        ("no_channels", opus_head(0), b"\x48"),
        ("most_channels", opus_head(255, 255), b"\x48"),
        ("packet_of_no_frame", opus_head(1), b"\x4b\0"),
        ("packet_of_four_seconds", opus_head(1), b"\x5b\x3f"),
        # Two frames of 60 ms without a byte in each of 255 packets.
        ("half_a_minute_in_a_kilobyte", opus_head(1), b"\x59"),
    ):
        pages = [(2, [head]), (0, [b"OpusTags"]), (0, [packet] * 255)]
        yield f"{name}.opus", b"".join(ogg_page(*page, number) for number, page in enumerate(pages))
    yield "headers_alone.opus", ogg_page(2, [opus_head(1)], 0)
    yield "a_page_damaged.opus", ogg_page(2, [opus_head(1)], 0)[:-1] + b"\1"


def video_attacks():
    riff = lambda kind, body, length=None: kind + struct.pack("<I", len(body) if length is None else length) + body
    stream = lambda codec: riff(b"LIST", b"strl" + riff(b"strh", b"vids") + riff(b"strf", bytes(16) + codec))
    movie = riff(b"LIST", b"movi" + riff(b"00dc", b"\xff\xd8\xff\xd9"))
    avi = lambda *parts: riff(b"RIFF", b"AVI " + b"".join(parts))
    headers = riff(b"LIST", b"hdrl" + stream(b"MJPG"))
    yield "no_streams.avi", avi(riff(b"LIST", b"hdrl"), movie)
    yield "no_frames.avi", avi(headers, riff(b"LIST", b"movi"))
    yield "only_dropped_frames.avi", avi(headers, riff(b"LIST", b"movi" + riff(b"00dc", b"") * 50))
    yield "frame_longer_than_file.avi", avi(headers, riff(b"LIST", b"movi" + riff(b"00dc", b"\xff\xd8", 0xFFFFFFFF)))
    yield "list_longer_than_file.avi", avi(headers, riff(b"LIST", b"movi", 0x7FFFFFFF))
    yield "lists_in_lists.avi", avi(riff(b"LIST", b"hdrl" + riff(b"LIST", b"hdrl" + stream(b"MJPG"))), movie)
    yield "another_codec.avi", avi(riff(b"LIST", b"hdrl" + stream(b"H264")), movie)
    yield "frames_of_no_stream.avi", avi(headers, riff(b"LIST", b"movi" + riff(b"99dc", b"\xff\xd8\xff\xd9")))


def attacks():
    yield from audio_attacks()
    yield from video_attacks()
    line = b"\0" * 4
    rgb = png(1, 1, 8, 2, line)
    head = lambda w, h, depth=8, color=2: SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, depth, color, 0, 0, 0))
    bomb = zlib.compress(b"\0" * (1 << 22), 9)
    yield "empty.png", b""
    yield "signature_only.png", SIGNATURE
    yield "largest_size.png", png(0x7FFFFFFF, 0x7FFFFFFF, 16, 6, line)
    yield "more_pixels_than_its_bytes_hold.png", png(13000, 13000, 8, 2, line)
    yield "no_columns.png", png(0, 5, 8, 2, line)
    yield "no_such_color.png", png(1, 1, 8, 5, line)
    yield "no_such_depth.png", png(1, 1, 7, 0, line)
    yield "palette_missing.png", png(1, 1, 8, 3, b"\0\0")
    yield "palette_ends_inside_a_color.png", png(1, 1, 8, 3, b"\0\0", before=chunk(b"PLTE", b"\0" * 13))
    yield "palette_of_too_many_colors.png", png(1, 1, 8, 3, b"\0\0", before=chunk(b"PLTE", b"\0" * 3000))
    yield "too_few_lines.png", png(1, 9, 8, 2, line)
    yield "header_checksum.png", rgb[:29] + b"\0\0\0\0" + rgb[33:]
    yield "data_checksum.png", head(1, 1) + chunk(b"IDAT", zlib.compress(line), 0) + chunk(b"IEND", b"")
    yield "not_deflate.png", head(1, 1) + chunk(b"IDAT", b"\xff" * 40) + chunk(b"IEND", b"")
    yield "chunk_longer_than_file.png", head(1, 1) + b"\xff\xff\xff\xffIDAT" + b"\0" * 20
    yield "no_data.png", head(1, 1) + chunk(b"IEND", b"")
    yield "no_such_filter.png", png(1, 1, 8, 2, b"\x09\0\0\0")
    yield "profile_bomb_and_no_data.png", head(1, 1) + chunk(b"iCCP", b"x\0\0" + bomb) + chunk(b"IEND", b"")
    small_frame = struct.pack(">IIIIIHHBB", 0, 1, 1, 0, 0, 1, 1, 0, 0)
    yield "first_frame_smaller.png", head(4, 4) + chunk(b"acTL", struct.pack(">II", 1, 0)) + chunk(
        b"fcTL", small_frame
    ) + chunk(b"IDAT", zlib.compress(line)) + chunk(b"IEND", b"")
    yield "empty.webp", b"RIFF\0\0\0\0WEBP"
    yield "canvas_hides_a_large_image.webp", riff(vp8x(1, 1), vp8(16383, 16383))
    yield "canvas_hides_a_large_lossless_image.webp", riff(vp8x(1, 1), vp8l(16384, 16384))
    yield "largest_canvas.webp", riff(vp8x(1 << 24, 1 << 24), vp8(1, 1))
    yield "largest_lossless.webp", riff(vp8l(16384, 16384))
    yield "no_columns.webp", riff(vp8(0, 5))
    yield "no_image.webp", riff(vp8x(4, 4))
    yield "short_canvas.webp", riff((b"VP8X", b"\0\0"))
    yield "cut_off.webp", riff(vp8(64, 64))[:40]
    yield "not_an_image.webp", riff((b"VP8 ", b"\xff" * 40))
    frame = lambda x, y, w, h, *inner: (b"ANMF", le24(x) + le24(y) + le24(w - 1) + le24(h - 1) + b"\0" * 4 + riff(*inner)[12:])
    anim = (b"ANIM", b"\0" * 6)
    yield "frame_outside_canvas.webp", riff(vp8x(4, 4, 2), anim, frame(3, 0, 4, 4, vp8(4, 4)))
    yield "frame_hides_a_large_image.webp", riff(vp8x(4, 4, 2), anim, frame(0, 0, 4, 4, vp8(16383, 16383)))
    alpha = (b"ALPH", b"\0" * 17)
    yield "alpha_frame_of_another_size.webp", riff(vp8x(4, 4, 0x12), anim, frame(0, 0, 4, 4, alpha, vp8(8, 8)))
    yield "frame_without_image.webp", riff(vp8x(4, 4, 2), anim, frame(0, 0, 4, 4, (b"JUNK", b"\0" * 40)))
    form = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n"
    import pickle

    yield "pickle.npy", npy(form % ("|O", "(1,)"), pickle.dumps([eval]))
    yield "shape_overflows.npy", npy(form % ("<f8", "(4294967296, 4294967296, 2)"))
    yield "shape_overflows_around_zero.npy", npy(form % ("<f8", "(18446744073709551615, 9, 0)"))
    yield "more_elements_than_bytes.npy", npy(form % ("<f4", "(1000000,)"), b"\0" * 16)
    yield "header_longer_than_file.npy", npy(form % ("<f4", "(1,)"), length=60000)
    yield "code_in_header.npy", npy("__import__('os').abort()\n")
    yield "code_after_header.npy", npy((form % ("|u1", "()")).strip() + " or exit()\n", b"\0")
    yield "negative_shape.npy", npy(form % ("<f4", "(-1,)"), b"\0" * 16)
    yield "deep.json", b"[" * 300
    yield "deep_objects.json", b'{"a":' * 300
    yield "open_string.json", b'{"a": "' + b"x" * 100
    yield "not_utf8.json", b'{"a": "\xff"}'
    yield "two_documents.json", b"{}{}"
    yield "not_utf8.txt", b"abc\xc3\x28"
    yield "beyond_64_bits.cls", b"9" * 4000
    yield "not_a_number.cls", b"0; rm -rf /"
    yield "no_digits.cls", b"  \n"
    yield "empty.jpg", b"\xff\xd8\xff"
    frame = b"\xff\xc0\x00\x11\x08%s\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01"
    yield "largest_size.jpg", b"\xff\xd8" + frame % struct.pack(">HH", 65535, 65535) + b"\xff\xda\x00\x0c"
    yield "no_rows.jpg", b"\xff\xd8" + frame % struct.pack(">HH", 0, 9) + b"\xff\xd9"
    yield "no_frame.jpg", b"\xff\xd8\xff\xfe\xff\xff" + b"\0" * 64
    yield "unknown.jpg", b"GIF89a" + b"\0" * 32


if __name__ == "__main__":
    for folder in ("png", "webp", "color", "attacks"):
        (ROOT / folder).mkdir(exist_ok=True)
    write_images("png", pngs())
    write_images("webp", webps())
    write_gray16()
    write_colors()
    for name, payload in attacks():
        (ROOT / "attacks" / name).write_bytes(payload)
