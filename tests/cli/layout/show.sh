loadplan layout nvfp4_l1_scale --shape E=32,H=4096,I=2048
loadplan layout mxfp8_shared_l2_scale --shape I=512,H=1024
loadplan layout bf16_trt_l2_weight
