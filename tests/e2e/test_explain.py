"""A job is followed through a pause into its next attempt, and its history says what happened, as a person reads it."""

from tests.e2e.stacks import Stack

SCRIPT = "echo attempt $TIDEGATE_ATTEMPT resume ${TIDEGATE_RESUME:-none}; test $TIDEGATE_ATTEMPT = 2 || sleep 1000"


def test_following_goes_on_with_the_next_attempt_and_the_history_has_both(stack: Stack) -> None:
    following = stack.start("submit", "--no-snapshot", "--gpus", "1", "--follow", "--", "sh", "-c", SCRIPT)
    assert following.stdout is not None
    job = following.stdout.readline().split()[-1]
    assert any("| attempt 1 resume none" in line for line in following.stdout)
    logs = stack.start("logs", "--follow", job)

    paused = stack.cli("pause", "--wait", "--reason", "lunch", job)
    told: list[str] = []
    while not told or not told[-1].startswith("what to do: "):  # who follows has to see the pause before it is over
        line = following.stdout.readline()
        assert line, told
        told.append(line.strip())
    assert (paused.code, paused.out.splitlines()[-1].endswith("(lunch)")) == (0, True), paused
    assert f"{job} PAUSED; by " in paused.out
    why = stack.cli("explain", job).out
    assert "(lunch)" in why
    assert "  next   nothing by itself: it is paused; you can resume or stop it\n" in why
    refused = stack.cli("retry", job)
    assert (refused.code, refused.err) == (3, "error: retry is not possible: it is paused: resume it instead\n")
    assert stack.cli("resume", job).out == f"{job} QUEUED; attempt 2\n"

    rest, said = following.communicate(timeout=240)
    assert following.returncode == 0, said
    told += [line.strip() for line in rest.splitlines()]
    begins = told.index("attempt 2 (resumed)")
    assert told[begins - 1] == f"what to do: go on with: tidegate resume {job} (this command waits for it)"
    assert told[begins - 2].startswith("PAUSED by ")
    assert "| attempt 2 resume 1" in told[begins:]
    assert told[-1].startswith("✓ stopping cluster")
    assert logs.communicate(timeout=240)[0] == "attempt 1 resume none\nattempt 2 resume 1\n"
    assert stack.cli("logs", "--attempt", "1", job).out == "attempt 1 resume none\n"

    shown = stack.cli("show", job).out
    for part in (
        "  attempt 1  submitted ",
        "  attempt 2  resumed ",
        "exited with code 0",
        "nothing of it runs any more",
    ):
        assert part in shown
    assert shown.count(", 1 GPU: ") == 2
    answer = stack.cli("show", "--json", job).json
    assert [attempt["origin"] for attempt in answer["attempts"]] == ["submit", "resume"]
    explained = stack.cli("explain", "--json", job).json
    assert explained["state"] == "SUCCEEDED"
    assert explained["cost"]["gpu_seconds"] == answer["gpu_seconds"]
    events = stack.cli("events", job).out
    assert "attempt 2 (resumed)\n" in events
    assert "FAILED" not in events
