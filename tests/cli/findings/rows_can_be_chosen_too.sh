. "$SUITE/changed.bash"
loadplan dump good.lpt --ops 0-2 --no-provenance | cut -d' ' -f1-4
echo "--- what the first rows of the change speak of"
loadplan diff good.lpt pr.lpt --stat --exit-zero
loadplan diff good.lpt pr.lpt --ops 4 --stat --exit-zero
loadplan diff good.lpt pr.lpt --ops 4 --tensor '*.none' || echo "exit $?"
printf "0\n4\n" > rows
loadplan diff good.lpt pr.lpt --ops @rows --name-only || echo "exit $?"
twin holes '/^copy .*layers.[01].experts.1.up/d; s/records=8/records=6/'
loadplan check holes.lpt --ops 0 || echo "exit $?"
loadplan check holes.lpt --ops 100000-200000 || echo "exit $?"
loadplan check holes.lpt --ops 3-1 || echo "exit $?"
