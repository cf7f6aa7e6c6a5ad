# Fills at the beginning come before every copy, but two of them that write the same byte are two writers, with numbers or not.
. "$SUITE/twin.bash"
write_good
weights good
judge() {
    twin "$1" "s#^copy \"layers.0.experts.0.up\".*#fill begin -> \"layers.0.up\" $2\\
fill begin -> \"layers.0.up\" $3#
s/records=8/records=9/"
    loadplan check "$1.lpt" || echo "exit $?"
    loadplan replay -q "$1.lpt" --checkpoint good --verify || echo "exit $?"
}
judge both 'value=0x0 dst=4 map=0>1|12' 'value=0x11 dst=0 map=0>1|8'
judge numbered 'value=0x0 dst=4 map=0>1|12 seq=1' 'value=0x11 dst=0 map=0>1|8 seq=2'
judge shifted 'value=0x1234 dst=0 map=0>2|12' 'value=0x1234 dst=11 map=0>2|4'
judge equal 'value=0x0 dst=4 map=0>1|12' 'value=0x0 dst=0 map=0>1|8'
judge apart 'value=0x0 dst=4 map=0>1|12' 'value=0x11 dst=0 map=0>1|4'
