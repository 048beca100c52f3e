-- Where the hashes of long texts stand in the columns of a row, as JSON; NULL in most rows. What
-- earlier versions wrote is changed by mail.db.old_texts. docs/database.md says how to read it.
ALTER TABLE messages ADD COLUMN texts TEXT;
ALTER TABLE journal ADD COLUMN texts TEXT;
ALTER TABLE task_events ADD COLUMN texts TEXT;
ALTER TABLE task_responses ADD COLUMN texts TEXT;
ALTER TABLE history_entries ADD COLUMN texts TEXT;
ALTER TABLE calls ADD COLUMN texts TEXT;
ALTER TABLE outbox ADD COLUMN texts TEXT;
