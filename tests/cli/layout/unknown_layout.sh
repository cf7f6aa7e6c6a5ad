loadplan layout mxfp4 && exit 9
loadplan layout mxfp4_l1_weigth
