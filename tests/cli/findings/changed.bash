# Two traces to compare: good.lpt, and pr.lpt with a refusal of a hostile wording and two destinations less.
. "$SUITE/../check/twin.bash"
write_good
twin pr '/^copy .*w2_input_scale/d; /^derive/d; /^dest .*l2_scale/d
s|^END.*|refuse "layers.0.experts.0.w2_input_scale" -> "layers.0.scales" op="aten.max" reason="<b> \& ]]> \\u0001 100% \\"x\\"" at "loaders/a b,c.py":412\
END names=8 scopes=1 records=4 derives=0 refusals=1|'
