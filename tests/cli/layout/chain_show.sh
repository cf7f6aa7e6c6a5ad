# Chains of public kernels, and one that has no name.
loadplan layout marlin_int4
loadplan layout scale_128x4 --shape N=130,K=5
loadplan layout rope_pairs_to_halves --shape K=64,h=32,N=4096
loadplan layout --chain 'N(b h=2) K -> ~h b K' --unit 16 --shape 8x4
loadplan layout scale_utccp --shape 256,8 --format=json

# Swizzles, and packets cut by bars.
loadplan layout --chain 'N(r a=8) K(b c=8 v=16) -> b r (a c^a v)' --shape N=24,K=256
loadplan layout --chain 'N(r i=4) B P(d=2 | q=16) -> r B (i d | i q)' --shape N=8,B=3,P=18
loadplan layout --chain 'N(b s=8) -> b s[0 2 4 6 1 3 5 7]' --unit 4 --shape 32
loadplan layout --chain 'R(g n=4 d=128 | g d | g d) K -> g (n d | d | d) K' --unit 16 --shape R=6144,K=5 --format=json
