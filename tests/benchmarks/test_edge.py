"""The benchmark of the server: both servers answer, and a refusal is no figure."""

from benchmarks.edge import CALLERS, running, streams, turns
from benchmarks.http_load import Load, generate


async def test_ours_and_the_bare_route_answer_under_the_same_load() -> None:
    async with running("bare", 0) as bare, running("mail", CALLERS + 4) as ours:
        pairs = await turns(ours, bare, concurrent=4, rounds=1, seconds=0.3)
        assert min(pairs.ours) > 0 < min(pairs.bare)
        assert pairs.ratio == pairs.ours[0] / pairs.bare[0]
        waits = await streams(ours, bare, users=4, rounds=1)
        assert min(waits.ours) > 0 < min(waits.bare)


async def test_what_is_refused_is_counted() -> None:
    async with running("mail", 1) as ours:
        load = Load(url=ours.url, path="/message", tokens=["mail_no"], body={}, seconds=0.1)
        measured = await generate(load)
    assert measured.refused == len(measured.waits) > 0
    assert "401" in measured.wrong
