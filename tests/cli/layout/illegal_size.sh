loadplan layout mxfp4_l1_weight --shape E=128,H=3072,I=2880
