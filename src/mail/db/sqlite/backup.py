"""A copy of an SQLite database that a server may be using."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from mail.db.sqlite.connect import (
    as_store_error,
    check_integrity,
    check_names,
    connect_reader,
    create_file,
)
from mail.errors import StoreError


def back_up(database: Path, copy: Path) -> int:
    """Copy all that was committed when the copy began; writers are not held up.

    Args:
        database: The file of the database.
        copy: The file to make, which only its owner may read. It exists once it is complete,
            checked and on the disk.

    Returns:
        The copy's bytes.

    Raises:
        StoreError: the copy exists, cannot be written, or is damaged like the database.
    """
    if copy.exists():
        raise StoreError(f"{copy} exists; name a file that does not, or delete it first")
    check_names(database)
    unfinished = copy.with_name(copy.name + ".unfinished")
    unfinished.unlink(missing_ok=True)
    create_file(unfinished)
    try:
        with (
            closing(connect_reader(database)) as source,
            closing(sqlite3.connect(unfinished)) as target,
        ):
            source.backup(target)
            check_integrity(target, copy)
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        unfinished.rename(copy)
    except (OSError, sqlite3.Error) as error:
        raise as_store_error(error) from error
    finally:
        unfinished.unlink(missing_ok=True)
    return copy.stat().st_size
