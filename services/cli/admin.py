"""`tidegate usage | quota | token | dead-letters | admin`: what was used, limits, who may come in, what got stuck."""

from typing import Annotated, Any

import typer

from services.cli.escapes import marked, printable
from services.cli.listing import Listing
from services.cli.output import out, print_json
from services.cli.session import connect
from shared.runtime import failpoints

AsJson = Annotated[bool, typer.Option("--json", help="print the API's own objects")]
quota = typer.Typer(help="How much a tenant may hold at once.", no_args_is_help=True)
token = typer.Typer(help="Who may come in.", no_args_is_help=True)
dead = typer.Typer(help="Messages that kept failing, parked so that they block nothing.", no_args_is_help=True)
admin = typer.Typer(help="For who runs the deployment.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.command("usage", help="GPU time used, by tenant, user or job.")(usage)
    app.add_typer(quota, name="quota")
    app.add_typer(token, name="token")
    app.add_typer(dead, name="dead-letters")
    app.add_typer(admin, name="admin")


def usage(
    by: Annotated[str, typer.Option("--by", help="tenant, user or job")] = "tenant",
    job: Annotated[str | None, typer.Option(help="of one job only")] = None,
    as_json: AsJson = False,
) -> None:
    if by not in ("tenant", "user", "job"):
        raise typer.BadParameter(f"--by {by!r}: give tenant, user or job")
    with connect() as client:
        answer = client.call("GET", "/v1/usage", params={"group_by": by} | ({"job": job} if job else {}))
    if as_json:
        return print_json(answer)
    named = {"tenant": ["tenant"], "user": ["tenant", "user"], "job": ["tenant", "user", "job"]}[by]
    about = ["ABOUT"] if any(row.get("estimated") for row in answer["rows"]) else []
    rows = Listing(*(name.upper() for name in named), "SEGMENTS", "GPU TIME", "NOT BILLED", *about)
    for row in answer["rows"]:
        rows.add_row(
            *(row.get(name) or "" for name in named),
            str(row["segments"]),
            _seconds(row["gpu_milliseconds"]),
            _seconds(row.get("not_billable_gpu_milliseconds", 0)),
            *("estimated" if row.get("estimated") else "" for _ in about),
        )
    rows.print()
    if rest := answer.get("rest"):
        out.print(f"and {rest['groups']} more: {rest['segments']} segments, {rest['gpu_seconds']} GPU seconds")
    return None


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds // 1000}.{milliseconds % 1000:03} s"


@quota.command("get", help="Show the quota of a tenant, or of all.")
def quota_get(tenant: Annotated[str | None, typer.Argument()] = None, as_json: AsJson = False) -> None:
    with connect(admin=True) as client:
        answer = client.call("GET", f"/v1/quotas/{tenant}" if tenant else "/v1/quotas")
    if as_json:
        return print_json(answer)
    _print_quotas(answer.get("quotas", [answer]))
    return None


@quota.command("set", help="Set a tenant's quota; `none` lifts a limit.")
def quota_set(
    tenant: Annotated[str, typer.Argument()],
    slots: Annotated[str | None, typer.Option(help="jobs at once, or none")] = None,
    gpus: Annotated[str | None, typer.Option(help="GPUs at once, or none")] = None,
    as_json: AsJson = False,
) -> None:
    body = {name: _limit(name, text) for name, text in (("slots", slots), ("gpus", gpus)) if text is not None}
    if not body:
        raise typer.BadParameter("name what to set: --slots N, --gpus N")
    with connect(admin=True) as client:
        answer = client.call("PUT", f"/v1/quotas/{tenant}", json=body)
    if as_json:
        return print_json(answer)
    _print_quotas([answer])
    return None


def _limit(name: str, text: str) -> int | None:
    if text == "none":
        return None
    if not text.isdecimal():
        raise typer.BadParameter(f"--{name} {text!r}: give a whole number from 0, or none")
    return int(text)


def _print_quotas(quotas: list[dict[str, Any]]) -> None:
    rows = Listing("TENANT", "SLOTS", "USED", "GPUS", "USED", "CHANGED BY")
    for row in quotas:
        slots, gpus = (row.get(key) for key in ("slots", "gpus"))
        rows.add_row(
            row["tenant"],
            "no limit" if slots is None else str(slots),
            str(row.get("slots_used", 0)),
            "no limit" if gpus is None else str(gpus),
            str(row.get("gpus_used", 0)),
            row.get("changed_by") or "",
        )
    rows.print()


@token.command("create", help="Make a token; it is shown this once.")
def token_create(
    tenant: Annotated[str, typer.Option(help="the tenant it belongs to")],
    user: Annotated[str, typer.Option(help="who uses it")],
    role: Annotated[str, typer.Option(help="user or admin")] = "user",
    name: Annotated[str | None, typer.Option(help="what it is for")] = None,
    as_json: AsJson = False,
) -> None:
    body = {"tenant": tenant, "user": user, "role": role} | ({"name": name} if name else {})
    with connect(admin=True) as client:
        answer = client.call("POST", "/v1/tokens", json=body)
    if as_json:
        return print_json(answer)
    out.print(printable(answer["token"]), markup=False)
    return None


@token.command("ls", help="List tokens (never their values).")
def token_ls(as_json: AsJson = False) -> None:
    with connect(admin=True) as client:
        answer = client.call("GET", "/v1/tokens")
    if as_json:
        return print_json(answer)
    rows = Listing("ID", "TENANT", "USER", "ROLE", "NAME", "REVOKED")
    for row in answer["items"]:
        revoked = "revoked" if row.get("revoked_at") else ""
        rows.add_row(str(row["id"]), row["tenant"], row["user"], row["role"], row.get("name") or "", revoked)
    rows.print()
    return None


@token.command("revoke", help="Make a token worthless at once.")
def token_revoke(token_id: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    with connect(admin=True) as client:
        client.call("DELETE", f"/v1/tokens/{token_id}")
    out.print(f"token {marked(token_id)} is revoked")


@dead.command("ls", help="List parked messages of every service.")
def dead_ls(as_json: AsJson = False) -> None:
    with connect(admin=True) as client:
        answer = client.call("GET", "/v1/dead-letters")
    if as_json:
        return print_json(answer)
    if not answer["items"]:
        out.print("no dead letters")
    else:
        rows = Listing("SERVICE", "ID", "SUBJECT", "PARKED", "ERROR")
        for row in answer["items"]:
            rows.add_row(row["service"], str(row["id"]), row["subject"], row["parked_at"], row["error"])
        rows.print()
    if answer.get("unreachable"):
        out.print(f"[yellow]not asked, since they do not answer:[/] {marked(', '.join(answer['unreachable']))}")
    return None


@dead.command("show", help="Show one parked message with its error and body.")
def dead_show(service: Annotated[str, typer.Argument()], letter: Annotated[int, typer.Argument(metavar="ID")]) -> None:
    with connect(admin=True) as client:
        print_json(client.call("GET", f"/v1/dead-letters/{service}/{letter}"))


@dead.command("retry", help="Handle one parked message again.")
def dead_retry(service: Annotated[str, typer.Argument()], letter: Annotated[int, typer.Argument(metavar="ID")]) -> None:
    with connect(admin=True) as client:
        client.call("POST", f"/v1/dead-letters/{service}/{letter}/retry")
    out.print(f"dead letter {letter} of {marked(service)} was handled")


@admin.command("orphans", help="List facts of jobs that the database does not know, such as after a restore.")
def orphans(as_json: AsJson = False) -> None:
    with connect(admin=True) as client:
        answer = client.call("GET", "/v1/orphans")
    if as_json:
        return print_json(answer)
    if not answer["items"]:
        out.print("no orphans")
        return None
    rows = Listing("JOB", "TENANT", "ATTEMPT", "SERVICE", "FACT", "KEPT")
    for row in answer["items"]:
        rows.add_row(row["job"], row["tenant"], str(row["attempt"]), row["service"], row["kind"], row["kept_at"])
    rows.print()
    if answer["total"] > len(answer["items"]):
        out.print(f"and {answer['total'] - len(answer['items'])} older ones")
    return None


@admin.command("failpoints", help="List the places at which a test harness can kill or stop a service.")
def list_failpoints(as_json: AsJson = False) -> None:
    if as_json:
        points = failpoints.POINTS.items()
        return print_json([{"name": name, "passed_by": point.services, "what": point.what} for name, point in points])
    out.print("\n".join(failpoints.lines()), markup=False, soft_wrap=True)
    return None
