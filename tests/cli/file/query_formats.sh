loadplan undump -q "$TESTS/fuzz/corpus/dump/everything" -o a.lpt
loadplan query a.lpt "SELECT rank, kind, count(*) AS records, sum(bytes) AS bytes FROM v_records GROUP BY rank, kind"
sql="SELECT name, bytes, file, 0.5 AS half FROM v_names WHERE bytes IN (16, 32) ORDER BY name"
loadplan query a.lpt "$sql"
loadplan query a.lpt "$sql" --format=tsv
loadplan query a.lpt "$sql" --format=json
loadplan query a.lpt "SELECT name, bytes, 0.5, NULL FROM v_names" --format=json >rows.json
"$PYTHON" "$SUITE/../findings/schema_check.py" "$TESTS/../docs/schemas/query.json" rows.json
loadplan query a.lpt "SELECT name FROM v_names WHERE bytes = 77" --format=json
