. "$SUITE/../check/twin.bash"
write_good
twin pr '/^copy .*w2_input_scale/d; /^derive/d; /^dest .*l2_scale/d
s|^END.*|refuse "layers.0.experts.0.w2_input_scale" -> "layers.0.scales" op="aten.max" reason="100% on the host, over a copy" at "model_loader/a,b.py":412\
END names=8 scopes=1 records=4 derives=0 refusals=1|'
loadplan diff good.lpt pr.lpt --format=github && exit 9
loadplan diff good.lpt good.lpt --format=github
loadplan check pr.lpt --format=github && exit 9
exit 0
