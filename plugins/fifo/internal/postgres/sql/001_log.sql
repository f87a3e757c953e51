-- The log. Its order is the order of the queue: who appends holds the lock of
-- enter until the commit, so entries become visible in the order of their seq.
CREATE TABLE $schema.entry (
    seq      bigint  PRIMARY KEY,
    at       bigint  NOT NULL, -- microseconds since 1970, by the clock of the database, never backwards
    replica  bigint  NOT NULL, -- who appended it
    op       bigint  NOT NULL, -- the number of the commands of that replica, 0 without commands
    gone     bigint[] NOT NULL, -- replicas whose lease has ended
    commands bytea   NOT NULL  -- in a form of their own, for their rules
);

-- Who may append. A row that has expired is removed by whoever comes next.
CREATE TABLE $schema.replica (
    id      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    expires timestamptz NOT NULL
);

-- What the entries up to seq have led to, under rules of that number.
CREATE TABLE $schema.snapshot (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    rules integer NOT NULL,
    seq   bigint  NOT NULL,
    state bytea   NOT NULL
);
INSERT INTO $schema.snapshot (rules, seq, state) VALUES (0, 0, '');

-- enter takes the one lock of the log, until the end of the transaction.
CREATE FUNCTION $schema.enter() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('usher.fifo $schema', 0));
END $$;

