# Codes and scales of tensors of their own become packets, and come back.
"$PYTHON" "$SUITE/make_parts.py" parts.safetensors 2
chain='N K(c w=4 | c s=1) -> N c (w | s)=8'
loadplan layout --chain "$chain" --apply parts.safetensors -o packets.safetensors
"$PYTHON" "$SUITE/make_parts.py" --show packets.safetensors
loadplan layout --chain "$chain" --apply packets.safetensors --inverse -o back.safetensors
"$PYTHON" "$SUITE/make_parts.py" --show back.safetensors
loadplan layout --chain 'N(r i=2) K(c w=4 | c s=1) -> r (c i w | c i s)' --apply parts.safetensors -o apart.safetensors
"$PYTHON" "$SUITE/make_parts.py" --show apart.safetensors
no() { if loadplan layout "$@"; then echo "done: $*"; else echo "exit $?" >&2; fi; }
no --chain 'N K(c w=4 | c s=2) -> N c (w | s)' --apply parts.safetensors -o x.safetensors
no --chain 'N K(a=4 | b=4 | c=7) -> N (a | b | c)' --apply parts.safetensors -o x.safetensors
no --chain 'N M K(c w=4 | c s=1) -> N M c (w | s)' --apply parts.safetensors -o x.safetensors
no --chain 'N(r | s=1) K=12 -> (r | s) K' --apply parts.safetensors -o x.safetensors
no --chain 'N K(c w=4 | c s=1) -> N c (s | w)=8' --apply packets.safetensors --inverse -o x.safetensors
no --chain "$chain" --unit 16 --apply parts.safetensors -o x.safetensors
part() { echo "{\"name\": \"$1\", \"dtype\": \"$2\", \"shape\": $3}"; }
for parts in x '[]' '[1, 2]' "[$(part codes U8 '[2, 12]')]" "[$(part codes U8 '[2, 12]'), $(part codes U8 '[2, 3]')]" \
    "[$(part codes U8 '[2, 12]'), $(part __metadata__ U8 '[2, 3]')]" "[$(part a U8 '[2, 12]'), $(part b X9 '[2, 3]')]" \
    "[$(part a U8 '[2, 12]'), $(part b U8 '[2, -3]')]" "[$(part a U8 '[2, 8]'), $(part b U8 '[2, 2]')]" \
    "[$(part a U8 '[4611686018427387904, 12]'), $(part b U8 '[4611686018427387904, 3]')]"; do
    "$PYTHON" "$SUITE/make_parts.py" --claim packets.safetensors "$parts"
    no --chain "$chain" --apply packets.safetensors --inverse -o x.safetensors
done
