"""Queries of a service's slice, served by FastStream on core NATS."""

from collections.abc import Awaitable, Callable
from typing import Final

from faststream.message import StreamMessage
from faststream.nats import NatsBroker, NatsResponse
from nats.aio.msg import Msg

from shared.contracts.subjects import rpc_subject
from shared.runtime.broker import ERROR_HEADER
from shared.runtime.logs import Log
from shared.runtime.telemetry import batch_span

Query = Callable[[bytes], Awaitable[bytes]]
_AT_ONCE: Final = 16  # queries of one method handled together: a slow one does not hold up the others


def serve(broker: NatsBroker, service: str, method: str, handler: Query, log: Log) -> None:
    """Answer `rpc.v1.<service>.<method>`; of several replicas one answers."""
    span = f"rpc {service}.{method}"

    async def answer(message: StreamMessage[Msg]) -> NatsResponse:
        with batch_span(span, [message.headers]):
            try:
                return NatsResponse(await handler(message.body))
            except Exception as error:
                log.warning("query failed", method=method, error=repr(error))
                sentence = " ".join(str(error).split()) or type(error).__name__
                return NatsResponse(b"", headers={ERROR_HEADER: sentence[:1000]})

    broker.subscriber(
        rpc_subject(service, method),
        queue=service,
        max_workers=_AT_ONCE,
        decoder=_as_it_is,
        title=f"rpc.{service}.{method}",
        description=(handler.__doc__ or "").strip(),
    )(answer)


async def _as_it_is(message: StreamMessage[Msg]) -> StreamMessage[Msg]:
    """No decoding: the handler gets the message, and reads its bytes."""
    return message
