-- Adds what was said of facts to what is known. Said in any order, and more than
-- once, it leads to the same rows. It locks the rows of the facts, in order.
INSERT INTO $schema.keys_fact AS known (subject, fact, rank1, rank2, said, cleared, value, expires, changed)
SELECT subject, fact, rank1, rank2, said, cleared, value, expires, clock_timestamp()
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::timestamptz[])
    AS told (subject, fact, rank1, rank2, said, cleared, value, expires)
ORDER BY subject, fact
ON CONFLICT (subject, fact) DO UPDATE SET
    (rank1, rank2, said, value) = (
        SELECT best.rank1, best.rank2, best.said, best.value
        FROM (VALUES
            (known.rank1, known.rank2, known.said, known.value),
            (excluded.rank1, excluded.rank2, excluded.said, excluded.value)
        ) AS best (rank1, rank2, said, value)
        ORDER BY best.said > greatest(known.cleared, excluded.cleared) DESC, best.rank1 DESC, best.rank2 DESC, best.value DESC
        LIMIT 1
    ),
    cleared = greatest(known.cleared, excluded.cleared),
    expires = greatest(known.expires, excluded.expires),
    changed = clock_timestamp()
