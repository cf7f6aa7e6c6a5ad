text=$TESTS/fuzz/corpus/dump/everything
loadplan undump "$text" -o a.lpt
loadplan dump a.lpt | cmp - "$text"
loadplan dump a.lpt -o a.txt
loadplan undump -q a.txt -o b.lpt
cmp a.lpt b.lpt
loadplan dump --no-provenance a.lpt > bare.txt
! grep -q 'loader\.py' bare.txt
loadplan diff a.lpt b.lpt
