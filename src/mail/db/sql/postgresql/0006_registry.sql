-- The registries of other swarms, which all servers of a swarm share. content is the JSON that the
-- registry's file has elsewhere; version counts its changes, so that none of them is lost.
CREATE TABLE swarm_registry (
    swarm_name TEXT PRIMARY KEY,
    version BIGINT NOT NULL,
    content TEXT NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT NOW()
);
