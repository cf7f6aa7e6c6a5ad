. "$SUITE/../check/twin.bash"
write_good
echo "--- by name: what reads it, what it is"
loadplan dump good.lpt --tensor 'layers.1.experts.0.*'
echo "--- by destination"
loadplan dump good.lpt --tensor '*.l2_scale' | cut -c1-60
echo "--- by number"
loadplan dump good.lpt --ops 0-7/3 --no-provenance
printf '1\n2, 9\n' > rows
loadplan dump good.lpt --ops @rows --tensor '*.up'
loadplan dump good.lpt --ops 8- || echo "exit $?"
loadplan dump good.lpt --ops 5-3 || echo "exit $?"
loadplan dump good.lpt --ops @missing || echo "exit $?"
