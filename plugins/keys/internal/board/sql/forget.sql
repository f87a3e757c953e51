-- Removes what nobody needs. Rows that somebody changes just now are left.
DELETE FROM $schema.keys_fact
WHERE (subject, fact) IN (
    SELECT subject, fact FROM $schema.keys_fact
    WHERE expires <= clock_timestamp()
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
)
