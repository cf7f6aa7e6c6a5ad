"$PYTHON" "$SUITE/write_model.py" ckpt
loadplan record --checkpoint ckpt --loader auto --tp 2 --rank all -o two.lpt
loadplan check two.lpt
loadplan record --checkpoint ckpt --tp 2 -o again.lpt -q
cmp two.lpt again.lpt
echo "--- one rank"
loadplan record --checkpoint ckpt --tp 2 --rank 1 -o one.lpt
echo "--- the trace carries catalogue and configuration"
rm -r ckpt
loadplan record --checkpoint two.lpt --tp 2 -o from_trace.lpt -q
loadplan diff two.lpt from_trace.lpt
