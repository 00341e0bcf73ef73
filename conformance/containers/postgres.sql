-- Rows with known sums, read back through the rings after the shared buffers have been emptied.
\set ON_ERROR_STOP on
SET max_parallel_workers_per_gather = 2;
SET min_parallel_table_scan_size = 0;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
DO $$
DECLARE n bigint; s numeric; length bigint;
BEGIN
  SELECT count(*), sum(id), sum(length(filler)) INTO n, s, length FROM rows;
  IF n <> 100000 OR s <> 5000050000 OR length <> 20000000 THEN
    RAISE EXCEPTION 'the rows are wrong: %, %, %', n, s, length;
  END IF;
  SELECT count(*) INTO n FROM rows WHERE digest <> md5(id::text);
  IF n <> 0 THEN
    RAISE EXCEPTION '% rows have a wrong digest', n;
  END IF;
END $$;
SELECT 'io_method is ' || current_setting('io_method');
