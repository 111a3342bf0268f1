"""The capacity search, driven by systems whose limit is known."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.load.capacity import MOST_INVALID, MOST_NEAR, Answer, Search, Trial, next_rate
from headrace.errors import UsageError

System = Callable[[float], Trial]


def search(system: System, search: Search) -> tuple[Answer, list[Trial]]:
    """Tries what it is told to, until there is an answer."""
    trials: list[Trial] = []
    while True:
        step = next_rate(trials, search)
        if isinstance(step, Answer):
            return step, trials
        assert search.low <= step <= search.high
        trials.append(system(step))
        assert len(trials) <= search.most_trials


limits = st.floats(0.2, 50_000.0)
starts = st.floats(0.1, 90_000.0)


@given(limits, starts)
def test_a_sharp_limit_is_enclosed(limit: float, start: float) -> None:
    answer, trials = search(lambda rate: Trial(rate, rate <= limit), Search(start=start))
    assert answer.ended == "bracket"
    assert answer.holds is not None and answer.breaks is not None
    assert answer.holds <= limit < answer.breaks <= answer.holds * 1.05
    assert len(trials) <= abs(math.log2(limit / start)) + 8
    assert len({trial.rate for trial in trials}) == len(trials)


@given(limits, starts, st.integers(0, 2**32), st.floats(0.0, 0.3))
def test_noise_moves_the_answer_no_further_than_it_reaches(
    limit: float, start: float, seed: int, reach: float
) -> None:
    """Within `reach` of the limit a trial says anything; the nearer, the less sure."""
    random = np.random.default_rng(seed)

    def noisy(rate: float) -> Trial:
        off = math.log(rate / limit)
        if abs(off) >= reach:
            return Trial(rate, off <= 0)
        return Trial(rate, bool(random.random() < 0.5), sure=bool(random.random() < abs(off) / reach))

    answer, trials = search(noisy, Search(start=start))
    assert answer.ended in ("bracket", "trials")
    assert len(trials) <= 40
    if answer.holds is not None:
        assert answer.holds <= limit * math.exp(reach) * 1.000001
    if answer.breaks is not None:
        assert answer.breaks >= limit * math.exp(-reach) * 0.999999
    if answer.ended == "bracket":
        assert answer.holds is not None and answer.breaks is not None
        assert answer.holds < answer.breaks <= answer.holds * 1.05


@given(limits, starts, st.data())
def test_the_client_is_named_where_it_is_the_limit(limit: float, start: float, data: st.DataObject) -> None:
    client = data.draw(st.floats(limit / 20, limit * 20).filter(lambda value: value > 0.2))

    def system(rate: float) -> Trial:
        return Trial(rate, None) if rate > client else Trial(rate, rate <= limit)

    answer, trials = search(system, Search(start=start))
    if answer.ended == "trials":
        return
    reached = min(limit, client)
    assert answer.holds is not None and answer.breaks is not None
    assert answer.holds <= reached < answer.breaks <= answer.holds * 1.05
    assert answer.ended == ("client" if answer.breaks > client else "bracket")
    of_rate = [sum(trial.rate == rate for trial in trials) for rate in {trial.rate for trial in trials}]
    assert max(of_rate) <= MOST_INVALID


def test_a_verdict_within_its_error_is_asked_again_until_there_is_a_majority() -> None:
    wide = Search(start=10.0, growth=1.04)
    near = [Trial(10.0, True, sure=False), Trial(10.0, False, sure=False)]
    assert next_rate([], wide) == 10.0
    assert next_rate(near[:1], wide) == 10.0
    assert next_rate(near, wide) == 10.0
    assert next_rate([*near, Trial(10.0, True, sure=False)], wide) == pytest.approx(10.4)
    assert next_rate([*near, Trial(10.0, False, sure=False)], wide) == pytest.approx(10.0 / 1.04)
    assert next_rate([near[0], Trial(10.0, False)], wide) == pytest.approx(10.0 / 1.04)
    assert MOST_NEAR == 3


def test_one_trial_that_is_not_valid_is_asked_again() -> None:
    one = [Trial(10.0, None)]
    assert next_rate(one, Search(start=10.0)) == 10.0
    assert next_rate([*one, Trial(10.0, True)], Search(start=10.0)) == 20.0
    assert next_rate([*one, *one], Search(start=10.0)) == 5.0


def test_the_answer_tells_what_is_sure_from_what_is_guessed() -> None:
    """Within a fifth of the limit no trial is sure."""
    answer, _ = search(
        lambda rate: Trial(rate, rate <= 100.0, sure=not 80.0 < rate < 125.0), Search(start=10.0)
    )
    assert answer.holds is not None and 95.0 < answer.holds <= 100.0
    assert answer.surely_holds is not None and answer.surely_holds <= 80.0
    assert answer.surely_breaks is not None and answer.surely_breaks >= 125.0


def test_the_bounds_end_the_search() -> None:
    bounds = Search(start=10.0, low=2.0, high=30.0)
    assert search(lambda rate: Trial(rate, False), bounds)[0] == Answer(None, 2.0, "lowest rate", None, 2.0)
    assert search(lambda rate: Trial(rate, True), bounds)[0] == Answer(30.0, None, "highest rate", 30.0, None)
    short = Search(start=10.0, most_trials=3)
    assert search(lambda rate: Trial(rate, True), short)[0] == Answer(40.0, None, "trials", 40.0, None)
    never = search(lambda rate: Trial(rate, None), bounds)
    assert never[0] == Answer(None, 2.0, "client")


@pytest.mark.parametrize("start", [0.0, -1.0, math.nan, math.inf, 0.01])
def test_a_start_outside_the_bounds_is_refused(start: float) -> None:
    with pytest.raises(UsageError, match="search starts at"):
        Search(start=start)
