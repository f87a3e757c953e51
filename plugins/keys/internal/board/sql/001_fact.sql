-- What is known of a provider, an account, a key, or a key with a model. Each row
-- is the best of what any replica said of one fact.
CREATE TABLE $schema.keys_fact (
    subject text        NOT NULL, -- JSON, as the replicas name it
    fact    text        NOT NULL,
    rank1   bigint      NOT NULL, -- of two rows of one fact the one of the higher ranks holds
    rank2   bigint      NOT NULL,
    said    bigint      NOT NULL, -- nanoseconds since 1970, by the clock of who said it
    cleared bigint      NOT NULL, -- what was said up to then does not count any more
    value   text        NOT NULL, -- JSON
    expires timestamptz NOT NULL, -- from when on nobody needs it
    changed timestamptz NOT NULL,
    PRIMARY KEY (subject, fact)
);

-- Who reads asks for what has changed since.
CREATE INDEX keys_fact_changed ON $schema.keys_fact (changed);
CREATE INDEX keys_fact_expires ON $schema.keys_fact (expires);
