. "$SUITE/changed.bash"
schemas=$TESTS/../docs/schemas
printf 'map_changed layers.9.* nobody is there\ndest_vanished layers.* gone on purpose\n' > accepted
loadplan -q diff good.lpt pr.lpt --format=json --suppressions accepted > diff.json && exit 9
loadplan -q diff good.lpt pr.lpt --format=ndjson --suppressions accepted > diff.ndjson && exit 9
loadplan check pr.lpt --format=json > check.json && exit 9
loadplan check good.lpt --format=ndjson > check.ndjson
for name in diff check; do
    "$PYTHON" "$SUITE/schema_check.py" "$schemas/findings.json" $name.json
    "$PYTHON" "$SUITE/schema_check.py" "$schemas/findings-ndjson.json" $name.ndjson --lines
done
# A validator that finds nothing wrong proves nothing.
sed 's/"members": 3/"members": 0/' diff.json > wrong.json
"$PYTHON" "$SUITE/schema_check.py" "$schemas/findings.json" wrong.json && exit 9
head -n 1 diff.ndjson
tail -n 1 check.ndjson
