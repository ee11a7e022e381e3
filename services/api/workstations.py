"""What a workstation is beside a job: its default command, how it is shown, and why it cannot be reached. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from services.api.visiting import prefix_of

JUPYTER_PROGRAMS: Final = ("jupyter", "jupyter-lab")
# The token is taken from JUPYTER_TOKEN. A request that brings it needs no cookie against forgery and may come from any
# origin (jupyter_server.auth.identity): the front door has looked at both.
JUPYTER: Final = (
    "sh",
    "-c",
    'exec jupyter lab --no-browser --ip=127.0.0.1 --port="$TIDEGATE_PORT" --ServerApp.port_retries=0 '
    '--ServerApp.base_url="/v1/workstations/$TIDEGATE_JOB_ID/proxy/" --ServerApp.allow_remote_access=True '
    '--ServerApp.root_dir="$PWD"',
)
NOT_HERE: Final = (
    "workstations cannot be reached in this deployment: the API is not on the network of the machine that jobs run on, "
    "as it is with `tidegate up` (TIDEGATE_WORKSTATIONS); what needs no address can be submitted as a job"
)
NO_JUPYTER: Final = (
    "command: none was given, and JupyterLab is not installed where jobs run: install it there "
    "(pip install jupyterlab), or give a command that listens on 127.0.0.1, port $TIDEGATE_PORT, such as "
    '["sh", "-c", "exec python3 -m http.server $TIDEGATE_PORT --bind 127.0.0.1"]'
)


def workstation_view(job: Mapping[str, Any]) -> dict[str, Any]:
    """A workstation as it is shown: its job, its place in the line while it waits, and where it is reached."""
    gate = job["gate"]
    position = None if gate is None else gate["position"]
    return {**job, "position": position, "url": f"{prefix_of(job['id'])}/"}


def why_not_up(view: Mapping[str, Any]) -> str:
    """The sentence about a workstation that cannot be reached now."""
    id_ = view["id"]
    match view["state"], view["phase"]:
        case "PAUSED", _:
            return f"it is suspended: `tidegate workstation resume {id_}` brings it up again"
        case ("SUCCEEDED" | "FAILED" | "STOPPED") as state, _:
            return f"it is {state}: {view['message'] or 'it has ended'}"
        case _, "suspending":
            return "it is being suspended: resume it once it is"
        case _, _ if view["desired_state"] == "stopped":
            return "it is being stopped"
        case "RUNNING", _:
            return "its command has ended, and its workspace is being kept"
    waits = next((stage["waiting_on"] for stage in view["stages"] if stage["status"] == "active"), None)
    place = "" if view["position"] is None else f" (position {view['position']})"
    return f"it is not up yet: it is {view['state']}" + (f" and waits on {waits}{place}" if waits else place)
