# Chains of public kernels, and one that has no name.
loadplan layout marlin_int4
loadplan layout scale_128x4 --shape N=130,K=5
loadplan layout rope_pairs_to_halves --shape K=64,h=32,N=4096
loadplan layout --chain 'N(b h=2) K -> ~h b K' --unit 16 --shape 8x4
loadplan layout scale_utccp --shape 256,8 --format=json
