"""The OpenAPI document of the gateway, made once for every test of a process: it takes a second."""

from verso_gateway.app import create_app
from verso_gateway.settings import Settings

DOCUMENT = create_app(Settings()).openapi()
