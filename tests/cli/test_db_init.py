"""``mail db-init``: what it prints, makes and refuses."""

import json
import re
from importlib import resources
from pathlib import Path

import pytest

from tests.cli.conftest import Mail
from tests.support.postgres import PASSWORD, Cluster, execute, query

OUTPUT = """\
Connecting to database...
Connected successfully
Creating agent_histories table...
  agent_histories table created
Creating tasks table...
  tasks table created
Creating task_events table...
  task_events table created
Creating task_responses table...
  task_responses table created
Creating engine tables...
  messages, journal, history_entries, calls, memories, tokens, writers created
Creating idempotency tables...
  idempotency created
Creating texts tables...
  task_texts, sweeps created
Creating outbox tables...
  outbox, inbox created
Creating registry tables...
  swarm_registry created
Creating desk tables...
  desk_threads, desk_members, desk_letters, desk_receipts, desk_use, desk_pages created
Creating desk words tables...
  desk_words, desk_unindexed created
Creating files tables...
  desk_files created
Creating desk asks tables...
  desk_asks created
Creating preferences tables...
  memory_versions, memory_feedback created
Creating database id tables...
  database_id created
Creating approvals tables...
  approval_counter created
Creating webhooks tables...
  webhooks created
Creating questions tables...
  questions created
Creating claims tables...
  nodes, relayed, duties, announcements created

Verifying tables...
  agent_histories: OK
  tasks: OK
  task_events: OK
  task_responses: OK
  engine: OK
  idempotency: OK
  texts: OK
  outbox: OK
  registry: OK
  desk: OK
  desk words: OK
  files: OK
  desk asks: OK
  preferences: OK
  database id: OK
  approvals: OK
  webhooks: OK
  questions: OK
  claims: OK

Database initialization complete!
"""

TABLES = """
SELECT relname FROM pg_class
WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'
"""
COLUMNS = """
SELECT attname, format_type(atttypid, NULL) FROM pg_attribute
WHERE attrelid = $1::text::regclass AND attnum > 0 ORDER BY attnum
"""


def test_it_prints_the_documented_lines_each_time(mail: Mail, cluster: Cluster) -> None:
    url = cluster.schema()
    for _ in range(2):
        done = mail("db-init", DATABASE_URL=url)
        assert done == (0, OUTPUT, "")
    tables = json.loads(mail("db-init", "--json", DATABASE_URL=url).out)["tables"]
    assert tables["outbox"] == ["outbox", "inbox"]
    assert query(url, "SELECT count(*) FROM schema_version WHERE version = 1") == [(1,)]
    told = set(re.findall(r"\w+(?= table created|, | created)", OUTPUT))
    assert {name for (name,) in query(url, TABLES)} - {"schema_version"} <= told


def test_the_database_may_be_named_in_the_file_or_by_a_flag(
    mail: Mail, cluster: Cluster, tmp_path: Path
) -> None:
    in_file, by_flag = cluster.schema(), cluster.schema().replace("postgresql:", "postgres:")
    (tmp_path / "mail.toml").write_text(f'[server.store]\nurl = "{in_file}"\n')
    assert mail("db-init").out == OUTPUT
    assert mail("db-init", "--store", by_flag, DATABASE_URL="none").out == OUTPUT
    for url in (in_file, by_flag):
        assert query(url, "SELECT count(*) FROM tasks") == [(0,)]


def test_tokens_can_be_made_in_it(mail: Mail, cluster: Cluster) -> None:
    url = cluster.schema()
    made = mail("token", "create", "--role", "user", "--id", "alice", DATABASE_URL=url)
    assert made.code == 0 and made.out.startswith("mail_")
    assert query(url, "SELECT role, caller_id FROM tokens") == [("user", "alice")]


def test_without_a_database_it_says_what_to_set(mail: Mail, tmp_path: Path) -> None:
    done = mail("db-init")
    assert done.code == 1 and done.out == ""
    assert done.err.startswith("ERROR: DATABASE_URL is not set")
    other = mail("db-init", DATABASE_URL="sqlite:///mail.db")
    assert other.code == 1 and "DATABASE_URL is not a PostgreSQL URL" in other.err
    assert not (tmp_path / "mail.db").exists()


def test_a_failure_is_one_line_without_the_password(mail: Mail, cluster: Cluster) -> None:
    done = mail("db-init", DATABASE_URL=cluster.url("no_such_database"))
    assert done.code == 1
    assert done.err.startswith("ERROR: cannot connect to the database")
    assert len(done.err.splitlines()) == 1
    assert PASSWORD not in done.out + done.err


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (
            "tasks (id SERIAL, name TEXT)",
            "table 'tasks' .*'id' is integer, not uuid.*'task_id'",
        ),
        (
            "messages (id BIGINT)",
            r"the table 'messages' is another program's \(MAIL did not create",
        ),
        ("schema_version (version TEXT)", "the table 'schema_version' is another program's"),
    ],
)
def test_tables_of_another_program_are_named_and_left_alone(
    mail: Mail, cluster: Cluster, table: str, words: str
) -> None:
    url = cluster.schema()
    execute(url, f"CREATE TABLE {table}")
    name = table.partition(" ")[0]
    before = query(url, COLUMNS, name)
    for command in (("db-init",), ("token", "create", "--role", "user", "--id", "x")):
        done = mail(*command, DATABASE_URL=url)
        assert done.code == 1
        assert re.search(words, done.err)
        assert "?search_path=mail" in done.err
        assert done.err.count("\n") == 1
    assert query(url, COLUMNS, name) == before
    assert query(url, TABLES) == [(name,)]


def test_tables_that_1_3_6_made_with_more_columns_are_taken(mail: Mail, cluster: Cluster) -> None:
    url = cluster.schema()
    script = resources.files("mail.db") / "sql" / "postgresql" / "0001_documented.sql"
    execute(url, script.read_text("utf-8"))
    execute(url, "ALTER TABLE tasks ADD COLUMN note TEXT, ALTER COLUMN title TYPE VARCHAR(200)")
    assert mail("db-init", DATABASE_URL=url).out == OUTPUT
