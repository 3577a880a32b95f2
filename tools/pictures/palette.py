"""Screenshots as small files: PNG with a palette instead of three bytes per pixel.

The browser that made a picture finds its colours (a canvas decodes it), Python writes the file: no imaging library
is needed for either. A screenshot of a page loses nothing that can be seen.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path

from tests.page.browser import Browser

COLOURS, EXACT = 256, 64
_SCRIPT = """(async () => {
  const picture = new Image();
  picture.src = DATA;
  await picture.decode();
  const canvas = new OffscreenCanvas(picture.width, picture.height), drawing = canvas.getContext('2d');
  drawing.drawImage(picture, 0, 0);
  const pixels = new Uint32Array(drawing.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  const counts = new Map();
  for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) ?? 0) + 1);
  const found = [...counts].sort((a, b) => b[1] - a[1] || a[0] - b[0]).map(([pixel]) => pixel);
  const apart = (a, b) => Math.abs((a & 255) - (b & 255)) + Math.abs((a >> 8 & 255) - (b >> 8 & 255)) + Math.abs((a >> 16 & 255) - (b >> 16 & 255));
  let chosen = [];
  for (let least = 4; chosen.length === 0 || chosen.length > MOST; least += 2) {  // areas as they are, edges nearly
    chosen = found.slice(0, EXACT);
    for (const pixel of found) if (!chosen.some((each) => apart(each, pixel) < least)) chosen.push(pixel);
  }
  const nearest = new Map();
  for (const pixel of found) {
    let best = 0;
    for (let at = 1; at < chosen.length; at += 1) if (apart(chosen[at], pixel) < apart(chosen[best], pixel)) best = at;
    nearest.set(pixel, best);
  }
  const indices = new Uint8Array(pixels.length);
  pixels.forEach((pixel, at) => { indices[at] = nearest.get(pixel); });
  const parts = [];
  for (let at = 0; at < indices.length; at += 32768) parts.push(String.fromCharCode(...indices.subarray(at, at + 32768)));
  return { width: canvas.width, height: canvas.height, indices: btoa(parts.join('')),
           palette: chosen.flatMap((pixel) => [pixel & 255, pixel >> 8 & 255, pixel >> 16 & 255]) };
})()"""  # noqa: E501 - a script of the page's world


def shrink(browser: Browser, file: Path) -> Path:
    """Write a PNG anew with COLOURS at most; returns its path."""
    data = f"data:image/png;base64,{base64.b64encode(file.read_bytes()).decode()}"
    browser.open("about:blank")
    script = _SCRIPT.replace("MOST", str(COLOURS)).replace("EXACT", str(EXACT)).replace("DATA", json.dumps(data))
    found = browser.run(script)
    indices = base64.b64decode(found["indices"])
    file.write_bytes(png(found["width"], found["height"], bytes(found["palette"]), indices))
    return file


def png(width: int, height: int, palette: bytes, indices: bytes) -> bytes:
    """A PNG of eight-bit palette entries (https://www.w3.org/TR/png/).

    Args:
        width: in pixels.
        height: the same.
        palette: three bytes per colour.
        indices: one byte per pixel, row by row.
    """
    rows = b"".join(b"\0" + indices[at : at + width] for at in range(0, width * height, width))
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = ((b"IHDR", head), (b"PLTE", palette), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, parts))


def _chunk(part: tuple[bytes, bytes]) -> bytes:
    name, data = part
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
