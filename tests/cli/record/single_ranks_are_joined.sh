# Ranks that were recorded one by one, joined, are the file that one recording of all of them writes.
"$PYTHON" "$SUITE/write_model.py" ck
for rank in 0 1; do
    loadplan record --checkpoint ck --tp 2 --rank $rank -q -o rank-$rank.lpt
done
loadplan record --checkpoint ck --tp 2 --rank all -q -o all.lpt
loadplan join rank-1.lpt rank-0.lpt -o joined.lpt
cmp joined.lpt all.lpt
loadplan join rank-1.lpt -o one.lpt
cmp one.lpt rank-1.lpt

# Nothing is written of what does not belong together.
loadplan record --checkpoint ck --tp 4 --rank 1 -q -o four.lpt
"$PYTHON" "$SUITE/write_model.py" ck2 --experts 8
loadplan record --checkpoint ck2 --ep 4 --rank 1 -q -o experts.lpt
for with in "rank-1.lpt one.lpt" four.lpt experts.lpt missing.lpt; do
    loadplan join rank-0.lpt $with -o wrong.lpt || echo "exit $?"
done
loadplan join rank-0.lpt || echo "exit $?"
loadplan join rank-0.lpt -o rank-0.lpt || echo "exit $?"
test ! -e wrong.lpt
