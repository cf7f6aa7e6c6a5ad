"$PYTHON" "$SUITE/write_model.py" ckpt --extra model.draft.0 --extra model.draft.1 --extra zeta --extra zulu
loadplan record --checkpoint ckpt -o x.lpt && exit 99 || test $? = 3
loadplan record --checkpoint ckpt -o x.lpt --rest=copy
loadplan record --checkpoint ckpt -o y.lpt --rest=decline
ls
