"""Routes whose endpoint takes the request alone and nothing is resolved for it.

Bodies are read and checked by hand here (:mod:`verso_gateway.bodies`), so of what FastAPI does for
a request an embed needs the caller's tenant and nothing else; and the rest is code that is cold
each time, as a model has run through the processor's caches since the last request.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from verso_gateway.context import admit


class DirectRoute(APIRoute):
    """A guarded route; its endpoint is called with the request once the caller is let in."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""

        async def handle(request: Request) -> Response:
            await admit(request)
            response: Response = await self.endpoint(request)
            return response

        return handle
