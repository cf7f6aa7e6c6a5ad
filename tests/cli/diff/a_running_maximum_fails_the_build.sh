. "$SUITE/../check/twin.bash"
write_good
twin pr '/^copy .*w2_input_scale/d; /^derive/d; /^dest .*l2_scale/d
s|^END.*|refuse "layers.0.experts.0.w2_input_scale" -> "layers.0.scales" op="aten.max" reason="over a CPU copy" at "model_loader/experts.py":412\
refuse "layers.0.experts.1.w2_input_scale" -> "layers.0.scales" op="aten.max" reason="over a CPU copy" at "model_loader/experts.py":412\
refuse "layers.1.experts.0.w2_input_scale" -> "layers.1.scales" op="aten.max" reason="over a CPU copy" at "model_loader/experts.py":412\
refuse "layers.1.experts.1.w2_input_scale" -> "layers.1.scales" op="aten.max" reason="over a CPU copy" at "model_loader/experts.py":412\
END names=8 scopes=1 records=4 derives=0 refusals=4|'
loadplan diff good.lpt pr.lpt --rule dest_vanished=allow && exit 9
echo "exit $?"
loadplan diff good.lpt pr.lpt --rule dest_vanished=allow --rule copy_became_refusal=warn,map_changed=deny --numstat
loadplan diff --against pr.lpt good.lpt --rule dest_added=allow -v
