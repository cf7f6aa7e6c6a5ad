$PYTHON "$SUITE/make_dense.py" ck
loadplan record --checkpoint ck --loader dense --tp 2 -q -o x.lpt
loadplan replay x.lpt --checkpoint ck -o out --verify
ls out
loadplan verify x.lpt --checkpoint ck
loadplan verify x.lpt --checkpoint ck --rank 1 --against out
for mode in direct layerwise; do
    loadplan replay x.lpt --checkpoint ck -q -o "$mode" --mode "$mode" --staging 32KiB
    cmp out/rank-00001.safetensors "$mode/rank-00001.safetensors"
done
