loadplan layout mxfp4_l1_weight --shape 32x4096x2048
