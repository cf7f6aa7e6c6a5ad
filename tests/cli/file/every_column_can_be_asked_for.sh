# Each table of the query language, whole: what stands in a column is what the text form says.
loadplan undump -q "$TESTS/fuzz/corpus/dump/everything" -o x.lpt
for table in v_names v_scopes v_destinations v_records v_derives v_refusals; do
    echo "--- $table"
    loadplan query --format=tsv x.lpt "SELECT rowid, * FROM $table WHERE rowid % 8 < 3 ORDER BY rowid" | head -n 20
done
echo "--- what is looked up"
while read -r where; do
    echo "$(loadplan query --format=tsv x.lpt "SELECT count(*) FROM v_records WHERE $where" | tail -n 1) where $where"
done <<'END'
rank = 1
rank = 1 AND name = 'layers.0.norm'
rank = 0 AND name = 'two parts'
name = 'layers.0.norm'
name = 'nobody'
name IS NULL
rank = 7
rank = -1 OR rank = 4294967296
rank = 'x' AND name = 3
rank > 0
END
loadplan query x.lpt "SELECT d.name, count(r.kind) FROM v_destinations d LEFT JOIN v_records r
    ON r.destination = d.name AND r.rank = d.rank WHERE d.rank = 1 GROUP BY d.name ORDER BY 1 LIMIT 4"
echo "--- values of every type"
for format in text tsv json; do
    loadplan query --format=$format x.lpt "SELECT 1 a, -2.5 b, NULL c, 'a' || char(10) || char(9) || 'b' d, x'ff41' e, '' f,
        x'' g, 1e400 h, 9223372036854775807 i"
done
for format in text tsv json; do
    loadplan query --format=$format x.lpt "SELECT 1 a, x'4100' b" || echo "exit $?"
done
