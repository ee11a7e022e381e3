"""What a person names: a job or a pipeline by its id."""

import typer

from shared.contracts.ids import is_id


def is_pipeline(text: str) -> bool:
    """Whether a person named a pipeline rather than a job."""
    return is_id(text) and text.startswith("p")


def checked(job: str) -> str:
    """A job's id; a usage error for anything else."""
    if is_pipeline(job):
        raise typer.BadParameter(f"{job} is a pipeline: give the job of a step; `tidegate show {job}` lists them")
    return checked_any(job)


def checked_any(given: str) -> str:
    """The id of a job or a pipeline; a usage error for anything else."""
    if not is_id(given):
        raise typer.BadParameter(
            f"{given!r} is no id: a job's begins with j, a pipeline's with p, and it has 27 letters and digits; see "
            "`tidegate ls` and `tidegate pipelines`"
        )
    return given
