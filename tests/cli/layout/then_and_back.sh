# Chains one after the other, and ways back, are chains.
loadplan layout gate_up_by_1 --then trtllm_rows_32 --shape M=96,K=3
loadplan layout gate_up_by_1 --then trtllm_rows_32 --shape M=96,K=3 --compare trtllm_gated_rows_32
loadplan layout scale_128x4 --shape 256,8 --inverse
loadplan layout --chain 'N K -> N K=5' --then 'N K -> K N' --shape 6,4 --format=json
loadplan layout scale_128x4 --shape 250,8 --inverse || echo "exit $?"
loadplan layout scale_128x4 --inverse || echo "exit $?"
loadplan layout scale_128x4 --then marlin_int4 --shape 256,8 || echo "exit $?"
loadplan layout scale_128x4 --then 'N K -> K N' --shape 256,8 || echo "exit $?"
loadplan layout scale_128x4 --then nothing --shape 256,8 || echo "exit $?"
loadplan layout mxfp4_l1_scale --then scale_128x4 || echo "exit $?"
loadplan layout scale_128x4 --then 'N K -> K N' || echo "exit $?"
