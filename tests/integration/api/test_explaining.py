"""What a job's view and its explanation say of every attempt."""

import httpx

from shared.client.views import JobView
from shared.lifecycle.explain import Explanation
from tests.integration.api.conftest import RunningApi
from tests.integration.api.situations import LET_GO, RUNS, Play


async def test_shows_the_stages_of_every_attempt_and_explains_what_comes_next(
    api: RunningApi, rin: httpx.AsyncClient, kay: httpx.AsyncClient
) -> None:
    play = Play(api, rin)
    (job,) = await play.submitted(1)
    await play.tell([job], *RUNS, "exits 3", *LET_GO)
    told = Explanation.model_validate((await rin.get(f"/v1/jobs/{job}/explain")).json())
    assert told.why == "stage running job failed: the command exited with code 3"
    assert told.next.what == "nothing: it has ended; you can retry or delete it"
    assert (await rin.post(f"/v1/jobs/{job}/retry")).status_code == 200
    await play.tell([job], *RUNS[:2], attempt=2)
    view = JobView.model_validate((await rin.get(f"/v1/jobs/{job}")).json())
    assert [[stage.status for stage in attempt.stages] for attempt in view.attempts] == [
        ["passed", "passed", "passed", "failed", "passed"],
        [stage.status for stage in view.stages],
    ]
    told = Explanation.model_validate((await rin.get(f"/v1/jobs/{job}/explain")).json())
    assert (told.next.what, told.next.who) == ("its inputs are checked and staged in", "the stager")
    assert [seen.attempt for seen in told.evidence] == sorted(seen.attempt for seen in told.evidence)
    assert (await kay.get(f"/v1/jobs/{job}/explain")).status_code == 404
