"""An S3 service of our own (moto's, over HTTP on loopback), in a thread of this process."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from moto.backends import get_backend
from moto.core import DEFAULT_ACCOUNT_ID
from moto.moto_server.threaded_moto_server import ThreadedMotoServer

__all__ = ["Bucket", "bucket_server"]


class Bucket:
    """A bucket, seen from inside the service."""

    def __init__(self, name: str, environ: Mapping[str, str]) -> None:
        self.name = name
        self.environ = environ
        self._service = get_backend("s3")[DEFAULT_ACCOUNT_ID]["global"]
        if name not in self._service.buckets:
            self._service.create_bucket(name, "us-east-1")

    @property
    def _objects(self) -> Any:
        return self._service.buckets[self.name].keys

    def stored(self) -> dict[str, bytes]:
        """Return all objects by key."""
        return {key: self._objects[key].value for key in self._objects}

    def parts(self) -> list[str]:
        """Return the uploads that were begun and neither finished nor given up."""
        return list(self._service.buckets[self.name].multiparts)

    def remove(self, key: str) -> None:
        """Remove an object."""
        self._objects.pop(key)

    def destroy(self) -> None:
        """Remove it with all that is in it."""
        for key in self.stored():
            self.remove(key)
        self._service.delete_bucket(self.name)

    def age(self, seconds: float) -> None:
        """Make everything that is there older."""
        for key in self._objects:
            self._objects[key].last_modified -= timedelta(seconds=seconds)


@contextmanager
def bucket_server() -> Iterator[dict[str, str]]:
    """Start the service; yield the environment that leads to it."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret-of-the-key",
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        }
    finally:
        server.stop()
