# A GPU that is there is hidden. One line, and exit code 4.
$PYTHON "$SUITE/make_dense.py" ck
loadplan record --checkpoint ck --loader dense --tp 2 --rank 1 -q -o x.lpt
CUDA_VISIBLE_DEVICES='' loadplan replay x.lpt --checkpoint ck --device cuda:0 --verify
