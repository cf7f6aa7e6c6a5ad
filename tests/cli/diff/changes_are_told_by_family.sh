. "$SUITE/../check/twin.bash"
write_good
twin constant 's/0x3f800000/0x3f000000/'
loadplan diff good.lpt constant.lpt && exit 9
twin swap 's/^(copy .*experts.0.up.*)dst=0 /\1dst=99 /; s/^(copy .*experts.1.up.*)dst=16 /\1dst=0 /; s/dst=99/dst=16/'
loadplan diff good.lpt swap.lpt && exit 9
loadplan diff good.lpt swap.lpt --format=json --exit-zero
loadplan diff good.lpt good.lpt
