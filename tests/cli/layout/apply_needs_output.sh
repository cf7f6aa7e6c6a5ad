loadplan layout mxfp4_l1_weight --apply x
