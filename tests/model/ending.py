"""The steps from a wish to end until the vote, the watcher's word, and what goes wrong around them."""

from collections.abc import Iterator

from tests.model.launching import nobodys
from tests.model.state import HOLDS_CLAIM, OVER, Ending, Guard, Launcher, State, World, with_launcher
from tests.model.step import Next, step

_ENDING = ("revoking", "sealed")
_STOPPABLE = frozenset({"claimed", "looked", "running"})


@step("a person", helps=False)
def ask_to_stop(world: World, state: State) -> Iterator[Next]:
    """Somebody stops or pauses the job; the record's event is delivered until it is handled.

    To the launch protocol both are one: the attempt is to end. What a resume or a retry begins needs its seal, so that
    nothing lives after the seal is also what keeps two attempts of one job from running at once.
    """
    if state.wish == "none" and state.row not in _ENDING:
        yield "somebody stops or pauses the job", state._replace(wish="asked")


@step("services.watcher.observing:Observing._tell")
def tell_exit(world: World, state: State) -> Iterator[Next]:
    """The watcher tells a recorded exit; the record then asks for the seal."""
    if state.told or state.row in _ENDING:
        return
    for runner in state.runners:
        if runner.at == "exited":
            yield "the watcher tells the exit", state._replace(told=True, wish="asked")
            return


@step("services.watcher.observing:Observing._confirm")
def tell_lost(world: World, state: State) -> Iterator[Next]:
    """The watcher tells that an accepted submission is gone without a witness."""
    if state.told or state.row != "submitted":
        return
    if all(runner.at in OVER for runner in state.runners):
        yield "the watcher tells that it is lost", state._replace(told=True, wish="asked")


@step("services.launcher.handlers:JobEvents.take")
def commit_revoking(world: World, state: State) -> Iterator[Next]:
    """A launcher handles the event that asks for the end: `revoking` is committed."""
    if state.wish != "asked" or not any(launcher.up for launcher in state.launchers):
        return
    if state.row in ("revoking", "sealed"):
        yield "the event that asks for the end changes nothing", state._replace(wish="written")
        return
    if not world.has(Guard.REVOKING_FIRST) and not state.revoked:
        yield "a launcher creates `revoked` before it has committed `revoking`", state._replace(revoked=True)
        return
    yield "a launcher commits `revoking`", nobodys(state)._replace(wish="written", row="revoking")


@step("shared.backends.local.client:_revoke")
def create_revoked(world: World, state: State) -> Iterator[Next]:
    """A launcher takes up what is to end and creates `revoked`. Another may take up the same at any time."""
    if world.has(Guard.READ_AFTER):
        if state.row == "revoking":
            for said, changed in _each(state, "nothing", "half", "creates `revoked`"):
                yield said, changed._replace(revoked=True)
    else:
        for said, changed in _each(state, "half", "read", "creates `revoked`"):
            yield said, changed._replace(revoked=True)


@step("shared.backends.local.client:_claims")
def read_claims(world: World, state: State) -> Iterator[Next]:
    """Then it reads the claims."""
    if not world.has(Guard.READ_AFTER) and state.row != "revoking":
        return
    before: Ending = "half" if world.has(Guard.READ_AFTER) else "nothing"
    after: Ending = "read" if world.has(Guard.READ_AFTER) else "half"
    holders = tuple(place for place, runner in enumerate(state.runners) if runner.at in HOLDS_CLAIM)
    said = "reads the claims: " + (", ".join(f"runner {place + 1}" for place in holders) or "none")
    yield from _each(state, before, after, said, claims=holders)


@step("services.launcher.endings:next_step")
def decide(world: World, state: State) -> Iterator[Next]:
    """It looks at the holders: while one lives it asks for the end and looks again later, else it may vote."""
    for number, launcher in enumerate(state.launchers, start=1):
        if launcher.ending != "read":
            continue
        alive = [place for place in launcher.claims if state.runners[place].at in _STOPPABLE]
        if alive and world.has(Guard.AWAIT):
            changed = launcher._replace(ending="nothing", claims=())
            said = f"launcher {number} asks for the end and waits"
            yield said, state._replace(stop=True, launchers=with_launcher(state, number, changed))
        else:
            said = f"launcher {number} sees nothing alive" if not alive else f"launcher {number} does not wait"
            changed = launcher._replace(ending="sealable")
            yield said, state._replace(launchers=with_launcher(state, number, changed))


