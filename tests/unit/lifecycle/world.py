"""A small world that makes causal histories: services which act on the duties of the records that they have seen.

Every service sees records late and in jumps, its facts travel late, twice and out of order, it may tell a fact again
under a newer version, and an older replica of it may act on what it saw before. People and policies ask for anything at
any moment. What is drawn decides everything, so that a failing history shrinks.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.lifecycle.advance import advance
from shared.lifecycle.duties import Duty, duties
from shared.lifecycle.record import JobRecord
from shared.lifecycle.states import State
from tests.unit.lifecycle.backend import Backend, Choices
from tests.unit.lifecycle.jobs import START

SERVICES = ("gatekeeper", "stager", "launcher", "watcher")
MOVES = (*("service", "deliver") * 6, *("backend",) * 3, "look", "command", "odd")
FREQUENT: tuple[type[i.CommandBase], ...] = (i.Resume, i.Retry, i.Recopy, i.Release) * 4
RARE: tuple[type[i.CommandBase], ...] = (i.Hold, i.Pause, i.Stop, i.UpstreamDone, i.Delete, i.Snooze)
ANY_COMMAND = (*FREQUENT, *RARE)


@dataclass(frozen=True)
class Entry:
    """One input as it was applied, with the records around it."""

    item: i.AnyInput
    now: datetime
    before: JobRecord
    after: JobRecord

    @property
    def is_decision(self) -> bool:
        """Whether its place among its neighbours matters: everything but evidence and sightings of gates."""
        kinds = i.CommandBase | f.PolicyStop | f.PolicyPause | f.Admitted | f.Recopied
        verdict = self.before.current.number != self.after.current.number or (
            self.after.current.sealed and not self.before.current.sealed
        )
        return isinstance(self.item, kinds) or verdict


@dataclass(repr=False)
class World:
    choices: Choices
    record: JobRecord
    log: list[Entry] = field(default_factory=list)
    flight: list[f.AnyFact] = field(default_factory=list)
    told: list[f.AnyFact] = field(default_factory=list)
    seen: dict[str, JobRecord] = field(default_factory=dict)
    backends: dict[int, Backend] = field(default_factory=dict)
    mine: dict[tuple[str, int], str] = field(default_factory=dict)
    """What the slice of a service says of an attempt."""
    admission: int = 0
    recopied: int = 0
    version: int = 0
    seconds: int = 0
    calm: bool = False
    """Nothing odd happens any more."""

    def __repr__(self) -> str:
        """What happened, in words: a failing history is read, not decoded."""
        told = [f"{entry.item.kind} -> {entry.after.state} {entry.after.attempt}" for entry in self.log]
        return "World(" + ", ".join(told) + ")"

    @property
    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def live(self, steps: int) -> None:
        """Odd things happen for a while."""
        for _ in range(steps):
            self.seconds += 1
            move = self.choices.pick(MOVES)
            match move:
                case "service":
                    self._act(self.choices.pick(SERVICES))
                case "deliver":
                    self._deliver()
                case "look":
                    self.seen[self.choices.pick(SERVICES)] = self.record
                case "backend":
                    for backend in self.backends.values():
                        backend.move(self.choices, self.now)
                case "command":
                    if self.choices.chance(30):
                        self._command(self.choices.pick(ANY_COMMAND))
                case "odd":
                    self._odd()

    def calm_down(self, rounds: int) -> bool:
        """Services answer their duties, messages arrive, commands end; whether the job came to rest within `rounds`."""
        self.calm = True
        for _ in range(rounds):
            self.seconds += 60
            for service in SERVICES:
                self.seen[service] = self.record
                self._act(service)
            for backend in self.backends.values():
                backend.finish(self.now)
            while self.flight:
                self._deliver()
            if self.record.state is State.QUEUED and not self.record.deleted:
                self._command(i.UpstreamDone)
                self._command(i.Release)
            if not duties(self.record) and not self.flight:
                return True
        return False

    def apply(self, item: i.AnyInput) -> None:
        """One input, by itself."""
        before = self.record
        self.record = advance(before, [item], self.now).record
        self.log.append(Entry(item, self.now, before, self.record))

    def _command(self, kind: type[i.CommandBase]) -> None:
        more: dict[str, Any] = {}
        if kind is i.Hold:
            more = {"reason": "by hand", "by_admin": self.choices.chance(30)}
        if kind is i.Pause:
            more = {"reason": "by hand", "by_admin": self.choices.chance(30)}
        if kind is i.Resume:
            more = {"by_admin": self.choices.chance(70)}
        if kind is i.Release:
            more = {"by_admin": True}
        if kind is i.Stop:
            more = {"force": self.choices.chance(30)}
        if kind is i.Retry:
            more = {"force": self.choices.chance(50), "with_pipeline": self.choices.chance(50)}
        if kind is i.Snooze:
            more = {"until": self.now + timedelta(seconds=self.choices.pick((1, 20)))}
        self.apply(kind(actor="rin", at=self.now, **more))  # type: ignore[arg-type]  # every command is an input

    def _deliver(self) -> None:
        """A fact arrives, maybe not the oldest, and maybe once more later."""
        if not self.flight:
            return
        index = 0 if self.calm else self.choices.pick(range(min(len(self.flight), 4)))
        fact = self.flight.pop(index)
        if not self.calm and self.choices.chance(20):
            self.flight.append(fact)
        self.apply(fact)

    def _odd(self) -> None:
        """A fact told again under a newer version, an old fact again, or a policy that asks for something."""
        what = self.choices.pick(("again", "newer", "policy"))
        if what == "policy":
            kind, policy = self.choices.pick(
                ((f.PolicyStop, "budget"), (f.PolicyPause, "budget"), (f.PolicyPause, "idle"))
            )
            if self.choices.chance(20):
                self._say(self.record, kind, policy=policy, reason="as it is set")
        elif self.told:
            fact = self.choices.pick(self.told[-12:])
            if what == "newer":
                self.version += 1
                fact = fact.model_copy(update={"version": f.Version(n=self.version)})
            if not isinstance(fact, f.Lost):
                self.flight.append(fact)

    def _say(self, record: JobRecord, kind: type[f.FactBase], **fields: Any) -> None:
        self.version += 1
        fact: Any = kind(
            job=record.id,
            tenant=record.tenant,
            attempt=record.attempt,
            version=f.Version(n=self.version),
            at=self.now,
            source="world",
            **fields,
        )
        self.flight.append(fact)
        self.told.append(fact)

    def _act(self, service: str) -> None:
        record = self.seen.setdefault(service, self.record)
        if not self.calm and self.choices.chance(80):
            record = self.seen[service] = self.record
        {"gatekeeper": self._gatekeeper, "stager": self._stager, "launcher": self._launcher, "watcher": self._watcher}[
            service
        ](record)

    def _gatekeeper(self, record: JobRecord) -> None:
        if Duty.ADMIT not in duties(record):
            return
        key = ("gatekeeper", record.attempt)
        if record.hold is not None or (not self.calm and self.choices.chance(30)):
            name = "hold" if record.hold is not None else self.choices.pick(("quota.gpus", "capacity"))
            gate = f.Gate(name=name, reason=f"closed at {self.seconds}", scope="tenant acme", lifted_by="somebody")
            self._say(record, f.Held, gates=(gate,))
            return
        booked = int(self.mine.get(key, "0"))
        if booked == 0 or (record.admission_refused or 0) >= booked:
            self.admission += 1
            self.mine[key] = str(self.admission)
            self._say(record, f.Admitted, admission=self.admission)

    def _stager(self, record: JobRecord) -> None:
        key = ("stager", record.attempt)
        mine, owed = self.mine.get(key, ""), duties(record)
        if Duty.STAGE_IN in owed and mine == "":
            outcome = "staged" if self.calm else self.choices.pick((*("staged",) * 8, "invalid", "failed"))
            self.mine[key] = outcome
            if outcome == "invalid":
                found = f.Finding(code="missing", place="data.csv", message="data.csv is not there")
                self._say(record, f.InputInvalid, findings=(found,))
                self._vote_with(record, key, "input_invalid")
                return
            self._say(record, f.InputValid)
            if outcome == "failed":
                self._say(record, f.StagingFailed, message="the store is full")
                self._vote_with(record, key, "staging_failed")
            else:
                self._say(record, f.Staged, directory="a/e1", nothing_to_copy=not record.has_outputs)
        elif Duty.SEAL_STAGING in owed and mine != "sealed":
            self.mine[key] = "sealed"
            self._say(record, f.StagingSealed, staged=mine == "staged", outcome="none")
        elif Duty.COPY_BACK in owed and mine != "sealed":
            self.mine[key] = "sealed"
            outcome = self.choices.pick(("verified", "verified", "missing", "failed", "expectation_failed"))
            self._say(record, f.StagingSealed, staged=True, outcome=outcome, message="as it was found")
        elif Duty.RECOPY in owed and record.recopy is not None and self.recopied < record.recopy.number:
            self.recopied = record.recopy.number
            outcome = self.choices.pick(("verified", "failed"))
            self._say(record, f.Recopied, recopy=self.recopied, outcome=outcome, message="again")

    def _vote_with(self, record: JobRecord, key: tuple[str, int], because: str) -> None:
        """A stager that votes together with its reason, not once it is asked to."""
        if self.choices.chance(50):
            self.mine[key] = "sealed"
            self._say(record, f.StagingSealed, staged=False, outcome="none", because=because)

    def _launcher(self, record: JobRecord) -> None:
        key = ("launcher", record.attempt)
        mine, owed = self.mine.get(key, ""), duties(record)
        backend = self.backends.get(record.attempt)
        if mine == "submitting":
            assert backend is not None
            self.mine[key] = "submitted"
            self._say(record, f.Accepted, segment=backend.segments()[0], backend="local", cluster="local", ref="r1")
        elif Duty.LAUNCH in owed and mine == "":
            if not self.calm and self.choices.chance(10):
                self.mine[key] = "refused"
                self._say(record, f.LaunchRefused, message="no such partition")
                if self.choices.chance(50):
                    self.mine[key] = "sealed"
                    self._say(record, f.GpusFreed)
                    self._say(record, f.LauncherSealed, ran=False, because="launch_refused")
            else:
                self.mine[key] = "submitting"
                assert record.attempt not in self.backends, "two submissions of one attempt"
                assert all(other.over for other in self.backends.values()), "two attempts could both run"
                self.backends[record.attempt] = Backend(created=self.now)
        elif owed & {Duty.STOP, Duty.SEAL_LAUNCH} and mine != "sealed":
            if backend is not None and not backend.over:
                backend.stop(self.choices, self.now)
                return
            self.mine[key] = "sealed"
            said: list[tuple[type[f.FactBase], dict[str, Any]]] = [
                (f.GpusFreed, {}),
                (f.LauncherSealed, {"ran": backend is not None and backend.claimed}),
            ]
            for kind, fields in said if self.choices.chance(50) else reversed(said):
                self._say(record, kind, **fields)

    def _watcher(self, record: JobRecord) -> None:
        backend = self.backends.get(record.attempt)
        hidden = not self.calm and self.choices.chance(10)
        if backend is None or hidden or not backend.shown:
            if Duty.OBSERVE in duties(record) and (self.calm or self.choices.chance(30)):
                last = None if backend is None else backend.last_seen_at
                self._say(record, f.Lost, last_seen_at=last)
            return
        for kind, fields in backend.sightings(self.choices, self.now):
            self._say(record, kind, **fields)
        if record.workstation is not None and not backend.over and self.choices.chance(30):
            since = self.choices.pick((None, self.now))
            until = None if since is None else since + timedelta(seconds=10)
            self._say(record, f.SeenIdle, idle_since=since, suspends_at=until)
