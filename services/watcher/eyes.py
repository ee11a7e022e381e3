"""What the observer needs of a cluster: one protocol, with eyes for each kind of backend."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from services.watcher.domain import Finding
from services.watcher.store import Term


class Sighted(Protocol):
    """One submission as it was seen. Seen unchanged, it is the same object again."""

    @property
    def submission(self) -> str:
        """Its name at the backend."""
        ...

    @property
    def job(self) -> str:
        """Whose attempt it is."""
        ...

    @property
    def attempt(self) -> int:
        """Which one."""
        ...


S = TypeVar("S", bound=Sighted)
S_co = TypeVar("S_co", bound=Sighted, covariant=True)


class Observed(Protocol[S_co]):
    """One look. Only a complete one says of what it does not show that it is not there."""

    @property
    def complete(self) -> bool:
        """Whether everything was shown that there is."""
        ...

    @property
    def submissions(self) -> Sequence[S_co]:
        """What was seen; of an incomplete look what was seen before it."""
        ...

    @property
    def problem(self) -> str | None:
        """Why it is not complete."""
        ...


class Eyes(Protocol[S]):
    """One cluster, for who observes it."""

    @property
    def cluster(self) -> str:
        """Its name in records and facts."""
        ...

    async def begin(self) -> None:
        """This replica begins to observe: what it remembers of earlier looks may be long past."""
        ...

    async def keep(self, term: Term) -> None:
        """Leave in the tables what who observes next has to know. Raises LeaseLost."""
        ...

    async def observe(self) -> Observed[S]:
        """Look once. What cannot be asked is an incomplete look, not an error."""
        ...

    async def find(self, job: str, attempt: int) -> Sequence[S]:
        """Everything on record of one attempt that a look no longer shows. Raises CouldNotAsk."""
        ...

    def found(self, sightings: Iterable[S]) -> list[Finding]:
        """What is to be told of them."""
        ...

    def is_alive(self, sighting: S) -> bool:
        """Whether it was there, and had not ended."""
        ...
