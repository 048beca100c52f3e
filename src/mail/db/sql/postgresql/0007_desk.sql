-- Letters between mailboxes, apart from the deliveries of tasks: see mail.db.desk.
CREATE TABLE desk_threads (
    swarm_name TEXT NOT NULL,
    thread_id TEXT COLLATE "C" NOT NULL,
    title TEXT NOT NULL,
    creator TEXT NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (swarm_name, thread_id)
);

-- The ids give the order of joining.
CREATE TABLE desk_members (
    id BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    swarm_name TEXT NOT NULL,
    thread_id TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    joined_at TEXT NOT NULL,
    added_by TEXT NOT NULL,
    UNIQUE (swarm_name, thread_id, name)
);

CREATE INDEX desk_members_by_name ON desk_members (swarm_name, name, thread_id);

-- payer: for whom the letter counts, with size bytes. latest: the latest created_at of the swarm up
-- to here; it never falls, whatever the clock does, so that it finds what came after a time.
CREATE TABLE desk_letters (
    seq BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    swarm_name TEXT NOT NULL,
    letter_id TEXT NOT NULL,
    sender TEXT NOT NULL,
    kind TEXT NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL,
    latest TEXT COLLATE "C" NOT NULL,
    payer TEXT COLLATE "C" NOT NULL,
    size BIGINT NOT NULL,
    thread_id TEXT COLLATE "C" NOT NULL,
    reply_to TEXT NOT NULL,
    file_id TEXT NOT NULL,
    urgent BOOLEAN NOT NULL,
    wants_ack BOOLEAN NOT NULL,
    task_owner TEXT NOT NULL,
    task_id TEXT NOT NULL,
    subject TEXT NOT NULL,
    recipients TEXT NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (swarm_name, letter_id)
);

CREATE INDEX desk_letters_by_thread ON desk_letters (swarm_name, thread_id, seq)
    WHERE thread_id <> '';
CREATE INDEX desk_letters_by_age ON desk_letters (swarm_name, created_at, seq);
CREATE INDEX desk_letters_by_latest ON desk_letters (swarm_name, latest, seq);

-- What became of a letter at a recipient; no text where that has not happened. owed_to: the sender,
-- as long as an acknowledgement is wanted.
CREATE TABLE desk_receipts (
    swarm_name TEXT NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    letter BIGINT NOT NULL REFERENCES desk_letters (seq),
    thread_id TEXT COLLATE "C" NOT NULL,
    shown_at TEXT NOT NULL,
    turn BIGINT NOT NULL,
    acked_at TEXT NOT NULL,
    owed_to TEXT NOT NULL,
    ack_note TEXT NOT NULL,
    PRIMARY KEY (swarm_name, name, letter)
);

CREATE INDEX desk_receipts_by_letter ON desk_receipts (letter);
CREATE INDEX desk_receipts_unread ON desk_receipts (swarm_name, name, shown_at, letter, thread_id)
    WHERE shown_at = '';
CREATE INDEX desk_receipts_owed ON desk_receipts (swarm_name, owed_to, letter, name)
    WHERE owed_to <> '';

-- About how many bytes of letters and threads count for a mailbox.
CREATE TABLE desk_use (
    swarm_name TEXT NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    bytes BIGINT NOT NULL,
    PRIMARY KEY (swarm_name, name)
);

-- Which letters a request returned; a repeated one gets them again. Rows go when they are
-- old, or many.
CREATE TABLE desk_pages (
    id BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    swarm_name TEXT NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    request_id TEXT NOT NULL,
    letter_ids TEXT NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL,
    UNIQUE (swarm_name, name, request_id)
);

CREATE INDEX desk_pages_by_name ON desk_pages (swarm_name, name, id);
CREATE INDEX desk_pages_by_age ON desk_pages (created_at);
