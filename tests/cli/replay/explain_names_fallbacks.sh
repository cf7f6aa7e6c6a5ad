. "$SUITE/../check/twin.bash"
write_good
twin pr '/^copy .*w2_input_scale/d; /^derive/d; /^dest .*l2_scale/d
s|^END.*|refuse "layers.0.experts.0.w2_input_scale" -> "layers.0.scales" op="aten.max" reason="over a copy" at "loader.py":412\
refuse "layers.0.experts.1.w2_input_scale" -> "layers.0.scales" op="aten.max" reason="over a copy" at "loader.py":412\
refuse "layers.1.experts.0.w2_input_scale" -> "layers.1.scales" op="aten.item" reason="reads a value"\
END names=8 scopes=1 records=4 derives=0 refusals=3|'
loadplan explain pr.lpt | grep -A 2 fallbacks
loadplan explain pr.lpt --format=json -o pr.json
"$PYTHON" "$SUITE/../findings/schema_check.py" "$TESTS/../docs/schemas/explain.json" pr.json
"$PYTHON" -c 'import json; print(*json.load(open("pr.json"))["ranks"][0]["fallback_families"], sep="\n")'
echo "--- names that share bytes keep their order"
twin ordered 's/^(copy .*experts.0.up" -> "layers.0.up" src=0 dst=0 map=16)/\1 seq=1/
s/^(copy .*experts.1.up" -> "layers.0.up" src=0 )dst=16 map=16/\1dst=8 map=16 seq=2/'
loadplan explain ordered.lpt | grep order
loadplan explain ordered.lpt --top 0 || echo "exit $?"
loadplan explain ordered.lpt -o ordered.lpt || echo "exit $?"
