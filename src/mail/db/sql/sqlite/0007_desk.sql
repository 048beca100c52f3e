-- Letters between mailboxes, apart from the deliveries of tasks: see mail.db.desk.
CREATE TABLE desk_threads (
    swarm_name TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    title TEXT NOT NULL,
    creator TEXT NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (swarm_name, thread_id)
);

-- The ids give the order of joining.
CREATE TABLE desk_members (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    swarm_name TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    name TEXT NOT NULL,
    joined_at TEXT NOT NULL,
    added_by TEXT NOT NULL,
    UNIQUE (swarm_name, thread_id, name)
);

CREATE INDEX desk_members_by_name ON desk_members (swarm_name, name, thread_id);

-- payer: for whom the letter counts, with size bytes. latest: the latest created_at of the swarm up
-- to here; it never falls, whatever the clock does, so that it finds what came after a time. The
-- long columns are the last: what is before them is read without them.
CREATE TABLE desk_letters (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    swarm_name TEXT NOT NULL,
    letter_id TEXT NOT NULL,
    sender TEXT NOT NULL,
    kind TEXT NOT NULL,
    created_at TEXT NOT NULL,
    latest TEXT NOT NULL,
    payer TEXT NOT NULL,
    size INTEGER NOT NULL,
    thread_id TEXT NOT NULL,
    reply_to TEXT NOT NULL,
    file_id TEXT NOT NULL,
    urgent INTEGER NOT NULL,
    wants_ack INTEGER NOT NULL,
    task_owner TEXT NOT NULL,
    task_id TEXT NOT NULL,
    subject TEXT NOT NULL,
    recipients TEXT NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (swarm_name, letter_id)
);

CREATE INDEX desk_letters_by_thread ON desk_letters (swarm_name, thread_id) WHERE thread_id <> '';
CREATE INDEX desk_letters_by_age ON desk_letters (swarm_name, created_at);
CREATE INDEX desk_letters_by_latest ON desk_letters (swarm_name, latest);

-- What became of a letter at a recipient; no text where that has not happened. owed_to: the sender,
-- as long as an acknowledgement is wanted.
CREATE TABLE desk_receipts (
    swarm_name TEXT NOT NULL,
    name TEXT NOT NULL,
    letter INTEGER NOT NULL REFERENCES desk_letters (seq),
    thread_id TEXT NOT NULL,
    shown_at TEXT NOT NULL,
    turn INTEGER NOT NULL,
    acked_at TEXT NOT NULL,
    owed_to TEXT NOT NULL,
    ack_note TEXT NOT NULL,
    PRIMARY KEY (swarm_name, name, letter)
) WITHOUT ROWID;

CREATE INDEX desk_receipts_by_letter ON desk_receipts (letter);
CREATE INDEX desk_receipts_unread ON desk_receipts (swarm_name, name, shown_at, letter, thread_id)
    WHERE shown_at = '';
CREATE INDEX desk_receipts_owed ON desk_receipts (swarm_name, owed_to, letter) WHERE owed_to <> '';

-- About how many bytes of letters and threads count for a mailbox.
CREATE TABLE desk_use (
    swarm_name TEXT NOT NULL,
    name TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (swarm_name, name)
) WITHOUT ROWID;

-- Which letters a request returned; a repeated one gets them again. Rows go when they are
-- old, or many.
CREATE TABLE desk_pages (
    id INTEGER PRIMARY KEY,
    swarm_name TEXT NOT NULL,
    name TEXT NOT NULL,
    request_id TEXT NOT NULL,
    letter_ids TEXT NOT NULL,
    created_at TEXT NOT NULL,
    UNIQUE (swarm_name, name, request_id)
);

CREATE INDEX desk_pages_by_name ON desk_pages (swarm_name, name);
CREATE INDEX desk_pages_by_age ON desk_pages (created_at);
