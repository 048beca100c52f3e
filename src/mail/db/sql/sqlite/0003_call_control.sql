-- For whom the paused agent was working, as its resumed turn needs it; NULL in calls made before.
ALTER TABLE calls ADD COLUMN control TEXT;
