# A permutation that a transform made of 0, 1, 2, ...: its chain, and whether a chain is it.
for kind in tiles bytes swizzle rotated listed packets flipped added negative; do "$PYTHON" "$SUITE/make_order.py" $kind $kind; done
loadplan layout --identify tiles --shape 384,12
loadplan layout --identify bytes --shape N=384,K=12 --format=json
loadplan layout --identify tiles --shape 4608
loadplan layout scale_128x4 --identify bytes --shape 384,12
loadplan layout --chain 'N(r a=4 i=32) K(c k=4) -> c r (i a k)' --identify tiles --shape 384,12 || echo "exit $?"
loadplan layout scale_128x4 --identify tiles --shape 256,12 || echo "exit $?"
loadplan layout --identify swizzle --shape 384,12
loadplan layout --chain 'N(r i=4) K(c k=4) -> r i c k^i' --identify swizzle --shape 384,12
loadplan layout --identify listed --shape 384,12
loadplan layout --identify packets --shape 384,12
loadplan layout --identify rotated --shape 384,12 || echo "exit $?"
loadplan layout --identify flipped --shape 384,12 || echo "exit $?"
loadplan layout --identify added --shape 384,12 || echo "exit $?"
loadplan layout --identify negative --shape 384,12 || echo "exit $?"
loadplan layout --identify tiles --shape 384,13 || echo "exit $?"

# Two chains at one shape.
loadplan layout scale_128x4 --compare scale_blackwell_triton --shape 256,8
loadplan layout scale_128x4 --compare scale_blackwell_triton --shape 256,4 || echo "exit $?"
loadplan layout scale_128x4 --compare 'N(r a=4 i=32) K(c k=4) -> c r (i a k)' --shape 256,8 || echo "exit $?"
loadplan layout scale_128x4 --compare scale_8x4 --shape 128,8 --format=json || echo "exit $?"
loadplan layout awq_gemv_fast --compare 'N(n c=4) K(s t=2 y=4 x=4 z=2) -> n s (c t x z y)' --shape 8,128 || echo "exit $?"
loadplan layout --chain 'N K -> K N' --compare 'N(a b=64) K -> K a b' --shape N=33554432,K=33554432
loadplan layout --chain 'B J -> B J~B' --compare 'B J(j=3 k) -> B j~B k~B' --shape B=2,J=805306368 || echo "exit $?"
# Two blocks of rows, or halves: three blocks tell.
"$PYTHON" "$SUITE/make_order.py" few listed 12 5
loadplan layout --identify few --shape 12,5
loadplan layout --identify few --shape 12,5 --format=json
"$PYTHON" "$SUITE/make_order.py" more listed 18 5
loadplan layout --identify more --shape 18,5
# Dimensions of another name are taken by their place, axes by their name, stacks as such.
loadplan layout tpu_8x128_16bit --compare '{1,0:T(8,128)(2,1)}' --shape C=1000,R=70
loadplan layout rope_pairs_to_halves --compare 'A(h d p=2) B -> (h p d) B' --shape N=48,K=5,h=3
loadplan layout scale_128x4 --compare scale_blackwell_triton --shape E=3,N=256,K=8
