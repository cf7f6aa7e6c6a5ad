# What loads no bytes says no rate; options of a device mean nothing to a reload on the host.
$PYTHON "$SUITE/make_dense.py" ck
loadplan record --checkpoint ck --loader dense --tp 2 -q -o x.lpt
loadplan replay x.lpt --mode meta
loadplan replay x.lpt --mode dummy --rank 1 -o dummy
loadplan verify --sync x.lpt --checkpoint ck --rank 1 --spill 1MiB
for mode in direct layerwise; do
    CUDA_VISIBLE_DEVICES='' loadplan replay x.lpt --checkpoint ck --device cuda:0 --mode $mode 2>&1 | grep -o "cannot use device 'cuda:0':"
done
CUDA_VISIBLE_DEVICES='' loadplan verify --sync x.lpt --checkpoint ck --device cuda:0 2>err.txt || echo "exit $?"
