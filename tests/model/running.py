"""A runner's steps: claim, look, command, end; and the backend's requeue."""

from collections.abc import Iterator

from tests.model.state import Guard, Run, Runner, State, World, with_runner
from tests.model.step import Next, step


@step("shared.backends.local.recording:Recorder.claim")
def claim(world: World, state: State) -> Iterator[Next]:
    """A runner takes the claim, or after a requeue the next higher claim of the submission that has it."""
    before: Run = "forked" if world.has(Guard.CLAIM_FIRST) else "looked early"
    after: Run = "claimed" if world.has(Guard.CLAIM_FIRST) else "looked"
    for place, runner in enumerate(state.runners):
        if runner.at != before:
            continue
        name = _name(place, runner)
        if not world.has(Guard.CLAIM):
            yield (
                f"{name} takes a claim",
                state._replace(claim=runner.submission, runners=with_runner(state, place, at=after)),
            )
        elif runner.restart == 0 and state.claim == 0:
            yield (
                f"{name} takes the claim",
                state._replace(claim=runner.submission, runners=with_runner(state, place, at=after)),
            )
        elif runner.restart == 1 and state.claim == runner.submission and not state.higher_claim:
            yield (
                f"{name} takes claim.1",
                state._replace(higher_claim=True, runners=with_runner(state, place, at=after)),
            )
        else:
            yield (
                f"{name} finds the attempt claimed and exits 75",
                state._replace(runners=with_runner(state, place, at="never ran")),
            )


@step("shared.backends.local.recording:Recorder.is_revoked")
def look(world: World, state: State) -> Iterator[Next]:
    """It looks for `revoked`, and seeing it exits 75 without running."""
    before: Run = "claimed" if world.has(Guard.CLAIM_FIRST) else "forked"
    after: Run = "looked" if world.has(Guard.CLAIM_FIRST) else "looked early"
    for place, runner in enumerate(state.runners):
        if runner.at != before:
            continue
        if state.revoked and world.has(Guard.LOOK):
            yield (
                f"{_name(place, runner)} finds `revoked` and exits 75",
                state._replace(runners=with_runner(state, place, at="never ran")),
            )
        else:
            said = "finds no `revoked`" if world.has(Guard.LOOK) else "does not look for `revoked`"
            yield f"{_name(place, runner)} {said}", state._replace(runners=with_runner(state, place, at=after))


@step("shared.backends.local.supervisor:Supervisor._start")
def start(world: World, state: State) -> Iterator[Next]:
    """It starts the command, unless a stop was asked for before."""
    for place, runner in enumerate(state.runners):
        if runner.at == "looked":
            if state.stop:
                yield (
                    f"{_name(place, runner)} finds the stop and exits 75",
                    state._replace(runners=with_runner(state, place, at="never ran")),
                )
            else:
                yield (
                    f"{_name(place, runner)} STARTS THE COMMAND",
                    state._replace(runners=with_runner(state, place, at="running")),
                )


@step("shared.backends.local.supervisor:Supervisor._watch")
def end(world: World, state: State) -> Iterator[Next]:
    """The command ends, by itself or since a stop was asked for; the runner records the exit."""
    for place, runner in enumerate(state.runners):
        if runner.at == "running":
            yield (
                f"the command of {_name(place, runner)} ends, its exit is recorded",
                state._replace(runners=with_runner(state, place, at="exited")),
            )


@step("design section 2, rule 3: no backend of the code requeues yet")
def look_again(world: World, state: State) -> Iterator[Next]:
    """While its command runs a runner looks for a higher claim, and seeing one kills its command."""
    if not state.higher_claim:
        return
    for place, runner in enumerate(state.runners):
        if runner.at == "running" and runner.restart == 0 and not runner.looked_again:
            if world.has(Guard.HIGHER_CLAIM):
                yield (
                    f"{_name(place, runner)} sees claim.1 and kills its command",
                    state._replace(runners=with_runner(state, place, at="gone")),
                )
            else:
                unaware = runner._replace(looked_again=True)
                yield (
                    f"{_name(place, runner)} does not care for claim.1",
                    state._replace(
                        runners=(*state.runners[:place], unaware, *state.runners[place + 1 :]),
                    ),
                )


@step("shared.backends.local.tending:Tending.settle")
def tend(world: World, state: State) -> Iterator[Next]:
    """The host kills what a dead runner left."""
    for place, runner in enumerate(state.runners):
        if runner.at == "left processes":
            yield (
                f"the host kills what {_name(place, runner)} left",
                state._replace(runners=with_runner(state, place, at="gone")),
            )


@step("the backend, after a node failed or was cut off", helps=False)
def requeue(world: World, state: State) -> Iterator[Next]:
    """The backend starts the submission again elsewhere; the runner before it may be dead, or cut off and alive."""
    if state.requeues >= world.requeues or state.purged:
        return
    for place, runner in enumerate(state.runners):
        is_its_last = not any(other.submission == runner.submission for other in state.runners[place + 1 :])
        if runner.restart == 0 and is_its_last and runner.at in ("claimed", "looked", "running", "gone"):
            again = Runner(runner.submission, restart=1)
            yield (
                f"the backend requeues submission {runner.submission}",
                state._replace(runners=(*state.runners, again), requeues=state.requeues + 1),
            )


@step("a kill, the machine's memory, a defect", helps=False)
def die(world: World, state: State) -> Iterator[Next]:
    """A runner dies without recording an end; processes of its command may be left."""
    if state.faults >= world.faults:
        return
    for place, runner in enumerate(state.runners):
        after: Run
        if runner.at in ("forked", "looked early"):
            after = "never ran"
        elif runner.at in ("claimed", "looked"):
            after = "gone"
        elif runner.at == "running":
            after = "left processes"
        else:
            continue
        yield (
            f"{_name(place, runner)} dies",
            state._replace(runners=with_runner(state, place, at=after), faults=state.faults + 1),
        )


def _name(place: int, runner: Runner) -> str:
    again = f" after requeue {runner.restart}" if runner.restart else ""
    return f"runner {place + 1} (submission {runner.submission}{again})"
