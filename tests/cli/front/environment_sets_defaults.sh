# LOADPLAN_LOG and LOADPLAN_THREADS are what --log and --threads are where these are not given.
. "$SUITE/../check/twin.bash"
write_good
weights good
says() { "$@" 2>said || { echo "exit $?"; head -n 1 said; }; }
LOADPLAN_LOG=loud says loadplan info good.lpt
LOADPLAN_LOG=debug LOADPLAN_THREADS='' says loadplan info good.lpt >/dev/null
LOADPLAN_THREADS=many says loadplan replay good.lpt --checkpoint good --verify
LOADPLAN_THREADS=many says loadplan replay good.lpt --checkpoint good --verify -j 1 -q
LOADPLAN_THREADS=2 says loadplan replay good.lpt --checkpoint good --verify -q
LOADPLAN_THREADS=many says loadplan check good.lpt
says loadplan replay good.lpt --checkpoint good --verify -q -T0
says loadplan replay good.lpt --checkpoint good --verify -q -Tx
says loadplan check good.lpt -T0
LOADPLAN_THREADS=3 LOADPLAN_LOG=info loadplan doctor . | grep '^LOADPLAN_[LT]'