-- append adds an entry. The caller has entered.
CREATE FUNCTION $schema.append(me bigint, my_op bigint, who_left bigint[], body bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO $schema.entry
    SELECT l.seq + 1, greatest(l.at, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint), me, my_op, who_left, body
    FROM (SELECT e.seq, e.at FROM $schema.entry e ORDER BY e.seq DESC LIMIT 1) l;
    IF NOT FOUND THEN
        INSERT INTO $schema.entry
        SELECT s.seq + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, me, my_op, who_left, body FROM $schema.snapshot s;
    END IF;
END $$;

-- drop_lapsed ends the leases that have run out, and that of also. The caller
-- has entered.
CREATE FUNCTION $schema.drop_lapsed(also bigint, but bigint) RETURNS bigint[] LANGUAGE sql AS $$
    WITH dropped AS (
        DELETE FROM $schema.replica r
        WHERE (r.expires <= clock_timestamp() OR r.id = also) AND r.id <> but
        RETURNING r.id
    )
    SELECT coalesce(array_agg(d.id ORDER BY d.id), '{}') FROM dropped d
$$;

-- step is all that a replica does while it lives: it appends its commands,
-- renews its lease and reads what is new since after, and, without its commands,
-- the entry after itself, by which it sees that the log is the one that it knows.
-- It is the whole transaction. It enters only if there is something to write.
--
-- The same op is appended once, however often it is tried, in whatever order its
-- tries arrive: a replica has seen its own op before it uses the next one.
CREATE FUNCTION $schema.step(me bigint, my_op bigint, after bigint, tick bigint, lease interval, body bytea)
RETURNS SETOF $schema.entry LANGUAGE plpgsql AS $$
DECLARE
    lapsed bigint[] := '{}';
    due    boolean := tick > 0 AND tick <= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    writes boolean := body <> '' OR due;
    lives  boolean;
    renews boolean;
BEGIN
    IF NOT writes THEN
        writes := NOT EXISTS (SELECT FROM $schema.replica r WHERE r.id = me AND r.expires > clock_timestamp() + lease * 0.7)
            OR EXISTS (SELECT FROM $schema.replica r WHERE r.expires > clock_timestamp() + lease)
            OR EXISTS (SELECT FROM $schema.replica r WHERE r.expires <= clock_timestamp());
    END IF;
    IF writes THEN
        PERFORM $schema.enter();
        SELECT bool_or(r.id = me), bool_or(r.expires > clock_timestamp() + lease
            OR r.expires <= clock_timestamp() + CASE WHEN r.id = me THEN lease * 0.7 ELSE '0' END)
        INTO lives, renews FROM $schema.replica r;
        IF lives IS NOT TRUE THEN
            RAISE EXCEPTION 'the lease of replica % has ended', me USING ERRCODE = 'UF001';
        END IF;
        IF renews THEN
            UPDATE $schema.replica r SET expires = clock_timestamp() + lease
            WHERE r.id = me AND r.expires <= clock_timestamp() + lease * 0.7
                -- It was granted before the clock was set back.
                OR r.expires > clock_timestamp() + lease
                -- Nobody has come for as long as a lease: it was the database that was away.
                OR NOT EXISTS (SELECT FROM $schema.replica o WHERE o.expires > clock_timestamp());
            lapsed := $schema.drop_lapsed(0, me);
        END IF;
        IF body <> '' AND EXISTS (SELECT FROM $schema.entry e WHERE e.seq > after AND e.replica = me AND e.op >= my_op) THEN
            body := '';
        END IF;
        IF body <> '' THEN
            PERFORM $schema.append(me, my_op, lapsed, body);
        ELSIF lapsed <> '{}' OR due AND NOT EXISTS (SELECT FROM $schema.entry e WHERE e.seq > after AND e.at >= tick) THEN
            PERFORM $schema.append(me, 0, lapsed, '');
        END IF;
    END IF;
    RETURN QUERY
        SELECT e.seq, e.at, e.replica, e.op, e.gone, CASE WHEN e.seq > after THEN e.commands ELSE '' END
        FROM $schema.entry e WHERE e.seq >= after ORDER BY e.seq;
END $$;

-- publish tells everybody who listens to topic the entry that a step has just
-- appended, and which one it follows, or, if that is too long, that there is
-- something to read. It is a transaction of its own, since one that notifies waits
-- for all others that do, until it is on disk. This one does not wait for the disk.
CREATE FUNCTION $schema.publish(me bigint, my_op bigint, after bigint, topic text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM pg_notify(topic, CASE WHEN e.gone = '{}' AND octet_length(e.commands) <= 5600
        THEN concat_ws(' ', 'entry', e.seq, e.at, e.replica, e.op, p.at, p.replica, p.op, encode(e.commands, 'base64'))
        ELSE 'entry ' END)
    FROM $schema.entry e JOIN $schema.entry p ON p.seq = e.seq - 1
    WHERE e.seq > after AND e.replica = me AND e.op = my_op;
END $$;

-- join makes a new replica, which takes the place of old, and returns the state
-- to begin with. Rules of another number begin anew, once nobody uses the old
-- ones any more: whose lease has run out may have been kept from the database, like
-- all others, and gets as long again to come back. It enters.
CREATE FUNCTION $schema.join(old bigint, my_rules integer, lease interval)
RETURNS TABLE (id bigint, seq bigint, state bytea) LANGUAGE plpgsql AS $$
DECLARE
    lapsed bigint[];
    theirs integer;
    others bigint;
BEGIN
    PERFORM $schema.enter();
    SELECT s.rules INTO theirs FROM $schema.snapshot s;
    IF theirs <> my_rules THEN
        SELECT count(*) INTO others FROM $schema.replica r WHERE r.id <> old AND r.expires > clock_timestamp() - lease;
        IF others > 0 THEN
            RAISE EXCEPTION '% of them, with rules %, not %', others, theirs, my_rules USING ERRCODE = 'UF002', DETAIL = others;
        END IF;
    END IF;
    lapsed := $schema.drop_lapsed(old, 0);
    IF theirs <> my_rules THEN
        UPDATE $schema.snapshot s SET rules = my_rules, state = '',
            seq = greatest(s.seq, (SELECT coalesce(max(e.seq), 0) FROM $schema.entry e));
        DELETE FROM $schema.entry;
    ELSIF lapsed <> '{}' THEN
        PERFORM $schema.append(0, 0, lapsed, '');
    END IF;
    RETURN QUERY
        WITH r AS (INSERT INTO $schema.replica (expires) VALUES (clock_timestamp() + lease) RETURNING replica.id)
        SELECT r.id, s.seq, s.state FROM r, $schema.snapshot s;
END $$;

-- leave ends the lease of a replica at once. It enters.
CREATE FUNCTION $schema.leave(me bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    lapsed bigint[];
BEGIN
    PERFORM $schema.enter();
    lapsed := $schema.drop_lapsed(me, 0);
    IF lapsed <> '{}' THEN
        PERFORM $schema.append(me, 0, lapsed, '');
    END IF;
END $$;

-- save stores a later state, and forgets the entries before it that every
-- replica which still has a lease has read, but for the last one that a replica
-- may have read. It locks the row of the snapshot.
CREATE FUNCTION $schema.save(my_rules integer, my_seq bigint, my_state bytea, keep interval) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE $schema.snapshot s SET seq = my_seq, state = my_state WHERE s.rules = my_rules AND s.seq < my_seq;
    IF FOUND THEN
        DELETE FROM $schema.entry e WHERE e.seq < (
            SELECT max(o.seq) FROM $schema.entry o
            WHERE o.seq <= my_seq AND o.at < (extract(epoch FROM clock_timestamp() - keep) * 1000000)::bigint);
    END IF;
END $$;
