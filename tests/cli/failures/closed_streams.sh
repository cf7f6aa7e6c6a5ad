# A stream that is closed is not the next file: nothing that is printed gets into it, and a lost result is told.
"$PYTHON" "$TESTS/cli/replay/make_dense.py" ckpt
loadplan record -q --checkpoint ckpt --loader dense --tp 2 -o x.lpt
loadplan replay -q x.lpt --checkpoint ckpt -o whole
loadplan replay x.lpt --checkpoint ckpt -o out --progress --log=debug <&- >&- 2>&-
diff -r out whole
code=0
loadplan dump x.lpt 2>said >&- || code=$?
echo "exit $code: $(cat said)"
