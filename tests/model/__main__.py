"""`python -m tests.model [--long]`: the steps, what the search finds, and for each guard a trace without it."""

import argparse
import time

from tests.model.search import explore
from tests.model.state import World
from tests.model.step import STEPS
from tests.model.worlds import LONG, SECOND_LINES, TELLING, WHOLE, without


def main() -> None:
    """Print it all."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--long", action="store_true", help="search the larger worlds too: some minutes")
    options = asked.parse_args()
    print("Steps, and what they stand for")
    for step in STEPS:
        print(f"  {step.name}: {step.text}\n      {step.stands_for}")
    print("\nWith every guard")
    for name, world in {**WHOLE, **(LONG if options.long else {})}.items():
        _report(name, world)
    print("\nOne guard taken out")
    for guard, world in TELLING.items():
        _report(guard.value, without(world, guard))
    print("\nOne guard taken out where another stands in for it")
    for guard, world in SECOND_LINES.items():
        _report(guard.value, without(world, guard))


def _report(name: str, world: World) -> None:
    began = time.perf_counter()
    result = explore(world)
    took = time.perf_counter() - began
    found = "no violation" if result.violation is None else f"a violation after {len(result.violation.trace)} steps"
    print(f"  {name}: {found}; {result.states:,} states, {result.steps:,} steps, {took:.1f} s")
    if result.violation is not None:
        print("\n".join(f"    {line}" for line in str(result.violation).splitlines()))


if __name__ == "__main__":
    main()
