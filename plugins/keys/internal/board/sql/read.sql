-- Reads what has changed since an instant.
SELECT subject, fact, cleared, value, changed
FROM $schema.keys_fact
WHERE changed >= $1 AND expires > clock_timestamp()
ORDER BY changed
