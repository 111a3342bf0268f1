"""The floor: a bare loop of scaled decode and resize, as many threads as cores, nothing else.

simplejpeg into a reused buffer at the smallest DCT scale that the recipe's oversampling allows, then one antialiased
resize; for PNG, Pillow and the same resize. No headers, limits, hand-overs, batches.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from io import BytesIO
from typing import Any

import numpy as np
import simplejpeg
from cykooz_resizer import FilterType, ResizeAlg, ResizeOptions
from cykooz_resizer.rust_lib import PilImageWrapper, RustResizer
from PIL import Image

from bench.inputs import RECIPES, workload
from headrace.serve.engine.cores import usable_cores
from headrace.serve.engine.memory import keep_freed_memory

OVERSAMPLING = 1.9


def loop(files: list[bytes], side: int, stop: threading.Event, counts: list[int], number: int) -> None:
    decoded = np.empty(4000 * 3000 * 4, np.uint8)
    small = np.empty((side, side, 4), np.uint8)
    target = Image.frombuffer("RGBA", (side, side), small, "raw", "RGBA", 0, 1)
    engine = RustResizer()
    options = ResizeOptions(
        resize_alg=ResizeAlg.convolution(FilterType.catmull_rom)
    ).rust_options.set_use_alpha(False)
    done = number
    while not stop.is_set():
        source = decode(files[done % len(files)], side, decoded)
        engine.resize_pil(PilImageWrapper(source), PilImageWrapper(target), options)
        done += 1
        counts[number] += 1


def decode(data: bytes, side: int, memory: Any) -> Any:
    if data[:2] != b"\xff\xd8":
        image = Image.open(BytesIO(data))
        image.load()
        return image
    height, width, _, _ = simplejpeg.decode_jpeg_header(data)
    eighths = next((n for n in (1, 2, 4) if min(width, height) * n / 8 >= OVERSAMPLING * side), 8)
    pixels = simplejpeg.decode_jpeg(
        data, "RGBX", min_width=-(-width * eighths // 8), min_height=-(-height * eighths // 8), buffer=memory
    )
    return Image.frombuffer("RGBA", (pixels.shape[1], pixels.shape[0]), pixels, "raw", "RGBA", 0, 1)


def run(files: list[bytes], side: int, seconds: float) -> dict[str, float]:
    stop, counts = threading.Event(), [0] * usable_cores()
    threads = [threading.Thread(target=loop, args=(files, side, stop, counts, n)) for n in range(len(counts))]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    return {"images": sum(counts), "seconds": time.perf_counter() - start}


def main() -> None:
    name, side = sys.argv[1], RECIPES[sys.argv[2]].width
    keep_freed_memory()
    files = workload(name)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(run(files, side, float(line.split()[1]))), flush=True)


if __name__ == "__main__":
    main()
