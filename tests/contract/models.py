"""Every model that crosses a service's boundary, under the name of its example in `examples/<name>.v1.json`."""

import inspect
from types import ModuleType
from typing import Any

from pydantic import BaseModel

from shared.contracts import events, queries, spec, usage, workstations
from shared.lifecycle import facts, inputs


def _word(name: str) -> str:
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("-")


def _in(module: ModuleType) -> list[type[BaseModel]]:
    """The models that a module defines itself."""
    found = (value for _, value in inspect.getmembers(module, inspect.isclass))
    return [model for model in found if issubclass(model, BaseModel) and model.__module__ == module.__name__]


def models() -> dict[str, type[BaseModel]]:
    """Facts and commands by their kind; everything else by its name."""
    named: dict[str, type[BaseModel]] = {}
    for base, prefix in ((facts.FactBase, "fact"), (inputs.CommandBase, "command")):
        for model in base.__subclasses__():
            kind: Any = model.model_fields["kind"].default
            named[f"{prefix}-{kind.replace('_', '-')}"] = model
    for module in (queries, spec, usage, workstations):
        named |= {_word(model.__name__): model for model in _in(module)}
    named["job-event"] = events.JobEvent
    return dict(sorted(named.items()))
