# Each says what is wrong and where.
no() { if loadplan layout "$@"; then echo "done: $*"; else echo "exit $?" >&2; fi; }
no --chain 'N(r a=4) -> r b'
no --chain 'N(r a) -> r a' --shape 8
no --chain 'N K' --shape 8,8
no --chain 'N(a | b=2) -> (a | b)' --shape 2
no --chain 'N(a | b=2) K -> (a K | b)' --shape 8,8
no --chain 'N(r a=4) K=8 -> r a^K K' --shape 8,8
no ascend_nz_8bit --no-pad --shape 17,32
no marlin_scale --shape G=3,N=63
no marlin_scale --shape N=64
no scale_128x4 --shape 1,2,3
no scale_128x4 --shape N=1,Q=2
no scale_128x4 --shape 1,
no scale_128x4 --unit 12
no scale_128x4 --chain 'a -> a'
no scale_128x4 --format=svg --compare scale_8x4 --shape 8,8
no --format=svg
no scale_128x5
no bf16_l1_weight --identify x
no --identify x
no --identify x --shape 4,4
no scale_128x4 --compare scale_8x4
no scale_128x4 --compare scale_128 --shape 256,8
no scale_128x4 --compare marlin_scale --shape 256,8
no scale_128x4 --compare gptq_int8 --shape 256,9
no scale_128x4 --compare paged_key_16bit --shape 256,8
no bf16_l1_weight --compare scale_8x4
no --compare scale_8x4
no marlin
no swizzle_
no 'N K -> K N' --shape 8,8
no scale_128x5 --compare scale_8x4 --shape 8,8
no --chain 'N(a | b=2) -> (a | b)' --shape 1
no --chain 'N K -> K, N' --shape 8,8
no --chain 'N K -> K' --shape 8,8
no scale_128x4 --compare 'a b c -> a b c' --shape 256,8
