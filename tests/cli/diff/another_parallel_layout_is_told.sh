# Equal ranks of another layout: no finding, but the set digests differ, and the first line says why.
loadplan undump -q "$TESTS/fuzz/corpus/dump/small" -o a.lpt
loadplan dump a.lpt | sed 's/^layout pp=1 dp=1/layout pp=1 dp=2/' >b.txt
loadplan undump -q b.txt -o b.lpt
loadplan diff a.lpt b.lpt
loadplan diff b.lpt a.lpt
loadplan diff a.lpt a.lpt
