"""One line carries the calls of many, in order, and is made again when it was lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress

import pytest
import pytest_asyncio
import redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from verso_ledger.async_client import connect
from verso_ledger.line import Exchange, dial


@pytest.fixture
def server(valkey_url: str) -> Iterator[redis.Redis]:
    with closing(redis.Redis.from_url(valkey_url)) as opened:
        yield opened


@pytest_asyncio.fixture
async def exchange(valkey_url: str) -> AsyncIterator[Exchange]:
    client = connect(valkey_url)
    made = Exchange(client, silent_s=1.0)
    yield made
    await made.close()
    await client.aclose()


async def test_replies_come_to_who_asked_and_errors_too(exchange: Exchange) -> None:
    asked = [exchange.call("ECHO", f"{n}") for n in range(200)]
    asked.insert(100, exchange.call("HGET", "no arguments"))
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(found.pop(100), ResponseError)
    assert found == [b"%d" % n for n in range(200)]


async def test_who_goes_away_takes_nobody_elses_reply(exchange: Exchange) -> None:
    first = asyncio.create_task(exchange.call("ECHO", "first"))
    await asyncio.sleep(0)
    gone = asyncio.create_task(exchange.call("BLPOP", "nothing", 0.2))
    await asyncio.sleep(0.05)
    gone.cancel()
    with suppress(asyncio.CancelledError):
        await gone
    assert (await first, await exchange.call("ECHO", "next")) == (b"first", b"next")


async def test_a_line_that_was_cut_is_made_again(exchange: Exchange, server: redis.Redis) -> None:
    number = await exchange.call("CLIENT", "ID")
    server.client_kill_filter(_id=str(number))
    assert await exchange.call("CLIENT", "ID") > number


async def test_a_server_that_says_nothing_is_given_up(exchange: Exchange) -> None:
    with pytest.raises(RedisTimeoutError):
        await exchange.call("BLPOP", "nothing", 5)
    assert await exchange.call("PING") == b"PONG"


async def test_what_cannot_be_reached_is_an_error(valkey_url: str) -> None:
    nowhere = connect("redis://127.0.0.1:1/0")
    with pytest.raises(RedisConnectionError):
        await Exchange(nowhere, silent_s=1.0).call("PING")
    locked = connect(valkey_url.replace("redis://", "redis://:wrong@"))
    with pytest.raises(ResponseError):
        await dial(locked, silent_s=1.0)
