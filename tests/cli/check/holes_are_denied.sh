. "$SUITE/twin.bash"
write_good
twin bad 's/^(copy "layers.*experts.1.up".*)dst=16 map=16/\1dst=16 map=8/'
loadplan check bad.lpt && exit 9
echo "exit $?"
loadplan check bad.lpt --format=json && exit 9
loadplan check bad.lpt --exit-zero -o report.txt
loadplan check bad.lpt --fail-on=never > again.txt
cmp report.txt again.txt
loadplan check bad.lpt --rule dest_uncovered=warn
loadplan check bad.lpt --rule dest_uncovered=warn --fail-on=warn