@step("services.launcher.ending:Ending._swept")
def kill(world: World, state: State) -> Iterator[Next]:
    """What had its time is killed with its runner."""
    if state.row != "revoking" or not state.stop:
        return
    for number, launcher in enumerate(state.launchers, start=1):
        if launcher.ending == "read" and any(state.runners[place].at in _STOPPABLE for place in launcher.claims):
            runners = tuple(
                runner._replace(at="gone") if place in launcher.claims and runner.at in _STOPPABLE else runner
                for place, runner in enumerate(state.runners)
            )
            changed = launcher._replace(ending="nothing", claims=())
            said = f"launcher {number} kills what had its time"
            yield said, state._replace(runners=runners, launchers=with_launcher(state, number, changed))


@step("services.launcher.store:Store.record_endings")
def vote(world: World, state: State) -> Iterator[Next]:
    """It sweeps what dead runners left and writes the vote, where the row still says `revoking`."""
    if state.row != "revoking" and world.has(Guard.ONE_VOTE):
        return
    for number, launcher in enumerate(state.launchers, start=1):
        if launcher.ending == "sealable":
            runners = state.runners
            if world.has(Guard.SWEEP):
                runners = tuple(
                    runner._replace(at="gone") if place in launcher.claims and runner.at == "left processes" else runner
                    for place, runner in enumerate(runners)
                )
            sealed = with_launcher(state, number, launcher._replace(ending="nothing", claims=()))
            after = state._replace(runners=runners, launchers=sealed, row="sealed", votes=state.votes + 1)
            yield f"launcher {number} votes: SEALED", after


@step("services.launcher.store:Store.record_endings", at_once=True)
def find_the_vote_given(world: World, state: State) -> Iterator[Next]:
    """An ending of what is sealed meanwhile writes nothing: all that it does is there already."""
    if state.row == "sealed" and world.has(Guard.ONE_VOTE):
        for number, launcher in enumerate(state.launchers, start=1):
            if launcher.ending != "nothing":
                idle = launcher._replace(ending="nothing", claims=())
                yield (
                    f"launcher {number} finds the vote given",
                    state._replace(launchers=with_launcher(state, number, idle)),
                )


@step("time", helps=True)
def run_out(world: World, state: State) -> Iterator[Next]:
    """The oldest lease that has not run out does."""
    if state.late >= state.leases:
        return
    lease = state.late + 1
    is_held = state.row == "submitting" and state.token == lease
    is_fault = is_held and any(launcher.owns and launcher.up for launcher in state.launchers)
    if is_fault and state.faults >= world.faults:
        return
    yield f"lease {lease} runs out", state._replace(late=lease, faults=state.faults + is_fault)


@step("a kill, the machine", helps=False)
def crash(world: World, state: State) -> Iterator[Next]:
    """A launcher or the host is killed at once; what the host had not answered is lost."""
    if state.faults >= world.faults:
        return
    for number, launcher in enumerate(state.launchers, start=1):
        if launcher.up:
            yield (
                f"launcher {number} is killed",
                state._replace(
                    launchers=with_launcher(state, number, Launcher(up=False, owns=launcher.owns)),
                    faults=state.faults + 1,
                ),
            )
    if state.orders or state.checked:
        yield "the host is killed", state._replace(orders=(), checked=0, faults=state.faults + 1)


@step("services.launcher.store:Store.take_over", helps=False)
def start_again(world: World, state: State) -> Iterator[Next]:
    """A killed launcher may be started again; it takes its own leases back at once."""
    for number, launcher in enumerate(state.launchers, start=1):
        if launcher.up:
            continue
        after = state._replace(launchers=with_launcher(state, number, Launcher()))
        if launcher.owns:
            after = nobodys(after)._replace(row="intent", asked=True)
        yield f"launcher {number} starts again", after


@step("nothing of the code: attempts' directories are never removed yet", helps=False)
def purge(world: World, state: State) -> Iterator[Next]:
    """Long after the seal the attempt's directory and records are removed."""
    if not world.purge or state.purged or state.row != "sealed" or state.late < state.leases:
        return
    nothing_under_way = not state.orders and not state.checked and all(run.at in OVER for run in state.runners)
    if nothing_under_way and all(launcher.ending == "nothing" for launcher in state.launchers):
        yield (
            "long after, the attempt's directory is removed",
            state._replace(purged=True, claim=0, higher_claim=False, revoked=False, stop=False, runners=()),
        )


def _each(state: State, before: Ending, after: Ending, said: str, claims: tuple[int, ...] = ()) -> Iterator[Next]:
    """The same step of whichever launcher is there; what it has read of claims it keeps."""
    for number, launcher in enumerate(state.launchers, start=1):
        if launcher.up and launcher.ending == before:
            moved = launcher._replace(ending=after, claims=claims or launcher.claims)
            yield f"launcher {number} {said}", state._replace(launchers=with_launcher(state, number, moved))
