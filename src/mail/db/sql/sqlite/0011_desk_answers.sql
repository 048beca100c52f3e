-- The first answer to a letter that its sender got, in the receipt of who wrote it.
ALTER TABLE desk_receipts ADD COLUMN answered_at TEXT NOT NULL DEFAULT '';
ALTER TABLE desk_receipts ADD COLUMN answer_id TEXT NOT NULL DEFAULT '';

UPDATE desk_receipts SET answered_at = answer.created_at, answer_id = answer.letter_id, owed_to = ''
FROM (
    SELECT l.seq AS answered, a.sender, min(a.seq) AS seq
    FROM desk_letters AS a
    JOIN desk_letters AS l ON l.swarm_name = a.swarm_name AND l.letter_id = a.reply_to
    JOIN desk_receipts AS got ON got.letter = a.seq AND got.name = l.sender
    WHERE a.reply_to <> ''
    GROUP BY l.seq, a.sender
) AS reply
JOIN desk_letters AS answer ON answer.seq = reply.seq
WHERE desk_receipts.letter = reply.answered AND desk_receipts.name = reply.sender;

DROP INDEX desk_letters_by_answered;

-- It has all columns that are read of an unread letter.
DROP INDEX desk_receipts_unread;
CREATE INDEX desk_receipts_unread
    ON desk_receipts (swarm_name, name, shown_at, letter, thread_id, answered_at, answer_id)
    WHERE shown_at = '';
