. "$SUITE/twin.bash"
write_good
loadplan check good.lpt
loadplan check good.lpt --format=json
