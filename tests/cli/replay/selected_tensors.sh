$PYTHON "$SUITE/make_dense.py" ck
loadplan record --checkpoint ck --loader dense --tp 2 -q -o x.lpt
loadplan replay x.lpt --checkpoint ck --rank 0 -q -o all
loadplan replay x.lpt --checkpoint ck --rank 0 -v --tensor 'layers.1.*norm.weight' -o some
loadplan info some/rank-00000.safetensors --tensors | awk '/^ *layers.1/ { print $1, $2 }'
loadplan replay x.lpt --rank 0 -q --mode dummy -o dummy
loadplan info dummy/rank-00000.safetensors | head -n 1
loadplan dump x.lpt --ops 2 --no-provenance | grep ' -> ' | head -n 1 | cut -d' ' -f1-4
loadplan replay x.lpt --checkpoint ck --rank 0 -q --ops 2 -o rows
loadplan info rows/rank-00000.safetensors --tensors | awk '/^ *(layers|model|embed|lm)/ { print $1, $2 }'
loadplan replay x.lpt --checkpoint ck --rank 0 --ops 2 --tensor 'none.*' -o none || echo "exit $?"
test ! -e none
