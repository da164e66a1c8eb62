-- Which lines in layers/ take most, with all that they call (ms)?
SELECT round(sum(dur_ps) / 1e9, 3) AS ms, frame
FROM (SELECT DISTINCT stack, frame FROM frames) JOIN ops USING (stack)
WHERE frame LIKE '%/layers/%' GROUP BY frame ORDER BY ms DESC LIMIT 2;
-- 7.315 | /home/dev/model/layers/attention.py:15:14
-- 0.951 | /home/dev/model/layers/norm.py:4:11

-- In which scopes and phases is time lost (ms)?
SELECT round(sum(lost_ps) / 1e9, 3) AS lost, phase, scope
FROM ops GROUP BY scope, phase ORDER BY lost DESC LIMIT 3;
-- 2.451 | backward | decoder_layer/mlp
-- 2.232 | recompute | decoder_layer/attention/flash_attention
-- 2.143 | forward | decoder_layer/attention/flash_attention

-- How much HBM traffic has the math of a phase (GB), and how fast (GB/s)?
SELECT phase, round(sum(hbm_bytes * n_executions) / 1e9, 3) AS gb,
  round(1e3 * sum(hbm_bytes * n_executions) / sum(dur_ps), 1)
FROM ops WHERE kind = 'compute' AND hbm_bytes IS NOT NULL
GROUP BY phase ORDER BY gb DESC LIMIT 3;
-- backward | 3.429 | 579.6
-- forward | 3.027 | 669.9
-- recompute | 0.839 | 276.1

-- Do all four rounds of the loops take as long (ms)?
SELECT nth, round(sum(dur_ps) / 1e9, 3) FROM (
  SELECT e.dur_ps, row_number() OVER (PARTITION BY op ORDER BY start_ps) AS nth
  FROM executions e JOIN ops USING (op) WHERE n_executions = 4)
GROUP BY nth;
-- 1 | 3.885
-- 2 | 3.894
-- 3 | 3.903
-- 4 | 3.883

-- How much idle time is in gaps below 1 us (ns)?
SELECT cause, count(*), sum(dur_ps) / 1000
FROM gaps WHERE dur_ps < 1000000 GROUP BY cause;
-- in_container | 597 | 2095
-- in_program | 122 | 441
