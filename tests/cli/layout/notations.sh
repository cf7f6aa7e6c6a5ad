# Layouts of CuTe and Triton are read as they are, shown as chains, compared and drawn.
loadplan layout --chain 'Sw<3,4,3> o (8,128):(128,1)'
loadplan layout --chain '(8,32):(33,1)' --compare 'N=8 K=32 -> N K=33'
loadplan layout --chain '((32,4),4):((16,4),1)' --compare scale_128x4
loadplan layout --chain '((32,4),4):((16,4),1)' --compare scale_8x4 --shape 128,4 || echo "exit $?"
loadplan layout --chain 'register = [[0, 1], [0, 2]], lane = [[1, 0], [2, 1]]' --unit 16 --format=json
loadplan layout --chain '(4,4):(4,1) o (2,3):(3,1)' || echo "exit $?"
loadplan layout --chain '[[0, 1], [0, 1]]' || echo "exit $?"
loadplan layout --chain '(8,32):(33,1)' --format=svg -o room.svg && grep -c '<rect' room.svg
"$PYTHON" "$SUITE/make_order.py" rotated rotated 8 4
"$PYTHON" "$SUITE/make_order.py" padded padded 8 4
loadplan layout --identify padded --shape 8,4
loadplan layout --chain '(8,4):(5,1)' --identify padded
loadplan layout --chain 'N(r i=4) K=4 -> r (i K+i)' --identify rotated --shape 8,4
loadplan layout --chain ABcd16b16a2b --pad --shape A=20,B=40,C=3,D=3
loadplan layout onednn_OIhw16i16o2i --compare ABcd16b16a2b --shape 20,40,3,3
loadplan layout --chain 'bf16[70,1000]{1,0:T(8,128)(2,1)}' --compare tpu_8x128_16bit --unit 16 --shape 70,1000
loadplan layout scale_by_column_ue8m0 --then abc --shape 16,8 && loadplan layout scale_by_column_ue8m0 --then aB8b --shape 16,8 || echo "exit $?"
loadplan layout --chain ABc16b || echo "exit $?"
loadplan layout --chain '{1,0:T(8,128)(3,1)}' || echo "exit $?"
