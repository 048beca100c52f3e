"""The benchmark of federation: both ways of asking answer, and the figures are of answers."""

from benchmarks.federation import floor, round_trips, swarms


async def test_two_swarms_and_two_plain_posts_answer_under_the_same_load() -> None:
    async with floor() as bare, swarms(2) as ours:
        trips = await round_trips(ours, bare, concurrent=2, rounds=1, seconds=0.5)
    assert min(one.rate for one in (*trips.ours, *trips.floor)) > 0
    assert trips.ratio > 0
