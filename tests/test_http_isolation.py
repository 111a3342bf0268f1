"""One bad image among many: nobody else is harmed, and nobody gets somebody else's answer."""

from __future__ import annotations

import base64
import json
from concurrent.futures import ThreadPoolExecutor

from http_support import Live, Reply, picture, seen_colour, serving

BAD = (b"no image at all", picture((1, 1, 1), "JPEG", 64)[:300], picture((1, 1, 1))[:60])


def colour(number: int) -> tuple[int, int, int]:
    return number % 251, (number * 7) % 251, (number * 31) % 251


def ask(live: Live, number: int) -> tuple[int, Reply]:
    if number % 20 == 19:
        return number, live.post(BAD[number // 20 % len(BAD)])
    kind = ("PNG", "BMP", "TIFF")[number % 3]
    return number, live.post(picture(colour(number), kind, 32 if number % 5 else 200))


def test_one_bad_image_in_twenty_under_load() -> None:
    with serving(batch_window_ms=2.0, decode_workers=2) as live, ThreadPoolExecutor(16) as pool:
        bad = 0
        for number, reply in pool.map(lambda number: ask(live, number), range(300)):
            if number % 20 == 19:
                bad += 1
                assert reply.status in (415, 422), reply
            else:
                assert reply.status == 200 and seen_colour(reply.json) == colour(number), (number, reply)
        counters = live.app.counters
        assert counters.seen == counters.answered == 300 and counters.totals.failed == bad == 15
        assert counters.totals.images == 285 and live.engine.inside == 0
        assert all(book.read().balanced for book in live.engine.books)


def test_a_bad_image_inside_a_request_with_others() -> None:
    with serving(door_max_inside=200) as live, ThreadPoolExecutor(4) as pool:

        def many(turn: int) -> None:
            images = [picture(colour(20 * turn + at)) for at in range(19)]
            texts = [base64.b64encode(image).decode() for image in images]
            texts.insert(turn, base64.b64encode(BAD[turn % len(BAD)]).decode())
            reply = live.post(json.dumps({"images": texts}).encode(), content_type="application/json")
            answers = reply.json["predictions"]
            assert reply.status == 200 and answers.pop(turn)["status"] in (415, 422)
            assert [seen_colour(answer) for answer in answers] == [colour(20 * turn + at) for at in range(19)]

        list(pool.map(many, range(6)))
        assert live.app.counters.errors.total() == 6
