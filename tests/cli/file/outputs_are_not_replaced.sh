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
# Devices and pipes are no files to be replaced: text goes into them, traces are refused.
ln -s /dev/null device
mkfifo pipe
mkdir folder
loadplan dump a.lpt -o device
loadplan dump a.lpt -f -o device
cat pipe >through &
loadplan dump a.lpt -o pipe
wait
loadplan dump a.lpt | cmp - through
for place in device pipe folder; do
    loadplan undump -f "$TESTS/fuzz/corpus/dump/small" -o $place || echo "exit $?"
done
loadplan dump -f a.lpt -o folder || echo "exit $?"
test -L device && test -p pipe && test -d folder
