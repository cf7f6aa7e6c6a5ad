# Words of 4-bit codes and padded scales to another order and back; files that do not fit.
make() { "$PYTHON" "$SUITE/make_tensors.py" "$@"; }
make q.safetensors U8 qweight:64x16
loadplan layout marlin_fp4 --apply q.safetensors -o m.safetensors
loadplan layout marlin_fp4 --apply m.safetensors --inverse -o q2.safetensors
cmp <(tail -c 1024 q.safetensors) <(tail -c 1024 q2.safetensors)
loadplan info m.safetensors
make s.safetensors U8 scale:130x5
loadplan layout scale_128x4 --apply s.safetensors -o t.safetensors -q
loadplan info t.safetensors
loadplan layout scale_128x4 --apply t.safetensors --inverse -o s2.safetensors -q
cmp <(tail -c 650 s.safetensors) <(tail -c 650 s2.safetensors)
loadplan layout scale_8x4 --apply t.safetensors --inverse -o x || echo "exit $?" >&2
loadplan layout scale_8x4 --apply s.safetensors --inverse -o x || echo "exit $?" >&2
loadplan layout scale_128x4 --no-pad --apply s.safetensors -o x || echo "exit $?" >&2
loadplan layout scale_128x4 --shape 130,6 --apply s.safetensors -o x || echo "exit $?" >&2
loadplan layout marlin_scale --apply s.safetensors -o x || echo "exit $?" >&2
make two.safetensors U8 a:4x4 b:4x4
loadplan layout scale_8x4 --apply two.safetensors -o x || echo "exit $?" >&2
make one.safetensors U8 a:16
loadplan layout scale_8x4 --apply one.safetensors -o x || echo "exit $?" >&2
make four.safetensors U8 a:2x2x8x4
loadplan layout scale_8x4 --apply four.safetensors -o x || echo "exit $?" >&2

# A stack of experts, and any shape for a chain of one dimension.
make stack.safetensors U8 scale:3x130x5
loadplan layout scale_128x4 --apply stack.safetensors -o stacked.safetensors -q
loadplan info stacked.safetensors
loadplan layout scale_128x4 --apply stacked.safetensors --inverse -o back.safetensors -q
cmp <(tail -c 1950 stack.safetensors) <(tail -c 1950 back.safetensors)
loadplan layout scale_128x4 --shape E=3,N=130,K=5 | grep -e source -e forward
make flat.safetensors U8 codes:3x4
loadplan layout high_nibble_first --apply flat.safetensors -o swapped.safetensors -q
tail -c 12 flat.safetensors | od -An -tx1
tail -c 12 swapped.safetensors | od -An -tx1
loadplan layout high_nibble_first --apply swapped.safetensors --inverse -o back.safetensors -q -f
loadplan info back.safetensors
cmp <(tail -c 12 flat.safetensors) <(tail -c 12 back.safetensors)

# Packets of a scale and codes, and bits.
make packets.safetensors U8 blocks:8x3x18
loadplan layout --chain 'N(r i=4) B P(d=2 | c=4 v=4) -> r B (i d | c i v)' --apply packets.safetensors -o fours.safetensors -q
loadplan info fours.safetensors
loadplan layout --chain 'N(r i=4) B P(d=2 | c=4 v=4) -> r B (i d | c i v)' --apply fours.safetensors --inverse -o back2.safetensors -q
cmp <(tail -c 432 packets.safetensors) <(tail -c 432 back2.safetensors)
loadplan layout --chain 'C(b h=8) -> b ~h' --unit 1 --apply flat.safetensors -o bits.safetensors -q
tail -c 12 bits.safetensors | od -An -tx1
loadplan layout --chain 'C(b h=3) -> b ~h' --unit 1 --apply flat.safetensors -o bits.safetensors -f || echo "exit $?" >&2

# Blocks in a tensor of bytes of another shape, which --shape gives; the way back knows it, and open extents too.
make blocks.safetensors U8 blocks:8x102
loadplan layout gguf_q8_0_4x4 --apply blocks.safetensors -o x || echo "exit $?" >&2
loadplan layout gguf_q8_0_4x4 --shape N=8,B=4,P=34 --apply blocks.safetensors -o x || echo "exit $?" >&2
loadplan layout gguf_q8_0_4x4 --shape N=8,B=3,P=34 --apply blocks.safetensors -o repacked.safetensors -q
loadplan info repacked.safetensors
loadplan layout gguf_q8_0_4x4 --apply repacked.safetensors --inverse -o back3.safetensors -q
cmp <(tail -c 816 blocks.safetensors) <(tail -c 816 back3.safetensors)
make qkv.safetensors U8 rows:36x5
loadplan layout qkv_groups --unit 8 --apply qkv.safetensors -o x || echo "exit $?" >&2
loadplan layout qkv_groups --unit 8 --shape R=36,K=5,n=4,d=2 --apply qkv.safetensors -o groups.safetensors -q
loadplan layout qkv_groups --unit 8 --apply groups.safetensors --inverse -o back4.safetensors -q
cmp <(tail -c 180 qkv.safetensors) <(tail -c 180 back4.safetensors)
test ! -e x
