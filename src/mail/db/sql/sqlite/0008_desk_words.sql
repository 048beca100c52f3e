-- The words of letters, see mail.db.desk_search: rowid is a letter's seq. Which words a line has is
-- in the index; their order is in the line alone.
CREATE VIRTUAL TABLE desk_words USING fts5 (words, tokenize = 'ascii', detail = none, columnsize = 0);

-- Letters from before, whose words are added step by step.
CREATE TABLE desk_unindexed (letter INTEGER PRIMARY KEY);

INSERT INTO desk_unindexed (letter) SELECT seq FROM desk_letters;
