"""What becomes of a message, as one table."""

import orjson
import pytest
from pydantic import BaseModel, ValidationError

from shared.runtime.errors import BrokerUnavailable, DatabaseUnavailable, Final, Retryable, RpcUnavailable
from shared.runtime.topology import MAX_DELIVER
from shared.runtime.verdicts import Ack, Nak, Park, Wait, verdict


class Body(BaseModel):
    """A message's body."""

    number: int


def unparsable() -> Exception:
    try:
        orjson.loads(b"{")
    except orjson.JSONDecodeError as error:
        return error
    raise AssertionError("that is no JSON")


def invalid() -> Exception:
    try:
        Body.model_validate({"number": "x"})
    except ValidationError as error:
        return error
    raise AssertionError("that is no number")


@pytest.mark.parametrize(
    ("error", "deliveries", "expected"),
    [
        pytest.param(None, 1, Ack, id="handled"),
        pytest.param(None, 50, Ack, id="handled at last"),
        pytest.param(Final("no"), 1, Park, id="it will never work"),
        pytest.param(unparsable(), 1, Park, id="not JSON"),
        pytest.param(invalid(), 1, Park, id="not the model"),
        pytest.param(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), 1, Park, id="not text"),
        pytest.param(Retryable("not yet"), 1, Nak, id="it may work later"),
        pytest.param(RuntimeError("bug"), MAX_DELIVER - 1, Nak, id="unknown, last but one try"),
        pytest.param(RuntimeError("bug"), MAX_DELIVER, Park, id="unknown, last try"),
        pytest.param(Retryable("not yet"), MAX_DELIVER, Park, id="too late"),
        pytest.param(DatabaseUnavailable("gone"), 1, Wait, id="database away"),
        pytest.param(DatabaseUnavailable("gone"), 30, Wait, id="database away, whatever the count"),
        pytest.param(RpcUnavailable("gone"), 30, Nak, id="other service away, whatever the count"),
        pytest.param(BrokerUnavailable("gone"), 30, Nak, id="broker away, whatever the count"),
    ],
)
def test_verdict(error: Exception | None, deliveries: int, expected: type[Ack | Nak | Park | Wait]) -> None:
    assert isinstance(verdict(error, deliveries), expected)


def test_delays_grow_to_a_minute_and_stay_there() -> None:
    def delay(deliveries: int) -> float:
        given = verdict(RpcUnavailable("gone"), deliveries)
        assert isinstance(given, Nak)
        return given.delay_seconds

    assert [delay(count) < delay(count + 1) for count in range(1, 7)] == [True] * 6
    assert 48 <= delay(7) <= 72
    assert 48 <= delay(700) <= 72


def test_the_reason_of_a_parked_message_names_the_error_and_the_tries() -> None:
    assert verdict(Final("seven is too many"), 1) == Park("Final: seven is too many")
    assert verdict(RuntimeError("bug"), 8) == Park("failed 8 times, at last with RuntimeError: bug")
