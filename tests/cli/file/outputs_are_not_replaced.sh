loadplan undump -q "$TESTS/fuzz/corpus/dump/small" -o a.lpt
cp a.lpt kept.lpt
for command in "undump $TESTS/fuzz/corpus/dump/everything -o a.lpt" "dump a.lpt -o a.lpt" "query a.lpt SELECT+1 -o a.lpt" \
    "undump $TESTS/fuzz/corpus/dump/small"; do
    code=0
    loadplan $command || code=$?
    echo "exit $code"
done
cmp a.lpt kept.lpt
ls
