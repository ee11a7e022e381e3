"""The retries that a new job gets: the deployment's, and how many of its own a submit may ask for. Pure."""

from dataclasses import dataclass

from services.api.settings import ApiSettings
from shared.contracts.spec import SubmitRequest
from shared.lifecycle.record import Retries


@dataclass(frozen=True, slots=True)
class Budgets:
    """`usual`: what a job gets that asks for nothing; `most`: what it may ask for."""

    usual: Retries
    most: int

    @classmethod
    def of(cls, settings: ApiSettings) -> "Budgets":
        """From `TIDEGATE_RETRY_BUDGET` and its kin."""
        usual = Retries(
            budget=settings.retry_budget,
            infrastructure_budget=settings.infrastructure_retry_budget,
            by_hand_budget=settings.retries_by_hand,
        )
        return cls(usual, settings.retries_max)

    def given_to(self, request: SubmitRequest) -> Retries:
        """The budgets of a job just submitted."""
        given = request.retries
        return self.usual if given is None else self.usual.model_copy(update={"budget": given})

    def why_not(self, request: SubmitRequest) -> str | None:
        """The sentence about a wish for too many, without the field's place before it."""
        if request.retries is None or request.retries <= self.most:
            return None
        return (
            f"retries: {request.retries} was given, and a job may ask for at most {self.most} automatic retries here: "
            "ask for fewer, or retry it by hand"
        )
