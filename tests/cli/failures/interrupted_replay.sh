# An interrupt ends a replay like any program; rank files appear whole or not at all, and the next replay is not disturbed.
"$PYTHON" "$TESTS/cli/replay/make_dense.py" ckpt
loadplan record -q --checkpoint ckpt --loader dense --tp 2 -o x.lpt
loadplan replay -q x.lpt --checkpoint ckpt -o whole
for delay in 0.001 0.002 0.004 0.008 0.016 0.032; do
    code=0
    timeout -s INT "$delay" loadplan replay -q -f x.lpt --checkpoint ckpt -o out || code=$?
    case $code in 0 | 124 | 130) ;; *) echo "exit $code" ;; esac
    for file in out/*.safetensors; do
        test ! -e "$file" || cmp "$file" "whole/$(basename "$file")"
    done
done
loadplan replay -q -f x.lpt --checkpoint ckpt -o out
diff -r out whole
loadplan verify -q x.lpt --checkpoint ckpt >/dev/null
