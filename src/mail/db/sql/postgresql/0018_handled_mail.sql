-- What the agents did with the mail of the run, as JSON; null for runs of which it was not noted.
ALTER TABLE tasks ADD COLUMN handled TEXT NOT NULL DEFAULT 'null';
