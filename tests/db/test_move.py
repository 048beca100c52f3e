"""A database is moved as a file, from each kind to each kind, with everything in it."""
import pytest
from pathlib import Path
from mail.db.move import *
from mail.db.move import _JSON
from tests.db.every_table import fill
from tests.support.databases import DATABASES

PAIRS = [(a, b) for a in DATABASES for b in DATABASES]

@pytest.mark.parametrize(("source", "target"), PAIRS)
async def test_it(source, target, request, tmp_path):
    (tmp_path/"a").mkdir(); (tmp_path/"b").mkdir()
    a = DATABASES[source](request, tmp_path/"a").store()
    b = DATABASES[target](request, tmp_path/"b").store()
    await a.open()
    counts = await fill(a)
    with (tmp_path/"f").open("wb") as f:
        await export_file(a, f)
    header, end = whole_file(tmp_path/"f")
    print(header)
    await b.driver.open()
    n = await import_file(b, tmp_path/"f", header, end)
    await b.open()
    got=[]
    await b.write_rows(got.append)
    await a.close(); await b.close()
