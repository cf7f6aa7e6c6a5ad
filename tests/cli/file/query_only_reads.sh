loadplan undump -q "$TESTS/fuzz/corpus/dump/small" -o a.lpt
cp a.lpt kept.lpt
for sql in "DELETE FROM v_records" "ATTACH 'other.db' AS o" "PRAGMA page_size" "SELECT * FROM members" "SELECT nam FROM v_records" \
    "SELECT 1; SELECT 2" "SELEKT" ""; do
    code=0
    loadplan query a.lpt "$sql" || code=$?
    echo "exit $code"
done
cmp a.lpt kept.lpt
ls
