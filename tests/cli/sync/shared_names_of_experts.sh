# What ranks of divided experts share is a large part of a small model, and exchanged; of a larger one it is less than a
# twentieth, and read by both.
for experts in 8 64; do
    "$PYTHON" "$TESTS/cli/record/write_model.py" ck$experts --experts $experts
    loadplan record --checkpoint ck$experts --ep 2 --rank all -q -o $experts.lpt
    loadplan explain $experts.lpt --world | sed -n 2,4p
done
