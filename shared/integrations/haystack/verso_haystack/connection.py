"""Which platform a component asks, in a form that a pipeline can be saved with."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from haystack.utils import Secret

from verso_client import Client
from verso_client.exchange import DEFAULT_URL

KEY = Secret.from_env_var("VERSO_API_KEY", strict=False)


class Connection:
    """The platform of a component; the client is made when it is first used."""

    def __init__(self, url: str = DEFAULT_URL, api_key: Secret | None = KEY) -> None:
        self.url = url
        self.api_key = api_key

    @cached_property
    def client(self) -> Client:
        """A client of the platform."""
        key = None if self.api_key is None else self.api_key.resolve_value()
        return Client(self.url, api_key=key)

    def saved(self) -> dict[str, Any]:
        """Return the arguments of a component; of a key its place, never itself."""
        key = None if self.api_key is None else self.api_key.to_dict()
        return {"url": self.url, "api_key": key}


def loaded(data: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that :meth:`Connection.saved` is a part of."""
    parameters = dict(data.get("init_parameters", {}))
    if isinstance(parameters.get("api_key"), dict):
        parameters["api_key"] = Secret.from_dict(parameters["api_key"])
    return parameters
