-- Files of mailboxes: what is told of them; their bytes are elsewhere, under their sha256.
CREATE TABLE desk_files (
    swarm_name TEXT NOT NULL,
    file_id TEXT NOT NULL,
    owner TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    size INTEGER NOT NULL,
    name TEXT NOT NULL,
    media_type TEXT NOT NULL,
    created_at TEXT NOT NULL,
    expires_at TEXT NOT NULL,
    PRIMARY KEY (swarm_name, file_id)
) WITHOUT ROWID;

CREATE INDEX desk_files_by_owner ON desk_files (swarm_name, owner, file_id);
CREATE INDEX desk_files_by_content ON desk_files (swarm_name, sha256);
CREATE INDEX desk_files_by_end ON desk_files (swarm_name, expires_at);
CREATE INDEX desk_letters_by_file ON desk_letters (swarm_name, file_id) WHERE file_id <> '';
