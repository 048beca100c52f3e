-- The words of letters, see mail.db.desk_search: rowid is a letter's seq. Which words a line has is
-- in the index; their order is in the line alone.
CREATE TABLE desk_words (
    rowid BIGINT PRIMARY KEY,
    words TEXT NOT NULL,
    lexemes TSVECTOR NOT NULL
        GENERATED ALWAYS AS (array_to_tsvector(string_to_array(words, ' '))) STORED
);

CREATE INDEX desk_words_by_word ON desk_words USING gin (lexemes);

-- Letters from before, whose words are added step by step.
CREATE TABLE desk_unindexed (letter BIGINT PRIMARY KEY);

INSERT INTO desk_unindexed (letter) SELECT seq FROM desk_letters;
