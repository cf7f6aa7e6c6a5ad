$PYTHON "$SUITE/make_dense.py" ck
loadplan record --checkpoint ck --loader dense --tp 2 -q -o x.lpt
loadplan replay x.lpt --checkpoint ck -q -o out
$PYTHON "$SUITE/swap_rows.py" ck/model.safetensors model.layers.1.mlp.up_proj.weight
loadplan verify x.lpt --checkpoint ck --rank 0 --against out || echo "exit $?"
loadplan verify x.lpt --checkpoint ck
