# Names that the trace cannot load are told with the loader's line, stop a replay, and are left out when that is asked.
. "$SUITE/../check/twin.bash"
write_good
weights ck
twin one '/^copy .*0.experts.1.w2/d; /^derive .*layers.0/d
s|^END.*|refuse "layers.0.experts.1.w2_input_scale" op="aten.max" reason="over a copy" at "loader.py":412\
END names=8 scopes=1 records=7 derives=1 refusals=1|'
loadplan replay one.lpt --checkpoint ck -o out || echo "exit $?"
test ! -e out
loadplan replay one.lpt --checkpoint ck -o out --allow-fallbacks -q
loadplan replay one.lpt --mode dummy -o dummy -q
ls out dummy
echo "--- what a fallback feeds is skipped"
twin fed '/^copy .*experts.1.w2/d
s#^END.*#refuse "layers.0.experts.1.w2_input_scale" -> "layers.0.scales" map=0>1|0+4:4 op="aten.item" reason="reads it"\
refuse "layers.1.experts.1.w2_input_scale" -> "layers.1.scales" map=0>1|0+4:4 op="aten.item" reason="reads it"\
END names=8 scopes=1 records=6 derives=2 refusals=2#'
loadplan replay fed.lpt --checkpoint ck -o fed --allow-fallbacks 2>&1 | sed 's/ in [0-9.]* s .*//'
loadplan verify fed.lpt --checkpoint ck --allow-fallbacks --against fed | sed 's/ in [0-9.]* s .*//'
echo "--- many of them are counted"
{
    echo "loadplan-trace 1000"
    echo "layout pp=1 dp=1 tp=1 ep=0"
    for i in $(seq 10 39); do echo "name \"n$i\" U8 [1]"; done
    echo "scope pp=0 dp=0 tp=0"
    for i in $(seq 10 39); do echo "refuse \"n$i\" op=\"aten.item\" reason=\"reads it\""; done
    echo "END names=30 scopes=1 records=0 derives=0 refusals=30"
} >many.txt
loadplan undump -q many.txt -o many.lpt
loadplan replay many.lpt --checkpoint many.lpt -o out 2>&1 | tail -n 4
