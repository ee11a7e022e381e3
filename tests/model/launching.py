"""The launchers' and the host's steps from the intent to a forked runner."""

from collections.abc import Iterator

from tests.model.state import Answer, Guard, Launcher, Runner, State, World, with_launcher
from tests.model.step import Next, step


@step("services.launcher.store:Store.claim_launches")
def lease(world: World, state: State) -> Iterator[Next]:
    """An idle launcher leases a row that says `intent`: `submitting`, owner, token and deadline are committed."""
    if state.row != "intent":
        return
    token = state.leases + 1
    for number, launcher in enumerate(state.launchers, start=1):
        if launcher.up and launcher.doing == "nothing":
            changed = launcher._replace(doing="leased" if state.asked else "sending", token=token, owns=True)
            yield (
                f"launcher {number} leases the row (lease {token})",
                state._replace(
                    row="submitting",
                    token=token,
                    leases=token,
                    launchers=with_launcher(state, number, changed),
                ),
            )


@step("services.launcher.launching:Launching._adopted")
def adopt(world: World, state: State) -> Iterator[Next]:
    """What may have reached the backend before is looked for there first."""
    for number, launcher in enumerate(state.launchers, start=1):
        if launcher.doing == "leased":
            if _has_begun(state):
                changed = launcher._replace(doing="answered", answer="taken")
                said = "finds that the backend has it"
            else:
                changed = launcher._replace(doing="sending")
                said = "finds nothing of it at the backend"
            yield f"launcher {number} {said}", state._replace(launchers=with_launcher(state, number, changed))


@step("shared.backends.local.client:LocalClient.launch")
def send(world: World, state: State) -> Iterator[Next]:
    """The order goes out, with the lease's deadline."""
    for number, launcher in enumerate(state.launchers, start=1):
        if launcher.doing == "sending":
            changed = launcher._replace(doing="waiting")
            yield (
                f"launcher {number} sends the order of lease {launcher.token}",
                state._replace(
                    launchers=with_launcher(state, number, changed),
                    orders=tuple(sorted((*state.orders, launcher.token))),
                ),
            )


@step("shared.backends.local.launching:Launching._launch")
def check(world: World, state: State) -> Iterator[Next]:
    """The host reads an order: taken before, revoked and too late are answered at once."""
    if state.checked:
        return
    for token in state.orders:
        read = state._replace(orders=tuple(other for other in state.orders if other != token))
        if world.has(Guard.ONCE) and (state.claim or _has_begun(state)):
            yield f"the host has taken it before (order {token})", _answered(read, token, "taken")
        elif world.has(Guard.ONCE) and world.has(Guard.LOOK) and state.revoked:
            yield f"the host refuses order {token}: revoked", _answered(read, token, "revoked")
        elif world.has(Guard.NOT_AFTER) and token <= state.late:
            yield f"the host refuses order {token}: its deadline is over", _answered(read, token, "later")
        else:
            yield f"the host finds nothing against order {token}", read._replace(checked=token)
            if state.faults < world.faults:
                busy = _answered(read._replace(faults=state.faults + 1), token, "absent")
                yield f"the host is full and does not take order {token}", busy


@step("shared.backends.local.launching:Launching._fork")
def fork(world: World, state: State) -> Iterator[Next]:
    """The host records the intent, forks a runner and answers."""
    if state.checked:
        runner = Runner(1 if world.has(Guard.ONCE) else state.checked)
        forked = state._replace(checked=0, runners=(*state.runners, runner), purged=False)
        yield f"the host forks a runner for order {state.checked}", _answered(forked, state.checked, "taken")


@step("services.launcher.outcomes:outcome")
def hear_nothing(world: World, state: State) -> Iterator[Next]:
    """The answer does not come, or the host that had the order is gone: unclear."""
    for number, launcher in enumerate(state.launchers, start=1):
        if launcher.doing != "waiting":
            continue
        is_on_its_way = launcher.token in state.orders or state.checked == launcher.token
        if is_on_its_way and state.faults >= world.faults:
            continue
        changed = launcher._replace(doing="answered", answer="later")
        yield (
            f"launcher {number} gets no answer",
            state._replace(
                launchers=with_launcher(state, number, changed), faults=state.faults + (1 if is_on_its_way else 0)
            ),
        )


@step("services.launcher.store:Store.record_launches")
def record(world: World, state: State) -> Iterator[Next]:
    """The answer is written where the lease still holds."""
    for number, launcher in enumerate(state.launchers, start=1):
        if launcher.doing != "answered" or (world.has(Guard.TOKEN) and not _holds(state, launcher)):
            continue
        after = state._replace(launchers=with_launcher(state, number, _idle(launcher)), token=0)
        if launcher.answer == "taken":
            yield f"launcher {number} records `submitted`", after._replace(row="submitted")
        elif launcher.answer == "revoked":
            yield f"launcher {number} records the refusal: `revoking`", after._replace(row="revoking", refused=True)
        else:
            asked = launcher.answer == "later"
            yield f"launcher {number} records that it is to be asked again", after._replace(row="intent", asked=asked)


@step("services.launcher.store:Store.record_launches", at_once=True)
def throw_away(world: World, state: State) -> Iterator[Next]:
    """An answer to a lease that holds no more is thrown away."""
    for number, launcher in enumerate(state.launchers, start=1):
        if launcher.doing == "answered" and world.has(Guard.TOKEN) and not _holds(state, launcher):
            said = f"launcher {number} throws its answer away: the lease is gone"
            yield said, state._replace(launchers=with_launcher(state, number, _idle(launcher)))


@step("services.launcher.store:Store.take_over")
def take_over(world: World, state: State) -> Iterator[Next]:
    """A lease that has run out is anybody's; a launcher that starts takes its own back."""
    if state.row == "submitting" and state.token <= state.late and world.has(Guard.LEASE):
        for number, launcher in enumerate(state.launchers, start=1):
            if launcher.up:
                said = f"launcher {number} takes the launch over: lease {state.token} has run out"
                yield said, nobodys(state)._replace(row="intent", asked=True)


def nobodys(state: State) -> State:
    """The row is leased to nobody any more."""
    first, second = (launcher._replace(owns=False) for launcher in state.launchers)
    return state._replace(token=0, launchers=(first, second))


def _holds(state: State, launcher: Launcher) -> bool:
    return state.row == "submitting" and state.token == launcher.token


def _idle(launcher: Launcher) -> Launcher:
    return launcher._replace(doing="nothing", token=0, answer="", owns=False)


def _has_begun(state: State) -> bool:
    """Whether the backend shows a runner that has not died before it took the claim."""
    return any(runner.at != "never ran" or runner.submission == state.claim for runner in state.runners)


def _answered(state: State, token: int, answer: Answer) -> State:
    """The answer reaches the launcher that waits for it; where none does it is lost."""
    for number, launcher in enumerate(state.launchers, start=1):
        if launcher.doing == "waiting" and launcher.token == token:
            changed = launcher._replace(doing="answered", answer=answer)
            return state._replace(launchers=with_launcher(state, number, changed))
    return state
