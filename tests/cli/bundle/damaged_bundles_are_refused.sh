"$PYTHON" "$SUITE/../record/write_model.py" ckpt
loadplan info -q ckpt --save-headers good
"$PYTHON" - <<'PYTHON'
good = open("good", "rb").read()
open("cut_head", "wb").write(good[:18])
open("cut_frame", "wb").write(good[:-7])
open("newer", "wb").write(good[:16] + b"\x02\0\0\0" + good[20:])
# A length that no machine has: refused by the limit, before anything is allocated.
open("bomb", "wb").write(good[:20] + b"\xff\xff\xff\xff\xff\x7f" + good[22:])
damaged = bytearray(good)
damaged[len(good) // 2] ^= 1
open("bit", "wb").write(damaged)
PYTHON
for file in cut_head cut_frame newer bomb bit; do
    loadplan info $file && echo "$file was taken"
done
loadplan record --checkpoint bit -o x.lpt || echo "exit $?"
