. "$SUITE/changed.bash"
twin holes '/^copy .*layers.[01].experts.1.up/d; s/records=8/records=6/'
loadplan check holes.lpt || echo "exit $?"
loadplan check holes.lpt --tensor 'layers.1.*' || echo "exit $?"
loadplan check holes.lpt --tensor 'layers.*.scales'
loadplan diff good.lpt pr.lpt --tensor '*l2_scale' || echo "exit $?"
loadplan diff good.lpt pr.lpt --tensor '*up'
